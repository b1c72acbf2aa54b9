package replay

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

//go:embed page.html
var pageText string

// page shows a Report. Whatever stands in a log is text there: html/template escapes it where it goes, no script runs,
// and nothing is fetched.
var page = template.Must(template.New("replay").Funcs(template.FuncMap{
	"text": visible, "share": percent, "when": func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
}).Parse(pageText))

// WriteHTML writes the report as one file for a browser, which needs nothing else.
func (r *Report) WriteHTML(w io.Writer, interrupted bool) error {
	data := pageData{Report: r, Interrupted: interrupted}
	for i, s := range r.Sides {
		side := pageSide{Side: s, Compared: i > 0, First: r.Sides[0].Name}
		for _, reason := range slices.Sorted(maps.Keys(s.Refused)) {
			side.Before = append(side.Before, fmt.Sprintf("%d %s", s.Refused[reason],
				strings.ReplaceAll(reason, "_", " ")))
		}
		most := int64(1)
		for _, rule := range s.Rules {
			most = max(most, rule.Allowed+rule.Denied)
		}
		for _, rule := range s.Rules {
			asked := rule.Allowed + rule.Denied
			row := pageRule{
				RuleCount: rule,
				Asked:     asked,
				Came:      barWidth(asked, most),
				Red:       barWidth(rule.Denied, most),
			}
			if asked > 0 {
				row.Share = float64(rule.Denied) / float64(asked)
			}
			for _, c := range rule.Worst {
				row.Callers10 = append(row.Callers10, pageCaller{Caller: c,
					Width: barWidth(c.Denied, rule.Worst[0].Denied)})
			}
			side.Rows = append(side.Rows, row)
		}
		data.Pages = append(data.Pages, side)
	}
	data.draw(r)
	return page.Execute(w, data)
}

type pageData struct {
	*Report
	Interrupted bool
	Pages       []pageSide
	Bars        []pageBar
	Most        int64
	Width       int
}

type pageSide struct {
	*Side
	Compared bool
	First    string
	Before   []string
	Rows     []pageRule
}

type pageRule struct {
	RuleCount
	Asked     int64
	Share     float64
	Came, Red string
	Callers10 []pageCaller
}

type pageCaller struct {
	Caller
	Width string
}

// pageBar is a span of time: how much came, and how much of it was denied by the last rules, out of chartHeight.
type pageBar struct {
	X               int
	CameY, Came     string
	DeniedY, Denied string
	Title           string
}

const (
	chartSpans  = 120
	chartHeight = 120
	barSpace    = 7
	barLength   = 160 // of a rule's bar, at most
)

// draw makes the bars over time.
func (p *pageData) draw(r *Report) {
	denied, requests := r.Denials(chartSpans)
	p.Most, p.Width = max(1, slices.Max(requests)), chartSpans*barSpace
	each := r.Until.Sub(r.From) / chartSpans
	for i, n := range requests {
		if n == 0 {
			continue
		}
		came := chartHeight * float64(n) / float64(p.Most)
		red := came * denied[i]
		p.Bars = append(p.Bars, pageBar{
			X: i * barSpace, CameY: short(chartHeight - came), Came: short(came), DeniedY: short(chartHeight - red),
			Denied: short(red),
			Title: fmt.Sprintf("%s: %d came, %s denied",
				r.From.Add(time.Duration(i)*each).Format("2006-01-02 15:04:05"), n, percent(denied[i])),
		})
	}
}

func barWidth(part, whole int64) string {
	return short(barLength * float64(part) / float64(max(whole, 1)))
}

func short(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

func percent(part float64) string { return strconv.FormatFloat(100*part, 'f', 2, 64) + " %" }

// visible is a text of a log as people see it: no control character, nor one that turns the direction of writing.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
