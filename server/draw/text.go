package draw

import (
	"fmt"
	"slices"
	"strings"
)

// The picture on a terminal: labels and an axis on the left, then a column for each cell.
const (
	textRows   = 6
	textLabels = 10
)

var blocks = []rune(" ▁▂▃▄▅▆▇█")

// Text draws p for a terminal of 80 columns, without colours.
func (p *Picture) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", p.Title, p.Limit)
	fmt.Fprintf(&b, "%*s %-*s%-*s%s\n", textLabels, "", p.SilentFrom, "asks without a pause", p.SilentTo-p.SilentFrom,
		"is silent", "asks again")
	most := max(1, slices.Max(p.Passed))
	for row := textRows - 1; row >= 0; row-- {
		label, axis := "", '│'
		if row == textRows-1 {
			label, axis = short(most), '┤'
		}
		fmt.Fprintf(&b, "%*s %c", textLabels-1, label, axis)
		for _, n := range p.Passed {
			b.WriteRune(block(n, most, textRows, row))
		}
		trimmed := strings.TrimRight(b.String(), " ")
		b.Reset()
		b.WriteString(trimmed + "\n")
	}
	fmt.Fprintf(&b, "%*s ┼%s\n", textLabels-1, "0", strings.Repeat("─", Cells))
	fmt.Fprintf(&b, "%*s ", textLabels, "")
	for i := 0; i <= Cells; i += cellsPerUnit {
		text := p.at(i)
		if i < Cells {
			text = fmt.Sprintf("%-*s", cellsPerUnit, text)
		}
		b.WriteString(text)
	}
	fmt.Fprintf(&b, "\n%*s ", textLabels, p.leftName())
	for _, n := range p.Left[1:] {
		b.WriteRune(block(n, max(1, p.Burst), 1, 0))
	}
	trimmed := strings.TrimRight(b.String(), " ")
	b.Reset()
	b.WriteString(trimmed)
	fmt.Fprintf(&b, "\n\nA column is %s, and as high as the requests that pass in it.\n", span(seconds(p.CellSeconds)))
	b.WriteString(strings.Join(Wrap(p.Says, 80), "\n") + "\n")
	return b.String()
}

// leftName is what the second drawing shows.
func (p *Picture) leftName() string {
	if p.Algorithm == "leaky_bucket" {
		return "room"
	}
	return "left"
}

// at names the time at which a cell begins.
func (p *Picture) at(cell int) string {
	if cell == 0 {
		return "0"
	}
	return strings.Replace(span(seconds(float64(cell)*p.CellSeconds)), " days", "d", 1)
}

// block is what of a column stands in one of so many rows, of which 0 is the lowest.
func block(n, most int64, rows, row int) rune {
	if n <= 0 {
		return ' '
	}
	eighths := max(1, int(float64(n)/float64(most)*float64(8*rows)+0.5)) - 8*row
	return blocks[min(max(eighths, 0), 8)]
}

// short writes a number in at most six columns.
func short(n int64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if f := float64(n); f >= unit.of {
			if unit.name == "k" {
				unit.of = 1e3
			}
			return fmt.Sprintf("%.3g%s", f/unit.of, unit.name)
		}
	}
	return fmt.Sprint(n)
}

// Wrap breaks a text into lines of at most so many columns.
func Wrap(text string, columns int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > columns:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
