package scoped_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/scoped"
)

// cluster is a shared store of several servers, by tag, of which some are gone.
type cluster struct {
	*remote
	gone map[uint16]bool
}

func (c *cluster) Attempt(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool,
	func(context.Context, int64), error) {
	for i := range takes {
		if c.gone[takes[i].Tag] {
			return false, nil, errGone
		}
	}
	return c.remote.Attempt(ctx, now, takes, outs)
}

func (c *cluster) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if c.gone[changes[0].Tag] {
		return errGone
	}
	return c.remote.Correct(ctx, now, changes, moved)
}

func on(server uint16, of bucket.Take) bucket.Take {
	of.Tag = server
	return of
}

// Server 2 is lost for a minute, 1 is there. Each decision is over a bucket of both, of ten tokens and one a second.
func TestDecisionsOverServersOfWhichOneIsLost(t *testing.T) {
	const strict = bucket.Strict
	here, there := func(n uint64) bucket.Take { return on(1, take(t, n, second, strict, bucket.LossClosed)) },
		func(n uint64, loss bucket.Loss) bucket.Take {
			return on(2, take(t, n, second, strict, loss))
		}
	for name, c := range map[string]struct {
		takes   []bucket.Take
		allowed bool
		err     error
		left    int64 // in the bucket on the server that is there
		asked   bool
		counted string // denied, shared and opened
	}{
		"closed: who is there is not asked": {[]bucket.Take{here(1), there(2, bucket.LossClosed)}, false,
			bucket.ErrLost, 10, false, "1 0 0"},
		"open": {[]bucket.Take{here(1), there(2, bucket.LossOpen)}, true, nil, 9,
			true, "0 0 1"},
		"open, in the other order": {[]bucket.Take{there(2, bucket.LossOpen), here(1)}, true, nil, 9,
			true, "0 0 1"},
		"open, but the other denies": {[]bucket.Take{costing(here(1), 11), there(2, bucket.LossOpen)},
			false, nil, 10, true, "0 0 0"},
		"share: it has filled": {[]bucket.Take{here(1), there(2, bucket.LossShare)}, true, nil, 9,
			true, "0 1 0"},
		"share, but more than that": {[]bucket.Take{here(1), costing(there(2, bucket.LossShare), 6)},
			false, nil, 10, false, "0 0 0"},
		"closed, in shadow": {[]bucket.Take{here(1), shadow(there(2, bucket.LossClosed))}, true,
			nil, 9, true, "0 0 0"},
		"of the one that is there": {[]bucket.Take{here(1), here(3)}, true, nil, 9, true, "0 0 0"},
		"of the one that is gone, and a local": {[]bucket.Take{there(2, bucket.LossOpen),
			take(t, 1, second, bucket.Local, 0)}, true, nil, 10, false, "0 0 1"},
		"of the one that is gone, closed, and of": {[]bucket.Take{there(2, bucket.LossClosed),
			there(3, bucket.LossOpen)}, false, bucket.ErrLost, 10, false, "1 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			far := &cluster{newRemote(t), map[uint16]bool{2: true}}
			s := open(t, scoped.Options{
				Strict:   far,
				Server:   func(tag uint16) int { return int(tag) },
				Replicas: func() int { return 2 },
			})
			for range 5 {
				_, _ = s.TryConsume(context.Background(), start, []bucket.Take{there(99, bucket.LossOpen)},
					make([]bucket.Outcome, 1))
			}
			got, want := fmt.Sprint(s.Status().Servers), fmt.Sprintf("[{2 true %d 0 0 0 <nil>}]", start)
			if got != want {
				t.Fatalf("servers %s, want %s", got, want)
			}
			now := start + int64(time.Minute)
			asked := far.asked
			// The first one tries the server that is lost, in vain.
			_, _ = s.TryConsume(context.Background(), now, []bucket.Take{costing(there(98, bucket.LossOpen), 0)},
				make([]bucket.Outcome, 1))
			outs := make([]bucket.Outcome, len(c.takes))
			allowed, err := s.TryConsume(context.Background(), now, c.takes, outs)
			if allowed != c.allowed || !errors.Is(err, c.err) {
				t.Errorf("%t, %v, %+v, want %t, %v", allowed, err, outs, c.allowed, c.err)
			}
			if left := far.left(t, now, here(1)); left != c.left {
				t.Errorf("%d are left where the server is there, want %d", left, c.left)
			}
			if was := far.asked > asked; was != c.asked {
				t.Errorf("the server that is there was asked: %t, want %t", was, c.asked)
			}
			st := s.Status()
			if counted := fmt.Sprint(st.Denied, st.Shared, st.Opened-1); counted != c.counted {
				t.Errorf("denied, shared, opened: %s, want %s", counted, c.counted)
			}
		})
	}
}

