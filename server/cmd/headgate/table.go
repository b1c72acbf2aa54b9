package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// table aligns columns for people.
type table struct{ *tabwriter.Writer }

// newTable begins a table under a title, its columns separated by tabs.
func newTable(w io.Writer, title string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t, title)
	return t
}

// row writes one line. Cells come from databases and servers, and may hold what
// others wrote: they begin no line of their own and say nothing to the terminal.
func (t table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = plain(fmt.Sprint(c))
	}
	fmt.Fprintln(t, strings.Join(texts, "\t"))
}

// plain replaces what is not printable.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
}
