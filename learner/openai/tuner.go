// Package openai makes models by the fine-tuning service of OpenAI, of Azure
// OpenAI, or of one that speaks as OpenAI's does.
//
// [Tuner] implements [agentlightning/learner.Tuner]. A job is uploaded, created
// and waited for, and on Azure the model is deployed. Every job carries the key
// of its work, a hash of model, data and hyperparameters, in its metadata and in
// the name of its model. Before a job is created the service is asked for one
// with that key, and a creation whose answer was lost is never simply repeated:
// whatever dies at whichever point, the same work is paid for once.
//
// Calls that failed for a reason that may pass (no answer, a broken one, 408,
// 409, 429, 5xx) are repeated, as long as [Config].Outage allows; other errors
// are returned in the service's words.
package openai

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"agentlightning/learner"
)

// Tuner is a [learner.Tuner]. It is safe for concurrent use.
type Tuner struct {
	cfg   Config
	files openai.FileService
	jobs  openai.FineTuningJobService
}

var _ learner.Tuner = (*Tuner)(nil)

// ErrNoKey is returned when the environment lacks the service's key.
var ErrNoKey = errors.New("the key of the service is missing")

// New returns a tuner. It finds the key, and calls nothing.
func New(c Config) (*Tuner, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	key, ok := c.LookupEnv(c.APIKeyEnv)
	if !ok || key == "" {
		return nil, fmt.Errorf("openai: %w: set %s", ErrNoKey, c.APIKeyEnv)
	}
	// Each call is made once; [Tuner.try] repeats those that may be.
	options := []option.RequestOption{
		option.WithHTTPClient(c.Client), option.WithMaxRetries(0), option.WithRequestTimeout(c.RequestTimeout),
	}
	if c.Azure != nil {
		options = append(options, option.WithBaseURL(c.BaseURL+"/openai/"), option.WithHeader("api-key", key),
			option.WithQuery("api-version", c.Azure.APIVersion))
	} else {
		options = append(options, option.WithBaseURL(c.BaseURL+"/"), option.WithAPIKey(key))
	}
	if c.Organization != "" {
		options = append(options, option.WithOrganization(c.Organization))
	}
	if c.Project != "" {
		options = append(options, option.WithProject(c.Project))
	}
	return &Tuner{cfg: c, files: openai.NewFileService(options...), jobs: openai.NewFineTuningJobService(options...)}, nil
}

// keyName is the name of the key of the work in a job's metadata.
const keyName = "agl_work"

// Start implements [learner.Tuner].
func (t *Tuner) Start(ctx context.Context, job learner.TuningJob) (learner.Ticket, error) {
	if job.Model == "" {
		job.Model = t.cfg.Model
	}
	if len(bytes.TrimSpace(job.Training)) == 0 {
		return learner.Ticket{}, errors.New("openai: TuningJob.Training: is empty")
	}
	key, err := t.key(job)
	if err != nil {
		return learner.Ticket{}, err
	}
	id, err := t.start(ctx, job, key)
	if err != nil {
		return learner.Ticket{}, fmt.Errorf("openai: %w", err)
	}
	return learner.Ticket{ID: id, Key: key}, nil
}

func (t *Tuner) start(ctx context.Context, job learner.TuningJob, key string) (string, error) {
	id, err := t.find(ctx, key)
	if err != nil || id != "" {
		return id, err
	}
	training, err := t.upload(ctx, "training", job.Training)
	if err != nil {
		return "", err
	}
	validation := ""
	if len(job.Validation) > 0 {
		if validation, err = t.upload(ctx, "validation", job.Validation); err != nil {
			return "", err
		}
	}
	params := t.params(job, key, training, validation)
	// The training type is Azure's alone.
	var extra []option.RequestOption
	if t.cfg.Azure != nil && t.cfg.Azure.TrainingType != "" {
		extra = append(extra, option.WithJSONSet("trainingType", t.cfg.Azure.TrainingType))
	}
	asked := false
	err = t.try(ctx, "create the fine-tuning job", func(ctx context.Context) error {
		if asked { // the service may have heard the first time
			if id, err = t.findOnce(ctx, key); err != nil || id != "" {
				return err
			}
		}
		asked = true
		made, err := t.jobs.New(ctx, params, extra...)
		if err != nil {
			return err
		}
		if made.ID == "" {
			return errIncomplete
		}
		id = made.ID
		return nil
	})
	if err == nil {
		t.cfg.Logger.InfoContext(ctx, "fine-tuning job accepted", "job_id", id, "model", job.Model, "key", key)
	}
	return id, err
}

