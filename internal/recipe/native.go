package recipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	agl "agentlightning"
	"agentlightning/learner"
	"agentlightning/learner/native"
)

// nativeLearner is the built-in model, of a checkpoint or a new one.
type nativeLearner struct {
	// Name is what the proxy calls the model.
	Name string
	// Checkpoint is the folder of the weights to begin with; empty begins with a
	// model that has learned nothing, of this shape.
	Checkpoint string
	Dim        int
	Layers     int
	Heads      int
	Hidden     int
	Context    int
	Tied       bool
	Words      int // of the training tasks, that are tokens of their own

	WeightDecay float64
	Workers     int
	Slots       int
}

func newNative() *nativeLearner { return &nativeLearner{Name: "policy"} }

// mostWords is how many words of the tasks a new model has by default.
const mostWords = 256

func (n *nativeLearner) config(seed int64) native.Config {
	return native.Config{
		Dim: n.Dim, Layers: n.Layers, Heads: n.Heads, Hidden: n.Hidden, Context: n.Context, Tied: n.Tied,
		WeightDecay: n.WeightDecay, Workers: n.Workers, Slots: n.Slots, Seed: seed,
	}
}

// Check implements [LearnerSettings].
func (n *nativeLearner) Check(path func(string) string) error {
	if n.Name == "" {
		return errors.New("learner.name: must not be empty")
	}
	if n.Words < 0 {
		return fmt.Errorf("learner.words: %d: must not be negative", n.Words)
	}
	if n.Checkpoint == "" {
		if err := n.config(0).Validate(); err != nil {
			return fmt.Errorf("learner: %w", err)
		}
		return nil
	}
	if n.Dim != 0 || n.Layers != 0 || n.Heads != 0 || n.Hidden != 0 || n.Context != 0 || n.Tied || n.Words != 0 || n.WeightDecay != 0 {
		return errors.New("learner: nothing looks at dim, layers, heads, hidden, context, tied, words and weight_decay: the checkpoint says what they are")
	}
	m, err := native.Open(path(n.Checkpoint), native.Config{Workers: n.Workers, Slots: n.Slots})
	if err != nil {
		return fmt.Errorf("learner.checkpoint: %w", err)
	}
	return m.Close()
}

// Open implements [LearnerSettings]. The model is served on loopback, as an
// engine beside the server would be.
func (n *nativeLearner) Open(ctx context.Context, o Opening) (_ *Policy, err error) {
	config := n.config(o.Seed)
	config.Logger = o.Logger
	var m *native.Model
	if n.Checkpoint != "" {
		m, err = native.Open(o.Path(n.Checkpoint), config)
	} else {
		words := n.Words
		if words == 0 {
			words = mostWords
		}
		m, err = native.New(config, native.NewTokenizer(native.Words(texts(o.Tasks), words)))
	}
	if err != nil {
		return nil, fmt.Errorf("learner: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve the model: %w", err), m.Close())
	}
	server := &http.Server{
		Handler:           native.NewServer(m, native.ServerConfig{Name: n.Name, Logger: o.Logger}),
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	backend := agl.Model{Name: n.Name, Endpoint: "http://" + listener.Addr().String() + "/v1"}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return &Policy{
		Learner: m,
		Model:   func() agl.Model { return backend },
		Freeze:  func() learner.Scorer { return m.Freeze() },
		Reset:   m.ResetOptimizer,
		Render:  func(messages []json.RawMessage) ([]int32, []float32, error) { return render(m.Tokenizer(), messages) },
		Done: func() error {
			err := server.Close()
			if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
				err = errors.Join(err, ended)
			}
			return err
		},
	}, nil
}

// texts are all texts in tasks.
func texts(tasks []json.RawMessage) []string {
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	for _, t := range tasks {
		var v any
		if json.Unmarshal(t, &v) == nil {
			walk(v)
		}
	}
	return out
}

// render returns the tokens of messages in OpenAI's shape. The built-in model
// reads texts; a call of a tool is not one.
func render(tok *native.Tokenizer, messages []json.RawMessage) ([]int32, []float32, error) {
	out := make([]native.Message, len(messages))
	for i, raw := range messages {
		var m struct {
			Role      string            `json:"role"`
			Content   any               `json:"content"`
			ToolCalls []json.RawMessage `json:"tool_calls"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, nil, fmt.Errorf("message %d: %w", i, err)
		}
		text, ok := m.Content.(string)
		if len(m.ToolCalls) > 0 || !ok {
			return nil, nil, fmt.Errorf("message %d: the built-in model is trained on texts: content must be one, without tool_calls; token ids go in form rows", i)
		}
		if m.Role == "developer" {
			m.Role = string(native.RoleSystem)
		}
		out[i] = native.Message{Role: native.Role(m.Role), Text: text}
	}
	return tok.Render(out)
}
