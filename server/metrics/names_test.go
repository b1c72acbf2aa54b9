package metrics

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	ofDescription = regexp.MustCompile(`fqName: "headgate_([a-z0-9_]+)"`)
	inCode        = regexp.MustCompile("`([a-z0-9_]+)`")
)

// names are what a Meter tells of, whatever is switched on, without headgate_.
func names() (all []string) {
	out := make(chan *prometheus.Desc)
	go func() {
		New(Options{}).registry.Describe(out)
		close(out)
	}()
	for d := range out {
		if match := ofDescription.FindStringSubmatch(d.String()); match != nil {
			all = append(all, match[1])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestEveryMetricIsOnItsPage compares the tables of docs/metrics.md and docs/gossip.md with what there is, both ways.
func TestEveryMetricIsOnItsPage(t *testing.T) {
	var tables string
	for page, begins := range map[string]string{"metrics.md": "| metric (", "gossip.md": "## What to watch"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(string(text), begins)
		tables += table
	}
	var told []string
	for line := range strings.Lines(tables) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, match := range inCode.FindAllStringSubmatch(first, -1) {
			told = append(told, match[1])
		}
	}
	have := names()
	if len(have) < 100 || len(told) < 100 {
		t.Fatalf("there are %d metrics, and %d on the page", len(have), len(told))
	}
	for _, name := range have {
		if !slices.Contains(told, name) {
			t.Errorf("docs/metrics.md does not tell of headgate_%s", name)
		}
	}
	for _, name := range told {
		if !slices.Contains(have, name) {
			t.Errorf("docs/metrics.md tells of headgate_%s, and there is none", name)
		}
	}
}
