//go:build unix

package redis_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
)

func TestNoticesNamesEveryFault(t *testing.T) {
	_, err := redis.NewNotices(open(t, redis.Options{Server: redistest.Dial("/nowhere"), CallersClock: true}),
		redis.NoticesOptions{TTL: time.Millisecond, Longest: 5000})
	want := "redis notices: TTL is 1ms, want 100ms to 1h\nNow is nil, want a clock: the store has CallersClock\n" +
		"Longest is 5000, want 1 to 4096"
	if err == nil || err.Error() != want {
		t.Errorf("NewNotices: %v, want %s", err, want)
	}
}

// TestNotices: each hears the latest that the others said within the time, whatever else is under the name, and
// whatever becomes of the clock.
func TestNotices(t *testing.T) {
	server := redistest.Start(t)
	now := time.Date(2026, 11, 26, 7, 0, 0, 0, time.UTC).UnixNano()
	client := connect(t, server)
	store := open(t, redis.Options{Server: client, CallersClock: true})
	var all [3]*redis.Notices
	for i := range all {
		var err error
		all[i], err = redis.NewNotices(store, redis.NoticesOptions{Replica: uint64(i + 1), Longest: 100,
			Now: func() int64 { return now }})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		after time.Duration // since the step before
		who   int
		says  string
		hears string
	}{
		{0, 0, "a", ""},
		{0, 1, "b", "a"},
		{time.Second, 2, "c", "a b"},
		{time.Second, 1, "d", "a c"},
		{time.Second, 1, "d", "a c"}, // three seconds after a
		{time.Microsecond, 1, "d", "c"},
		{0, 2, "", "d"}, // c takes it back
		{0, 0, "e", "d"},
		{-time.Hour, 1, "f", ""}, // the clock was set back
		{0, 0, "g", "f"},
	} {
		now += int64(step.after)
		others, err := all[step.who].Exchange(t.Context(), []byte(step.says))
		slices.SortFunc(others, bytes.Compare)
		if got := string(bytes.Join(others, []byte(" "))); err != nil || got != step.hears {
			t.Errorf("step %d: %d hears %q, %v, want %q", i, step.who, got, err, step.hears)
		}
	}
	wordy, err := redis.NewNotices(store, redis.NoticesOptions{Replica: 9, Now: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wordy.Exchange(t.Context(), make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // of another version: it is heard of, and not silenced
		others, err := all[1].Exchange(t.Context(), []byte("f"))
		if slices.SortFunc(others, bytes.Compare); err != nil || len(others) != 2 || len(others[0]) != 0 {
			t.Errorf("beside one who says too much for this version %q are heard, %v", others, err)
		}
	}
	_, err = all[0].Exchange(t.Context(), make([]byte, 101))
	if err == nil || !strings.Contains(err.Error(), "101 bytes") {
		t.Errorf("what is too long: %v", err)
	}
	for what, command := range map[string][]string{
		"a string":            {"SET", "hg{notices}", "garbage"},
		"a list":              {"RPUSH", "hg{notices}", "a", "b"},
		"names of none":       {"HSET", "hg{notices}", "x", "y", "a long name of a field", "z"},
		"too short, too long": {"HSET", "hg{notices}", "8 bytes.", "2short", "8 bytes!", strings.Repeat("x", 200)},
	} {
		server.Do("DEL", "hg{notices}")
		server.Do(command...)
		if others, err := all[0].Exchange(t.Context(), []byte("a")); err != nil || len(others) != 0 {
			t.Errorf("%s: %q, %v", what, others, err)
		}
		if size := server.Do("HLEN", "hg{notices}"); size != int64(1) {
			t.Errorf("%s: %v replicas are kept, want 1", what, size)
		}
	}
	server.Do("ACL", "SETUSER", "default", "-hgetall")
	others, err := all[1].Exchange(t.Context(), []byte("b"))
	server.Do("ACL", "SETUSER", "default", "+hgetall")
	if cause := (*redis.Error)(nil); !errors.As(err, &cause) || cause.Cause != redis.Forbidden {
		t.Errorf("who may not read what is said hears %q, %v", others, err)
	}
	if size := server.Do("HLEN", "hg{notices}"); size != int64(1) {
		t.Errorf("by who may not read it, %v replicas are kept, want the 1 that was there", size)
	}
	for n := range 300 {
		server.Do("HSET", "hg{notices}", fmt.Sprintf("%08d", n), "\x00\x00\x00\x00\x00\x00\x00x")
	}
	now = 1000
	if others, err := all[0].Exchange(t.Context(), []byte("a")); err != nil || len(others) != 256 {
		t.Errorf("of 300 others %d are heard, %v, want 256", len(others), err)
	}
}

// TestMoreNoticesThanAreHeard: of more who speak than are heard, each hears as many as may be, second after second:
// nobody is left with a few. The middle of what they say stays near the middle of all.
func TestMoreNoticesThanAreHeard(t *testing.T) {
	const speakers, most = 400, 256
	now := time.Date(2026, 11, 26, 7, 0, 0, 0, time.UTC).UnixNano()
	store := open(t, redis.Options{Server: connect(t, redistest.Start(t)), CallersClock: true})
	var all [speakers]*redis.Notices
	for i := range all {
		var err error
		if all[i], err = redis.NewNotices(store, redis.NoticesOptions{Replica: uint64(i + 1),
			Now: func() int64 { return now }}); err != nil {
			t.Fatal(err)
		}
	}
	for second := range 4 {
		for i := range all {
			now += int64(time.Second) / speakers
			others, err := all[i].Exchange(t.Context(), fmt.Appendf(nil, "%03d", i))
			if err != nil {
				t.Fatal(err)
			}
			if second == 0 {
				continue
			}
			if len(others) < most-1 || len(others) > most {
				t.Fatalf("second %d: %d hears %d others, want %d", second, i, len(others), most)
			}
			slices.SortFunc(others, bytes.Compare)
			if middle := string(others[len(others)/2]); middle < "100" || middle > "300" {
				t.Errorf("second %d: the middle of what %d hears is that of %s", second, i, middle)
			}
		}
	}
}
