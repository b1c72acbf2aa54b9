package identity_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/identity"
)

// remoteKeys is a finder that can be slow, fail, and forget.
type remoteKeys struct {
	mu    sync.Mutex
	keys  map[identity.Digest]identity.Key // guarded by mu
	fault error                            // guarded by mu
	delay time.Duration                    // guarded by mu
	finds atomic.Int64
}

func (r *remoteKeys) Find(ctx context.Context, d identity.Digest) (identity.Key, error) {
	r.finds.Add(1)
	r.mu.Lock()
	key, ok, fault, delay := r.keys[d], false, r.fault, r.delay
	_, ok = r.keys[d]
	r.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return identity.Key{}, ctx.Err()
		}
	}
	switch {
	case fault != nil:
		return identity.Key{}, fault
	case !ok:
		return identity.Key{}, fmt.Errorf("remote: %w", identity.ErrUnknownKey)
	}
	return key, nil
}

func (r *remoteKeys) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

func nth(i int) (d identity.Digest) {
	binary.LittleEndian.PutUint64(d[:], uint64(i))
	d[31] = byte(i)
	return d
}

func newCached(t testing.TB, o identity.CachedKeysOptions) *identity.CachedKeys {
	t.Helper()
	c, err := identity.NewCachedKeys(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRevocationBound tells the story of one key, to the nanosecond.
func TestRevocationBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := &remoteKeys{keys: map[identity.Digest]identity.Key{}}
		c := newCached(t, identity.CachedKeysOptions{Keys: remote})
		steps := []struct {
			after  time.Duration
			change func()
			want   string // "" unknown
			finds  int64
		}{
			{0, nil, "", 1},
			{0, func() { remote.keys[nth(1)] = identity.Key{ID: "k"} }, "", 1}, // not yet: unknown for 1 s
			{time.Second - 1, nil, "", 1},
			{1, nil, "k", 2},
			{0, func() { remote.keys[nth(1)] = identity.Key{ID: "k", Revoked: true} }, "k", 2}, // not yet: for 5 s
			{5*time.Second - 1, nil, "k", 2},
			{1, nil, "k revoked", 3},
			{5 * time.Second, func() { delete(remote.keys, nth(1)) }, "", 4},
			{time.Second, func() { remote.keys[nth(1)] = identity.Key{ID: "k2"} }, "k2", 5},
		}
		for i, step := range steps {
			time.Sleep(step.after) // of the bubble's clock
			if step.change != nil {
				remote.change(step.change)
			}
			key, err := c.Find(t.Context(), nth(1))
			got := key.ID
			if key.Revoked {
				got += " revoked"
			}
			if got != step.want || (err != nil) != (step.want == "") ||
				err != nil && !errors.Is(err, identity.ErrUnknownKey) || remote.finds.Load() != step.finds {
				t.Errorf("step %d: %q, %v after %d look-ups; want %q after %d", i, got, err, remote.finds.Load(),
					step.want, step.finds)
			}
		}
	})
}

// The bound counts from when a look-up began: a slow answer is not believed
// any longer for being slow.
func TestSlowAnswersDoNotStretchTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := &remoteKeys{keys: map[identity.Digest]identity.Key{nth(1): {ID: "k"}}, delay: 900 * time.Millisecond}
		c := newCached(t, identity.CachedKeysOptions{Keys: remote, TTL: 2 * time.Second})
		begin := time.Now()
		if key, err := c.Find(t.Context(), nth(1)); key.ID != "k" || err != nil {
			t.Fatal(key, err)
		}
		remote.change(func() { delete(remote.keys, nth(1)) })
		time.Sleep(time.Until(begin.Add(2 * time.Second)))
		if key, err := c.Find(t.Context(), nth(1)); !errors.Is(err, identity.ErrUnknownKey) {
			t.Errorf("2 s after the look-up began: %v, %v", key, err)
		}
	})
}

func TestRequestsShareALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := &remoteKeys{keys: map[identity.Digest]identity.Key{nth(1): {ID: "k"}}, delay: 100 * time.Millisecond}
		c := newCached(t, identity.CachedKeysOptions{Keys: remote, MaxLookups: 1})
		left, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { // the first leaves; the others must not suffer
			if _, err := c.Find(left, nth(1)); !errors.Is(err, context.Canceled) {
				t.Errorf("who left got %v", err)
			}
		})
		synctest.Wait()
		for range 50 {
			all.Go(func() {
				if key, err := c.Find(t.Context(), nth(1)); key.ID != "k" || err != nil {
					t.Errorf("Find = %v, %v", key, err)
				}
			})
		}
		synctest.Wait()
		if _, err := c.Find(t.Context(), nth(2)); !errors.Is(err, identity.ErrTooManyLookups) {
			t.Errorf("a second look-up: %v, want ErrTooManyLookups", err)
		}
		leave()
		all.Wait()
		if n := remote.finds.Load(); n != 1 {
			t.Errorf("%d look-ups, want 1", n)
		}
		if _, err := c.Find(t.Context(), nth(2)); !errors.Is(err, identity.ErrUnknownKey) { // there is room again
			t.Errorf("after that: %v", err)
		}
	})
}

func TestErrorsAreNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		remote := &remoteKeys{keys: map[identity.Digest]identity.Key{nth(1): {ID: "k"}}, fault: away}
		c := newCached(t, identity.CachedKeysOptions{Keys: remote})
		if _, err := c.Find(t.Context(), nth(1)); !errors.Is(err, away) {
			t.Errorf("Find = %v, want the finder's error", err)
		}
		remote.change(func() { remote.fault = nil; remote.delay = 2 * time.Second })
		begin := time.Now()
		if _, err := c.Find(t.Context(), nth(1)); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begin) != time.Second {
			t.Errorf("a slow finder: %v after %v, want the timeout's", err, time.Since(begin))
		}
		synctest.Wait()
		remote.change(func() { remote.delay = 0 })
		if key, err := c.Find(t.Context(), nth(1)); key.ID != "k" || err != nil {
			t.Errorf("then: %v, %v", key, err)
		}
		panics := newCached(t, identity.CachedKeysOptions{
			Keys:       finderFunc(func(identity.Digest) (identity.Key, error) { panic("finder") }),
			MaxLookups: 1,
		})
		for range 2 {
			if _, err := panics.Find(t.Context(), nth(1)); err == nil || strings.Contains(err.Error(), "finder") {
				t.Errorf("a finder that panics: %v", err)
			}
			synctest.Wait()
		}
	})
}

// A flood of made-up keys is held neither as such nor in place of one that
// is known.
func TestUnknownKeysDriveNothingOut(t *testing.T) {
	remote := &remoteKeys{keys: map[identity.Digest]identity.Key{}}
	now := time.Unix(1000, 0)
	c := newCached(t, identity.CachedKeysOptions{
		Keys:       remote,
		MaxKeys:    100,
		MaxUnknown: 200,
		Now:        func() time.Time { return now },
	})
	for i := range 50 {
		remote.keys[nth(i)] = identity.Key{ID: fmt.Sprint("k", i)}
		if _, err := c.Find(t.Context(), nth(i)); err != nil {
			t.Fatal(err)
		}
	}
	flood := 100_000
	if testing.Short() || raceEnabled {
		flood = 10_000
	}
	for i := range flood {
		if _, err := c.Find(t.Context(), nth(1000+i)); !errors.Is(err, identity.ErrUnknownKey) {
			t.Fatal(err)
		}
	}
	if s := c.Stats(); s.Keys != 50 || s.Unknown > 200 || s.Unknown < 100 {
		t.Errorf("holds %d keys and %d unknown, want 50 and at most 200", s.Keys, s.Unknown)
	}
	before := remote.finds.Load()
	for i := range 50 {
		if key, err := c.Find(t.Context(), nth(i)); err != nil || key.ID != fmt.Sprint("k", i) {
			t.Errorf("Find(%d) = %v, %v", i, key, err)
		}
	}
	if n := remote.finds.Load() - before; n != 0 {
		t.Errorf("%d known keys were driven out", n)
	}
}

// More keys than there is room for: never more are held, and those in use stay.
func TestCachedKeysAreBounded(t *testing.T) {
	remote := &remoteKeys{keys: map[identity.Digest]identity.Key{}}
	now := time.Unix(1000, 0)
	c := newCached(t, identity.CachedKeysOptions{Keys: remote, MaxKeys: 160, Now: func() time.Time { return now }})
	for i := range 5000 {
		remote.keys[nth(i)] = identity.Key{ID: fmt.Sprint(i)}
	}
	hot := nth(0)
	asked := remote.finds.Load
	if _, err := c.Find(t.Context(), hot); err != nil {
		t.Fatal(err)
	}
	misses := int64(0)
	for i := range 5000 {
		if key, err := c.Find(t.Context(), nth(i)); err != nil || key.ID != fmt.Sprint(i) {
			t.Fatalf("Find(%d) = %v, %v", i, key, err)
		}
		before := asked()
		if _, err := c.Find(t.Context(), hot); err != nil {
			t.Fatal(err)
		}
		misses += asked() - before
	}
	if s := c.Stats(); s.Keys > 160 || s.Keys < 100 || misses != 0 {
		t.Errorf("holds %d keys, want at most 160; one in use was asked for %d times, want 0", s.Keys, misses)
	}
}

func TestNewCachedKeysReportsEveryFault(t *testing.T) {
	_, err := identity.NewCachedKeys(identity.CachedKeysOptions{
		TTL:        2 * time.Hour,
		UnknownTTL: -1,
		Timeout:    3 * time.Hour,
		MaxKeys:    -1,
		MaxUnknown: 1 << 25,
		MaxLookups: 1 << 17,
	})
	want := strings.Join([]string{
		"Keys is nil, want one",
		"TTL is 2h0m0s, want more than 0 and at most 1h0m0s",
		"UnknownTTL is -1ns, want more than 0 and at most 2h0m0s",
		"Timeout is 3h0m0s, want more than 0 and at most 2h0m0s",
		"MaxKeys is -1, want 1 to 16777216, or 0 for 65536",
		"MaxUnknown is 33554432, want 1 to 16777216, or 0 for 65536",
		"MaxLookups is 131072, want 1 to 65536, or 0 for 64",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("NewCachedKeys: %v\nwant %s", err, want)
	}
}

func TestCachedKeysAllocatesNothing(t *testing.T) {
	remote := &remoteKeys{keys: map[identity.Digest]identity.Key{nth(1): {ID: "k"}}}
	c := newCached(t, identity.CachedKeysOptions{Keys: remote, UnknownTTL: 5 * time.Second})
	for _, d := range []identity.Digest{nth(1), nth(2)} {
		_, _ = c.Find(t.Context(), d)
		if n := testing.AllocsPerRun(100, func() { _, _ = c.Find(context.Background(), d) }); n != 0 {
			t.Errorf("Find of what is held allocates %v times", n)
		}
	}
}

func BenchmarkCachedKeys(b *testing.B) {
	remote := &remoteKeys{keys: map[identity.Digest]identity.Key{}}
	for i := range 1000 {
		remote.keys[nth(i)] = identity.Key{ID: fmt.Sprint(i)}
	}
	c := newCached(b, identity.CachedKeysOptions{Keys: remote, TTL: time.Hour})
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 1) % 1000
		_, _ = c.Find(context.Background(), nth(i))
	}
}
