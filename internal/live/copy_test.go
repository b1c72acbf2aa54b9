package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/live"
)

func TestLastGoodCopy(t *testing.T) {
	away := &source{
		version: func() (string, error) { return "", errors.New("away") },
		load:    func(context.Context) (string, string, error) { return "", "", errors.New("away") },
	}
	path := filepath.Join(t.TempDir(), "copy")
	o := options(fixed("one\ntwo", "1"))
	o.LastGood = path
	v := value(t, o)
	if err := v.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		data []byte
		want string // in force, "-" for nothing
	}{
		{"whole", good, "one\ntwo"},
		{"cut", good[:len(good)-1], "-"},
		{"changed", bytes.Replace(good, []byte("two"), []byte("tWo"), 1), "-"},
		{"longer", append(bytes.Clone(good), 'x'), "-"},
		{"something else", []byte("one\ntwo"), "-"},
		{"nothing", nil, "-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(path, tt.data, 0o600); err != nil {
				t.Fatal(err)
			}
			o := options(away)
			o.LastGood = path
			v := value(t, o)
			err := v.Start(t.Context())
			if get(v) != tt.want || (err == nil) != (tt.want != "-") {
				t.Errorf("Start = %v, %q in force, want %q", err, get(v), tt.want)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(after, tt.data) {
				t.Error("Start from the copy changed the copy")
			}
		})
	}
}

// TestCopyIsReplacedAsAWhole: no temporary file stays behind, and a document
// that was refused does not reach the disk.
func TestCopyIsReplacedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	s := fixed("good", "1")
	o := options(s)
	o.LastGood = filepath.Join(dir, "copy")
	v := value(t, o)
	for i, doc := range []string{"good", "better", "bad", ""} {
		s.answer(doc, fmt.Sprint(i))
		_ = v.Reload(t.Context())
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v, want the copy alone", entries, err)
	}
	if data, _ := os.ReadFile(o.LastGood); !bytes.HasSuffix(data, []byte("\nbetter")) {
		t.Errorf("the copy is %q, want the last good document", data)
	}
}

// TestLeftoversAreRemoved: a process that was killed while it wrote a copy leaves a file as large as that. What
// somebody may still write, and what has another name, stays.
func TestLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	o := options(fixed("good", "1"))
	o.LastGood = filepath.Join(dir, "copy")
	old := time.Now().Add(-time.Hour)
	for name, at := range map[string]time.Time{
		".copy.123": old, ".copy.4567890": old, ".copy.5": time.Now(), ".copy.json": old, ".copy.": old,
		".copy.keys.1": old, ".copier.1": old, "copy.1": old,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("part"), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := value(t, o).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	want := []string{".copier.1", ".copy.", ".copy.5", ".copy.json", ".copy.keys.1", "copy", "copy.1"}
	if !slices.Equal(names, want) {
		t.Errorf("the folder holds %q, want %q", names, want)
	}
}

// TestCopyThatCannotBeWritten does not keep a document from taking effect.
func TestCopyThatCannotBeWritten(t *testing.T) {
	var log bytes.Buffer
	o := options(fixed("good", "1"))
	o.LastGood = filepath.Join(t.TempDir(), "no such folder", "copy")
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	v := value(t, o)
	for range 3 {
		if err := v.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s := v.Status()
	if get(v) != "good" || s.LastError != "" || !strings.Contains(s.CopyError, "no such folder") {
		t.Errorf("%q in force, %+v, want good and a CopyError", get(v), s)
	}
	if lines := strings.Count(log.String(), "the last good copy is not kept"); lines != 1 {
		t.Errorf("%d log lines, want 1\n%s", lines, log.String())
	}
}

// TestCopyIsTriedAgain: once there is room, the copy is written within a minute, although nothing has changed, and
// nothing is loaded for it more often.
func TestCopyIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fixed("good", "1")
		loads, load := 0, s.load
		s.load = func(ctx context.Context) (string, string, error) { loads++; return load(ctx) }
		o := options(s)
		o.Interval = time.Second
		folder := filepath.Join(t.TempDir(), "folder")
		o.LastGood = filepath.Join(folder, "copy")
		v := value(t, o)
		if err := v.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		run := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			v.Run(ctx)
		}
		run(150 * time.Second)
		if loads != 3 || v.Status().CopyError == "" {
			t.Errorf("%d loads in 2.5 minutes without a folder, %+v, want 3 and a CopyError", loads, v.Status())
		}
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		run(61 * time.Second)
		if data, err := os.ReadFile(o.LastGood); err != nil || !bytes.HasSuffix(data, []byte("\ngood")) {
			t.Errorf("the copy is %q, %v, want the document", data, err)
		}
		run(5 * time.Minute)
		if loads != 4 || v.Status().CopyError != "" {
			t.Errorf("%d loads, %+v, want no more than 4 and no CopyError", loads, v.Status())
		}
	})
}

