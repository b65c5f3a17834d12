package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/dataset"
	"agentlightning/examples/charts/chart"
	"agentlightning/examples/charts/eye"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/internal/lessontest"
	"agentlightning/internal/cli"
	"agentlightning/internal/daemon"
	"agentlightning/semconv"
	"agentlightning/store"
)

// Both rules pay, so do larger pictures for whoever measures, both APIs come to
// the same, and no picture is lost on the way.
func TestCharts(t *testing.T) {
	t.Parallel()
	db := t.TempDir() + "/agl.db"
	r, out := lessontest.Play[report](t, mainStatus, "--db", db)
	reward := map[string]float64{}
	for _, c := range r.Train {
		reward[fmt.Sprint(c.Prompt, c.Scale)] = c.Reward
	}
	if reward["axis4"] < reward["plain4"]+0.05 || reward["axis, measure4"] < reward["axis4"]+0.3 {
		t.Errorf("%v: want each rule to pay", reward)
	}
	if reward["axis, measure1"] >= reward["axis, measure2"] || reward["axis, measure2"] >= reward["axis, measure4"] {
		t.Errorf("%v: want larger pictures to pay for whoever measures", reward)
	}
	if r.Chosen.Reward < r.First.Reward+0.5 || r.Claude.Reward != r.Chosen.Reward || r.Claude.API != claude {
		t.Errorf("first %+v\nchosen %+v\nAnthropic's %+v", r.First, r.Chosen, r.Claude)
	}
	want := seen{Rollouts: 3 * validationTasks, Calls: 6 * validationTasks, Triplets: 6 * validationTasks, Rows: 3 * validationTasks, Pictures: 3 * validationTasks}
	if diff := cmp.Diff(want, r.Images); diff != "" {
		t.Errorf("pictures (-want +got):\n%s", diff)
	}
	t.Run("the README shows what is printed", func(t *testing.T) {
		first, rest, _ := strings.Cut(out, "\n")
		server, rest, _ := strings.Cut(rest, "\n")
		if !strings.HasPrefix(server, "server and dashboard on http://127.0.0.1:") {
			t.Errorf("the second line is %q", server)
		}
		lessontest.ReadmeShows(t, first+"\n"+rest)
	})
	t.Run("the README shows what agl shows", func(t *testing.T) { checkShown(t, db) })
	t.Run("seed", func(t *testing.T) {
		again, _ := lessontest.Play[report](t, mainStatus)
		again.RunID = r.RunID
		if diff := cmp.Diff(r, again); diff != "" {
			t.Errorf("the same seed gave other figures:\n%s", diff)
		}
	})
}

// checkShown has the command show the first chart that was asked about in
// Anthropic's API.
func checkShown(t *testing.T, db string) {
	t.Helper()
	st := lessontest.Open(t, db)
	server, err := daemon.Listen(t.Context(), daemon.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	page, err := st.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Items {
		if !strings.Contains(string(r.Input), fmt.Sprintf(`"chart-%d"`, trainTasks)) {
			continue
		}
		spans, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID})
		if err != nil {
			t.Fatal(err)
		}
		if dialect, _ := spans.Items[0].Attributes.String(semconv.CallDialect); dialect != "messages" {
			continue
		}
		said, err := dataset.Conversations(spans.Items)
		if err != nil || len(said) != 1 || !strings.Contains(string(said[0].Messages[1]), `"content":[{"type":"image_url"`) {
			t.Errorf("the conversations are %v, %v, want one with a picture in the second message", said, err)
		}
		var out, errs bytes.Buffer
		if status := cli.Run(t.Context(), []string{"rollouts", "show", r.RolloutID, "--table", "--server", server.URL()}, &out, &errs); status != 0 {
			t.Fatalf("agl rollouts show = %d: %s", status, errs.String())
		}
		lessontest.ReadmeShows(t, steady(out.String()))
		return
	}
	t.Error("no rollout used Anthropic's API")
}

var (
	ids   = regexp.MustCompile(`(ro|at|run)-[0-9a-f]+`)
	times = regexp.MustCompile(`\b[0-9.]+(µs|ms|s)\b *`)
	took  = regexp.MustCompile(`TOOK +`)
)

// steady has no ids and no times, and only the first lines of the task.
func steady(shown string) string {
	var out strings.Builder
	for line := range strings.Lines(shown) {
		line = times.ReplaceAllString(ids.ReplaceAllString(line, "$1-…"), "… ")
		line = took.ReplaceAllString(line, "TOOK ")
		if strings.HasPrefix(line, "task ") {
			line = line[:60] + "…\n"
		}
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out.String()
}

// The picture beside the README is the first chart.
func TestPicture(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/chart.png"
	var out, errs bytes.Buffer
	if status := mainStatus([]string{"--picture", file}, &out, &errs); status != 0 {
		t.Fatalf("--picture = %d: %s", status, errs.String())
	}
	if !cmp.Equal(pixelsOf(t, file), pixelsOf(t, "chart.png")) {
		t.Error("chart.png is another one; make it again: go run ./examples/charts --picture examples/charts/chart.png")
	}
}

func pixelsOf(t *testing.T, file string) [][4]uint32 {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var all [][4]uint32
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, b, a := img.At(x, y).RGBA()
			all = append(all, [4]uint32{r, g, b, a})
		}
	}
	return all
}

