package draw

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// The sheet, in pixels.
const (
	sheetWidth = 760
	margin     = 16
	labels     = 56 // before the axis
	cellWidth  = 11
	barsHeight = 150
	leftHeight = 56
	lineHeight = 18
	lineWidth  = 108 // of the sentence, in characters
)

// style makes the picture readable on light and on dark ground: it brings its own, and asks which is wanted.
const style = `<style>
.ground{fill:#ffffff;stroke:#d0d7de}.word{fill:#1f2328;font:13px system-ui,sans-serif}.head{font-weight:600}.quiet{fill:#59636e;font:12px system-ui,sans-serif}
.end{text-anchor:end}.middle{text-anchor:middle}.passed{fill:#0969da}.left{fill:#1a7f37;fill-opacity:.25;stroke:#1a7f37}.grid{stroke:#d0d7de}.silent{fill:#eaeef2}
@media(prefers-color-scheme:dark){.ground{fill:#0d1117;stroke:#30363d}.word{fill:#e6edf3}.quiet{fill:#9198a1}.passed{fill:#4493f8}
.left{fill:#3fb950;fill-opacity:.25;stroke:#3fb950}.grid{stroke:#30363d}.silent{fill:#21262d}}
</style>
`

// sheet collects what is drawn.
type sheet struct{ strings.Builder }

func (s *sheet) text(x, y int, class, text string) {
	fmt.Fprintf(s, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, escaped(text))
}

// SVG draws p. It needs no script and no font.
func (p *Picture) SVG() []byte {
	var s sheet
	const left = margin + labels
	x := func(cell int) int { return left + cell*cellWidth }
	y := margin + 14
	s.text(margin, y, "word head", p.Title)
	y += 20
	s.text(margin, y, "quiet", p.Limit)
	y += 28
	s.text(x(0), y, "quiet", "asks without a pause")
	s.text(x(p.SilentFrom)+4, y, "quiet", "is silent")
	s.text(x(p.SilentTo), y, "quiet", "asks again")
	y += 8

	bars := y
	below := bars + barsHeight + 44 // where the second drawing begins
	fmt.Fprintf(&s, `<rect class="silent" x="%d" y="%d" width="%d" height="%d"/>`+"\n",
		x(p.SilentFrom), bars, (p.SilentTo-p.SilentFrom)*cellWidth, below+leftHeight-bars)
	most := max(1, slices.Max(p.Passed))
	p.grid(&s, bars, barsHeight, most)
	for i, n := range p.Passed {
		if n > 0 {
			h := max(1, float64(n)/float64(most)*barsHeight)
			fmt.Fprintf(&s, `<rect class="passed" x="%d" y="%.1f" width="%d" height="%.1f"/>`+"\n", x(i)+1,
				float64(bars+barsHeight)-h, cellWidth-2, h)
		}
	}
	s.text(x(Cells), bars+barsHeight+34, "quiet end",
		fmt.Sprintf("requests that pass in each %s", span(seconds(p.CellSeconds))))
	for i := 0; i <= Cells; i += cellsPerUnit {
		class := "quiet middle"
		switch i {
		case 0:
			class = "quiet"
		case Cells:
			class = "quiet end"
		}
		s.text(x(i), bars+barsHeight+18, class, p.at(i))
	}

	p.grid(&s, below, leftHeight, p.Burst)
	fmt.Fprintf(&s, `<path class="left" d="M%d %d`, x(0), below+leftHeight)
	for i, n := range p.Left {
		fmt.Fprintf(&s, "L%d %.1f", x(i), float64(below+leftHeight)-float64(n)/float64(max(1, p.Burst))*leftHeight)
	}
	fmt.Fprintf(&s, `V%dZ"/>`+"\n", below+leftHeight)
	what := "requests that are left"
	if p.leftName() == "room" {
		what = "room in the line"
	}
	y = below + leftHeight + 16
	s.text(x(Cells), y, "quiet end", what)
	y += 8
	for _, line := range Wrap(p.Says, lineWidth) {
		y += lineHeight
		s.text(margin, y, "word", line)
	}
	height := y + margin
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`,
		sheetWidth, height, sheetWidth, height, escaped(p.Title+", "+p.Limit+": "+p.Says))
	ground := fmt.Sprintf(`<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`,
		sheetWidth-1, height-1)
	return []byte(head + "\n" + style + ground + "\n" + s.String() + "</svg>\n")
}

// grid draws the lowest and the highest line of a drawing, with their values.
func (p *Picture) grid(s *sheet, top, height int, most int64) {
	const left, right = margin + labels, margin + labels + Cells*cellWidth
	for _, line := range []struct {
		y    int
		text string
	}{{top, short(most)}, {top + height, "0"}} {
		fmt.Fprintf(s, `<path class="grid" d="M%d %d.5H%d"/>`+"\n", left, line.y, right)
		s.text(left-8, line.y+4, "quiet end", line.text)
	}
}

func escaped(text string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(text)); err != nil {
		panic(err) // ours: a Builder takes all
	}
	return b.String()
}
