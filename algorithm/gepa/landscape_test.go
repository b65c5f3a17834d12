package gepa_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/apo"
	"agentlightning/algorithm/gepa"
	"agentlightning/algorithm/prompt"
	"agentlightning/emit"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

// The landscape: four prompts, each of which needs four words, and tasks each of
// which depends on some of the words of one prompt. The best there is has all
// sixteen words where they belong and a mean reward of exactly 1.
var components = []string{"plan", "search", "write", "check"}

type need struct {
	Component string   `json:"component"`
	Words     []string `json:"words"`
}

func needs(t *testing.T, from int) []json.RawMessage {
	t.Helper()
	var list []need
	for c, name := range components {
		for i := range 4 {
			n := need{Component: name}
			for k := range 2 {
				n.Words = append(n.Words, fmt.Sprintf("%s%d", name, (i+(k+1)*(from+c))%4))
			}
			slices.Sort(n.Words)
			n.Words = slices.Compact(n.Words)
			list = append(list, n)
		}
	}
	tasks, err := algorithm.Tasks(list)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// judge gives the share of words that are there, and says which are not.
func judge(ctx context.Context, n need, text string) (float64, error) {
	got := 0.0
	for _, w := range n.Words {
		if slices.Contains(strings.Fields(text), w) {
			got++
		} else if err := emit.Message(ctx, n.Component+" lacks "+w+"."); err != nil {
			return 0, err
		}
	}
	return got / float64(len(n.Words)), nil
}

// several works with four prompts, single with one that has a line for each part.
var (
	several = agent.New(func(ctx context.Context, n need, c *agent.Call) (float64, error) {
		p, err := c.Prompt(n.Component)
		if err != nil {
			return 0, err
		}
		return judge(ctx, n, p.Template)
	})
	single = agent.WithPrompt(func(ctx context.Context, n need, p agl.PromptTemplate) (float64, error) {
		return judge(ctx, n, line(p.Template, n.Component))
	})
)

func line(text, component string) string {
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(l, component+":"); ok {
			return rest
		}
	}
	return ""
}

func separate() agl.NamedResources {
	var out agl.NamedResources
	for _, c := range components {
		out = append(out, agl.NamedResource{Name: c, Resource: agl.PromptTemplate{Template: "Begin {task}", Engine: agl.EngineFString}})
	}
	return out
}

func together() agl.NamedResources {
	text := ""
	for _, c := range components {
		text += c + ": Begin\n"
	}
	return agl.NamedResources{{Name: "all", Resource: agl.PromptTemplate{Template: text, Engine: agl.EngineFString}}}
}

var lacks = regexp.MustCompile(`(\w+) lacks (\w+)\.`)

// author is a scripted model for both searches. It knows what the feedback says
// and no more: it adds a word that is lacking, in three of ten cases one of no
// use instead, and in half of the cases forgets a word of the same part. Equal
// requests get equal answers.
func author(seed int64) prompt.CompleterFunc {
	return func(_ context.Context, r prompt.Request) (prompt.Answer, error) {
		said := r.Messages[len(r.Messages)-1].Content
		h := fnv.New64a()
		fmt.Fprint(h, seed, said)
		dice := rand.New(rand.NewPCG(h.Sum64(), 1))
		found := lacks.FindAllStringSubmatch(said, -1)
		switch r.Purpose {
		case "gradient":
			var b strings.Builder
			for _, f := range found {
				b.WriteString("- " + f[0] + "\n")
			}
			return prompt.Answer{Text: b.String() + "Keep the rest.", InputTokens: 100, OutputTokens: 10}, nil
		case "edit":
			_, text, _ := strings.Cut(said, "The prompt:\n\n")
			text, _, _ = strings.Cut(text, "\n\nThe review:")
			if len(found) == 0 {
				return prompt.Answer{Text: text}, nil
			}
			f := found[dice.IntN(len(found))]
			old := strings.TrimSpace(line(text, f[1]))
			return prompt.Answer{Text: strings.Replace(text, f[1]+": "+old, f[1]+": "+rewrite(dice, old, f[2]), 1)}, nil
		}
		_, text, _ := strings.Cut(said, "<prompt>\n")
		text, _, _ = strings.Cut(text, "\n</prompt>")
		_, component, _ := strings.Cut(said, `One of them, "`)
		component, _, _ = strings.Cut(component, `"`)
		found = slices.DeleteFunc(found, func(f []string) bool { return f[1] != component })
		word := ""
		if len(found) > 0 {
			word = found[dice.IntN(len(found))][2]
		}
		return prompt.Answer{Text: "So be it.\n<prompt>" + rewrite(dice, text, word) + "</prompt>", InputTokens: 100, OutputTokens: 10}, nil
	}
}

