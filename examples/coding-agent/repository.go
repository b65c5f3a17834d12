package main

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// job is a task: what somebody complains about, and the repository that it is
// about.
type job struct {
	ID    string            `json:"id"`
	Issue string            `json:"issue"`
	Files map[string]string `json:"files"`
}

//go:embed repositories/*.txtar
var archives embed.FS

// jobs reads the named repositories.
func jobs(names ...string) ([]job, error) {
	all := make([]job, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(archives, "repositories/"+name+".txtar")
		if err != nil {
			return nil, err
		}
		if all[i], err = unpack(name, string(text)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// unpack reads an archive in the format of the Go project's txtar: the issue, and
// then each file behind a line with its name.
func unpack(name, archive string) (job, error) {
	j := job{ID: name, Files: map[string]string{}}
	file := ""
	for line := range strings.Lines(archive) {
		title, begins := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- ")
		title, ends := strings.CutSuffix(title, " --")
		switch {
		case begins && ends:
			file = title
			j.Files[file] = ""
		case file == "":
			j.Issue += line
		default:
			j.Files[file] += line
		}
	}
	j.Issue = strings.TrimSpace(j.Issue)
	if j.Issue == "" || j.Files["go.mod"] == "" {
		return j, fmt.Errorf("repository %s: it needs an issue and a go.mod", name)
	}
	return j, nil
}
