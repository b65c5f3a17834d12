// Package engine runs a language model in a GGUF file with llama.cpp, without a C
// compiler, and tells every token id and log-probability.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// Config says what to run.
type Config struct {
	// Folder has model.gguf and the libraries of llama.cpp, as setup.sh makes it.
	// Required.
	Folder string
	// Context is how many tokens prompt and answer may have together. Default 2048.
	Context int
	// Threads is how many processors compute. Default: all, but at most 8.
	Threads int
}

// Engine is a loaded model. It computes one request at a time, and the others wait
// in the order in which they came. It is safe for concurrent use.
type Engine struct {
	model  llama.Model
	vocab  llama.Vocab
	ctx    llama.Context
	memory llama.Memory
	batch  llama.Batch
	size   int // of the vocabulary
	window int

	turn chan struct{} // held by whoever computes, who owns what follows

	computed []llama.Token // what the memory holds, by place
	piece    []byte

	life   sync.RWMutex // held by whoever tokenises, and to close
	closed bool         // written in a turn too
}

// batchTokens is how much of a prompt is computed at once, and so how long one that
// nobody waits for any more goes on: about a fifth of a second.
const batchTokens = 256

// library is the C library, which a process loads once and keeps.
var library struct {
	once sync.Once
	err  error
}

// Load reads the model, which takes a fifth of a second.
func Load(cfg Config) (*Engine, error) {
	cfg.Context = cmp.Or(cfg.Context, 2048)
	cfg.Threads = cmp.Or(cfg.Threads, min(runtime.NumCPU(), 8))
	switch {
	case cfg.Folder == "":
		return nil, errors.New("engine: Folder: must be set")
	case cfg.Context < 2 || cfg.Threads < 1:
		return nil, fmt.Errorf("engine: Context %d, Threads %d: must be at least 2 and 1", cfg.Context, cfg.Threads)
	}
	library.once.Do(func() {
		if library.err = llama.Load(cfg.Folder); library.err == nil {
			llama.LogSet(llama.LogSilent())
			llama.Init() // finds the kernels for this processor among the libraries
		}
	})
	if library.err != nil {
		return nil, fmt.Errorf("load llama.cpp from %s: %w; run setup.sh", cfg.Folder, library.err)
	}
	path := filepath.Join(cfg.Folder, "model.gguf")
	model, err := llama.ModelLoadFromFile(path, llama.ModelDefaultParams())
	if err == nil && model == 0 {
		err = errors.New("llama.cpp cannot read it")
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w; run setup.sh", path, err)
	}
	params := llama.ContextDefaultParams()
	params.NCtx, params.NBatch, params.NUbatch = uint32(cfg.Context), batchTokens, batchTokens
	params.NThreads, params.NThreadsBatch = int32(cfg.Threads), int32(cfg.Threads)
	ctx, err := llama.InitFromModel(model, params)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a context of %d tokens: %w", cfg.Context, err), llama.ModelFree(model))
	}
	memory, err := llama.GetMemory(ctx)
	if err != nil {
		return nil, errors.Join(err, llama.Free(ctx), llama.ModelFree(model))
	}
	vocab := llama.ModelGetVocab(model)
	return &Engine{
		model: model, vocab: vocab, ctx: ctx, memory: memory, batch: llama.BatchInit(batchTokens, 0, 1),
		size: int(llama.VocabNTokens(vocab)), window: cfg.Context, turn: make(chan struct{}, 1), piece: make([]byte, 512),
	}, nil
}

// Close frees the model once no request computes any more. Requests that wait, and
// later ones, end with [ErrClosed].
func (e *Engine) Close() error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	e.life.Lock()
	defer e.life.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	return errors.Join(llama.BatchFree(e.batch), llama.Free(e.ctx), llama.ModelFree(e.model))
}

// Window is how many tokens prompt and answer may have together.
func (e *Engine) Window() int { return e.window }

// Request is what is to be generated.
type Request struct {
	Prompt      []int64
	MaxTokens   int      // 0 has no limit but the window
	Temperature float64  // 0 takes the likeliest token
	TopP        float64  // the likeliest tokens that have so much probability together; 0 and 1 leave all in
	Seed        uint64   // of what is drawn at a temperature
	Stop        []string // texts that end the answer and are no part of it
	Top         int      // how many alternatives to tell for each token
}

// Token is one that the model sampled.
type Token struct {
	Candidate
	// Text is by how much longer the answer is. It is empty in the middle of a
	// character and of what may become a stop text, and made up for later. After
	// the token that ends a turn, which is handed over like all others, there is
	// no more than what was held back.
	Text string
	// Top are the likeliest tokens in its place, the likeliest first.
	Top []Candidate
}

// Candidate is a token that may stand in a place.
type Candidate struct {
	ID int64
	// Logprob is the natural logarithm of its probability at temperature 1,
	// before anything was left out.
	Logprob float64
	// Piece are its bytes, which need not be whole characters.
	Piece []byte
}

// Finish is why a generation ended.
type Finish string

