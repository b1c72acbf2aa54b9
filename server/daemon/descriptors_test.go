package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/descriptor"
)

// Half a file is a configuration too, without half of the limits, and an empty one is
// what stands there while it is written: neither takes limits out of force.
func TestDescriptorsAreReadOnceTheyCeasedToChange(t *testing.T) {
	const whole = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n- {key: b, " +
		"rate_limit: {unit: day, requests_per_unit: 1}}\n"
	half := whole[:strings.Index(whole, "- {key: b")]
	file := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(whole)
	c := config.Default()
	c.MaxBuckets, c.Decisions.RateLimit = 1024, []string{file}
	p := &parts{}
	var err error
	if p.counters, err = p.newCounters(c); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	d, err := p.newDescriptors(c, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	d.now = func() int64 { return 1 }
	for i, step := range []struct {
		content  string // written before the look, if any
		limits   int
		failures uint64
		ok       bool
	}{
		{"", 2, 0, true},
		{half, 2, 0, true}, {whole, 2, 0, true}, {"", 2, 0, true},
		{half, 2, 0, true}, {"", 1, 0, true}, // it was meant
		{"\n", 1, 0, true}, {"", 1, 1, false}, {"", 1, 1, false}, // told once
		{whole, 1, 1, false}, {"", 2, 1, true},
	} {
		if step.content != "" {
			write(step.content)
		}
		d.reload()
		if s := d.reporter()(); s.Limits != step.limits || s.Failures != step.failures || s.OK != step.ok {
			t.Errorf("after look %d: %+v, want %d limits, %d failures, %v", i, s, step.limits, step.failures, step.ok)
		}
	}
	if n := strings.Count(log.String(), "cannot be loaded"); n != 1 || !strings.Contains(log.String(), "is empty") {
		t.Errorf("the log says %d times that the files cannot be loaded, want once, and why:\n%s", n, log.String())
	}
	if d.current.Load().Find("d", []descriptor.Entry{{Key: "b"}}) == nil {
		t.Error("a limit that came back is not in force")
	}
}
