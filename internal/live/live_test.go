package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/live"
)

// source answers with whatever its functions say. They run on the loop's
// goroutine, so what they share with a test is changed by change and read by
// read.
type source struct {
	mu      sync.Mutex
	version func() (string, error)
	load    func(ctx context.Context) (string, string, error)
}

func (s *source) Version(context.Context) (string, error) { return s.version() }

func (s *source) Load(ctx context.Context) (string, string, error) { return s.load(ctx) }

func (s *source) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// read returns copies of variables that change may set.
func (s *source) read(doc, version *string) (string, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *doc, *version
}

// fixed is a source that answers doc as version.
func fixed(doc, version string) *source {
	s := &source{}
	s.answer(doc, version)
	return s
}

// answer changes what the source answers, while no loop runs.
func (s *source) answer(doc, version string) {
	s.version = func() (string, error) { return version, nil }
	s.load = func(context.Context) (string, string, error) { return doc, version, nil }
}

// options builds a string from a string and refuses "bad".
func options(s live.Source[string]) live.Options[string, string] {
	return live.Options[string, string]{
		Name: "texts", Source: s, Interval: time.Second,
		Build: func(doc string, previous *string) (*string, error) {
			switch doc {
			case "bad":
				return nil, errors.New("bad text")
			case "panic":
				panic("build")
			case "nil":
				return nil, nil
			}
			return &doc, nil
		},
		Empty:  func(doc string) bool { return doc == "" },
		Encode: func(doc string, w io.Writer) error { _, err := io.WriteString(w, doc); return err },
		Decode: func(from io.ReadSeeker) (string, error) { data, err := io.ReadAll(from); return string(data), err },
	}
}

func value(t *testing.T, o live.Options[string, string]) *live.Value[string, string] {
	t.Helper()
	v, err := live.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// get is what is in force, "-" for nothing.
func get(v *live.Value[string, string]) string {
	if p := v.Get(); p != nil {
		return *p
	}
	return "-"
}

func TestNewReportsEveryProblem(t *testing.T) {
	_, err := live.New(live.Options[string, string]{Interval: -1, Timeout: -1, LastGood: "x"})
	want := `Name is empty, want one
Source is nil, want one
Build is nil, want one
Interval is -1ns, want more than 0, or 0 for 250ms
Timeout is -1ns, want more than 0, or 0 for 30s
Encode or Decode is nil, want both with LastGood`
	if err == nil || err.Error() != want {
		t.Errorf("New = %v\nwant %s", err, want)
	}
}

// TestRunSurvivesAnything: panics of the source, of Build and of the clock,
// answers that never come, and no value at all do not end the loop.
func TestRunSurvivesAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc, version := "good", "1"
		var brokenClock atomic.Bool
		var loadFails atomic.Pointer[error]
		var hang, panics atomic.Bool
		s := &source{}
		s.version = func() (string, error) {
			if panics.Load() {
				panic("version")
			}
			_, version := s.read(&doc, &version)
			return version, nil
		}
		s.load = func(ctx context.Context) (string, string, error) {
			if hang.Load() {
				<-ctx.Done()
				return "", "", ctx.Err()
			}
			doc, version := s.read(&doc, &version)
			if err := loadFails.Load(); err != nil {
				return "", version, *err
			}
			return doc, version, nil
		}
		away := errors.New("no such text")
		o := options(s)
		o.Timeout = 10 * time.Second
		o.Now = func() time.Time {
			if brokenClock.Load() {
				panic("clock")
			}
			return time.Now()
		}
		v := value(t, o)
		if err := v.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go v.Run(ctx)
		steps := []struct {
			name  string
			do    func()
			after time.Duration
			want  string
			error string
		}{
			{"panic in Version", func() { panics.Store(true) }, time.Second, "good",
				"texts: look for changes: panic: version"},
			{"it stops", func() { panics.Store(false) }, time.Second, "good", ""},
			{"panic in Build", func() { doc, version = "panic", "2" }, time.Second, "good", "texts: panic: build"},
			{"nothing built", func() { doc, version = "nil", "3" }, time.Second, "good", "texts: built nothing"},
			{"refused", func() { doc, version = "bad", "4" }, 5 * time.Second, "good", "texts: bad text"},
			{"good again", func() { doc, version = "better", "5" }, time.Second, "better", ""},
			{"no answer", func() {
				hang.Store(true)
				version = "6"
			}, 11 * time.Second, "better", "texts: load: nothing came for 10s"},
			{"an answer", func() { hang.Store(false); doc = "best" }, 11 * time.Second, "best", ""},
			{"the clock panics", func() { brokenClock.Store(true) }, 3 * time.Second, "best", "unknown"},
			{"the clock mends", func() { brokenClock.Store(false) }, time.Second, "best", ""},
			{"at fault for good", func() {
				version = "7"
				loadFails.Store(&away)
			}, 3 * time.Second, "best", "texts: load: no such text"},
			{"gone back", func() { version = "6"; loadFails.Store(nil) }, time.Second, "best", ""},
		}
		for _, step := range steps {
			s.change(step.do)
			<-time.After(step.after)
			synctest.Wait()
			if got := get(v); got != step.want {
				t.Fatalf("%s: %q in force, want %q", step.name, got, step.want)
			}
			if step.error == "unknown" {
				continue // Status asks the clock too
			}
			if got := v.Status().LastError; got != step.error {
				t.Fatalf("%s: LastError = %q, want %q", step.name, got, step.error)
			}
		}
	})
}

