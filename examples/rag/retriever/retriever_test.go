package retriever_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"agentlightning/examples/rag/retriever"
	"agentlightning/examples/rag/world"
)

var articles = []world.Article{
	{Title: "Torvik", Text: "The town Torvik lies on the Sundbek and its mayor is Ada Kern."},
	{Title: "Ada Kern", Text: "The baker Ada Kern comes from Torvik and works for Amber Mills."},
	{Title: "Ada Holt", Text: "The clerk Ada Holt comes from Ulau and works for Amber Mills."},
	{Title: "Amber Mills", Text: "The company Amber Mills makes rope in Ulau and was founded by Ada Kern."},
}

// TestMain lets the test binary be the child process that the client starts.
func TestMain(m *testing.M) {
	if os.Getenv("RETRIEVER_CHILD") == "1" {
		if err := retriever.Serve(context.Background(), articles); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestIndex(t *testing.T) {
	t.Parallel()
	x := retriever.NewIndex(articles)
	for query, want := range map[string]string{
		"Ada Kern":      "[Ada Kern Torvik Amber Mills Ada Holt]", // the title counts twice
		"torvik":        "[Torvik Ada Kern]",
		"Amber Mills":   "[Amber Mills Ada Kern Ada Holt]", // as good as each other: the earlier first
		"holt, holt":    "[Ada Holt]",
		"":              "[]",
		"unicorn":       "[]",
		"the":           "[Torvik Ada Kern Ada Holt Amber Mills]", // in all of them: the shorter, the better
		"Ulau Ada Holt": "[Ada Holt Amber Mills Ada Kern Torvik]",
	} {
		titles := []string{}
		for _, a := range x.Search(query, len(articles)) {
			titles = append(titles, a.Title)
		}
		if got := fmt.Sprint(titles); got != want {
			t.Errorf("Search(%q) = %s, want %s", query, got, want)
		}
	}
	if got := x.Search("ada", 2); len(got) != 2 {
		t.Errorf("Search with a limit of 2 = %d articles", len(got))
	}
}

// In every world whole names find their own article.
func TestTitlesFindTheirArticle(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		w := world.New(seed)
		x := retriever.NewIndex(w.Articles)
		for _, a := range w.Articles {
			if found := x.Search(a.Title, 1); len(found) != 1 || found[0] != a {
				t.Errorf("seed %d: Search(%q) = %v", seed, a.Title, found)
			}
		}
	}
}

func TestChildProcess(t *testing.T) {
	t.Setenv("RETRIEVER_CHILD", "1")
	client, err := retriever.Start(t.Context(), os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			want := articles[i%len(articles)]
			if got, ok, err := client.Search(t.Context(), want.Title); got != want || !ok || err != nil {
				t.Errorf("Search(%q) = %v, %v, %v", want.Title, got, ok, err)
			}
		})
	}
	wg.Wait()
	if got, ok, err := client.Search(t.Context(), "unicorn"); got != (world.Article{}) || ok || err != nil {
		t.Errorf("Search of an unknown word = %v, %v, %v, want nothing", got, ok, err)
	}
	if err := client.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if _, _, err := client.Search(t.Context(), "ada"); err == nil {
		t.Error("Search after Close gave no error")
	}
}
