package replay_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/replay"
)

var update = flag.Bool("update", false, "write the table of logs into docs/replay.md")

// TestLogsOfOthers: the page says of every log that others have published what can be read of it.
func TestLogsOfOthers(t *testing.T) {
	paths, err := filepath.Glob("testdata/crowdsec/*")
	if err != nil || len(paths) < 10 {
		t.Fatal(paths, err)
	}
	paths = append([]string{"testdata/apache_logs.gz"}, paths...)
	var b strings.Builder
	b.WriteString("| log | format | lines | requests | not read |\n|---|---|---|---|---|\n")
	for _, path := range paths {
		r, err := replay.New("", nil)
		if err != nil {
			t.Fatal(err)
		}
		log, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		readErr := r.Read(t.Context(), path, log)
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		report := r.Report()
		if (readErr != nil) != (report.Requests == 0) {
			t.Errorf("%s: %d requests, %v", path, report.Requests, readErr)
		}
		if report.Requests+report.Unread != report.Lines {
			t.Errorf("%s: %d requests and %d unread of %d lines", path, report.Requests, report.Unread, report.Lines)
		}
		why := "-"
		if report.Unread > 0 {
			_, why, _ = strings.Cut(report.Faults[0].Error(), ": ")
			why = fmt.Sprintf("%d: %s", report.Unread,
				strings.NewReplacer("|", "\\|", "<", "\\<").Replace(why[:min(len(why), 90)]))
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %s |\n", strings.TrimPrefix(filepath.ToSlash(path), "testdata/"),
			report.Format, report.Lines, report.Requests, why)
	}
	const page, begin, end = "../../docs/replay.md", "<!-- begin: go test ./replay -run TestLogsOfOthers -update -->\n",
		"<!-- end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	if table == b.String() {
		return
	}
	if !*update {
		t.Fatalf("%s does not say what can be read of the logs (-update writes it):\n%s", page, b.String())
	}
	if err := os.WriteFile(page, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