// TestRefusedVersionIsLoadedOnce: a million bad rules are not read again at
// every interval, and the failure is not forgotten meanwhile.
func TestRefusedVersionIsLoadedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc, version, loads := "good", "1", 0
		var log bytes.Buffer
		s := &source{}
		s.version = func() (string, error) { _, version := s.read(&doc, &version); return version, nil }
		s.load = func(context.Context) (string, string, error) {
			loads++
			doc, version := s.read(&doc, &version)
			return doc, version, nil
		}
		o := options(s)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		v := value(t, o)
		if err := v.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go v.Run(ctx)
		s.change(func() { doc, version = "bad", "2" })
		<-time.After(time.Minute)
		synctest.Wait()
		got := v.Status()
		if loads != 2 || got.Failures != 1 || got.LastError != "texts: bad text" || got.Stale != time.Minute {
			t.Errorf("after a minute: %d loads, %+v, want 2 loads, 1 failure that still shows, stale 1m", loads, got)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("%d log lines, want 1\n%s", lines, log.String())
		}
		if err := v.Reload(ctx); err == nil {
			t.Error("Reload of a bad text = nil, want an error each time it is asked")
		}
	})
}

// TestWakeLooksAtOnce: a hint saves the wait, and does not stand in for the
// looks at every interval.
func TestWakeLooksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc, version, looks := "a", "1", 0
		s := &source{}
		s.version = func() (string, error) { looks++; _, version := s.read(&doc, &version); return version, nil }
		s.load = func(context.Context) (string, string, error) {
			doc, version := s.read(&doc, &version)
			return doc, version, nil
		}
		o := options(s)
		wake := make(chan struct{}, 1)
		o.Interval, o.Wake = time.Hour, wake
		v := value(t, o)
		if err := v.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go v.Run(ctx)
		s.change(func() { doc, version = "b", "2" })
		<-time.After(time.Minute)
		if get(v) != "a" {
			t.Fatalf("%q in force before the interval is over and nobody said so, want a", get(v))
		}
		wake <- struct{}{}
		synctest.Wait()
		if get(v) != "b" {
			t.Errorf("%q in force after the hint, want b", get(v))
		}
		s.change(func() { doc, version = "c", "3" })
		<-time.After(time.Hour)
		synctest.Wait()
		if get(v) != "c" || looks != 2 {
			t.Errorf("%q in force after %d looks, want c after 2: one for the hint, one for the interval",
				get(v), looks)
		}
	})
}

// TestWakeWaitsForOthers: after a hint, one of many waits a while at random, and
// who is alone does not wait.
func TestWakeWaitsForOthers(t *testing.T) {
	const load = 10 * time.Millisecond
	for _, tt := range []struct {
		name   string
		others func() (int, bool)
		most   time.Duration // that any of many looks comes later
	}{
		{"alone", func() (int, bool) { return 0, true }, 0},
		{"one other", func() (int, bool) { return 1, true }, load},
		{"nobody knows", func() (int, bool) { return 0, false }, 4 * load},
		{"nobody is asked", nil, 4 * load},
		{"a thousand", func() (int, bool) { return 1000, true }, time.Second}, // the interval
		{"nonsense", func() (int, bool) { return math.MaxInt, true }, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				version := 0
				asked := make(chan time.Time, 10)
				o := options(&source{
					version: func() (string, error) { asked <- time.Now(); return fmt.Sprint(version), nil },
					load: func(context.Context) (string, string, error) {
						time.Sleep(load)
						return "a", fmt.Sprint(version), nil
					},
				})
				wake := make(chan struct{})
				o.Spread, o.Others, o.Wake = true, tt.others, wake
				v := value(t, o)
				if err := v.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go v.Run(ctx)
				latest := time.Duration(0)
				for range 200 {
					wake <- struct{}{}
					told := time.Now()
					latest = max(latest, (<-asked).Sub(told))
				}
				if latest > tt.most || latest < tt.most*3/4 {
					t.Errorf("the latest of 200 looks came %v after the hint, want a little less than %v",
						latest, tt.most)
				}
			})
		})
	}
}

// TestSlowSourceIsReadLessOften: a source that takes a second is not asked all
// the time, and one that failed is asked again at the interval.
func TestSlowSourceIsReadLessOften(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"answers", nil, 12},
		{"fails", errors.New("away"), 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				loads := 0
				v := value(t, options(&source{
					version: func() (string, error) { return "", nil },
					load: func(ctx context.Context) (string, string, error) {
						loads++
						select {
						case <-ctx.Done():
						case <-time.After(time.Second):
						}
						return "a", "1", tt.err
					},
				}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go v.Run(ctx)
				<-time.After(time.Minute + time.Millisecond)
				synctest.Wait()
				if loads != tt.want {
					t.Errorf("%d loads of a second in a minute, want %d", loads, tt.want)
				}
			})
		})
	}
}