func TestReward(t *testing.T) {
	t.Parallel()
	forty := question{Number: new(40.0)}
	month := question{Label: "MAY"}
	for _, tt := range []struct {
		question question
		answer   string
		want     float64
	}{
		{forty, "40", 1},
		{forty, " 41.0\n", 0.75},
		{forty, "38", 0.5},
		{forty, "44", 0},
		{forty, "400", 0},
		{forty, "about 40", 0},
		{month, "MAY", 1},
		{month, " may ", 1},
		{month, "MAR", 0},
		{month, "It is MAY.", 0},
	} {
		if got := tt.question.reward(tt.answer); got < tt.want-1e-9 || got > tt.want+1e-9 {
			t.Errorf("reward(%q) = %v, want %v", tt.answer, got, tt.want)
		}
	}
}

// Whoever looks with all care at a large picture is nearly right about each of
// many charts, and names every label.
func TestQuestionsCanBeAnswered(t *testing.T) {
	t.Parallel()
	sum, n := 0.0, 0
	for _, task := range tasks(rand.New(rand.NewPCG(7, 7)), 50) {
		file, err := task.Chart.Draw(5)
		if err != nil {
			t.Fatal(err)
		}
		points, err := eye.Read(file, eye.Care{Axis: true, Measure: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(task.Questions) != 2 {
			t.Errorf("%s has %d questions", task.ID, len(task.Questions))
		}
		for _, q := range task.Questions {
			sum += q.reward(say(q.Text, points))
			n++
		}
	}
	if sum/float64(n) < 0.98 {
		t.Errorf("mean reward %v, want nearly 1", sum/float64(n))
	}
}

// The script is told what it cannot answer.
func TestScript(t *testing.T) {
	t.Parallel()
	c := chart.Chart{Kind: chart.Bars, Labels: []string{"JAN", "FEB"}, Values: []float64{30, 60}, Step: 25}
	file, err := c.Draw(2)
	if err != nil {
		t.Fatal(err)
	}
	chat := func(asked, url string) lesson.Chat {
		content, err := json.Marshal([]any{
			map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}},
			map[string]string{"type": "text", "text": asked},
		})
		if err != nil {
			t.Fatal(err)
		}
		how, err := json.Marshal(tellsOfAxis + tellsMeasures)
		if err != nil {
			t.Fatal(err)
		}
		return lesson.Chat{Messages: []lesson.ChatMessage{{Role: "system", Content: how}, {Role: "user", Content: content}}}
	}
	for asked, want := range map[string]string{
		"How much is it in FEB?":                  "60.2",
		"How much more is it in FEB than in JAN?": "30.5",
		"Which month is highest?":                 "FEB",
		"How much is it in DEC?":                  "I do not see DEC.",
		"Is it a nice chart?":                     "I do not understand the question.",
	} {
		if said, err := answer(chat(asked, dataURL(file))); err != nil || said.Text != want {
			t.Errorf("answer(%q) = %q, %v, want %q", asked, said.Text, err, want)
		}
	}
	if _, err := answer(chat("Which month is highest?", "https://example.com/chart.png")); err == nil || !strings.Contains(err.Error(), "data URLs") {
		t.Errorf("answer to a picture elsewhere: %v", err)
	}
	if said, err := answer(chat("Which month is highest?", pngPrefix+"AAAA")); err != nil || !strings.HasPrefix(said.Text, "I cannot read this picture") {
		t.Errorf("answer to what is no picture = %q, %v", said.Text, err)
	}
	if got := imageTokens(dataURL(file)); got != 9*6 {
		t.Errorf("a picture of 240x160 is %d tokens, want 54", got)
	}
}

func TestCheapest(t *testing.T) {
	t.Parallel()
	cells := []cell{{Prompt: "a", Reward: 0.9, Tokens: 10}, {Prompt: "b", Reward: 0.97, Tokens: 30}, {Prompt: "c", Reward: 0.98, Tokens: 90}}
	if got := cheapest(cells); got.Prompt != "b" {
		t.Errorf("cheapest = %+v, want b", got)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	lessontest.Refuses(t, mainStatus, map[string][]string{
		"unexpected argument":       {"bars"},
		"--port -1: must be":        {"--port", "-1"},
		"flag provided but not def": {"--size", "1"},
	})
	var help, errs bytes.Buffer
	if status := mainStatus([]string{"--help"}, &help, &errs); status != 0 || !strings.Contains(help.String(), "-picture") {
		t.Errorf("--help = %d: %s%s", status, help.String(), errs.String())
	}
}
