package page_test

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

func TestReplaceKeepsWhatPeopleWrote(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "page.md")
	for _, text := range []string{"first\n", "second\n"} {
		if err := page.Replace(file, "x", text); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if want := "<!-- begin x -->\n" + text + "<!-- end x -->\n"; err != nil || string(got) != want {
			t.Fatalf("the file is %q, want %q", got, want)
		}
	}
	if err := os.WriteFile(file, []byte("# Head\n<!-- begin x -->\nold\n<!-- end x -->\nTail.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := page.Replace(file, "x", "new\n"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "# Head\n<!-- begin x -->\nnew\n<!-- end x -->\nTail.\n" {
		t.Errorf("the file is %q", got)
	}
	if err := page.Replace(file, "y", "lost"); err == nil || !strings.Contains(err.Error(), "<!-- begin y -->") {
		t.Errorf("Replace between markers that are not there = %v, want an error that names them", err)
	}
}

func TestTableIsMarkdown(t *testing.T) {
	got := page.Table{{"a", "b", "c"}, {"1", "2", "3"}}.String()
	if want := "| a | b | c |\n|---|---:|---:|\n| 1 | 2 | 3 |\n"; got != want {
		t.Errorf("Table = %q, want %q", got, want)
	}
}

func TestConditionsSayWhenAndHow(t *testing.T) {
	got := page.Conditions(time.Date(2026, 11, 20, 1, 2, 3, 0, time.UTC), "make it")
	if !strings.HasPrefix(got, "Measured on 20 November 2026 by `make it`: go1.") {
		t.Errorf("Conditions = %q", got)
	}
}

// TestChartStaysOnItsSheet draws an outlier, a nothing, and a label that is no XML.
func TestChartStaysOnItsSheet(t *testing.T) {
	bars := []page.Bar{{Label: "a < b", Text: "1 & 2", Value: 10, Low: 9, High: 1e6}, {Value: 0},
		{Value: 1, Ours: true}}
	svg := page.Chart{
		Title:  `"t"`,
		Panels: []page.Panel{{Title: "linear", Bars: bars}, {Title: "log", Log: true, Mark: 2, Bars: bars}},
	}.SVG()
	dec := xml.NewDecoder(bytes.NewReader(svg))
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("the chart is no XML: %v\n%s", err, svg)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "script" {
			t.Error("the chart has a script")
		}
	}
	for _, never := range []string{"NaN", "Inf", `width="-`, "1e+"} {
		if bytes.Contains(svg, []byte(never)) {
			t.Errorf("the chart contains %s:\n%s", never, svg)
		}
	}
}

// TestLinesStayOnTheirSheet draws nothing, less than nothing, and names that would cover each other.
func TestLinesStayOnTheirSheet(t *testing.T) {
	lines := []page.Line{
		{Label: "a < b", Values: []float64{math.NaN(), -3, 2000}, Ours: true},
		{Label: "c", Values: []float64{0, 1, 1900}},
		{Label: "d", Values: []float64{1, 1, 1}, Dashed: true}, {Label: "e", Values: []float64{1, 1, 1}},
		{Label: "none", Values: []float64{math.NaN()}},
	}
	svg := string(page.Lines{
		Title:  `"t"`,
		Steps:  []string{"1", "2", "4"},
		Panels: []page.LinePanel{{Title: "p", Lines: lines}},
	}.SVG())
	if err := xml.Unmarshal([]byte(svg), new(any)); err != nil {
		t.Fatalf("the chart is no XML: %v\n%s", err, svg)
	}
	for _, never := range []string{"NaN", "Inf", ">none<"} {
		if strings.Contains(svg, never) {
			t.Errorf("the chart contains %s:\n%s", never, svg)
		}
	}
	at := map[string]int{}
	for _, m := range regexp.MustCompile(`y="(\d+)">(a &lt; b|c|d|e)<`).FindAllStringSubmatch(svg, -1) {
		at[m[2]], _ = strconv.Atoi(m[1])
	}
	if len(at) != 4 || at["c"]-at["a &lt; b"] < 13 || at["e"]-at["d"] < 13 {
		t.Errorf("the names stand at %v, want four, each below another", at)
	}
}
