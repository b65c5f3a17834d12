package native_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"agentlightning/learner"
	"agentlightning/learner/native"
)

// benchModel is the default model with the vocabulary of the calculator task's
// size: 384 tokens.
func benchModel(b *testing.B, cfg native.Config) *native.Model {
	b.Helper()
	words := make([]string, 123)
	for i := range words {
		words[i] = fmt.Sprintf(" w%c%c", 'a'+i/26, 'a'+i%26)
	}
	cfg.Seed = 1
	m, err := native.New(cfg, native.NewTokenizer(words))
	if err != nil {
		b.Fatalf("New: %v", err)
	}
	b.Cleanup(func() {
		if err := m.Close(); err != nil {
			b.Errorf("Close: %v", err)
		}
	})
	return m
}

func benchRows(m *native.Model, n int) []learner.Row {
	r := rand.New(rand.NewPCG(1, 1))
	rows := make([]learner.Row, n)
	for i := range rows {
		k := 40 + r.IntN(21)
		row := learner.Row{IDs: make([]int32, k), Mask: make([]float32, k), Logprobs: make([]float32, k), Advantages: make([]float32, k)}
		for t := range k {
			row.IDs[t] = r.Int32N(int32(m.Tokenizer().Size()))
			if t > k-15 {
				row.Mask[t], row.Logprobs[t], row.Advantages[t] = 1, -5.9, float32(r.NormFloat64())
			}
		}
		rows[i] = row
	}
	return rows
}

// BenchmarkTrain reports tokens a second of optimiser steps over 64 rows of 40
// to 60 tokens, of which 14 are targets.
func BenchmarkTrain(b *testing.B) {
	for _, c := range []struct {
		o        learner.Objective
		portable bool
	}{{learner.Imitation, false}, {learner.PolicyGradient, false}, {learner.PolicyGradient, true}} {
		o := c.o
		b.Run(fmt.Sprintf("%s/portable=%t", o, c.portable), func(b *testing.B) {
			m := benchModel(b, native.Config{Portable: c.portable})
			batch := learner.Batch{Rows: benchRows(m, 64), Options: learner.Options{Objective: o, LearningRate: 1e-3}}
			tokens := 0
			for _, r := range batch.Rows {
				tokens += len(r.IDs)
			}
			cpu := cpuSeconds()
			for b.Loop() {
				if _, err := m.Update(b.Context(), batch); err != nil {
					b.Fatalf("Update: %v", err)
				}
			}
			report(b, float64(tokens)*float64(b.N), cpu)
		})
	}
}

// BenchmarkSample reports tokens a second of sampling with so many requests in
// flight: prompts of 30 tokens, completions of 24.
func BenchmarkSample(b *testing.B) {
	for _, flight := range []int{1, 16, 64, 128} {
		b.Run(fmt.Sprintf("inflight=%d", flight), func(b *testing.B) {
			m := benchModel(b, native.Config{})
			rows := benchRows(m, 512)
			var sampled atomic.Int64
			cpu := cpuSeconds()
			for b.Loop() {
				sampleAll(b, m, rows, flight, &sampled)
			}
			report(b, float64(sampled.Load()), cpu)
		})
	}
}

func sampleAll(b *testing.B, m *native.Model, rows []learner.Row, flight int, sampled *atomic.Int64) {
	b.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range flight {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(rows) {
					return
				}
				res, err := m.Generate(context.WithoutCancel(b.Context()), native.Request{
					Prompt: rows[i].IDs[:30], MaxTokens: 24, Temperature: 1, Seed: int64(i + 1),
				})
				if err != nil {
					b.Errorf("Generate: %v", err)
					return
				}
				sampled.Add(int64(len(res.Tokens)))
			}
		})
	}
	wg.Wait()
}

// BenchmarkServer reports chat completions a second through HTTP on loopback, 64
// at once, each of about 30 tokens in and 24 out.
func BenchmarkServer(b *testing.B) {
	m := benchModel(b, native.Config{})
	ts := httptest.NewServer(native.NewServer(m, native.ServerConfig{}))
	defer ts.Close()
	const clients = 64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var asked atomic.Int64
	cpu := cpuSeconds()
	for b.Loop() {
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for range 4 {
					body := fmt.Sprintf(`{"messages":[{"role":"user","content":"%027d"}],"max_tokens":24,"logprobs":true,"return_token_ids":true}`, asked.Add(1))
					if err := chat(b.Context(), client, ts.URL, body); err != nil {
						b.Errorf("chat: %v", err)
					}
				}
			})
		}
		wg.Wait()
	}
	n := float64(asked.Load())
	b.ReportMetric(n/b.Elapsed().Seconds(), "requests/s")
	if used := cpuSeconds() - cpu; used > 0 {
		b.ReportMetric(n/used, "requests/cpu-s")
	}
}

func chat(ctx context.Context, c *http.Client, url, body string) error {
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return err
}

// report states tokens a second of wall time, and of processor time: the latter
// does not depend on what else the machine is doing.
func report(b *testing.B, tokens, cpuBefore float64) {
	b.Helper()
	b.ReportMetric(tokens/b.Elapsed().Seconds(), "tokens/s")
	if used := cpuSeconds() - cpuBefore; used > 0 {
		b.ReportMetric(tokens/used, "tokens/cpu-s")
	}
}