func rewrite(dice *rand.Rand, text, word string) string {
	words := strings.Fields(text)
	if n := slices.IndexFunc(words, func(w string) bool { return w != "Begin" && w != "{task}" }); n >= 0 && dice.IntN(2) == 0 {
		at := n + dice.IntN(len(words)-n)
		words = slices.Delete(words, at, at+1)
	}
	if word == "" || dice.Float64() < 0.3 {
		word = fmt.Sprintf("noise%d", dice.IntN(100))
	}
	return strings.Join(append(words, word), " ")
}

var landscapeSeeds = flag.Int("landscape.seeds", 2, "seeds of TestLandscape")

// TestLandscape compares the two searches at the same number of rollouts. It
// says nothing about language models: their part is played by a script that is
// the same for both. For the table:
//
//	go test ./algorithm/gepa -run TestLandscape -v -landscape.seeds=10
//
// apo has the best of the widths that were tried at this budget: 3 children of
// one prompt. Others (3×2, 1×1 and 2×1 in as many rounds as fit) do worse.
func TestLandscape(t *testing.T) {
	t.Parallel()
	seeds := *landscapeSeeds
	var sums, squares [2]float64
	wins := 0
	table := "seed  rollouts  apo    gepa   gepa used\n"
	for seed := range int64(seeds) {
		s := engine.New(memory.New(), engine.Config{})
		a, err := apo.New(apo.Config{
			Completer: author(seed), GradientBatch: 3, ValBatch: 8, BeamWidth: 1, BranchFactor: 3, Rounds: 9, Seed: seed,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := trainer.Fit(t.Context(), trainer.Config{Agent: single, Algorithm: a, Store: s, InitialResources: together(), Runners: 2}, needs(t, 1), needs(t, 2)); err != nil {
			t.Fatal(err)
		}
		page, err := s.Statistics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		budget := int(page.TotalRollouts)
		best, err := a.Best()
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		s = engine.New(memory.New(), engine.Config{})
		g, err := gepa.New(gepa.Config{Completer: author(seed), MaxEvaluations: budget, MaxFailures: 50, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		if err := trainer.Fit(t.Context(), trainer.Config{Agent: several, Algorithm: g, Store: s, InitialResources: separate(), Runners: 2}, needs(t, 1), needs(t, 2)); err != nil {
			t.Fatal(err)
		}
		s.Close()
		got, ok := g.Result()
		if !ok || got.Spent.Evaluations > budget {
			t.Fatalf("seed %d: spent %+v of %d, %v", seed, got.Spent, budget, ok)
		}
		for i, v := range [...]float64{*best.Score, got.Score} {
			sums[i] += v
			squares[i] += v * v
		}
		if got.Score > *best.Score {
			wins++
		}
		table += fmt.Sprintf("%4d  %8d  %.3f  %.3f  %d\n", seed, budget, *best.Score, got.Score, got.Spent.Evaluations)
	}
	n := float64(seeds)
	deviation := func(i int) float64 { return math.Sqrt(max(0, squares[i]/n-sums[i]*sums[i]/n/n)) }
	t.Logf("the optimum is 1\n%smean            %.3f  %.3f  gepa is better %d times of %d\ndeviation       %.3f  %.3f", table, sums[0]/n, sums[1]/n, wins, seeds, deviation(0), deviation(1))
	if sums[1] <= sums[0] {
		t.Errorf("mean of gepa %.3f, of apo %.3f", sums[1]/n, sums[0]/n)
	}
}
