// Package openaitest is a fine-tuning service for tests and examples. It speaks
// as OpenAI's and Azure's do: files, jobs that are validated, queued and run one
// look after the other, events, chat completions of what was made, and Azure's
// deployments. It trains nothing by itself: what a model answers is what the
// functions it is given make of the training file. It can be told to fail.
package openaitest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Message is one of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Model answers a conversation.
type Model func(messages []Message) string

// Config says what the service is like.
type Config struct {
	// Key is the API key that calls must carry; empty asks for none.
	Key string
	// Base are the models that it begins with.
	Base map[string]Model
	// Train makes a model of conversations; nil makes one that answers ok. Its
	// error fails the job with code invalid_training_file.
	Train func(base string, conversations [][]Message, epochs int) (Model, error)
	// Looks is how often a job has to be looked at in each of its states before
	// the next; 0 means 1.
	Looks int
	// Fault is asked before each call and may answer it by itself, which it says
	// by true; nil never does. Called one at a time.
	Fault func(w http.ResponseWriter, r *http.Request) bool
}

// Job is what the service knows of a job.
type Job struct {
	ID, Model, Suffix, Status string
	Tuned                     string // the new model; empty before
	Request                   json.RawMessage
	Training                  []byte
	TrainedTokens             int64

	metadata     map[string]string
	file         string
	message      string // of the failure
	code, param  string
	looks        int
	events       []event
	seed, epochs int64
}

type event struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created_at"`
	Level   string             `json:"level"`
	Message string             `json:"message"`
	Type    string             `json:"type"`
	Data    map[string]float64 `json:"data,omitempty"`
}

type file struct {
	id, name string
	text     []byte
	looks    int
}

// Service is an [http.Handler] for the base URLs /v1 (OpenAI), /openai (Azure) and
// /subscriptions (Azure's management). It is safe for concurrent use.
type Service struct {
	cfg Config
	mux *http.ServeMux

	mu          sync.Mutex
	models      map[string]Model
	files       []*file
	jobs        []*Job
	deployments []*Deployment
	calls       int
}

// New returns a service.
func New(c Config) *Service {
	if c.Looks == 0 {
		c.Looks = 1
	}
	if c.Train == nil {
		c.Train = func(string, [][]Message, int) (Model, error) {
			return func([]Message) string { return "ok" }, nil
		}
	}
	s := &Service{cfg: c, mux: http.NewServeMux(), models: map[string]Model{}}
	maps.Copy(s.models, c.Base)
	for _, base := range []string{"/v1", "/openai"} {
		s.mux.HandleFunc("POST "+base+"/files", s.upload)
		s.mux.HandleFunc("GET "+base+"/files", s.listFiles)
		s.mux.HandleFunc("GET "+base+"/files/{id}", s.getFile)
		s.mux.HandleFunc("POST "+base+"/fine_tuning/jobs", s.create)
		s.mux.HandleFunc("GET "+base+"/fine_tuning/jobs", s.list)
		s.mux.HandleFunc("GET "+base+"/fine_tuning/jobs/{id}", s.get)
		s.mux.HandleFunc("GET "+base+"/fine_tuning/jobs/{id}/events", s.listEvents)
		s.mux.HandleFunc("POST "+base+"/fine_tuning/jobs/{id}/cancel", s.cancel)
	}
	s.mux.HandleFunc("POST /v1/chat/completions", s.chat)
	s.mux.HandleFunc("POST /openai/deployments/{deployment}/chat/completions", s.chat)
	const management = "/subscriptions/{sub}/resourceGroups/{group}/providers/Microsoft.CognitiveServices/accounts/{account}/deployments"
	s.mux.HandleFunc("GET "+management, s.listDeployments)
	s.mux.HandleFunc("GET "+management+"/{name}", s.getDeployment)
	s.mux.HandleFunc("PUT "+management+"/{name}", s.putDeployment)
	s.mux.HandleFunc("DELETE "+management+"/{name}", s.deleteDeployment)
	return s
}

// Jobs lists the jobs that were created, in order.
func (s *Service) Jobs() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Job, len(s.jobs))
	for i, j := range s.jobs {
		out[i] = *j
	}
	return out
}

// Files is how many files were uploaded.
func (s *Service) Files() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files)
}

// Fail makes a job fail at its next look.
func (s *Service) Fail(id, code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.find(id); j != nil {
		j.fail(code, "", message)
	}
}

// ServeHTTP implements [http.Handler].
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.cfg.Fault != nil && s.cfg.Fault(w, r) {
		return
	}
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if strings.HasPrefix(r.URL.Path, "/openai/") {
		key = r.Header.Get("Api-Key")
	}
	if s.cfg.Key != "" && key != s.cfg.Key {
		Refuse(w, http.StatusUnauthorized, "invalid_api_key", "Incorrect API key provided.")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Refuse answers an error in the service's shape.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error", "param": nil, "code": code}})
}

