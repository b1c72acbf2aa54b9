package policy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// script is a Source that a test changes as it goes.
type script struct {
	mu      sync.Mutex
	doc     policy.Document
	version int
	err     error
	loads   int
}

func (s *script) set(limit int64, rules ...policy.Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.doc = policy.Document{Source: "script", Rules: append([]policy.Rule{
		{Endpoint: policy.Default, Limit: limit}, {Endpoint: policy.UnknownEndpoint, Limit: 1},
	}, rules...)}
}

func (s *script) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *script) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.doc = policy.Document{}
}

func (s *script) Version(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint("v", s.version), s.err
}

func (s *script) Load(context.Context) (policy.Document, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	return s.doc, fmt.Sprint("v", s.version), s.err
}

// limitOf reports the default limit that a cache has in force, 0 for none.
func limitOf(c *policy.Cache) int64 {
	set := c.Set()
	if set == nil {
		return 0
	}
	for id := range set.Len() {
		if r := set.Rule(policy.RuleID(id)); r.Endpoint == policy.Default {
			return r.Limit
		}
	}
	return 0
}

// TestCacheFollowsItsSource tells one life: good, bad, empty, away, back.
func TestCacheFollowsItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		source := &script{}
		source.set(10)
		c, err := policy.NewCache(policy.CacheOptions{
			Source: source, Interval: time.Second,
			Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		go c.Run(ctx)
		steps := []struct {
			name   string
			do     func()
			after  time.Duration
			limit  int64
			stale  time.Duration
			fails  uint64
			errors string // part of LastError
			logged int    // lines so far
		}{
			{name: "started", do: func() {}, limit: 10},
			{
				name:  "changed, not looked at yet",
				do:    func() { source.set(20) },
				after: 999 * time.Millisecond,
				limit: 10,
				stale: 999 * time.Millisecond,
			},
			{name: "looked at", do: func() {}, after: time.Millisecond, limit: 20},
			{name: "bad", do: func() { source.set(0) }, after: 5 * time.Second, limit: 20, stale: 5 * time.Second,
				fails: 1, errors: "script: rules[0] (default): limit is 0, want 1 or more", logged: 1},
			{name: "mended", do: func() { source.set(30) }, after: time.Second, limit: 30, fails: 1, logged: 1},
			{name: "empty", do: source.empty, after: 3 * time.Second, limit: 30, stale: 3 * time.Second,
				fails: 2, errors: "the document is empty now", logged: 2},
			{name: "away", do: func() { source.fail(errors.New("connection refused")) }, after: 4 * time.Second,
				limit: 30, stale: 7 * time.Second,
				fails: 6, errors: "policies: look for changes: connection refused", logged: 3},
			{
				name:   "back",
				do:     func() { source.fail(nil); source.set(40) },
				after:  time.Second,
				limit:  40,
				fails:  6,
				logged: 3,
			},
			{name: "away again", do: func() { source.fail(errors.New("connection refused")) }, after: time.Second,
				limit: 40, stale: time.Second,
				fails: 7, errors: "connection refused", logged: 4},
			{name: "quiet", do: func() { source.fail(nil) }, after: time.Hour, limit: 40, fails: 7, logged: 4},
		}
		for _, step := range steps {
			step.do()
			<-time.After(step.after) // in the bubble: no time passes outside
			synctest.Wait()
			s := c.Status()
			lines := strings.Count(log.String(), "\n")
			if limitOf(c) != step.limit || s.Stale != step.stale || s.Failures != step.fails || lines != step.logged ||
				!strings.Contains(s.LastError, step.errors) || (s.LastError == "") != (step.errors == "") {
				t.Fatalf("%s: limit %d, %d log lines, %+v\nwant limit %d, stale %v, %d failures, error %q, %d "+
					"lines\nlog:\n%s",
					step.name, limitOf(c), lines, s, step.limit, step.stale, step.fails, step.errors,
					step.logged, log.String())
			}
		}
		if source.loads != 6 {
			t.Errorf("the source was read %d times, want 6: only after changes", source.loads)
		}
	})
}

