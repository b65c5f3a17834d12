package chart

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"strconv"
	"strings"
)

// Kind is how a chart shows its values.
type Kind string

// The kinds.
const (
	Bars Kind = "bars"
	Line Kind = "line"
)

// Chart is what is drawn: values from Base to Base + 4·Step, each with a label of
// three letters.
type Chart struct {
	Kind   Kind      `json:"kind"`
	Labels []string  `json:"labels"`
	Values []float64 `json:"values"`
	// Base is where the axis begins, and Step what lies between its lines.
	Base int `json:"base"`
	Step int `json:"step"`
}

// Steps is how many times Step the axis is long.
const Steps = 4

// The size of a chart and its parts in cells.
const (
	Width  = 120
	Height = 80

	left      = 20 // of the axis
	bottom    = 71 // the row of the axis
	perStep   = 16
	slot      = 16 // of a label
	barWidth  = 8
	maxLabels = 6
)

// The colours of the pictures.
var (
	White = color.RGBA{0xff, 0xff, 0xff, 0xff}
	Black = color.RGBA{0, 0, 0, 0xff}
	Grey  = color.RGBA{0xc8, 0xc8, 0xc8, 0xff}
	Blue  = color.RGBA{0x1f, 0x5f, 0xbf, 0xff} // bars and points
	Pale  = color.RGBA{0x9f, 0xc4, 0xf0, 0xff} // what joins the points
)

var palette = color.Palette{White, Black, Grey, Blue, Pale}

// The places of the colours in the palette. A new picture is white.
const (
	black = 1 + iota
	grey
	blue
	pale
)

// Check returns an error when the chart cannot be drawn.
func (c *Chart) Check() error {
	switch {
	case c.Kind != Bars && c.Kind != Line:
		return fmt.Errorf("kind %q: must be %s or %s", c.Kind, Bars, Line)
	case len(c.Values) == 0 || len(c.Values) > maxLabels:
		return fmt.Errorf("%d values: must be 1 to %d", len(c.Values), maxLabels)
	case len(c.Labels) != len(c.Values):
		return fmt.Errorf("%d labels for %d values", len(c.Labels), len(c.Values))
	case c.Step < 1 || c.Base < 0 || c.Base+Steps*c.Step > 9999:
		return fmt.Errorf("axis from %d in steps of %d: must lie in 0 to 9999", c.Base, c.Step)
	}
	for i, label := range c.Labels {
		if len(label) != 3 {
			return fmt.Errorf("label %q: must have three letters", label)
		}
		for _, r := range label {
			if _, ok := Glyph(r); !ok {
				return fmt.Errorf("label %q: there is no letter %q", label, r)
			}
		}
		if v := c.Values[i]; v < float64(c.Base) || v > float64(c.Base+Steps*c.Step) {
			return fmt.Errorf("value %g of %s: must be between %d and %d", v, label, c.Base, c.Base+Steps*c.Step)
		}
	}
	return nil
}

// Draw returns the chart as PNG, each cell of it scale by scale pixels, so that a
// larger picture tells more.
func (c *Chart) Draw(scale int) ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if scale < 1 || scale > 16 {
		return nil, fmt.Errorf("scale %d: must be 1 to 16", scale)
	}
	p := &picture{image.NewPaletted(image.Rect(0, 0, Width*scale, Height*scale), palette), scale}
	axis := bottom * scale
	for i := range Steps + 1 {
		row := axis - i*perStep*scale
		if i > 0 {
			p.fill(image.Rect(left*scale, row, Width*scale, row+1), grey)
		}
		number := strconv.Itoa(c.Base + i*c.Step)
		p.write(number, (left-2)*scale-p.long(number), row-GlyphHeight/2*scale)
	}
	c.values(p, axis)
	for i, label := range c.Labels {
		p.write(label, p.middle(i)-p.long(label)/2, (bottom+3)*scale)
	}
	p.fill(image.Rect(left*scale, 0, left*scale+1, axis+1), black)
	p.fill(image.Rect(left*scale, axis, Width*scale, axis+1), black)
	var out bytes.Buffer
	err := png.Encode(&out, p.Paletted)
	return out.Bytes(), err
}

// values draws bars, or points and what joins them.
func (c *Chart) values(p *picture, axis int) {
	points := make([]image.Point, len(c.Values))
	for i, v := range c.Values {
		up := (v - float64(c.Base)) / float64(c.Step) * float64(perStep*p.scale)
		points[i] = image.Pt(p.middle(i), axis-int(math.Round(up)))
	}
	for i, at := range points {
		if c.Kind == Bars {
			half := barWidth * p.scale / 2
			p.fill(image.Rect(at.X-half, at.Y, at.X+half, axis), blue)
		} else if i > 0 {
			p.join(points[i-1], at)
		}
	}
	if c.Kind == Line {
		for _, at := range points {
			p.fill(image.Rect(at.X-p.scale, at.Y-p.scale, at.X+p.scale+1, at.Y+p.scale+1), blue)
		}
	}
}

// picture is what is drawn on.
type picture struct {
	*image.Paletted

	scale int
}

// middle is the column of a value.
func (p *picture) middle(i int) int { return (left + 2 + slot*i + slot/2) * p.scale }

func (p *picture) fill(r image.Rectangle, colour uint8) {
	r = r.Intersect(p.Rect)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		row := p.Pix[p.PixOffset(r.Min.X, y):]
		for x := range r.Dx() {
			row[x] = colour
		}
	}
}

func (p *picture) join(a, b image.Point) {
	for x := a.X; x <= b.X; x++ {
		y := a.Y + (b.Y-a.Y)*(x-a.X)/(b.X-a.X)
		p.SetColorIndex(x, y, pale)
	}
}

// long is how many pixels a text takes.
func (p *picture) long(text string) int { return (len(text)*(GlyphWidth+1) - 1) * p.scale }

// write writes a text with its upper left corner at x and y.
func (p *picture) write(text string, x, y int) {
	for _, r := range strings.ToUpper(text) {
		rows, _ := Glyph(r)
		for j, row := range rows {
			for i, set := range row {
				if set {
					at := image.Pt(x+i*p.scale, y+j*p.scale)
					p.fill(image.Rectangle{at, at.Add(image.Pt(p.scale, p.scale))}, black)
				}
			}
		}
		x += (GlyphWidth + 1) * p.scale
	}
}