// TestSpread: processes that start together do not go on asking together, and
// none of them asks later than the interval says.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const replicas = 20
		var mu sync.Mutex
		asked, fewest := map[time.Time]int{}, 1<<30
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var counts [replicas]int
		for i := range replicas {
			o := options(&source{
				version: func() (string, error) {
					mu.Lock()
					defer mu.Unlock()
					asked[time.Now()]++
					counts[i]++
					return "1", nil
				},
				load: func(context.Context) (string, string, error) { return "a", "1", nil },
			})
			o.Spread = true
			v := value(t, o)
			if err := v.Start(ctx); err != nil {
				t.Fatal(err)
			}
			go v.Run(ctx)
		}
		<-time.After(time.Minute + time.Millisecond)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		most := 0
		for _, n := range asked {
			most = max(most, n)
		}
		for _, n := range counts {
			fewest = min(fewest, n)
		}
		if most > 3 || fewest < 60 {
			t.Errorf("up to %d replicas asked at one moment, want 3 at most; one asked %d times in a minute, want "+
				"60 or more", most, fewest)
		}
	})
}

// TestLogIsBounded: a source whose errors all differ does not fill the disk.
func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := 0
		o := options(&source{
			version: func() (string, error) { n++; return "", fmt.Errorf("reset by 10.0.0.1:%d", n) },
			load:    func(context.Context) (string, string, error) { return "good", "1", nil },
		})
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		v := value(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go v.Run(ctx)
		<-time.After(time.Hour)
		synctest.Wait()
		if lines := strings.Count(log.String(), "\n"); lines != 16 {
			t.Errorf("%d log lines for %d different errors, want 16", lines, n)
		}
	})
}

// TestVersionOnlyKnownByLoading: a source without a cheap version is read at
// every interval, and built only when it changed.
func TestVersionOnlyKnownByLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc, none, builds := "a", "", 0
		s := &source{version: func() (string, error) { return "", nil }}
		s.load = func(context.Context) (string, string, error) {
			doc, _ := s.read(&doc, &none)
			return doc, "hash of " + doc, nil
		}
		o := options(s)
		build := o.Build
		o.Build = func(doc string, previous *string) (*string, error) { builds++; return build(doc, previous) }
		v := value(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go v.Run(ctx)
		<-time.After(10 * time.Second)
		synctest.Wait()
		s.change(func() { doc = "b" })
		<-time.After(10 * time.Second)
		synctest.Wait()
		if get(v) != "b" || builds != 2 || v.Status().Stale != 0 {
			t.Errorf("%q in force after %d builds, %+v, want b after 2", get(v), builds, v.Status())
		}
	})
}

func TestEmptyNeverReplacesFilled(t *testing.T) {
	s := fixed("", "1")
	v := value(t, options(s))
	if err := v.Start(t.Context()); err != nil || get(v) != "" {
		t.Errorf("Start with an empty document = %v, want it in force: it replaces nothing", err)
	}
	s.answer("full", "2")
	if err := v.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.answer("", "3")
	if err := v.Reload(t.Context()); err == nil || get(v) != "full" {
		t.Errorf("Reload = %v, %q in force, want an error and full", err, get(v))
	}
}

// TestRefusedIsSaidAgain: after a source was out of reach, the reason is again
// what is wrong with its document.
func TestRefusedIsSaidAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		s := fixed("full", "1")
		v := value(t, options(s))
		if err := v.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.answer("", "2")
		s.version = func() (string, error) {
			if away.Load() {
				return "", errors.New("away")
			}
			return "2", nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go v.Run(ctx)
		for _, step := range []struct {
			away bool
			want string
		}{
			{false, "texts: the document is empty now, want at least one entry"},
			{true, "texts: look for changes: away"},
			{false, "texts: the document is empty now, want at least one entry"},
		} {
			away.Store(step.away)
			<-time.After(time.Second)
			synctest.Wait()
			if got := v.Status(); got.LastError != step.want || !got.Emptied {
				t.Errorf("away %v: %+v, want %q, and Emptied still", step.away, got, step.want)
			}
		}
	})
}

// TestReloadWaitsItsTurn: loads never run at the same time, and who waits can
// give up.
func TestReloadWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := fixed("good", "1")
		s.load = func(context.Context) (string, string, error) { <-release; return "good", "1", nil }
		v := value(t, options(s))
		first := make(chan error)
		go func() { first <- v.Reload(context.Background()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := v.Reload(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Reload beside a load = %v, want DeadlineExceeded", err)
		}
		close(release)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if s := v.Status(); s.Failures != 0 {
			t.Errorf("giving up counts as a failure: %+v", s)
		}
	})
}