// TestClearedOnPurpose: rules that somebody deleted by a newer version than that
// in force are gone, also if that was while no process ran. What an older version
// says is of a backup, or of another database.
func TestClearedOnPurpose(t *testing.T) {
	for _, c := range []struct {
		name            string
		number, cleared int64 // of the rules, and of the version that cleared them
		want            int   // rules in force then
	}{
		{"by accident", 3, 0, 2},
		{"on purpose", 3, 4, 0},
		{"in another history", 3, 2, 2},
		{"by the version in force", 3, 3, 2},
		{"the rules had no number yet", 0, 1, 0},
	} {
		for _, running := range []bool{true, false} {
			source, path := &script{}, filepath.Join(t.TempDir(), "copy")
			source.set(10)
			source.doc.Number = c.number
			start := func() *policy.Cache {
				cache, err := policy.NewCache(policy.CacheOptions{Source: source, LastGood: path})
				if err != nil {
					t.Fatal(err)
				}
				if err := cache.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				return cache
			}
			cache := start()
			source.empty()
			source.doc.Cleared = c.cleared
			if running {
				_ = cache.Reload(t.Context()) // the error is in the status
			} else {
				cache = start()
			}
			s := cache.Status()
			if s.Rules != c.want || s.Emptied != (c.want > 0) ||
				s.Emptied && !strings.Contains(s.LastError, path+" removed and a new start") {
				t.Errorf("%s, running %v: %+v, want %d rules", c.name, running, s, c.want)
			}
			if kept, err := policy.LastGood(path); err != nil || len(kept.Rules) != c.want {
				t.Errorf("%s, running %v: the last good copy has %d rules, %v, want %d", c.name, running,
					len(kept.Rules), err, c.want)
			}
		}
	}
}

func TestCacheStatus(t *testing.T) {
	source := &script{}
	source.set(10)
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	c, err := policy.NewCache(policy.CacheOptions{Source: source, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if c.Set() != nil {
		t.Error("Set before Start is not nil")
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := policy.Status{Version: "v1", LoadedAt: now, CheckedAt: now, Rules: 2}
	if got := c.Status(); got != want {
		t.Errorf("Status = %+v, want %+v", got, want)
	}
}

// numbering is a script that knows what version its rules are some looks later.
type numbering struct {
	script
	numbers []int64 // the answers
	asked   []string
}

func (n *numbering) NumberOf(_ context.Context, version string) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, version)
	next := n.numbers[0]
	if n.numbers = n.numbers[1:]; next < 0 {
		return 0, errors.New("away")
	}
	return next, nil
}

// TestCacheLearnsTheNumberLater: the rules in force stay what they are.
func TestCacheLearnsTheNumberLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &numbering{numbers: []int64{0, -1, 7}}
		source.set(10)
		c, err := policy.NewCache(policy.CacheOptions{Source: source, Interval: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		set := c.Set()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go c.Run(ctx)
		for i, want := range []int64{0, 0, 7, 7} {
			time.Sleep(time.Second)
			synctest.Wait()
			if got := c.Status(); got.Number != want || got.Failures != 0 || c.Set() != set {
				t.Errorf("after %d s: %+v, want number %d of the same rules", i+1, got, want)
			}
		}
		if got := fmt.Sprint(source.asked); got != "[v1 v1 v1]" {
			t.Errorf("asked for the numbers of %s, want v1's until it has one", got)
		}
	})
}

