package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// used asks what callers did, each on all days together: midnight may have come meanwhile.
func used(t *testing.T, side string) (all admin.Usage, text string) {
	t.Helper()
	_, body := call(t, "GET", side+"/v1/usage?reveal=true", "")
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	type sum struct{ admitted, denied uint64 }
	sums := map[string]sum{}
	for _, r := range all.Rows {
		name := r.Kind + " " + r.ID
		sums[name] = sum{sums[name].admitted + r.Admitted, sums[name].denied + r.Denied}
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		text += fmt.Sprintf("%s %d %d; ", name, sums[name].admitted, sums[name].denied)
	}
	return all, text
}

// bearer is the field that says who asks.
func bearer(subject string) string {
	return "Bearer " + signed(tokenSecret, `{"iss":"me","aud":"api","sub":%q,"exp":%d}`, subject, time.Now().Unix()+300)
}

// TestUsageOverRestarts: what callers did counts on in the next process, with a gap where one was killed; a file that
// is damaged, or is another process's, is not used, and that is said.
func TestUsageOverRestarts(t *testing.T) {
	l := newLives(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1000}})
	l.stop()
	file := filepath.Join(t.TempDir(), "usage.jsonl")
	withSecret(t)(&l.conf)
	l.conf.Usage.File, l.conf.StateFile = file, ""
	ask := func(subject string) {
		t.Helper()
		if status, body := call(t, "GET", l.gate+"/a", "", "Authorization", bearer(subject)); status != http.StatusOK {
			t.Errorf("%d %s", status, body)
		}
	}
	want := func(text string, gaps int) admin.Usage {
		t.Helper()
		all, got := used(t, l.side)
		if got != text || len(all.Incomplete) != gaps {
			t.Errorf("used: %s with the gaps %v, want %s with %d", got, all.Incomplete, text, gaps)
		}
		return all
	}
	l.start()
	ask("ann")
	ask("ann")
	ask("bob")
	since := want("token ann 2 0; token bob 1 0; ", 0).Since
	begun, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	l.restart()
	ask("bob")
	ask("bob")
	if got := want("token ann 2 0; token bob 3 0; ", 0).Since; !got.Equal(since) {
		t.Errorf("counted since %v, want since %v, when the first process began", got, since)
	}
	if _, page := call(t, "GET", l.side+"/metrics", ""); !strings.Contains(page,
		"headgate_usage_written_timestamp_seconds ") {
		t.Error("the metrics do not tell of the file")
	}
	c := l.conf
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.Start(context.Background(), c, daemon.Options{}); err == nil ||
		!strings.Contains(err.Error(), "usage.file: "+file+".lock is locked by another process") {
		t.Errorf("a second process with the file: %v", err)
	}
	l.stop()
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), "Bearer") {
		t.Errorf("the file is %s, %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if err := os.WriteFile(file, begun, 0o600); err != nil { // as if the first process had been killed
		t.Fatal(err)
	}
	l.start()
	ask("ann")
	want("token ann 1 0; ", 1)
	if !strings.Contains(l.log.String(), "usage may lack requests") {
		t.Error("the log does not say that something may be missing")
	}
	l.stop()
	if err := os.WriteFile(file, append(text, text...), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
	want("", 0)
	if _, ready := call(t, "GET", l.side+"/readyz", ""); !strings.Contains(ready, "is not used: it is damaged") {
		t.Errorf("/readyz says %s", ready)
	}
	if aside, err := os.ReadFile(file + ".refused"); err != nil || len(aside) != 2*len(text) {
		t.Errorf("%d bytes are kept aside, %v", len(aside), err)
	}
}

// TestUsageBesideReloads: no request is counted twice or not at all, whatever is reloaded meanwhile.
func TestUsageBesideReloads(t *testing.T) {
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 100_000}}, withSecret(t))
	var asking sync.WaitGroup
	const each = 60
	for i := range 4 {
		asking.Go(func() {
			for range each {
				call(t, "GET", r.gate+"/v1/items/1", "", "Authorization", bearer(fmt.Sprint("caller ", i)))
			}
		})
	}
	for i := range 8 {
		r.routes(t, fmt.Sprintf("GET /v1/items/{id}\nGET /v%d/others\n", i+2))
		r.edit(func(c *config.Config) { c.Warn.CallerPercent = 50 * (i % 2) })
		r.reload(t)
	}
	asking.Wait()
	want := ""
	for i := range 4 {
		want += fmt.Sprintf("token caller %d %d 0; ", i, each)
	}
	if _, got := used(t, r.admin); got != want {
		t.Errorf("used: %s, want %s", got, want)
	}
}