func answer(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"the test service is broken"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // a caller that is gone needs no answer
}

// listed answers a page of items that are in order of their ages, newest first.
func listed[T any](w http.ResponseWriter, r *http.Request, items []T, id func(T) string, show func(T) any) {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || limit < 1 {
		limit = 20
	}
	if after := r.URL.Query().Get("after"); after != "" {
		at := slices.IndexFunc(items, func(v T) bool { return id(v) == after })
		items = items[at+1:]
	}
	more := len(items) > limit
	data := []any{}
	for _, v := range items[:min(limit, len(items))] {
		data = append(data, show(v))
	}
	answer(w, http.StatusOK, map[string]any{"object": "list", "data": data, "has_more": more})
}

func newest[T any](items []T) []T {
	out := slices.Clone(items)
	slices.Reverse(out)
	return out
}

func (s *Service) upload(w http.ResponseWriter, r *http.Request) {
	part, header, err := r.FormFile("file")
	if err != nil {
		Refuse(w, http.StatusBadRequest, "missing_file", "'file' is a required property")
		return
	}
	text, err := io.ReadAll(part)
	if err != nil || r.FormValue("purpose") != "fine-tune" {
		Refuse(w, http.StatusBadRequest, "invalid_purpose", "'purpose' must be 'fine-tune'")
		return
	}
	f := &file{id: fmt.Sprintf("file-%03d", len(s.files)+1), name: header.Filename, text: text}
	s.files = append(s.files, f)
	answer(w, http.StatusOK, f.json())
}

func (f *file) json() any {
	status := "processed"
	if f.looks == 0 {
		status = "uploaded"
	}
	return map[string]any{
		"id": f.id, "object": "file", "bytes": len(f.text), "created_at": 1_700_000_000,
		"filename": f.name, "purpose": "fine-tune", "status": status,
	}
}

func (s *Service) listFiles(w http.ResponseWriter, r *http.Request) {
	listed(w, r, newest(s.files), func(f *file) string { return f.id }, func(f *file) any { return f.json() })
}

func (s *Service) getFile(w http.ResponseWriter, r *http.Request) {
	for _, f := range s.files {
		if f.id == r.PathValue("id") {
			f.looks++
			answer(w, http.StatusOK, f.json())
			return
		}
	}
	Refuse(w, http.StatusNotFound, "not_found", "No such File object: "+r.PathValue("id"))
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		Model    string            `json:"model"`
		File     string            `json:"training_file"`
		Suffix   string            `json:"suffix"`
		Seed     int64             `json:"seed"`
		Metadata map[string]string `json:"metadata"`
		Method   struct {
			Supervised struct {
				Hyperparameters struct {
					Epochs any `json:"n_epochs"`
				} `json:"hyperparameters"`
			} `json:"supervised"`
		} `json:"method"`
	}
	if err != nil || json.Unmarshal(body, &asked) != nil {
		Refuse(w, http.StatusBadRequest, "invalid_json", "The body is not valid JSON.")
		return
	}
	at := slices.IndexFunc(s.files, func(f *file) bool { return f.id == asked.File })
	switch {
	case s.models[asked.Model] == nil:
		Refuse(w, http.StatusBadRequest, "model_not_available", "Model "+asked.Model+" is not available for fine-tuning or does not exist.")
		return
	case at < 0:
		Refuse(w, http.StatusBadRequest, "invalid_file", "invalid training_file: "+asked.File)
		return
	}
	j := &Job{
		ID: fmt.Sprintf("ftjob-%03d", len(s.jobs)+1), Model: asked.Model, Suffix: asked.Suffix, Status: "validating_files",
		Request: body, Training: s.files[at].text, metadata: asked.Metadata, file: asked.File, seed: asked.Seed, epochs: 3,
	}
	if n, ok := asked.Method.Supervised.Hyperparameters.Epochs.(float64); ok {
		j.epochs = int64(n)
	}
	j.say("Created fine-tuning job: "+j.ID, nil)
	j.say("Validating training file: "+j.file, nil)
	s.jobs = append(s.jobs, j)
	answer(w, http.StatusOK, j.json())
}

func (j *Job) say(message string, data map[string]float64) {
	e := event{
		ID: fmt.Sprintf("ftevent-%s-%03d", j.ID, len(j.events)+1), Object: "fine_tuning.job.event", Created: 1_700_000_000,
		Level: "info", Message: message, Type: "message", Data: data,
	}
	if data != nil {
		e.Type = "metrics"
	}
	j.events = append(j.events, e)
}

func (j *Job) fail(code, param, message string) {
	j.Status, j.code, j.param, j.message = "failed", code, param, message
	j.say("The job failed: "+message, nil)
}

