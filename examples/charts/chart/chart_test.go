package chart_test

import (
	"bytes"
	"strings"
	"testing"

	"agentlightning/examples/charts/chart"
)

func TestSamePixels(t *testing.T) {
	t.Parallel()
	c := chart.Chart{Kind: chart.Line, Labels: []string{"JAN", "FEB"}, Values: []float64{3, 7}, Step: 5}
	a, err := c.Draw(2)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Draw(2)
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("the same chart is %d and %d bytes, %v", len(a), len(b), err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(c *chart.Chart){
		`kind "pie"`:                             func(c *chart.Chart) { c.Kind = "pie" },
		"0 values: must be 1 to 6":               func(c *chart.Chart) { c.Values = nil },
		"2 labels for 1 values":                  func(c *chart.Chart) { c.Values = c.Values[:1] },
		"axis from 0 in steps of 0":              func(c *chart.Chart) { c.Step = 0 },
		"axis from 9990 in steps of 5":           func(c *chart.Chart) { c.Base = 9990 },
		`label "JANUARY": must have three`:       func(c *chart.Chart) { c.Labels[0] = "JANUARY" },
		`label "KIT": there is no letter 'K'`:    func(c *chart.Chart) { c.Labels[1] = "KIT" },
		"value 21 of FEB: must be between 0 and": func(c *chart.Chart) { c.Values[1] = 21 },
	} {
		c := chart.Chart{Kind: chart.Bars, Labels: []string{"JAN", "FEB"}, Values: []float64{3, 7}, Step: 5}
		change(&c)
		if _, err := c.Draw(1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Draw of %+v = %v, want %q", c, err, want)
		}
	}
	c := chart.Chart{Kind: chart.Bars, Labels: []string{"JAN"}, Values: []float64{3}, Step: 5}
	for _, scale := range []int{0, 17} {
		if _, err := c.Draw(scale); err == nil {
			t.Errorf("Draw(%d) went well", scale)
		}
	}
}

// No two characters look alike.
func TestFont(t *testing.T) {
	t.Parallel()
	for _, r := range "0123456789ABCDEFGJLMNOPRSTUVY" {
		rows, ok := chart.Glyph(r)
		if got, known := chart.Known(rows); !ok || !known || got != r {
			t.Errorf("%q looks like %q", r, got)
		}
	}
}
