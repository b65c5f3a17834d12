package eye_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"agentlightning/examples/charts/chart"
	"agentlightning/examples/charts/eye"
)

var careful = eye.Care{Axis: true, Measure: true}

// What is drawn is read: every label, and every value to half a pixel.
func TestRead(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []chart.Kind{chart.Bars, chart.Line} {
		for _, scale := range []int{1, 2, 3, 4, 7} {
			t.Run(fmt.Sprint(kind, scale), func(t *testing.T) {
				for range 10 {
					c := chart.Chart{Kind: kind, Step: 1 + random.IntN(500), Base: random.IntN(5000)}
					c.Labels = strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")[random.IntN(7):][:1+random.IntN(6)]
					for range c.Labels {
						c.Values = append(c.Values, float64(c.Base)+(0.1+0.9*random.Float64())*4*float64(c.Step))
					}
					read(t, &c, scale)
				}
			})
		}
	}
}

func read(t *testing.T, c *chart.Chart, scale int) {
	t.Helper()
	file, err := c.Draw(scale)
	if err != nil {
		t.Fatal(err)
	}
	points, err := eye.Read(file, careful)
	if err != nil || len(points) != len(c.Values) {
		t.Fatalf("Read of %+v = %v, %v", c, points, err)
	}
	half := float64(c.Step) / float64(16*scale) / 2
	for i, p := range points {
		if p.Label != c.Labels[i] || math.Abs(p.Value-c.Values[i]) > half*1.0001 {
			t.Errorf("%+v at scale %d: point %d is %+v, want %s and %v ± %v", c, scale, i, p, c.Labels[i], c.Values[i], half)
		}
	}
}

// Less care sees less, always in the same way.
func TestCare(t *testing.T) {
	t.Parallel()
	c := chart.Chart{Kind: chart.Bars, Labels: []string{"JAN", "FEB"}, Values: []float64{125, 180}, Base: 100, Step: 20}
	file, err := c.Draw(4)
	if err != nil {
		t.Fatal(err)
	}
	for care, want := range map[eye.Care][2]float64{
		{Axis: true, Measure: true}: {125, 180},
		{Axis: true}:                {120, 180},
		{Measure: true}:             {56.25, 180}, // as if the axis went from 0 to 180
		{}:                          {45, 180},
	} {
		points, err := eye.Read(file, care)
		if err != nil || len(points) != 2 || points[0].Value != want[0] || points[1].Value != want[1] {
			t.Errorf("Read with %+v = %v, %v, want %v", care, points, err, want)
		}
	}
}

// A value at the foot of the axis has no bar.
func TestNoBar(t *testing.T) {
	t.Parallel()
	c := chart.Chart{Kind: chart.Bars, Labels: []string{"JAN", "FEB"}, Values: []float64{10, 50}, Base: 10, Step: 10}
	file, err := c.Draw(2)
	if err != nil {
		t.Fatal(err)
	}
	if points, err := eye.Read(file, careful); err != nil || points[0].Value != 10 || points[1].Value != 50 {
		t.Errorf("Read = %v, %v", points, err)
	}
}

func TestNoChart(t *testing.T) {
	t.Parallel()
	white := image.NewRGBA(image.Rect(0, 0, 120, 80))
	for i := range white.Pix {
		white.Pix[i] = 0xff
	}
	var file bytes.Buffer
	if err := png.Encode(&file, white); err != nil {
		t.Fatal(err)
	}
	if _, err := eye.Read(file.Bytes(), careful); err == nil || !strings.Contains(err.Error(), "no axes") {
		t.Errorf("Read of a white picture = %v", err)
	}
	for x := range 120 {
		white.Set(x, 60, color.Black)
	}
	for y := range 80 {
		white.Set(20, y, color.Black)
	}
	file.Reset()
	if err := png.Encode(&file, white); err != nil {
		t.Fatal(err)
	}
	if _, err := eye.Read(file.Bytes(), careful); err == nil {
		t.Error("axes without a number were read")
	}
	if _, err := eye.Read([]byte("GIF89a"), careful); err == nil {
		t.Error("a GIF was read")
	}
}
