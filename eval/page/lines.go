package page

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Lines is panels of lines over the same few steps, one below the other.
type Lines struct {
	Title  string
	Steps  []string // what stands below each step, from left to right
	Panels []LinePanel
}

// LinePanel is lines on one scale, which is logarithmic from 1 on: what is less stands on the ground.
type LinePanel struct {
	Title string
	Lines []Line
}

// Line is a value for each step; NaN is none.
type Line struct {
	Label  string
	Values []float64
	Ours   bool
	Dashed bool
}

// The sheet of lines.
const (
	panelHeight = 200
	tickWidth   = 46
	nameWidth   = 180
	lineWidth   = sheetWidth - 2*margin - tickWidth - nameWidth
	namePitch   = 14
)

const lineStyle = `<style>
.line{fill:none;stroke-width:2}.line.ours{fill:none;stroke:#0969da}.line.other{fill:none;stroke:#9aa4b0}.grid{stroke:#d0d7de}.dashed{stroke-dasharray:5 4}
@media(prefers-color-scheme:dark){.line.ours{stroke:#4493f8}.line.other{stroke:#6e7681}.grid{stroke:#30363d}}
</style>
`

// SVG draws l. It needs no script and no font.
func (l Lines) SVG() []byte {
	var b strings.Builder
	y := margin + 14
	text(&b, margin, y, "head", l.Title)
	for _, p := range l.Panels {
		y += 34
		text(&b, margin, y, "head", p.Title)
		y += 14
		l.draw(&b, p, y)
		y += panelHeight + 18
		for i, step := range l.Steps {
			text(&b, int(l.x(i))-4*len(step), y, "word", step)
		}
	}
	height := y + margin
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`,
		sheetWidth, height, sheetWidth, height, escape(l.Title))
	ground := fmt.Sprintf(`<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`, sheetWidth-1, height-1)
	return []byte(head + "\n" + style + lineStyle + ground + "\n" + b.String() + "</svg>\n")
}

// x is where a step stands.
func (l Lines) x(i int) float64 {
	return margin + tickWidth + lineWidth*float64(i)/float64(max(1, len(l.Steps)-1))
}

func (l Lines) draw(b *strings.Builder, p LinePanel, top int) {
	decades := p.decades()
	at := func(v float64) float64 { // from the top of the sheet
		part := 0.0
		if v > 1 {
			part = math.Log10(v) / float64(decades)
		}
		return float64(top) + panelHeight*(1-part)
	}
	for d := range decades + 1 {
		v := math.Pow10(d)
		fmt.Fprintf(b, `<path class="grid" d="M%d %.1fH%.1f"/>`+"\n", margin+tickWidth, at(v), l.x(len(l.Steps)-1))
		tick := fmt.Sprintf("%.0f", v)
		if d == 0 {
			tick = "≤ 1"
		}
		text(b, margin, int(at(v))+4, "word", tick)
	}
	type name struct {
		label string
		y     float64
	}
	var names []name
	for _, line := range p.Lines {
		class, path, command, last := "line other", "", "M", math.NaN()
		if line.Ours {
			class = "line ours"
		}
		if line.Dashed {
			class += " dashed"
		}
		for i, v := range line.Values {
			if math.IsNaN(v) {
				continue
			}
			path += fmt.Sprintf("%s%.1f %.1f", command, l.x(i), at(v))
			command, last = "L", at(v)
		}
		if math.IsNaN(last) {
			continue
		}
		fmt.Fprintf(b, `<path class="%s" d="%s"/>`+"\n", class, path)
		names = append(names, name{line.Label, last})
	}
	slices.SortStableFunc(names, func(a, b name) int { return int(math.Round(a.y - b.y)) })
	for i := range names { // from the top down, each below the one before
		if i > 0 {
			names[i].y = max(names[i].y, names[i-1].y+namePitch)
		}
	}
	floor := float64(top + panelHeight)
	for i := len(names) - 1; i >= 0; i-- { // and none below the ground
		names[i].y = min(names[i].y, floor)
		floor = names[i].y - namePitch
		text(b, int(l.x(len(l.Steps)-1))+8, int(names[i].y)+4, "word", names[i].label)
	}
}

// decades is how many powers of ten the panel has room for.
func (p LinePanel) decades() int {
	high := 10.0
	for _, line := range p.Lines {
		for _, v := range line.Values {
			if !math.IsNaN(v) {
				high = max(high, v)
			}
		}
	}
	return int(math.Ceil(math.Log10(high)))
}