// key is the same for the same work.
func (t *Tuner) key(job learner.TuningJob) (string, error) {
	// Of the configuration, what makes another model.
	text, err := json.Marshal([]any{
		job.Key, job.Model, sha256.Sum256(job.Training), sha256.Sum256(job.Validation),
		t.cfg.Epochs, t.cfg.BatchSize, t.cfg.LearningRateMultiplier, t.cfg.Seed,
	})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12]), nil
}

func (t *Tuner) suffix(key string) string { return t.cfg.Suffix + "-" + key[:12] }

func (t *Tuner) params(job learner.TuningJob, key, training, validation string) openai.FineTuningJobNewParams {
	p := openai.FineTuningJobNewParams{
		Model: openai.FineTuningJobNewParamsModel(job.Model), TrainingFile: training,
		Suffix: openai.String(t.suffix(key)), Metadata: map[string]string{keyName: key},
		Method: openai.FineTuningJobNewParamsMethod{Type: "supervised"},
	}
	if validation != "" {
		p.ValidationFile = openai.String(validation)
	}
	if t.cfg.Seed != nil {
		p.Seed = openai.Int(*t.cfg.Seed)
	}
	h := &p.Method.Supervised.Hyperparameters
	if t.cfg.Epochs > 0 {
		h.NEpochs.OfInt = openai.Int(int64(t.cfg.Epochs))
	}
	if t.cfg.BatchSize > 0 {
		h.BatchSize.OfInt = openai.Int(int64(t.cfg.BatchSize))
	}
	if t.cfg.LearningRateMultiplier > 0 {
		h.LearningRateMultiplier.OfFloat = openai.Float(t.cfg.LearningRateMultiplier)
	}
	return p
}

// find looks for a job of the work that has not failed.
func (t *Tuner) find(ctx context.Context, key string) (id string, err error) {
	err = t.try(ctx, "look for the fine-tuning job", func(ctx context.Context) error {
		id, err = t.findOnce(ctx, key)
		return err
	})
	return id, err
}

// page is how many jobs, files or events are asked for at once.
const page = 100

func (t *Tuner) findOnce(ctx context.Context, key string) (string, error) {
	// The service's own filter is not relied on: not all have it.
	for p, err := t.jobs.List(ctx, openai.FineTuningJobListParams{Limit: openai.Int(page)}); ; p, err = p.GetNextPage() {
		if err != nil || p == nil {
			return "", err
		}
		for i := range p.Data {
			j := &p.Data[i]
			if j.Status == openai.FineTuningJobStatusFailed || j.Status == openai.FineTuningJobStatusCancelled {
				continue
			}
			if j.Metadata[keyName] == key || userSuffix(j) == t.suffix(key) {
				return j.ID, nil
			}
		}
	}
}

// userSuffix is the suffix that a job was created with; not in all versions of
// the protocol.
func userSuffix(j *openai.FineTuningJob) string {
	var extra struct {
		Suffix string `json:"user_provided_suffix"`
	}
	if json.Unmarshal([]byte(j.RawJSON()), &extra) != nil {
		return ""
	}
	return extra.Suffix
}

// named is a file with a name for the form of an upload.
type named struct {
	io.Reader
	name string
}

func (n named) Filename() string    { return n.name }
func (n named) ContentType() string { return "application/jsonl" }

