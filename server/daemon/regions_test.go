package daemon

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilesAreReadOnceTheyCeasedToChange: half a file is a table too, with the
// other half of the world unknown.
func TestFilesAreReadOnceTheyCeasedToChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "regions.csv")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("192.0.2.0,192.0.2.255,DE\n")
	var log strings.Builder
	r, err := newRegions([]string{file}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		content  string // written before the look, if any
		region   string
		failures uint64
		ok       bool
	}{
		{"", "DE", 0, true},
		{"198.51.100.0,198.51.100.255,FR\n", "DE", 0, true}, // half
		{"198.51.100.0,198.51.100.255,FR\n192.0.2.0,192.0.2.255,NL\n", "DE", 0, true},
		{"", "NL", 0, true},
		{"", "NL", 0, true},
		{"192.0.2.0,192.0.2.255\n", "NL", 0, true},
		{"", "NL", 1, false},
		{"", "NL", 1, false}, // told once
		{"192.0.2.0,192.0.2.255,BE\n", "NL", 1, false},
		{"", "BE", 1, true},
	} {
		if step.content != "" {
			write(step.content)
		}
		r.look()
		s, _ := r.status()
		if got := r.table.Load().Region(
			netip.MustParseAddr("192.0.2.7"),
		); got != step.region || s.Failures != step.failures ||
			s.OK != step.ok {
			t.Errorf(
				"after look %d the region is %q, failures %d, ok %v, want %q, %d, %v",
				i,
				got,
				s.Failures,
				s.OK,
				step.region,
				step.failures,
				step.ok,
			)
		}
	}
	if n := strings.Count(log.String(), "cannot be used"); n != 1 || !strings.Contains(log.String(), "regions.csv:1") {
		t.Errorf("the log says %d times that the file cannot be used, want once, with its line:\n%s", n, log.String())
	}
}

// TestStartWithFaultyFiles: what is wrong at the start is told then.
func TestStartWithFaultyFiles(t *testing.T) {
	_, err := newRegions([]string{filepath.Join(t.TempDir(), "absent.csv")}, nil)
	if err == nil || !strings.Contains(err.Error(), "absent.csv") {
		t.Errorf("newRegions = %v, want an error that names the file", err)
	}
}
