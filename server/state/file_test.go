package state_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/state"
)

const (
	hour   = int64(time.Hour)
	minute = int64(time.Minute)
	noon   = int64(1_795_176_000) * int64(time.Second)
)

var (
	secret  = bytes.Repeat([]byte{1}, 32)
	another = bytes.Repeat([]byte{2}, 32)
)

// machine is one whose clocks the test sets.
type machine struct{ wall, boot int64 }

func (m *machine) Clock() (wall, boot int64) { return m.wall, m.boot }

func options(path string, m *machine, secrets ...[]byte) state.Options {
	return state.Options{
		Path:    path,
		Clock:   m.Clock,
		Secrets: func() ([]byte, [][]byte, error) { return secrets[0], secrets[1:], nil },
	}
}

func table(t testing.TB) *memory.Store {
	t.Helper()
	store, err := memory.New(memory.Options{MaxBuckets: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// gate is one process: a table whose buckets have the file's names.
type gate struct {
	file  *state.File
	store *memory.Store
	now   int64

	blocked *penalty.Table
}

func open(t testing.TB, o state.Options, now int64) *gate {
	t.Helper()
	file, err := state.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(file.Close)
	g := &gate{file: file, store: table(t), now: now, blocked: penalty.New(0)}
	if at := file.Began(); at != 0 {
		g.now = at
	}
	if err := file.Load(g.store, g.blocked, g.now); err != nil {
		t.Fatal(err)
	}
	return g
}

// take takes a token of 60 an hour with a burst of 10.
func (g *gate) take(t testing.TB) bool {
	t.Helper()
	shape, err := rate.Compile(rate.Limit{Tokens: 60, Per: time.Hour, Burst: 10})
	if err != nil {
		t.Fatal(err)
	}
	ok, err := g.store.TryConsume(context.Background(), g.now,
		[]bucket.Take{{Key: g.file.Keys().Key(1, 2, []byte("someone")), Shape: shape, Cost: 1}},
		make([]bucket.Outcome, 1))
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func (g *gate) save(t testing.TB) {
	t.Helper()
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 60,
		Per: time.Hour, Burst: 10}}}, policy.CompileOptions{})
	if set == nil {
		t.Fatal(problems)
	}
	if _, err := g.file.Save(set, g.store, g.blocked, g.now, g.now); err != nil {
		t.Fatal(err)
	}
}

// Who is blocked for a time is blocked after a restart as well, in a file that older versions do
// not take for one of buckets.
func TestPenalties(t *testing.T) {
	path, m := filepath.Join(t.TempDir(), "state"), &machine{wall: noon, boot: hour}
	terms := &penalty.Terms{After: 1, Within: time.Minute, For: time.Hour, UpTo: time.Hour}
	g := open(t, options(path, m, secret), noon)
	caller := g.file.Keys().Key(3, 4, []byte("caller"))
	g.take(t)
	g.save(t)
	if text, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(text, []byte("headgate state 1\n")) {
		t.Errorf("a file without penalties begins %.20q, %v", text, err)
	}
	g.blocked.Denied(noon, caller, terms)
	g.save(t)
	if text, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(text, []byte("headgate state 2\n")) {
		t.Errorf("a file with penalties begins %.20q, %v", text, err)
	}
	g.file.Close()
	m.wall, m.boot = m.wall+10*minute, m.boot+10*minute
	g = open(t, options(path, m, secret), noon)
	if until, blocked := g.blocked.Until(g.now, caller, terms); !blocked || until-g.now != 50*minute {
		t.Errorf("after ten minutes it is blocked %v, for %v, want 50 minutes", blocked, time.Duration(until-g.now))
	}
	taken := 0
	for g.take(t) {
		taken++
	}
	if taken != 10 { // nine, and what came back, up to the burst
		t.Errorf("%d tokens were left of the bucket, want 10", taken)
	}
}

// TestClocks: what drains while no process runs is what drains in the time that has passed, or less, however the wall
// clock is set meanwhile.
func TestClocks(t *testing.T) {
	for name, test := range map[string]struct {
		wall, boot int64 // later
		want       int   // tokens that are back
	}{
		"five minutes":                            {5 * minute, 5 * minute, 5},
		"the wall clock is set forward by a day":  {24 * hour, 5 * minute, 5},
		"and back by a day":                       {-24 * hour, 5 * minute, 0},
		"the machine was started again meanwhile": {5 * minute, -999 * minute, 5},
		"with its clock back by a day":            {-24 * hour, -999 * minute, 0},
		"the clock of that start is far":          {5 * minute, 48 * hour, 5},
		"longer than all takes to fill":           {3 * hour, 3 * hour, 10},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{noon, 1000 * minute}
			path := filepath.Join(t.TempDir(), "state")
			g := open(t, options(path, m, secret), noon)
			for range 10 {
				g.take(t)
			}
			g.save(t)
			g.file.Close()
			m.wall, m.boot = m.wall+test.wall, m.boot+test.boot
			g = open(t, options(path, m, secret), 1)
			got := 0
			for g.take(t) {
				got++
			}
			if got != test.want {
				t.Errorf("%d tokens are back, want %d", got, test.want)
			}
		})
	}
}

