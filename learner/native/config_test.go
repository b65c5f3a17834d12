package native

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
)

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for want, cfg := range map[string]Config{
		"Dim is 24: must be a multiple of 16": {Dim: 24, Heads: 1},
		"Dim is -16":                          {Dim: -16},
		"Layers is 65":                        {Layers: 65},
		"Heads is 8: must be between 1 and 4": {Heads: 8},
		"Heads is 3: Dim/Heads must be a multiple of 16, and Dim is 64": {Heads: 3},
		"Hidden is 100":            {Hidden: 100},
		"Context is 1":             {Context: 1},
		"Slots is -1":              {Slots: -1},
		"WeightDecay is NaN":       {WeightDecay: math.NaN()},
		"Beta1, Beta2 are 1, 0.98": {Beta1: 1},
	} {
		err := cfg.Validate()
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate(%+v) = %v, want it to say %q", cfg, err, want)
		}
		if m, err := New(cfg, NewTokenizer(nil)); err == nil {
			_ = m.Close()
			t.Errorf("New(%+v) succeeded", cfg)
		}
	}
}

func TestDefaultModel(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	m := smallModel(t, Config{Dim: 64, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	// Four tables and a head of 64 columns, two blocks of 12·64² and the gains.
	want := 4*(int(firstWord)+2)*64 + 96*64 + 2*12*64*64 + 5*64
	if m.Parameters() != want {
		t.Errorf("Parameters = %d, want %d", m.Parameters(), want)
	}
	if !strings.Contains(log.String(), "built-in model ready") {
		t.Errorf("log = %q", log.String())
	}
	if m.Config().Hidden != 256 || m.Config().Context != 96 {
		t.Errorf("Config = %+v", m.Config())
	}
}

func TestRequestsOutOfRange(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{})
	ok := []int32{UserToken}
	for field, r := range map[string]Request{
		"prompt":       {},
		"temperature":  {Prompt: ok, Temperature: math.NaN()},
		"top_p":        {Prompt: ok, TopP: 1.5},
		"max_tokens":   {Prompt: ok, MaxTokens: -1},
		"top_logprobs": {Prompt: ok, TopLogprobs: m.tok.Size() + 1},
	} {
		_, err := m.Generate(t.Context(), r)
		if e, isField := errors.AsType[*RequestError](err); !isField || e.Field != field {
			t.Errorf("Generate(%+v) = %v, want an error of %s", r, err, field)
		}
	}
	if _, err := m.Generate(t.Context(), Request{Prompt: []int32{-1}}); err == nil {
		t.Errorf("a negative id was taken")
	}
	_, err := m.Generate(t.Context(), Request{Prompt: make([]int32, 24)})
	if e, isLength := errors.AsType[*ContextLengthError](err); !isLength || e.Prompt != 24 || e.Context != 24 {
		t.Errorf("a prompt that fills the context gave %v", err)
	}
	res, err := m.Generate(t.Context(), Request{Prompt: make([]int32, 23)})
	if err != nil || len(res.Tokens) != 1 {
		t.Errorf("a prompt with room for one token gave %v, %v", res, err)
	}
}