func (j *Job) json() any {
	optional := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	out := map[string]any{
		"id": j.ID, "object": "fine_tuning.job", "created_at": 1_700_000_000, "model": j.Model, "status": j.Status,
		"training_file": j.file, "validation_file": nil, "fine_tuned_model": optional(j.Tuned), "user_provided_suffix": optional(j.Suffix),
		"finished_at": nil, "trained_tokens": nil, "error": nil, "organization_id": "org-test", "result_files": []any{},
		"seed": j.seed, "metadata": j.metadata,
	}
	if j.Tuned != "" {
		out["trained_tokens"] = j.TrainedTokens
	}
	if j.message != "" {
		out["error"] = map[string]any{"code": j.code, "param": optional(j.param), "message": j.message}
	}
	return out
}

func (s *Service) find(id string) *Job {
	for _, j := range s.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) {
	listed(w, r, newest(s.jobs), func(j *Job) string { return j.ID }, func(j *Job) any { return j.json() })
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) {
	j := s.find(r.PathValue("id"))
	if j == nil {
		Refuse(w, http.StatusNotFound, "not_found", "Could not find fine tune: "+r.PathValue("id"))
		return
	}
	if j.looks++; j.looks >= s.cfg.Looks {
		j.looks = 0
		s.advance(j)
	}
	answer(w, http.StatusOK, j.json())
}

// advance takes a job to its next state.
func (s *Service) advance(j *Job) {
	switch j.Status {
	case "validating_files":
		if _, err := parse(j.Training); err != nil {
			j.fail("invalid_training_file", "training_file", err.Error())
			return
		}
		j.Status = "queued"
		j.say("Files validated, moving job to queued state", nil)
	case "queued":
		j.Status = "running"
		j.say("Fine-tuning job started", nil)
	case "running":
		conversations, err := parse(j.Training)
		var m Model
		if err == nil {
			m, err = s.cfg.Train(j.Model, conversations, int(j.epochs))
		}
		if err != nil {
			j.fail("invalid_training_file", "training_file", err.Error())
			return
		}
		j.TrainedTokens = int64(len(strings.Fields(string(j.Training)))) * j.epochs
		j.say(fmt.Sprintf("Step %d/%d: training loss=0.50", j.epochs, j.epochs), map[string]float64{"step": float64(j.epochs), "train_loss": 0.5})
		base, _, _ := strings.Cut(strings.TrimPrefix(j.Model, "ft:"), ":")
		j.Status, j.Tuned = "succeeded", fmt.Sprintf("ft:%s:test:%s:%s", base, j.Suffix, j.ID)
		s.models[j.Tuned] = m
		j.say("New fine-tuned model created", nil)
		j.say("The job has successfully completed", nil)
	}
}

// parse reads a training file as the service does.
func parse(text []byte) ([][]Message, error) {
	var out [][]Message
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Messages []Message `json:"messages"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("The job failed due to an invalid training file. Line %d is not valid JSON", n)
		}
		if !slices.ContainsFunc(line.Messages, func(m Message) bool { return m.Role == "assistant" }) {
			return nil, fmt.Errorf("The job failed due to an invalid training file. Line %d: Example must contain at least one message with role 'assistant'", n)
		}
		out = append(out, line.Messages)
	}
	return out, lines.Err()
}

func (s *Service) listEvents(w http.ResponseWriter, r *http.Request) {
	j := s.find(r.PathValue("id"))
	if j == nil {
		Refuse(w, http.StatusNotFound, "not_found", "Could not find fine tune: "+r.PathValue("id"))
		return
	}
	listed(w, r, newest(j.events), func(e event) string { return e.ID }, func(e event) any { return e })
}

func (s *Service) cancel(w http.ResponseWriter, r *http.Request) {
	j := s.find(r.PathValue("id"))
	if j == nil {
		Refuse(w, http.StatusNotFound, "not_found", "Could not find fine tune: "+r.PathValue("id"))
		return
	}
	if j.Status != "succeeded" && j.Status != "failed" {
		j.Status = "cancelled"
		j.say("The job was cancelled", nil)
	}
	answer(w, http.StatusOK, j.json())
}

func (s *Service) chat(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Model    string    `json:"model"`
		Messages []Message `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		Refuse(w, http.StatusBadRequest, "invalid_json", "The body is not valid JSON.")
		return
	}
	name := asked.Model
	if deployed := r.PathValue("deployment"); deployed != "" {
		name = ""
		for _, d := range s.deployments {
			if d.Name == deployed && d.State == "Succeeded" {
				name = d.Model
			}
		}
	}
	m := s.models[name]
	if m == nil {
		Refuse(w, http.StatusNotFound, "model_not_found", "The model `"+asked.Model+"` does not exist or you do not have access to it.")
		return
	}
	text := m(asked.Messages)
	answer(w, http.StatusOK, map[string]any{
		"id": fmt.Sprintf("chatcmpl-%06d", s.calls), "object": "chat.completion", "created": 1_700_000_000, "model": name,
		"choices": []any{map[string]any{
			"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text},
		}},
		"usage": map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
	})
}
