package daemon_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
)

// lives is a gateway that is stopped and started.
type lives struct {
	t    *testing.T
	conf config.Config
	log  livelog.Text
	gate string
	side string
	stop func()

	daemon *daemon.Daemon
	now    func() time.Time // nil for the usual clock
}

func newLives(t *testing.T, rules []policy.Rule) *lives {
	t.Helper()
	return newLivesBy(t, rules, nil)
}

// newLivesBy is newLives by a clock of the test's.
func newLivesBy(t *testing.T, rules []policy.Rule, now func() time.Time, change ...func(*config.Config)) *lives {
	t.Helper()
	dir := t.TempDir()
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(api.Close)
	l := &lives{t: t, conf: config.Default(), now: now}
	c := &l.conf
	c.Listen, c.Admin, c.Upstream = "127.0.0.1:0", "127.0.0.1:0", api.URL
	c.DB, c.StateFile = sqlitetest.New(t, filepath.Join(dir, "headgate.db")), filepath.Join(dir, "buckets")
	c.StateInterval = time.Hour // at the end alone, so that the test knows what is in it
	c.Routes = []string{filepath.Join(dir, "routes.txt")}
	if err := os.WriteFile(c.Routes[0], []byte("GET /a\nGET /b\nGET /c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(c)
	}
	l.rules(rules)
	l.start()
	t.Cleanup(func() { l.stop() })
	return l
}

// rules replaces those there are.
func (l *lives) rules(rules []policy.Rule) {
	l.t.Helper()
	db, err := database.Open(context.Background(), l.conf.DB)
	if err != nil {
		l.t.Fatal(err)
	}
	defer db.Close()
	if err := db.Import(context.Background(), record.Author{Actor: "test"}, policy.Document{Rules: rules},
		true); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lives) start() {
	l.t.Helper()
	c := l.conf
	if err := c.Complete(); err != nil {
		l.t.Fatal(err)
	}
	d, err := daemon.Start(context.Background(), c, daemon.By(daemon.Options{
		Log: slog.New(slog.NewTextHandler(&l.log, nil)), Version: "test",
		Read: func() (config.Config, error) {
			c := l.conf
			return c, c.Complete()
		},
	}, l.now))
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	l.daemon, l.gate, l.side = d, "http://"+d.Gateway().String(), "http://"+d.Admin().String()
	l.stop = func() {
		l.stop = func() {}
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("Run = %v, want a clean end", err)
		}
	}
}

func (l *lives) restart() {
	l.t.Helper()
	l.stop()
	l.start()
}

func (l *lives) get(path string, want int) {
	l.t.Helper()
	if status, body := call(l.t, "GET", l.gate+path, ""); status != want {
		l.t.Errorf("%s: %d %s, want %d", path, status, body, want)
	}
}

// TestStateOverRestarts: what is left is left, of all algorithms; also where rules and the size of the table changed
// while no process ran.
func TestStateOverRestarts(t *testing.T) {
	rules := []policy.Rule{
		{Endpoint: "GET /a", Limit: 2, Per: time.Hour},
		{Endpoint: "GET /b", Limit: 2, Per: time.Hour, Algorithm: policy.SlidingLog},
		{Endpoint: "GET /c", Limit: 2, Per: time.Hour, Algorithm: policy.SlidingWindow},
		{Endpoint: policy.Default, Limit: 1000},
	}
	l := newLives(t, rules)
	for _, path := range []string{"/a", "/b", "/c"} {
		l.get(path, 200)
	}
	l.restart()
	for _, path := range []string{"/a", "/b", "/c"} {
		l.get(path, 200)
		l.get(path, 429)
	}
	l.conf.MaxBuckets = 5000
	l.restart()
	l.stop()
	rules[0].Limit, rules[0].Per = 3, 20*time.Minute // owed are 2 of 3 now, though they came from a slower limit
	rules[1].Algorithm = policy.TokenBucket
	l.rules(rules)
	l.start()
	l.get("/a", 200)
	l.get("/a", 429)
	l.get("/b", 429)
	l.get("/c", 429)
	if _, page := call(t, "GET", l.side+"/metrics", ""); !strings.Contains(page,
		"headgate_state_write_failures_total 0") {
		t.Error("the metrics do not tell of the file")
	}
	if !strings.Contains(l.log.String(), "buckets go on from the process before") {
		t.Errorf("the log does not say so: %s", l.log.String())
	}
}

// TestStateThatIsRefused: a gateway with a damaged file starts, full, and says so where people look.
func TestStateThatIsRefused(t *testing.T) {
	l := newLives(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1, Per: time.Hour}})
	l.get("/a", 200)
	l.stop()
	text, err := os.ReadFile(l.conf.StateFile)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(l.conf.StateFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
	l.get("/a", 200)
	if _, ready := call(t, "GET", l.side+"/readyz", ""); !strings.Contains(ready, "checksum") {
		t.Errorf("/readyz says %s", ready)
	}
	l.restart()
	l.get("/a", 429)
}

// TestStateIsWrittenMeanwhile: who is killed loses what came after the last write.
func TestStateIsWrittenMeanwhile(t *testing.T) {
	l := newLives(t, []policy.Rule{{Endpoint: policy.Default, Limit: 2, Per: time.Hour}})
	l.stop()
	l.conf.StateInterval = 100 * time.Millisecond
	l.start()
	l.get("/a", 200)
	for range 2 { // what is written next may have been read before the request, and what follows it was not
		begin := time.Now()
		eventually(t, "the file is written", func() bool {
			info, err := os.Stat(l.conf.StateFile)
			return err == nil && !info.ModTime().Before(begin)
		})
	}
	killed, err := os.ReadFile(l.conf.StateFile)
	if err != nil {
		t.Fatal(err)
	}
	l.get("/a", 200)
	l.stop()
	if err := os.WriteFile(l.conf.StateFile, killed, 0o600); err != nil { // as if it had been killed
		t.Fatal(err)
	}
	l.start()
	l.get("/a", 200)
	l.get("/a", 429)
}