// TestStaleCountsTheLoad: what a slow source confirms is as old as the question.
func TestStaleCountsTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version := "1"
		s := &source{}
		s.version = func() (string, error) { <-time.After(time.Second); return version, nil }
		s.load = func(context.Context) (string, string, error) {
			<-time.After(9 * time.Second)
			return "doc", version, nil
		}
		o := options(s)
		o.Interval = time.Minute
		v := value(t, o)
		for _, step := range []struct {
			what  string
			do    func()
			stale time.Duration
		}{
			{"loaded", func() { _ = v.Start(t.Context()) }, 9 * time.Second},
			{"looked at", func() {
				ctx, cancel := context.WithTimeout(t.Context(), 61*time.Second)
				defer cancel()
				v.Run(ctx)
			}, time.Second},
			{"five seconds later", func() { <-time.After(5 * time.Second) }, 6 * time.Second},
		} {
			step.do()
			if got := v.Status(); got.Stale != step.stale || got.LastError != "" {
				t.Errorf("%s: %+v, want %v stale", step.what, got, step.stale)
			}
		}
	})
}

// TestCopyOfATimeToCome: the clock was ahead when the copy was written, and is
// right now. Staleness rises all the same.
func TestCopyOfATimeToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(fixed("good", "1"))
		o.LastGood = filepath.Join(t.TempDir(), "copy")
		if err := value(t, o).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(o.LastGood, later, later); err != nil {
			t.Fatal(err)
		}
		s := fixed("", "")
		s.load = func(context.Context) (string, string, error) { return "", "", errors.New("away") }
		o.Source = s
		v := value(t, o)
		if err := v.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Second)
		if got := v.Status(); get(v) != "good" || !got.FromDisk || got.Stale != 10*time.Second {
			t.Errorf("10s after the start: %q in force, %+v, want the copy, 10s stale", get(v), got)
		}
	})
}

// TestEmptiedBeforeTheStart: what was emptied while no process ran does not
// replace the copy on disk, neither in force nor there, until it is gone or
// somebody says that it was meant.
func TestEmptiedBeforeTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "copy")
	start := func(s *source, meant bool) (*live.Value[string, string], error) {
		o := options(s)
		o.LastGood = path
		o.Emptied = func(_ string, current *string) error {
			if meant && *current == "full" {
				return nil
			}
			return errors.New("empty by accident")
		}
		v := value(t, o)
		return v, v.Start(t.Context())
	}
	check := func(what string, v *live.Value[string, string], want string, emptied bool) {
		t.Helper()
		s := v.Status()
		if got := get(v); got != want || s.Emptied != emptied || s.FromDisk != emptied ||
			(s.LastError == "texts: empty by accident") != emptied {
			t.Errorf("%s: %q in force, %+v, want %q and Emptied %v", what, got, s, want, emptied)
		}
	}
	v, err := start(fixed("full", "1"), false)
	if err != nil {
		t.Fatal(err)
	}
	check("full", v, "full", false)
	for _, what := range []string{"emptied", "emptied, and started once more"} {
		s := fixed("", "2")
		if v, err = start(s, false); err != nil {
			t.Fatalf("%s: Start = %v, want the copy", what, err)
		}
		check(what, v, "full", true)
		if err := v.Reload(t.Context()); err == nil {
			t.Errorf("%s: Reload = nil, want why it is not believed", what)
		}
		check(what+", and reloaded", v, "full", true)
		s.answer("fuller", "3")
		if err := v.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(what+", and filled again", v, "fuller", false)
		s.answer("full", "4") // for the next start
		if err := v.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if v, err = start(fixed("", "5"), true); err != nil {
		t.Fatal(err)
	}
	check("emptied on purpose", v, "", false)
	if v, err = start(fixed("", "6"), false); err != nil {
		t.Fatal(err)
	}
	check("empty after that", v, "", false)

	if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err = start(fixed("", "7"), true); err == nil ||
		!strings.Contains(err.Error(), "whether it was before is unknown") || get(v) != "-" {
		t.Errorf("Start beside a copy that cannot be read = %v, %q in force, want an error and nothing", err, get(v))
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if v, err = start(fixed("", "8"), false); err != nil {
		t.Fatal(err)
	}
	check("the copy removed", v, "", false)
}
