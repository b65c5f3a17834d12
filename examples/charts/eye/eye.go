package eye

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"slices"
	"strconv"

	"agentlightning/examples/charts/chart"
)

// Care is how well one looks.
type Care struct {
	// Axis reads all numbers of the axis. Without it, the axis is taken to begin
	// at zero, as most do.
	Axis bool
	// Measure goes by the pixel. Without it, every value is on the nearest line.
	Measure bool
}

// Point is a value that was read.
type Point struct {
	Label string
	Value float64
}

// Read looks at a picture.
func Read(file []byte, care Care) ([]Point, error) {
	img, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	s := look(img)
	if err := s.findAxes(); err != nil {
		return nil, err
	}
	words, cell, err := s.below()
	if err != nil {
		return nil, err
	}
	lines, err := s.lines(cell)
	if err != nil {
		return nil, err
	}
	points := make([]Point, len(words))
	for i, w := range words {
		points[i] = Point{w.text, care.judge(s.value(w.middle), lines)}
	}
	return points, nil
}

// line is a line of the axis with the number beside it.
type line struct {
	row    int
	number float64
}

// judge is the value of a row. Lines are sorted from below.
func (c Care) judge(row int, lines []line) float64 {
	low, high := lines[0], lines[len(lines)-1]
	if !c.Axis {
		low.number = 0
	}
	at := float64(low.row-row) / float64(low.row-high.row)
	if !c.Measure {
		steps := float64(len(lines) - 1)
		at = math.Round(at*steps) / steps
	}
	return low.number + at*(high.number-low.number)
}

// sight is a picture that is looked at: what each pixel is of the palette.
type sight struct {
	all    image.Rectangle // from 0, 0
	pixels []ink
	// corner is where the axes meet.
	corner image.Point
}

// ink is a colour of the palette.
type ink byte

const (
	other ink = iota
	black
	grey
	blue
)

// inkOf is a colour of the palette, or another one, such as white.
func inkOf(c color.Color) ink {
	switch color.RGBAModel.Convert(c) {
	case chart.Black:
		return black
	case chart.Grey:
		return grey
	case chart.Blue:
		return blue
	}
	return other
}

func look(img image.Image) *sight {
	from := img.Bounds()
	s := &sight{all: image.Rect(0, 0, from.Dx(), from.Dy()), pixels: make([]ink, from.Dx()*from.Dy())}
	if p, ok := img.(*image.Paletted); ok { // what charts are
		inks := make([]ink, len(p.Palette))
		for i, c := range p.Palette {
			inks[i] = inkOf(c)
		}
		for y := range from.Dy() {
			for x, at := range p.Pix[y*p.Stride : y*p.Stride+from.Dx()] {
				s.pixels[y*from.Dx()+x] = inks[at]
			}
		}
		return s
	}
	for y := range from.Dy() {
		for x := range from.Dx() {
			s.pixels[y*from.Dx()+x] = inkOf(img.At(from.Min.X+x, from.Min.Y+y))
		}
	}
	return s
}

func (s *sight) is(x, y int, c ink) bool {
	return image.Pt(x, y).In(s.all) && s.pixels[y*s.all.Max.X+x] == c
}

// count counts the pixels of an ink in a rectangle.
func (s *sight) count(r image.Rectangle, c ink) int {
	n := 0
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for _, p := range s.pixels[y*s.all.Max.X+r.Min.X : y*s.all.Max.X+r.Max.X] {
			if p == c {
				n++
			}
		}
	}
	return n
}

func (s *sight) row(y, from, to int) image.Rectangle { return image.Rect(from, y, to, y+1) }
func (s *sight) column(x, from, to int) image.Rectangle {
	return image.Rect(x, from, x+1, to)
}

// findAxes finds the row and the column with the most black.
func (s *sight) findAxes() error {
	rows, columns := make([]int, s.all.Dy()), make([]int, s.all.Dx())
	for i, p := range s.pixels {
		if p == black {
			rows[i/s.all.Dx()]++
			columns[i%s.all.Dx()]++
		}
	}
	wide, high := slices.Max(rows), slices.Max(columns)
	if wide < s.all.Dx()/2 || high < s.all.Dy()/2 {
		return errors.New("there are no axes in the picture")
	}
	s.corner = image.Pt(slices.Index(columns, high), slices.Index(rows, wide))
	return nil
}

// word is a text and the column of its middle.
type word struct {
	text   string
	middle int
}

