package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	agl "agentlightning"
)

// maxAnswer is how much of an answer is read.
const maxAnswer = 4 << 20

type answer struct {
	status int
	header http.Header
	body   []byte
}

// get asks once. By the way it compares the clocks.
func (e *examination) get(ctx context.Context, url, token string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := e.HTTP.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return answer{}, err
	}
	e.compare(req.URL.Host, res.Header.Get("Date"))
	return answer{res.StatusCode, res.Header, body}, nil
}

// maxSkew is by how much clocks may differ: the header counts in seconds, and
// the answer was on its way.
const maxSkew = 5 * time.Second

func (e *examination) compare(host, date string) {
	there, err := http.ParseTime(date)
	if err != nil {
		return
	}
	here := e.Now()
	if d := here.Sub(there); d.Abs() > maxSkew {
		e.skewed = append(e.skewed, fmt.Sprintf("it is %s here and %s at %s", here.UTC().Format(time.DateTime), there.Format(time.DateTime), host))
	}
}

// models asks the backends of the command line and those of the running server.
func (e *examination) models(ctx context.Context) {
	const name = "models"
	all := slices.Clone(e.Models)
	if e.up {
		res, err := e.get(ctx, e.Scheme+"://"+e.address()+"/v1/agl/models?keys=true", e.Token)
		var registered []agl.Model
		if err == nil && res.status == http.StatusOK && json.Unmarshal(res.body, &registered) == nil {
			for _, m := range registered {
				if !slices.ContainsFunc(all, func(o agl.Model) bool { return o.Name == m.Name && o.Endpoint == m.Endpoint }) {
					all = append(all, m)
				}
			}
		}
	}
	if len(all) == 0 {
		e.say(Good, name, "", "none is named; agents that call models need one, as in --model NAME=BASE_URL")
	}
	for _, m := range all {
		e.model(ctx, m)
	}
}

// AskModels asks model backends whether they are there and have the model.
func AskModels(ctx context.Context, models []agl.Model) []Finding {
	e := &examination{Config: Config{HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Now: time.Now}}
	for _, m := range models {
		e.model(ctx, m)
	}
	return e.found
}

func (e *examination) model(ctx context.Context, m agl.Model) {
	name := "model " + m.Name
	if kind := m.Speaks(); kind == agl.BackendAzure || kind == agl.BackendAnthropic {
		e.say(Good, name, "", "%s is not asked: what %s lists are not models by these names", m.Endpoint, kind)
		return
	}
	url := strings.TrimSuffix(m.Endpoint, "/") + "/models"
	res, err := e.get(ctx, url, m.APIKey)
	switch {
	case err != nil:
		e.say(Bad, name, "start the backend, or correct its address; it ends with /v1 as a rule", "%s cannot be reached: %v", m.Endpoint, err)
		return
	case res.status == http.StatusUnauthorized, res.status == http.StatusForbidden:
		e.say(Bad, name, "give the backend's key when it is registered (api_key)", "%s asks for another key (status %d)", m.Endpoint, res.status)
		return
	case res.status == http.StatusNotFound:
		e.say(Warn, name, "check the address: it ends with /v1 as a rule", "%s answers, but has no list of models", m.Endpoint)
		return
	case res.status != http.StatusOK:
		e.say(Bad, name, "look at the backend's log", "%s answers %d", m.Endpoint, res.status)
		return
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(res.body, &list); err != nil {
		e.say(Warn, name, "check the address: it ends with /v1 as a rule", "%s does not answer in the shape of OpenAI: %v", m.Endpoint, err)
		return
	}
	want := m.Name
	if m.Target != "" {
		want = m.Target
	}
	var ids []string
	for _, d := range list.Data {
		ids = append(ids, d.ID)
	}
	if !slices.Contains(ids, want) {
		e.say(Warn, name, "name the model as the backend does, or register it with that name as its target",
			"%s does not list %s; it lists %s", m.Endpoint, want, strings.Join(ids, ", "))
		return
	}
	e.say(Good, name, "", "%s serves it", m.Endpoint)
}
