package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"

	"agentlightning/learner"
)

// managementVersion is the version of the management service's protocol.
const managementVersion = "2025-06-01"

// deployment is one as the management service shows it.
type deployment struct {
	Name       string `json:"name"`
	Properties struct {
		State string `json:"provisioningState"`
		Model struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"model"`
	} `json:"properties"`
	System struct {
		CreatedAt string `json:"createdAt"`
	} `json:"systemData"`
}

// deploy makes a model callable and returns the name of its deployment. The name
// follows from the key of the work, so that doing it again changes nothing.
func (t *Tuner) deploy(ctx context.Context, model, key string, report func(learner.TuningProgress)) (string, error) {
	a := t.cfg.Azure
	name := a.Deployment + "-" + key[:12]
	if err := t.makeRoom(ctx, name); err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]any{
		"sku":        map[string]any{"name": a.SKU, "capacity": a.Capacity},
		"properties": map[string]any{"model": map[string]any{"format": "OpenAI", "name": model, "version": "1"}},
	})
	if err != nil {
		return "", err
	}
	if err := t.manage(ctx, "create the deployment", http.MethodPut, "/"+url.PathEscape(name), body, nil); err != nil {
		return "", err
	}
	state := ""
	for began := time.Now(); ; {
		var d deployment
		if err := t.manage(ctx, "look at the deployment", http.MethodGet, "/"+url.PathEscape(name), nil, &d); err != nil {
			return "", err
		}
		if d.Properties.State != state {
			state = d.Properties.State
			report(learner.TuningProgress{Status: "deploying", Message: "deployment " + name + " is " + state})
			t.cfg.Logger.InfoContext(ctx, "deployment", "deployment", name, "state", state)
		}
		switch state {
		case "Succeeded":
			if got := d.Properties.Model.Name; got == model {
				return name, nil
			}
		case "Failed", "Canceled", "Cancelled", "Disabled":
			return "", fmt.Errorf("deployment %s is %s", name, state)
		}
		if time.Since(began) > t.cfg.Limit {
			return "", fmt.Errorf("deployment %s is %s after %v (Limit)", name, state, t.cfg.Limit)
		}
		if err := pause(ctx, t.cfg.PollEvery); err != nil {
			return "", err
		}
	}
}

// makeRoom deletes the oldest deployments of ours until one more may exist.
func (t *Tuner) makeRoom(ctx context.Context, name string) error {
	var ours []deployment
	for next := ""; ; {
		var list struct {
			Value []deployment `json:"value"`
			Next  string       `json:"nextLink"`
		}
		if err := t.manage(ctx, "list the deployments", http.MethodGet, next, nil, &list); err != nil {
			return err
		}
		for _, d := range list.Value {
			switch {
			case d.Name == name: // it is there already
				return nil
			case strings.HasPrefix(d.Name, t.cfg.Azure.Deployment+"-"):
				ours = append(ours, d)
			}
		}
		if next = list.Next; next == "" {
			break
		}
	}
	slices.SortStableFunc(ours, func(a, b deployment) int { return cmp.Compare(a.System.CreatedAt, b.System.CreatedAt) })
	for len(ours) > 0 && len(ours) >= t.cfg.Azure.MaxDeployments {
		t.cfg.Logger.InfoContext(ctx, "deployment deleted to make room", "deployment", ours[0].Name, "max_deployments", t.cfg.Azure.MaxDeployments)
		err := t.manage(ctx, "delete the deployment "+ours[0].Name, http.MethodDelete, "/"+url.PathEscape(ours[0].Name), nil, nil)
		if gone, ok := errors.AsType[*ServiceError](err); err != nil && !(ok && gone.Status == http.StatusNotFound) {
			return err
		}
		ours = ours[1:]
	}
	return nil
}

// largestAnswer bounds an answer of the management service, in bytes.
const largestAnswer = 8 << 20

// manage makes one call of the management service. at is a path below the
// deployments of the resource, or a whole address that the service gave.
func (t *Tuner) manage(ctx context.Context, what, method, at string, body []byte, out any) error {
	a := t.cfg.Azure
	address := at
	if !strings.HasPrefix(at, "http") {
		address = a.ManagementURL + "/subscriptions/" + url.PathEscape(a.Subscription) + "/resourceGroups/" + url.PathEscape(a.ResourceGroup) +
			"/providers/Microsoft.CognitiveServices/accounts/" + url.PathEscape(a.Account) + "/deployments" + at + "?api-version=" + managementVersion
	} else if !strings.HasPrefix(at, a.ManagementURL+"/") {
		return fmt.Errorf("%s: the service refers to %s, which is not at %s: the token is not sent there", what, at, a.ManagementURL)
	}
	return t.try(ctx, what, func(ctx context.Context) error {
		token, err := t.managementToken(ctx)
		if err != nil {
			return &openai.Error{StatusCode: http.StatusUnauthorized, Message: err.Error()}
		}
		ctx, done := context.WithTimeout(ctx, t.cfg.RequestTimeout)
		defer done()
		req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := t.cfg.Client.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer))
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if resp.StatusCode >= http.StatusBadRequest {
			failed := &openai.Error{StatusCode: resp.StatusCode, Response: resp, Request: req}
			var said struct {
				Error struct {
					Code    string `json:"code"`
					Message string `json:"message"`
				} `json:"error"`
			}
			if json.Unmarshal(text, &said) == nil {
				failed.Code, failed.Message = said.Error.Code, said.Error.Message
			}
			return failed
		}
		if out == nil {
			return nil
		}
		return json.Unmarshal(text, out)
	})
}

// managementToken returns a token of the management service.
func (t *Tuner) managementToken(ctx context.Context) (string, error) {
	a := t.cfg.Azure
	if a.Token != nil {
		return a.Token(ctx)
	}
	if a.TokenEnv != "" {
		token, ok := t.cfg.LookupEnv(a.TokenEnv)
		if !ok || token == "" {
			return "", fmt.Errorf("%w: set %s to a token of the management service", ErrNoKey, a.TokenEnv)
		}
		return token, nil
	}
	out, err := exec.CommandContext(ctx, "az", "account", "get-access-token",
		"--resource", "https://management.azure.com/", "--query", "accessToken", "--output", "tsv").Output()
	if err != nil {
		return "", fmt.Errorf("a token of the management service: az account get-access-token: %w; log in with 'az login', or name a variable as token_env", err)
	}
	return strings.TrimSpace(string(out)), nil
}