// TestCacheReload: an admin's reload does not wait for the interval, and says
// what is wrong.
func TestCacheReload(t *testing.T) {
	source := &script{}
	source.set(10)
	c, err := policy.NewCache(policy.CacheOptions{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	for i, limit := range []int64{10, 20, -1, 30} {
		source.set(limit)
		err := c.Reload(t.Context())
		if (err != nil) != (limit < 0) {
			t.Errorf("Reload %d = %v", i, err)
		}
		if want := max(limit, 20*int64(i/2)); limitOf(c) != want {
			t.Errorf("Reload %d: limit %d in force, want %d", i, limitOf(c), want)
		}
	}
}

// TestCacheCarriesSince: the cache hands the Set in force to Compile.
func TestCacheCarriesSince(t *testing.T) {
	source := &script{}
	now := time.Unix(1_800_000_000, 0)
	c, err := policy.NewCache(policy.CacheOptions{Source: source, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	source.set(10)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	source.set(20)
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.Set().Terms(0).Since; got != now.UnixNano() {
		t.Errorf("Since = %d after a change of limit, want the time of the reload, %d", got, now.UnixNano())
	}
}

// TestRecompile: other endpoints come into force with the rules for them, or with an error neither does, and the
// next look is not the worse for it.
func TestRecompile(t *testing.T) {
	source := &script{}
	few, more := policy.CompileOptions{Endpoints: table(t, "GET /a")},
		policy.CompileOptions{Endpoints: table(t, "GET /a", "GET /b")}
	now := time.Unix(1_800_000_000, 0)
	c, err := policy.NewCache(policy.CacheOptions{Source: source, Compile: few, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	source.set(10, policy.Rule{Endpoint: "GET /b", Limit: 5})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := c.Set()

	source.fail(errors.New("connection refused"))
	if err := c.Recompile(t.Context(), more); err == nil || c.Set() != before {
		t.Errorf("without the source: %v, and other rules are in force: %v", err, c.Set() != before)
	}
	source.fail(nil)
	costly := more
	costly.Costs = map[endpoint.ID]int64{2: 6}
	if err := c.Recompile(t.Context(), costly); err == nil || !strings.Contains(err.Error(), "burst is 5") ||
		c.Set() != before {
		t.Errorf("with a cost that no bucket holds: %v, and other rules are in force: %v", err, c.Set() != before)
	}
	if err := c.Reload(t.Context()); err != nil || c.Set().Endpoints() != few.Endpoints {
		t.Errorf("the look after that: %v, and it goes by the endpoints before: %v", err,
			c.Set().Endpoints() == few.Endpoints)
	}
	if s := c.Status(); s.LastError != "" {
		t.Errorf("the status after that says %s", s.LastError)
	}
	costly.Costs[2] = 4
	if err := c.Recompile(t.Context(), costly); err != nil || c.Set().Len() != before.Len()+1 ||
		c.Set().Endpoints() != more.Endpoints {
		t.Errorf("then: %v, and %d rules, want one more than %d", err, c.Set().Len(), before.Len())
	}
	if one, four, unknown := c.Set().Cost(1), c.Set().Cost(2), c.Set().Cost(0); one != 1 || four != 4 || unknown != 1 {
		t.Errorf("costs are %d, %d and %d, want 1, 4 and 1", one, four, unknown)
	}
	if err := c.Reload(t.Context()); err != nil || c.Set().Endpoints() != more.Endpoints {
		t.Errorf("the look after that: %v, and it goes by the new endpoints: %v", err,
			c.Set().Endpoints() == more.Endpoints)
	}
}

// TestCacheStartsFromTheLastGoodCopy: a restart without the database starts,
// and says so.
func TestCacheStartsFromTheLastGoodCopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.last")
	rule := policy.Rule{
		Endpoint: "GET /v1/items/{id}", Project: "acmé", Limit: 7, Per: time.Minute, Burst: 9,
		Subject: policy.SubjectRegion, Mode: policy.Shadow, OnStoreLoss: policy.LossOpen,
		Expires: time.Date(2050, 1, 1, 0, 0, 0, 5, time.UTC), Name: "items",
	}
	endpoints := policy.CompileOptions{Endpoints: table(t, "GET /v1/items/{id}")}
	source := &script{}
	source.set(10, rule)
	source.doc.Projects = map[string]string{"acmé": "gold"}
	before, err := policy.NewCache(policy.CacheOptions{Source: source, Compile: endpoints, LastGood: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the copy is %v, %v, want mode 0600", info, err)
	}

	var log bytes.Buffer
	source.fail(errors.New("connection refused"))
	after, err := policy.NewCache(policy.CacheOptions{
		Source: source, Compile: endpoints, LastGood: path,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Now: func() time.Time { return info.ModTime().Add(time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := after.Start(t.Context()); err != nil {
		t.Fatalf("Start from the copy: %v", err)
	}
	if got, want := after.Set().Version(), before.Set().Version(); got != want {
		t.Errorf("the copy holds version %s, want %s", got, want)
	}
	s := after.Status()
	if !s.FromDisk || s.Stale != time.Hour || !s.CheckedAt.IsZero() || !strings.Contains(s.LastError, "refused") {
		t.Errorf("Status = %+v, want one from disk, an hour old", s)
	}
	if !strings.Contains(log.String(), "started from the last good copy") {
		t.Errorf("the log does not say where the rules are from:\n%s", log.String())
	}
	source.fail(nil)
	if err := after.Reload(t.Context()); err != nil || after.Status().FromDisk {
		t.Errorf("Reload = %v, Status %+v, want the source's rules", err, after.Status())
	}
}

func TestCacheStartFails(t *testing.T) {
	source := &script{err: errors.New("connection refused")}
	path := filepath.Join(t.TempDir(), "none")
	c, err := policy.NewCache(policy.CacheOptions{Source: source, LastGood: path})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "connection refused") ||
		!strings.Contains(err.Error(), "last good copy") {
		t.Errorf("Start = %v, want both reasons", err)
	}
	if c.Set() != nil {
		t.Error("Set is not nil, want none")
	}
}

func TestCacheWarnsOnce(t *testing.T) {
	var log bytes.Buffer
	source := &script{}
	source.set(10, policy.Rule{Endpoint: "GET /nowhere", Limit: 1})
	c, err := policy.NewCache(policy.CacheOptions{Source: source, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(log.String(), "code=no_endpoint"); got != 1 {
		t.Errorf("the warning is logged %d times, want once\n%s", got, log.String())
	}
}