// The model ended its turn or said a stop text, or there was no more room.
const (
	FinishStop   Finish = "stop"
	FinishLength Finish = "length"
)

// What requests fail with.
var (
	ErrClosed  = errors.New("the engine is closed")
	ErrInvalid = errors.New("invalid request")
	ErrTooLong = errors.New("the context is too short")
)

// check returns the prompt as llama.cpp takes it, and how long the answer may be.
func (e *Engine) check(r *Request) ([]llama.Token, int, error) {
	if len(r.Prompt) == 0 {
		return nil, 0, fmt.Errorf("%w: Prompt: it is empty", ErrInvalid)
	}
	if r.MaxTokens < 0 {
		return nil, 0, fmt.Errorf("%w: MaxTokens: %d: must not be negative", ErrInvalid, r.MaxTokens)
	}
	if len(r.Prompt)+max(1, r.MaxTokens) > e.window {
		return nil, 0, fmt.Errorf("%w: %d tokens of prompt and %d of answer do not fit %d", ErrTooLong, len(r.Prompt), max(1, r.MaxTokens), e.window)
	}
	prompt := make([]llama.Token, len(r.Prompt))
	for i, id := range r.Prompt {
		if id < 0 || id >= int64(e.size) {
			return nil, 0, fmt.Errorf("%w: Prompt[%d]: %d is no token; there are %d", ErrInvalid, i, id, e.size)
		}
		prompt[i] = llama.Token(id)
	}
	return prompt, cmp.Or(r.MaxTokens, e.window-len(prompt)), nil
}

// Generate continues a prompt, hands over each token as it is sampled and returns
// why it ended. It stops when ctx ends or each returns an error.
func (e *Engine) Generate(ctx context.Context, r Request, each func(Token) error) (Finish, error) {
	prompt, limit, err := e.check(&r)
	if err != nil {
		return "", err
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if e.closed {
		return "", ErrClosed
	}
	if err := e.read(ctx, prompt); err != nil {
		return "", err
	}
	random := rand.New(rand.NewPCG(r.Seed, 0x5301))
	text := newText(r.Stop)
	for n := 1; ; n++ {
		logits, err := llama.GetLogitsIth(e.ctx, -1, e.size)
		if err != nil || len(logits) == 0 {
			return "", fmt.Errorf("read what the model computed: %w", cmp.Or(err, errors.New("there is nothing")))
		}
		d := newDistribution(logits)
		id := d.sample(r.Temperature, r.TopP, random)
		token := Token{Candidate: e.candidate(d, id)}
		for _, other := range d.top(r.Top) {
			token.Top = append(token.Top, e.candidate(d, other))
		}
		over := llama.VocabIsEOG(e.vocab, llama.Token(id))
		stopped := false
		if !over {
			token.Text, stopped = text.add(e.bytes(id, false))
		}
		if last := over || n == limit; last && !stopped {
			token.Text += text.rest()
		}
		if err := each(token); err != nil {
			return "", err
		}
		switch {
		case over || stopped:
			return FinishStop, nil
		case n == limit:
			return FinishLength, nil
		}
		if err := e.compute(ctx, []llama.Token{llama.Token(id)}); err != nil {
			return "", err
		}
	}
}

func (e *Engine) candidate(d distribution, id int) Candidate {
	return Candidate{int64(id), d.logprob(id), e.bytes(id, true)}
}

// bytes returns those of a token; tokens that are no text, such as the end of a
// turn, have some if named.
func (e *Engine) bytes(id int, named bool) []byte {
	n := llama.TokenToPiece(e.vocab, llama.Token(id), e.piece, 0, named)
	return slices.Clone(e.piece[:max(n, 0)])
}

// read computes a prompt. What it shares with the one before is there already.
func (e *Engine) read(ctx context.Context, prompt []llama.Token) error {
	shared := 0
	for shared < len(prompt)-1 && shared < len(e.computed) && prompt[shared] == e.computed[shared] {
		shared++
	}
	e.computed = e.computed[:shared]
	if ok, err := llama.MemorySeqRm(e.memory, 0, llama.Pos(shared), -1); err != nil || !ok {
		e.computed = nil
		return errors.Join(errors.New("llama.cpp does not forget the last prompt"), err)
	}
	for part := range slices.Chunk(prompt[shared:], batchTokens) {
		if err := e.compute(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// compute adds tokens to those computed. The logits of the last are kept.
func (e *Engine) compute(ctx context.Context, tokens []llama.Token) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := e.batch.Clear(); err != nil {
		return err
	}
	for i, t := range tokens {
		if err := e.batch.Add(t, llama.Pos(len(e.computed)+i), []llama.SeqId{0}, i == len(tokens)-1); err != nil {
			return err
		}
	}
	if code, err := llama.Decode(e.ctx, e.batch); err != nil || code != 0 {
		// What was computed of these is taken away before the next prompt.
		return fmt.Errorf("compute %d tokens: %w", len(tokens), cmp.Or(err, fmt.Errorf("llama_decode returned %d", code)))
	}
	e.computed = append(e.computed, tokens...)
	return nil
}
