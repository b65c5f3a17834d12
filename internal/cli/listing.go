package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	agl "agentlightning"
)

// listing writes rows: as a table with a head where a person reads, as bare
// lines with tabs between the columns where a program does.
type listing struct {
	w      io.Writer
	table  *tabwriter.Writer // nil for bare lines
	head   []string
	indent string // of a table
	rows   int
}

// tableFlag asks for tables where they are not written by default.
const tableFlag = "table"

func bindTable(cmd *cobra.Command) {
	cmd.Flags().Bool(tableFlag, false, "write tables, as in a terminal, also where a program reads")
}

// newListing returns a listing on the output of a command.
func newListing(cmd *cobra.Command, indent string, head ...string) *listing {
	l := &listing{w: cmd.OutOrStdout(), head: head, indent: indent}
	if forPeople(cmd) {
		l.table = tabwriter.NewWriter(l.w, 0, 8, 2, ' ', 0)
	}
	return l
}

// forPeople tells whether a person reads what the command writes.
func forPeople(cmd *cobra.Command) bool {
	if asked, err := cmd.Flags().GetBool(tableFlag); err == nil && asked {
		return true
	}
	return isTerminal(cmd.OutOrStdout())
}

// isTerminal tells whether a stream of a command is one of a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// add writes a row. In bare lines every cell is one field: line breaks and tabs
// become spaces.
func (l *listing) add(cells ...string) {
	l.rows++
	if l.table == nil {
		for i := range cells {
			cells[i] = strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(cells[i])
		}
		fmt.Fprintln(l.w, strings.Join(cells, "\t"))
		return
	}
	if l.rows == 1 {
		fmt.Fprintln(l.table, l.indent+strings.Join(l.head, "\t"))
	}
	fmt.Fprintln(l.table, l.indent+strings.Join(cells, "\t"))
}

// flush writes what is held to align the columns.
func (l *listing) flush() error {
	if l.table == nil {
		return nil
	}
	return l.table.Flush()
}

// cut shortens a text where a person reads; a program gets all of it.
func (l *listing) cut(text string, n int) string {
	if l.table == nil {
		return text
	}
	return short(text, n)
}

// when writes a time: for people as the clock on the wall, for programs by
// RFC 3339.
func (l *listing) when(seconds float64) string {
	if l.table == nil {
		return agl.Time(seconds).UTC().Format(time.RFC3339)
	}
	return agl.Time(seconds).Format(time.DateTime)
}

// dash stands for an empty cell.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// counted writes a number of things.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func took(start float64, end *float64) string {
	if end == nil {
		return "-"
	}
	return time.Duration((*end - start) * float64(time.Second)).Round(100 * time.Microsecond).String()
}

// short cuts a text to n characters and keeps it on one line.
func short(text string, n int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}
