package openaitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// Deployment is one of Azure's.
type Deployment struct {
	Name, Model, State, SKU string
	Capacity                int

	created int // by the number of the call
}

// Deployments lists those that exist, in the order of their creation.
func (s *Service) Deployments() []Deployment {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Deployment, len(s.deployments))
	for i, d := range s.deployments {
		out[i] = *d
	}
	return out
}

func (d *Deployment) json() any {
	return map[string]any{
		"name":       d.Name,
		"properties": map[string]any{"provisioningState": d.State, "model": map[string]any{"name": d.Model, "version": "1", "format": "OpenAI"}},
		"systemData": map[string]any{"createdAt": fmt.Sprintf("2025-01-01T00:00:00.%06dZ", d.created)},
	}
}

func (s *Service) deployment(r *http.Request) *Deployment {
	for _, d := range s.deployments {
		if d.Name == r.PathValue("name") {
			return d
		}
	}
	return nil
}

func (s *Service) listDeployments(w http.ResponseWriter, _ *http.Request) {
	value := []any{}
	for _, d := range s.deployments {
		value = append(value, d.json())
	}
	answer(w, http.StatusOK, map[string]any{"value": value})
}

func (s *Service) getDeployment(w http.ResponseWriter, r *http.Request) {
	d := s.deployment(r)
	if d == nil {
		Refuse(w, http.StatusNotFound, "DeploymentNotFound", "The deployment does not exist.")
		return
	}
	shown := d.json()
	d.State = "Succeeded"
	answer(w, http.StatusOK, shown)
}

func (s *Service) putDeployment(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		SKU struct {
			Name     string `json:"name"`
			Capacity int    `json:"capacity"`
		} `json:"sku"`
		Properties struct {
			Model struct {
				Name string `json:"name"`
			} `json:"model"`
		} `json:"properties"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || s.models[asked.Properties.Model.Name] == nil {
		Refuse(w, http.StatusBadRequest, "DeploymentModelNotSupported", "The model '"+asked.Properties.Model.Name+"' is not known.")
		return
	}
	d, status := s.deployment(r), http.StatusOK
	if d == nil {
		d, status = &Deployment{Name: r.PathValue("name"), created: s.calls}, http.StatusCreated
		s.deployments = append(s.deployments, d)
	}
	d.Model, d.State, d.SKU, d.Capacity = asked.Properties.Model.Name, "Creating", asked.SKU.Name, asked.SKU.Capacity
	answer(w, status, d.json())
}

func (s *Service) deleteDeployment(w http.ResponseWriter, r *http.Request) {
	d := s.deployment(r)
	if d == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s.deployments = slices.DeleteFunc(s.deployments, func(x *Deployment) bool { return x == d })
	w.WriteHeader(http.StatusAccepted)
}
