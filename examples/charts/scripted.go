package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image/png"
	"regexp"
	"strconv"
	"strings"

	"agentlightning/examples/charts/eye"
	"agentlightning/examples/internal/lesson"
)

const scriptedModel = "scripted"

// What the script understands of its instructions.
const (
	tellsOfAxis   = "The axis may not begin at zero: read its first number."
	tellsMeasures = "Between two lines measure to the pixel."
)

var (
	asksMore    = regexp.MustCompile(`How much more is it in (\w+) than in (\w+)\?`)
	asksOne     = regexp.MustCompile(`How much is it in (\w+)\?`)
	asksHighest = regexp.MustCompile(`Which month is highest\?`)
)

// answer is what the script says to the last question. It looks at the picture
// with what care it was told to take.
func answer(in lesson.Chat) (lesson.Said, error) {
	var url, asked string
	for i := range in.Messages {
		m := &in.Messages[i]
		if m.Role != "user" {
			continue
		}
		asked = m.Text()
		for _, u := range m.Images() {
			url = u
		}
	}
	file, err := picture(url)
	if err != nil {
		return lesson.Said{}, err
	}
	how := in.System()
	points, err := eye.Read(file, eye.Care{Axis: strings.Contains(how, tellsOfAxis), Measure: strings.Contains(how, tellsMeasures)})
	if err != nil {
		return lesson.Said{Text: "I cannot read this picture: " + err.Error()}, nil //nolint:nilerr // it is what the script has to say
	}
	return lesson.Said{Text: say(asked, points)}, nil
}

// picture is the file in a data URL.
func picture(url string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(url, pngPrefix)
	if !ok {
		return nil, fmt.Errorf("image_url %.40q: this model is shown PNG pictures as data URLs", url)
	}
	return base64.StdEncoding.DecodeString(encoded)
}

func say(asked string, points []eye.Point) string {
	value := func(label string) (float64, error) {
		for _, p := range points {
			if p.Label == label {
				return p.Value, nil
			}
		}
		return 0, errors.New("I do not see " + label + ".")
	}
	if m := asksMore.FindStringSubmatch(asked); m != nil {
		a, err1 := value(m[1])
		b, err2 := value(m[2])
		if err := errors.Join(err1, err2); err != nil {
			return err.Error()
		}
		return number(a - b)
	}
	if m := asksOne.FindStringSubmatch(asked); m != nil {
		v, err := value(m[1])
		if err != nil {
			return err.Error()
		}
		return number(v)
	}
	if asksHighest.MatchString(asked) {
		best := points[0]
		for _, p := range points {
			if p.Value > best.Value {
				best = p
			}
		}
		return best.Label
	}
	return "I do not understand the question."
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// patch is how many pixels are one token in each direction, as in Qwen2-VL
// (arXiv:2409.12191, section 2.1).
const patch = 28

// imageTokens is what a picture costs.
func imageTokens(url string) int {
	file, err := picture(url)
	if err != nil {
		return 1
	}
	c, err := png.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return 1
	}
	return ((c.Width + patch - 1) / patch) * ((c.Height + patch - 1) / patch)
}