// A request that tries a server in vain is decided by the others all the same, and charged once.
func TestATryInVainGoesOnWithTheOthers(t *testing.T) {
	for loss, want := range map[bucket.Loss]struct {
		allowed bool
		err     error
		left    int64
	}{
		bucket.LossOpen:   {true, nil, 9},
		bucket.LossShare:  {true, nil, 9},
		bucket.LossClosed: {false, bucket.ErrLost, 10},
	} {
		far := &cluster{newRemote(t), map[uint16]bool{2: true}}
		s := open(t, scoped.Options{Strict: far, Server: func(tag uint16) int { return int(tag) }})
		here, there := on(1, take(t, 1, second, bucket.Strict, bucket.LossClosed)),
			on(2, take(t, 2, second, bucket.Strict, loss))
		for range 5 {
			_, _ = s.TryConsume(context.Background(), start, []bucket.Take{there}, make([]bucket.Outcome, 1))
		}
		now := start + int64(time.Minute)
		allowed, err := s.TryConsume(context.Background(), now, []bucket.Take{here, there}, make([]bucket.Outcome, 2))
		if left := far.left(t, now, here); allowed != want.allowed || !errors.Is(err, want.err) || left != want.left {
			t.Errorf("%v: %t, %v, %d left, want %t, %v, %d", loss, allowed, err, left, want.allowed,
				want.err, want.left)
		}
	}
}

// Before a server is taken for lost, its failures deny, and others get back what they gave.
func TestAServerThatFailsGivesBackAtTheOthers(t *testing.T) {
	far := &cluster{newRemote(t), map[uint16]bool{2: true}}
	s := open(t, scoped.Options{Strict: far, Server: func(tag uint16) int { return int(tag) }})
	here, there := on(1, take(t, 1, second, bucket.Strict, bucket.LossOpen)),
		on(2, take(t, 2, second, bucket.Strict, bucket.LossOpen))
	for range 4 {
		allowed, err := s.TryConsume(context.Background(), start, []bucket.Take{here, there}, make([]bucket.Outcome, 2))
		if left := far.left(t, start, here); allowed || !errors.Is(err, bucket.ErrLost) || left != 10 {
			t.Fatalf("%t, %v, %d left, want a denial that charges nobody", allowed, err, left)
		}
	}
	outs := make([]bucket.Outcome, 2)
	far.gone = nil
	there = costing(there, 11)
	if allowed, err := s.TryConsume(context.Background(), start, []bucket.Take{here, there}, outs); allowed ||
		err != nil || !outs[0].Unknown || outs[1].Allowed {
		t.Errorf("one of two denies: %t, %v, %+v", allowed, err, outs)
	}
	if left := far.left(t, start, here); left != 10 || s.Status().Lost {
		t.Errorf("%d are left, lost %t, want 10 and not", left, s.Status().Lost)
	}
}

// A server that has no buckets any more is not lost any more, and what was admitted meanwhile is
// charged to whoever has them.
func TestRetire(t *testing.T) {
	far := &cluster{newRemote(t), map[uint16]bool{2: true}}
	owner := 2
	var told []scoped.Server
	s := open(t, scoped.Options{
		Strict:  far,
		Server:  func(uint16) int { return owner },
		Changed: func(one scoped.Server, _ scoped.Status) { told = append(told, one) },
	})
	of := on(2, take(t, 2, second, bucket.Strict, bucket.LossOpen))
	for range 5 {
		_, _ = s.TryConsume(context.Background(), start, []bucket.Take{of}, make([]bucket.Outcome, 1))
	}
	now := start + int64(time.Millisecond)
	for range 3 {
		try(t, s, now, of)
	}
	far.gone, owner = nil, 1
	s.Retire(2)
	s.Retire(3) // of whom nobody has heard
	if left := far.left(t, now, of); left != 7 || s.Status().Lost {
		t.Errorf("%d are left, lost %t, want what is left of 10 after 3, and not", left, s.Status().Lost)
	}
	if want := []scoped.Server{{Number: 2, Lost: true, Since: start, Why: errGone},
		{Number: 2, Since: start, Opened: 3}}; fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("told %+v, want %+v", told, want)
	}
	if allowed, _ := try(t, s, now, of); !allowed || far.left(t, now, of) != 6 {
		t.Errorf("under its new owner: %t, %d left", allowed, far.left(t, now, of))
	}
}

// Without any request a server is tried as often as with many, and found again.
func TestTry(t *testing.T) {
	far := &cluster{newRemote(t), map[uint16]bool{2: true, 3: true}}
	s := open(t, scoped.Options{Strict: far, Server: func(tag uint16) int { return int(tag) }})
	for _, server := range []uint16{1, 2, 3} {
		for range 5 {
			_, _ = s.TryConsume(context.Background(), start,
				[]bucket.Take{on(server, take(t, 1, second, bucket.Strict, bucket.LossOpen))},
				make([]bucket.Outcome, 1))
		}
	}
	var tried []string
	for ms := int64(0); ms < 1000; ms += 10 {
		s.Try(context.Background(), start+ms*1_000_000, func(_ context.Context, server int) error {
			tried = append(tried, fmt.Sprint(server, "@", ms))
			if server == 3 || ms < 200 {
				return errGone
			}
			return nil
		})
	}
	want := "2@100 3@100 2@200 3@200 2@300 3@300 2@400 3@400 3@500 3@600 3@700 3@800 3@900"
	if got := strings.Join(tried, " "); got != want {
		t.Errorf("tried %s, want %s", got, want)
	}
	if got := fmt.Sprint(s.Status().Servers); got != fmt.Sprintf(
		"[{1 false 0 0 0 0 <nil>} {2 false %d 0 0 0 <nil>} {3 true %[1]d 0 0 0 <nil>}]", start) {
		t.Errorf("servers %s, want that only the third is lost", got)
	}
}
