// Command curves draws the learning curves of an example from the reports in its
// folder figures, as the example wrote them with --report, to curves.png:
//
//	go -C tools/curves run . ../../examples/grid
//
// Reports are called seed-N.json, those of the control, with --shuffle-rewards,
// shuffled-N.json. An example that trained in several ways gets a panel for each.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// report is what the examples have in common.
type report struct {
	Seed           int64   `json:"seed"`
	ShuffleRewards bool    `json:"shuffle_rewards"`
	Curve          []point `json:"curve"`
	// Rules are there when an example trained several times.
	Rules []struct {
		Rule  string  `json:"rule"`
		Curve []point `json:"curve"`
	} `json:"rules"`
}

type point struct {
	Step     int      `json:"step"`
	Accuracy *float64 `json:"accuracy"` // null where there was no validation
}

// series is one line of a panel.
type series struct {
	seed     int64
	shuffled bool
	points   plotter.XYs
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "curves: name the folders of examples, such as ../../examples/grid")
		os.Exit(1)
	}
	for _, folder := range os.Args[1:] {
		if err := drawExample(folder); err != nil {
			fmt.Fprintf(os.Stderr, "curves: %s: %v\n", folder, err)
			os.Exit(1)
		}
	}
}

func drawExample(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "figures", "*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("there is no report in its folder figures")
	}
	var names []string // of panels, in order of first appearance
	panels := map[string][]series{}
	add := func(name string, r *report, curve []point) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		s := series{seed: r.Seed, shuffled: r.ShuffleRewards}
		for _, p := range curve {
			if p.Accuracy != nil {
				s.points = append(s.points, plotter.XY{X: float64(p.Step), Y: *p.Accuracy})
			}
		}
		panels[name] = append(panels[name], s)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if len(r.Curve) > 0 {
			add(filepath.Base(folder), &r, r.Curve)
		}
		for _, rule := range r.Rules {
			add(rule.Rule, &r, rule.Curve)
		}
	}
	return save(filepath.Join(folder, "curves.png"), names, panels)
}

// colours are those of the seeds.
var colours = []color.Color{
	color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff},
	color.RGBA{R: 0xd6, G: 0x5f, B: 0x0e, A: 0xff},
	color.RGBA{R: 0x2c, G: 0x8a, B: 0x2c, A: 0xff},
}

var grey = color.RGBA{R: 0x80, G: 0x80, B: 0x80, A: 0xff}

func panel(name string, lines []series) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = name
	p.X.Label.Text = "step"
	p.Y.Label.Text = "validation"
	p.BackgroundColor = color.White
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	n := 0
	for _, shuffled := range []bool{false, true} {
		first := true
		for _, s := range lines {
			if s.shuffled != shuffled {
				continue
			}
			line, err := plotter.NewLine(s.points)
			if err != nil {
				return nil, fmt.Errorf("%s, seed %d: %w", name, s.seed, err)
			}
			line.Width = vg.Points(1.5)
			if shuffled {
				line.Color, line.Dashes = grey, []vg.Length{vg.Points(4), vg.Points(3)}
			} else {
				line.Color = colours[n%len(colours)]
				n++
			}
			p.Add(line)
			switch {
			case !shuffled:
				p.Legend.Add(fmt.Sprintf("seed %d", s.seed), line)
			case first:
				p.Legend.Add("shuffled", line)
				first = false
			}
		}
	}
	p.Y.Min, p.Y.Max = min(0, p.Y.Min), 1 // rewards may be penalties
	// The legend stands beside the lines.
	last := p.X.Max
	p.X.Max = last * 1.35
	p.X.Tick.Marker = plot.ConstantTicks([]plot.Tick{
		{Value: 0, Label: "0"}, {Value: last / 2, Label: fmt.Sprint(last / 2)}, {Value: last, Label: fmt.Sprint(last)},
	})
	return p, nil
}

// save draws the panels, three in a row.
func save(file string, names []string, panels map[string][]series) (err error) {
	columns := min(3, len(names))
	rows := (len(names) + columns - 1) / columns
	grid := make([][]*plot.Plot, rows)
	for i := range grid {
		grid[i] = make([]*plot.Plot, columns)
	}
	for i, name := range names {
		if grid[i/columns][i%columns], err = panel(name, panels[name]); err != nil {
			return err
		}
	}
	size := vg.Points(320)
	if columns == 1 {
		size = vg.Points(480)
	}
	image := vgimg.NewWith(vgimg.UseWH(size*vg.Length(columns), 0.72*size*vg.Length(rows)), vgimg.UseDPI(96))
	canvas := draw.New(image)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: vg.Points(12), PadY: vg.Points(12), PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(12)}
	for i, row := range plot.Align(grid, tiles, canvas) {
		for j, c := range row {
			if grid[i][j] != nil {
				grid[i][j].Draw(c)
			}
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = vgimg.PngCanvas{Canvas: image}.WriteTo(out)
	return errors.Join(err, out.Close())
}
