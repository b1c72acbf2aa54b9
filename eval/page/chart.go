package page

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Chart is panels of horizontal bars, one below the other.
type Chart struct {
	Title  string
	Panels []Panel
}

// Panel is bars on one scale.
type Panel struct {
	Title string
	Log   bool // the scale is logarithmic: every panel whose values differ by more than a factor of thirty
	Bars  []Bar

	// Mark draws a line across the bars at a value, if it is not 0.
	Mark float64

	// From and To are where the scale begins, if it is logarithmic, and where it ends. By default the bars decide.
	From, To float64
}

// Bar is a value, and optionally the range that it was found in.
type Bar struct {
	Label, Text string // Text follows the bar
	Value       float64
	Low, High   float64
	Ours        bool
}

// The sheet. Text is some 6.6 wide a character at 12 pixels.
const (
	sheetWidth = 820
	margin     = 16
	labelWidth = 190
	textWidth  = 90
	barWidth   = sheetWidth - 2*margin - labelWidth - textWidth
	barHeight  = 15
	barPitch   = 21
)

// style makes the sheet readable on light and on dark ground: it brings its own, and asks which is wanted.
const style = `<style>
.ground{fill:#ffffff;stroke:#d0d7de}.word{fill:#1f2328;font:12px system-ui,sans-serif}.head{font-weight:600;font-size:14px}
.ours{fill:#0969da}.other{fill:#9aa4b0}.range{stroke:#1f2328}.mark{stroke:#cf222e;stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){.ground{fill:#0d1117;stroke:#30363d}.word{fill:#e6edf3}.ours{fill:#4493f8}.other{fill:#6e7681}
.range{stroke:#e6edf3}.mark{stroke:#ff7b72}}
</style>
`

// SVG draws c. It needs no script and no font.
func (c Chart) SVG() []byte {
	var b strings.Builder
	y := margin + 14
	text(&b, margin, y, "head", c.Title)
	for _, p := range c.Panels {
		y += 34
		text(&b, margin, y, "head", p.Title)
		y += 8
		p.draw(&b, y)
		y += len(p.Bars) * barPitch
	}
	height := y + margin
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`,
		sheetWidth, height, sheetWidth, height, escape(c.Title))
	ground := fmt.Sprintf(`<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`,
		sheetWidth-1, height-1)
	return []byte(head + "\n" + style + ground + "\n" + b.String() + "</svg>\n")
}

func (p Panel) draw(b *strings.Builder, y int) {
	scale := p.scale()
	for i, bar := range p.Bars {
		top, class := y+i*barPitch, "other"
		if bar.Ours {
			class = "ours"
		}
		text(b, margin, top+12, "word", bar.Label)
		left := margin + labelWidth
		end := scale(bar.Value)
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n", class, left, top,
			max(end, 1), barHeight)
		if bar.High > bar.Low {
			from, to, middle := float64(left)+scale(bar.Low), float64(left)+min(scale(bar.High), barWidth),
				top+barHeight/2
			fmt.Fprintf(b, `<path class="range" fill="none" d="M%.1f %dH%.1fM%.1f %dv6M%.1f %dv6"/>`+"\n", from, middle,
				to, from, middle-3, to, middle-3)
			end = max(end, min(scale(bar.High), barWidth))
		}
		text(b, left+int(end)+6, top+12, "word", bar.Text)
	}
	if p.Mark != 0 {
		fmt.Fprintf(b, `<path class="mark" d="M%.1f %dv%d"/>`+"\n", float64(margin+labelWidth)+scale(p.Mark), y-3,
			len(p.Bars)*barPitch)
	}
}

// scale maps the values of a panel to lengths.
func (p Panel) scale() func(float64) float64 {
	low, high := math.Inf(1), max(p.Mark, p.To)
	for _, bar := range p.Bars {
		high = max(high, 1.2*bar.Value) // a range may be cut off: one outlier would leave no room for the others
		if bar.Value > 0 {
			low = min(low, bar.Value)
		}
	}
	if !p.Log {
		return func(v float64) float64 { return barWidth * v / high }
	}
	low = math.Log(low) - 0.3
	if p.From > 0 {
		low = math.Log(p.From)
	}
	return func(v float64) float64 {
		if v <= 0 {
			return 0
		}
		return barWidth * max(0, math.Log(v)-low) / (math.Log(high) - low)
	}
}

func text(b *strings.Builder, x, y int, class, s string) {
	if class != "word" {
		class = "word " + class
	}
	fmt.Fprintf(b, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, escape(s))
}

func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return ""
	}
	return b.String()
}
