package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Lines is panels of lines over the same few steps, one below the other.
type Lines struct {
	Title  string
	Steps  []string // what stands below each step, from left to right
	Panels []LinePanel
}

// LinePanel is lines on one scale, which is logarithmic from 1 on: what is less stands on the ground. A linear one
// begins at 0.
type LinePanel struct {
	Title  string
	Linear bool
	Lines  []Line
	Points []Point
}

// Point is what somebody else says of a step, to compare lines with.
type Point struct {
	Label string
	Step  int
	Value float64
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
.line{fill:none;stroke-width:2}.line.ours{fill:none;stroke:#0969da}.line.other{fill:none;stroke:#9aa4b0}.grid{stroke:#d0d7de}.dashed{stroke-dasharray:5 4}.point{fill:none;stroke:#bc4c00;stroke-width:1.5}
@media(prefers-color-scheme:dark){.line.ours{stroke:#4493f8}.line.other{stroke:#6e7681}.grid{stroke:#30363d}.point{stroke:#db6d28}}
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
	ground := fmt.Sprintf(`<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`,
		sheetWidth-1, height-1)
	return []byte(head + "\n" + style + lineStyle + ground + "\n" + b.String() + "</svg>\n")
}

// x is where a step stands.
func (l Lines) x(i int) float64 {
	return margin + tickWidth + lineWidth*float64(i)/float64(max(1, len(l.Steps)-1))
}

func (l Lines) draw(b *strings.Builder, p LinePanel, top int) {
	part, ticks := p.scale()
	at := func(v float64) float64 { return float64(top) + panelHeight*(1-part(v)) } // from the top of the sheet
	for i, v := range ticks {
		fmt.Fprintf(b, `<path class="grid" d="M%d %.1fH%.1f"/>`+"\n", margin+tickWidth, at(v), l.x(len(l.Steps)-1))
		tick := strconv.FormatFloat(v, 'g', 5, 64)
		if i == 0 && !p.Linear {
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
	points := slices.Clone(p.Points)
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Or(a.Step-b.Step, cmp.Compare(b.Value, a.Value)) })
	below := 0.0 // the label of the one before, of the same step
	for i, point := range points {
		x, y := l.x(point.Step), at(point.Value)
		fmt.Fprintf(b, `<circle class="point" cx="%.1f" cy="%.1f" r="4"/>`+"\n", x, y)
		if below = max(y, below+namePitch); i == 0 || points[i-1].Step != point.Step {
			below = y
		}
		text(b, int(x)-8-8*len(point.Label), int(below)+4, "word", point.Label) // names stand behind the last step
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

// scale says how far up a value stands, from 0 to 1, and where lines are drawn.
func (p LinePanel) scale() (part func(v float64) float64, ticks []float64) {
	high := 10.0
	if p.Linear {
		high = 0
	}
	for _, line := range p.Lines {
		for _, v := range line.Values {
			if !math.IsNaN(v) {
				high = max(high, v)
			}
		}
	}
	for _, point := range p.Points {
		high = max(high, point.Value)
	}
	if !p.Linear {
		decades := math.Ceil(math.Log10(high) - 1e-9)
		for d := range int(decades) + 1 {
			ticks = append(ticks, math.Pow10(d))
		}
		return func(v float64) float64 { return math.Log10(max(1, v)) / decades }, ticks
	}
	step := math.Pow10(int(math.Floor(math.Log10(max(high, 1e-3)))))
	for _, finer := range []float64{2, 5} { // four lines or more
		if high/step < 4 {
			step = step * 2 / finer
		}
	}
	top := math.Ceil(high/step) * step
	for v := 0.0; v <= top+step/2; v += step {
		ticks = append(ticks, math.Round(v/step)*step)
	}
	return func(v float64) float64 { return max(0, v) / top }, ticks
}