// TestSecrets: a file goes on under a secret that follows the one that sealed it, for ever; and not under a strange
// one. Nobody reads a name in it without.
func TestSecrets(t *testing.T) {
	m := &machine{noon, minute}
	path := filepath.Join(t.TempDir(), "state")
	g := open(t, options(path, m, secret), noon)
	g.take(t)
	seed := hex.EncodeToString([]byte("someone"))
	names := g.file.Keys().Key(1, 2, []byte("someone"))
	g.save(t)
	g.file.Close()

	g = open(t, options(path, m, another, secret), 1) // during a rotation
	if got := g.file.Keys().Key(1, 2, []byte("someone")); got != names {
		t.Error("another name under the next secret")
	}
	g.save(t)
	g.file.Close()
	g = open(t, options(path, m, another), 1) // and after it
	if got := g.file.Keys().Key(1, 2, []byte("someone")); got != names {
		t.Error("another name when the rotation is over")
	}
	g.file.Close()
	text, err := os.ReadFile(path)
	if err != nil || bytes.Contains(text, []byte("someone")) || bytes.Contains(text, []byte(seed)) {
		t.Errorf("the file names whose buckets it has (%v)", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}

	file, err := state.Open(options(path, m, secret))
	var refused *state.Refused
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "another secret") {
		t.Fatalf("with a secret that did not seal it: %v", err)
	}
	defer file.Close()
	if file.Began() != 0 || file.Predecessor() != nil || file.Keys().Key(1, 2, []byte("someone")) == names {
		t.Error("something of it is used")
	}
	if kept, err := os.ReadFile(refused.Aside); err != nil || !bytes.Equal(kept, text) {
		t.Errorf("it was not kept: %v", err)
	}
}

// TestRefuses: no file in which anything was changed or cut off is used.
func TestRefuses(t *testing.T) {
	m := &machine{noon, minute}
	path := filepath.Join(t.TempDir(), "state")
	g := open(t, options(path, m, secret), noon)
	g.take(t)
	g.save(t)
	g.file.Close()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, text []byte, want string) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := state.Open(options(path, m, secret))
		if file != nil {
			file.Close()
		}
		var refused *state.Refused
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	for i := range good {
		changed := bytes.Clone(good)
		changed[i] ^= 1
		try("changed", changed, "state_file")
		try("cut off", good[:i], "state_file")
	}
	try("appended", append(bytes.Clone(good), 'x'), "checksum")
	try("newer", append([]byte("headgate state 3\n"), good[17:]...), "another version")
	try("foreign", []byte("hello\n"), "no file of buckets")
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, options(path, m, secret), 1)
}

// TestOneProcess: two gateways with one file would each lose what the other wrote.
func TestOneProcess(t *testing.T) {
	m := &machine{noon, minute}
	path := filepath.Join(t.TempDir(), "state")
	first := open(t, options(path, m, secret), noon)
	if _, err := state.Open(options(path, m, secret)); err == nil ||
		!strings.Contains(err.Error(), "locked by another process") {
		t.Errorf("a second process: %v", err)
	}
	first.file.Close()
	open(t, options(path, m, secret), noon)
}

// TestAFailedWriteLeavesTheFile, and nothing beside it.
func TestAFailedWriteLeavesTheFile(t *testing.T) {
	m := &machine{noon, minute}
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	secrets, failing := [][]byte{secret}, error(nil)
	o := options(path, m, secret)
	o.Secrets = func() ([]byte, [][]byte, error) { return secrets[0], nil, failing }
	g := open(t, o, noon)
	g.take(t)
	g.save(t)
	before, _ := os.ReadFile(path)
	set, _ := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 60}}},
		policy.CompileOptions{})
	failing = errors.New("no secret")
	if _, err := g.file.Save(set, g.store, g.blocked, noon, noon); !errors.Is(err, failing) {
		t.Errorf("Save without a secret: %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(after, before) {
		t.Error("the file changed")
	}
	if list, _ := os.ReadDir(dir); len(list) != 2 {
		t.Errorf("%d files, want the file and its lock", len(list))
	}
}
