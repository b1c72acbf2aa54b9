package page_test

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
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
	bars := []page.Bar{{Label: "a < b", Text: "1 & 2", Value: 10, Low: 9, High: 1e6}, {Value: 0}, {Value: 1, Ours: true}}
	svg := page.Chart{Title: `"t"`, Panels: []page.Panel{{Title: "linear", Bars: bars}, {Title: "log", Log: true, Mark: 2, Bars: bars}}}.SVG()
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