// upload returns the id of the file with this text, once it can be used. A file
// that is there already is not uploaded again.
func (t *Tuner) upload(ctx context.Context, what string, text []byte) (string, error) {
	sum := sha256.Sum256(text)
	name := "agl-" + hex.EncodeToString(sum[:12]) + ".jsonl"
	var file *openai.FileObject
	err := t.try(ctx, "upload the "+what+" file", func(ctx context.Context) error {
		found, err := t.findFile(ctx, name, len(text))
		if err != nil || found != nil {
			file = found
			return err
		}
		made, err := t.files.New(ctx, openai.FileNewParams{File: named{bytes.NewReader(text), name}, Purpose: openai.FilePurposeFineTune})
		if err == nil && made.ID == "" {
			err = errIncomplete
		}
		file = made
		return err
	})
	if err != nil {
		return "", err
	}
	t.cfg.Logger.InfoContext(ctx, "fine-tuning file uploaded", "file_id", file.ID, "bytes", len(text))
	for start := time.Now(); ; {
		switch status := string(file.Status); status { //nolint:staticcheck // deprecated, but Azure refuses files that it has not processed
		case "processed", "":
			return file.ID, nil
		case "error", "deleted", "deleting":
			return "", fmt.Errorf("the service refused the %s file %s (%s): %s", what, file.ID, status, file.StatusDetails) //nolint:staticcheck // the only words there are
		}
		if time.Since(start) > t.cfg.Limit {
			return "", fmt.Errorf("the service has not processed the %s file %s for %v (Limit)", what, file.ID, t.cfg.Limit)
		}
		if err := pause(ctx, t.cfg.PollEvery); err != nil {
			return "", err
		}
		err := t.try(ctx, "look at the "+what+" file", func(ctx context.Context) error {
			got, err := t.files.Get(ctx, file.ID)
			if err == nil && got.ID == "" {
				err = errIncomplete
			}
			if err == nil {
				file = got
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
}

func (t *Tuner) findFile(ctx context.Context, name string, size int) (*openai.FileObject, error) {
	query := openai.FileListParams{Purpose: openai.String(string(openai.FilePurposeFineTune)), Limit: openai.Int(page)}
	for p, err := t.files.List(ctx, query); ; p, err = p.GetNextPage() {
		if err != nil || p == nil {
			return nil, err
		}
		for i := range p.Data {
			f := &p.Data[i]
			if f.Filename == name && f.Bytes == int64(size) && f.Status != openai.FileObjectStatusError { //nolint:staticcheck // see upload
				return f, nil
			}
		}
	}
}

// errIncomplete is an answer of the right shape without what it is for.
var errIncomplete = errors.New("the service's answer is incomplete")

// pause waits, unless the context ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// try calls f until it succeeds, fails for good, or has failed for too long.
func (t *Tuner) try(ctx context.Context, what string, f func(context.Context) error) error {
	wait := time.Second
	for began := time.Now(); ; {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		passing, after := mayPass(err)
		if !passing {
			return fmt.Errorf("%s: %w", what, words(err))
		}
		if failing := time.Since(began); failing >= t.cfg.Outage {
			return fmt.Errorf("%s: the service has failed for %v (Outage %v): %w", what, failing.Round(time.Second), t.cfg.Outage, words(err))
		}
		d := min(max(wait, after), max(t.cfg.PollEvery, after))
		t.cfg.Logger.WarnContext(ctx, "call of the fine-tuning service failed", "call", what, "again_in", d, "err", words(err))
		if err := pause(ctx, d); err != nil {
			return err
		}
		wait = min(2*wait, time.Minute)
	}
}

// longestAfter bounds what a service may make us wait.
const longestAfter = 5 * time.Minute

// mayPass tells whether a call is worth repeating, and not before when.
func mayPass(err error) (bool, time.Duration) {
	api, ok := errors.AsType[*openai.Error](err)
	if !ok {
		return true, 0 // no answer, or one that cannot be read
	}
	var after time.Duration
	if api.Response != nil {
		if d, err := time.ParseDuration(api.Response.Header.Get("Retry-After") + "s"); err == nil && d > 0 {
			after = min(d, longestAfter)
		}
	}
	switch api.StatusCode {
	case http.StatusTooManyRequests:
		// Without money left it does not pass.
		return api.Code != "insufficient_quota", after
	case http.StatusRequestTimeout, http.StatusConflict:
		return true, after
	}
	return api.StatusCode >= http.StatusInternalServerError, after
}

// words are what the service said, without the request around it.
func words(err error) error {
	api, ok := errors.AsType[*openai.Error](err)
	if !ok {
		return err
	}
	text := api.Message
	if text == "" {
		text = http.StatusText(api.StatusCode)
	}
	var hint string
	switch api.StatusCode {
	case http.StatusUnauthorized:
		hint = "; is the key that of this service?"
	case http.StatusNotFound:
		hint = "; is the address of the service right, and its API version?"
	}
	return &ServiceError{Status: api.StatusCode, Code: api.Code, Message: text + hint}
}

// ServiceError is a call that the service refused.
type ServiceError struct {
	Status  int    // of HTTP
	Code    string // the service's; may be empty
	Message string // the service's
}

func (e *ServiceError) Error() string {
	if e.Code != "" {
		return fmt.Sprintf("the service answered %d %s: %s", e.Status, e.Code, e.Message)
	}
	return fmt.Sprintf("the service answered %d: %s", e.Status, e.Message)
}