// below reads the labels under the axis, and how many pixels a cell has.
func (s *sight) below() ([]word, int, error) {
	bands := s.bands(image.Rect(s.corner.X, s.corner.Y+1, s.all.Max.X, s.all.Max.Y))
	if len(bands) != 1 || bands[0].Dy()%chart.GlyphHeight != 0 {
		return nil, 0, fmt.Errorf("%d lines of text under the axis", len(bands))
	}
	cell := bands[0].Dy() / chart.GlyphHeight
	words, err := s.words(bands[0], cell)
	return words, cell, err
}

// bands are the runs of rows with black in them.
func (s *sight) bands(in image.Rectangle) []image.Rectangle {
	var all []image.Rectangle
	inside := false
	for y := in.Min.Y; y < in.Max.Y; y++ {
		text := s.count(s.row(y, in.Min.X, in.Max.X), black) > 0
		if text && !inside {
			all = append(all, image.Rect(in.Min.X, y, in.Max.X, y))
		}
		if inside = text; text {
			all[len(all)-1].Max.Y = y + 1
		}
	}
	return all
}

// words reads a line of text.
func (s *sight) words(band image.Rectangle, cell int) ([]word, error) {
	var all []word
	from, blank := -1, 0
	end := func(x int) error {
		text, err := s.text(image.Rect(from, band.Min.Y, x, band.Max.Y), cell)
		all = append(all, word{text, (from + x) / 2})
		from = -1
		return err
	}
	for x := band.Min.X; x < band.Max.X; x++ {
		if s.count(s.column(x, band.Min.Y, band.Max.Y), black) > 0 {
			if from < 0 {
				from = x
			}
			blank = 0
			continue
		}
		// Letters have one cell between them, words more.
		if blank++; from >= 0 && blank > cell {
			if err := end(x - cell); err != nil {
				return nil, err
			}
		}
	}
	if from >= 0 {
		if err := end(band.Max.X - blank); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// text reads a word by its letters.
func (s *sight) text(in image.Rectangle, cell int) (string, error) {
	var out []rune
	for x := in.Min.X; x < in.Max.X; x += (chart.GlyphWidth + 1) * cell {
		var rows [chart.GlyphHeight][chart.GlyphWidth]bool
		for j := range rows {
			for i := range rows[j] {
				rows[j][i] = s.is(x+i*cell+cell/2, in.Min.Y+j*cell+cell/2, black)
			}
		}
		r, ok := chart.Known(rows)
		if !ok {
			return "", fmt.Errorf("there is no such letter at %d, %d", x, in.Min.Y)
		}
		out = append(out, r)
	}
	return string(out), nil
}

// lines finds the lines of the axis from below and reads their numbers.
func (s *sight) lines(cell int) ([]line, error) {
	var all []line
	for _, band := range s.bands(image.Rect(s.all.Min.X, s.all.Min.Y, s.corner.X, s.all.Max.Y)) {
		words, err := s.words(band, cell)
		if err != nil {
			return nil, err
		}
		if len(words) != 1 {
			return nil, fmt.Errorf("%d numbers beside row %d", len(words), band.Min.Y)
		}
		number, err := strconv.ParseFloat(words[0].text, 64)
		if err != nil {
			return nil, fmt.Errorf("beside the axis: %w", err)
		}
		at := slices.IndexFunc(s.rows(band), func(y int) bool {
			return y == s.corner.Y || s.count(s.row(y, s.corner.X+1, s.all.Max.X), grey) > s.all.Dx()/10
		})
		if at < 0 {
			return nil, fmt.Errorf("there is no line at %g", number)
		}
		all = append(all, line{band.Min.Y + at, number})
	}
	if len(all) < 2 {
		return nil, fmt.Errorf("%d lines beside the axis", len(all))
	}
	slices.Reverse(all)
	return all, nil
}

func (s *sight) rows(in image.Rectangle) []int {
	rows := make([]int, in.Dy())
	for i := range rows {
		rows[i] = in.Min.Y + i
	}
	return rows
}

// value finds the row of the value in a column: the top of a bar or the middle of
// a point.
func (s *sight) value(x int) int {
	top, end := -1, -1
	for y := s.all.Min.Y; y < s.corner.Y; y++ {
		if s.is(x, y, blue) {
			if top < 0 {
				top = y
			}
			end = y
		}
	}
	switch {
	case top < 0:
		return s.corner.Y // a bar without height
	case end == s.corner.Y-1 && !s.point(x, top):
		return top
	}
	return (top + end) / 2
}

// point tells a point from a bar: it is as wide as it is high, or cut by the axis.
func (s *sight) point(x, top int) bool {
	wide := 0
	for s.is(x+wide, top, blue) {
		wide++
	}
	high := 0
	for s.is(x, top+high, blue) {
		high++
	}
	return 2*wide-1 == high
}
