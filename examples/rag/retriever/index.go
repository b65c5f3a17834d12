// Package retriever finds articles by words: an index that ranks them by BM25, an
// MCP server with it as its one tool, and the client that starts that server as a
// child process and calls it.
package retriever

import (
	"cmp"
	"math"
	"slices"

	"agentlightning/examples/rag/world"
)

// The constants of BM25 that are in common use.
const (
	saturation = 1.2  // k1: how soon further occurrences of a word stop to count
	lengthNorm = 0.75 // b: how much long articles are held back
)

// Index ranks articles by the words that they have in common with a query. It is
// not changed after [NewIndex].
type Index struct {
	articles []world.Article
	// postings are the articles that a word occurs in, by word.
	postings map[string][]posting
	lengths  []float64
	mean     float64 // length
}

type posting struct {
	article int
	count   float64
}

// NewIndex indexes articles. The words of a title count twice: they stand in the
// text as well.
func NewIndex(articles []world.Article) *Index {
	x := &Index{articles: articles, postings: map[string][]posting{}}
	for i, a := range articles {
		counts := map[string]float64{}
		var order []string
		words := world.Split(a.Title + " " + a.Text)
		for _, word := range words {
			if counts[word] == 0 {
				order = append(order, word)
			}
			counts[word]++
		}
		for _, word := range order {
			x.postings[word] = append(x.postings[word], posting{i, counts[word]})
		}
		x.lengths = append(x.lengths, float64(len(words)))
		x.mean += float64(len(words)) / float64(len(articles))
	}
	return x
}

// Search returns the articles that have a word of the query, the best first, at
// most limit of them. Scores are those of BM25 (Robertson and Zaragoza, The
// Probabilistic Relevance Framework, 2009, equation 3.15) with 1 added within the
// logarithm, so that no word counts against an article. Of equally good ones the
// earlier comes first.
func (x *Index) Search(query string, limit int) []world.Article {
	scores := map[int]float64{}
	n := float64(len(x.articles))
	for _, word := range world.Split(query) {
		list := x.postings[word]
		idf := math.Log(1 + (n-float64(len(list))+0.5)/(float64(len(list))+0.5))
		for _, p := range list {
			norm := saturation * (1 - lengthNorm + lengthNorm*x.lengths[p.article]/x.mean)
			scores[p.article] += idf * p.count * (saturation + 1) / (p.count + norm)
		}
	}
	found := make([]int, 0, len(scores))
	for i := range scores {
		found = append(found, i)
	}
	slices.SortFunc(found, func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
	out := make([]world.Article, 0, limit)
	for _, i := range found[:min(limit, len(found))] {
		out = append(out, x.articles[i])
	}
	return out
}
