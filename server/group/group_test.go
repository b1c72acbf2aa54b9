package group_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gossip"
	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/group"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

// running is a gateway's group.
type running struct {
	*group.Group
	leave func() // and waits until it has
	log   *livelog.Text
}

// start has a group run on a port of its own.
func start(t *testing.T, secret []byte, join ...string) *running {
	t.Helper()
	return startAt(t, "127.0.0.1:0", secret, join...)
}

func startAt(t *testing.T, listen string, secret []byte, join ...string) *running {
	t.Helper()
	r := &running{log: new(livelog.Text)}
	g, err := group.New(group.Options{
		Listen: listen, Join: join, Secret: secret, Gossip: gossip.Options{Interval: 20 * time.Millisecond},
		Log: slog.New(slog.NewTextHandler(io.MultiWriter(r.log), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Group = g
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { g.Run(ctx) })
	r.leave = func() { stop(); run.Wait() }
	t.Cleanup(r.leave)
	return r
}

// until waits for something that real processes need some time for: seconds, before they give one up that is silent.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func shape(t *testing.T) rate.Shape {
	t.Helper()
	sh, err := rate.Compile(rate.Limit{Tokens: 1, Per: time.Hour, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

func (r *running) take(t *testing.T, hi uint64, cost int64) (bool, int64) {
	var o bucket.Outcome
	ok := r.Store().Take(r.Store().Now(), &bucket.Take{Key: key.Key{Hi: hi}, Shape: shape(t), Cost: cost}, &o)
	return ok, o.Remaining
}

func replicas(n int, all ...*running) func() bool {
	return func() bool {
		for _, r := range all {
			if r.Store().Status().Replicas != n || r.Store().Status().Joining {
				return false
			}
		}
		return true
	}
}

// Three find each other, though the third knows one alone; what each admits the others debit; one
// that joins is told what was admitted before; one that leaves counts no more, one that is gone
// without a word does.
func TestGroup(t *testing.T) {
	a := start(t, secret)
	b := start(t, secret, a.Address())
	until(t, "a and b are two", replicas(2, a, b))
	a.take(t, 1, 10)
	b.take(t, 1, 20)
	left := func(r *running, hi uint64, want int64) func() bool {
		return func() bool { _, remain := r.take(t, hi, 0); return remain == want }
	}
	until(t, "a knows of both", left(a, 1, 70))
	until(t, "b knows of both", left(b, 1, 70))

	c := start(t, secret, b.Address())
	until(t, "they are three", replicas(3, a, b, c))

	until(t, "c knows of what was before", left(c, 1, 70))
	if ok, _ := c.take(t, 2, 100); !ok {
		t.Error("a bucket that nobody used is not full at the one that joined")
	}
	until(t, "a knows of c", left(a, 2, 0))

	b.leave()
	until(t, "b counts no more", replicas(2, a, c))
	if !strings.Contains(a.log.String(), "a gateway left") {
		t.Errorf("a does not say that b left: %s", a.log.String())
	}

	c.Close() // as a process that is killed
	until(t, "c is silent", func() bool { s := a.Store().Status(); return s.Replicas == 2 && s.Silent == 1 })
	until(t, "a says so", func() bool { return strings.Contains(a.log.String(), "is not heard of") })
}

// One that is among the addresses it joins, as a pod is of its own service, or that meets others first
// that begin just now, learns nothing of them: its buckets stay empty until one that knows has spoken.
func TestJoiningOnesKnowNothing(t *testing.T) {
	a := start(t, secret)
	a.take(t, 1, 100)
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf("127.0.0.1:%d", port)
	beginning, err := group.New(group.Options{Listen: "127.0.0.1:0", Join: []string{own}, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(beginning.Close)
	if !beginning.Store().Status().Joining {
		t.Error("one that is to join others begins with full buckets")
	}
	b := startAt(t, own, secret, own, beginning.Address(), a.Address())
	until(t, "b has joined", func() bool { return !b.Store().Status().Joining })
	if ok, remain := b.take(t, 1, 1); ok {
		t.Errorf("%d remain of a bucket that another emptied, want none: it joined itself first", remain)
	}
}

// Those that begin together and find nobody who knows anything have full buckets.
func TestAllBeginTogether(t *testing.T) {
	var addresses []string
	for range 3 {
		port, err := freeport.Pick()
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
	}
	var all []*running
	for _, a := range addresses {
		all = append(all, startAt(t, a, secret, addresses...))
	}
	until(t, "they are three", replicas(3, all...))
	for i, r := range all {
		if ok, remain := r.take(t, uint64(i), 100); !ok {
			t.Errorf("%d of 100 remain of a bucket that nobody used", remain)
		}
	}
}

// A process in the place of one that was killed counts as one with it, whoever hears of which first:
// at others, at one that comes later, and at itself, to which others say that its predecessor is there.
func TestInThePlaceOfOneThatWasKilled(t *testing.T) {
	a := start(t, secret)
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	killed := startAt(t, at, secret, a.Address())
	until(t, "a and the first are two", replicas(2, a, killed))
	before := *killed.Node()
	killed.Close()
	killed.leave()
	next := startAt(t, at, secret, a.Address())
	until(t, "a and the second are two", replicas(2, a, next))
	for _, r := range []*running{a, next} {
		r.Hear(&before)
		if n := r.Store().Status().Replicas; n != 2 {
			t.Errorf("%s counts %d, want 2: one at %s was killed", r.Address(), n, at)
		}
	}
	next.take(t, 1, 30)
	until(t, "a knows of the second", func() bool { _, remain := a.take(t, 1, 0); return remain == 70 })
}

// Who has another secret is no member, learns nothing, and costs a line in the log each ten seconds.
func TestAnotherSecret(t *testing.T) {
	a := start(t, secret)
	b := start(t, secret, a.Address())
	until(t, "a and b are two", replicas(2, a, b))
	x := start(t, []byte("another secret, of another group"), a.Address(), b.Address())
	until(t, "a refuses it", func() bool { return strings.Contains(a.log.String(), "WARN") })
	x.take(t, 1, 50)
	a.take(t, 1, 10)
	until(t, "b knows of a", func() bool { _, remain := b.take(t, 1, 0); return remain == 90 })
	if s := a.Store().Status(); s.Replicas != 2 {
		t.Errorf("a has %d replicas, want 2", s.Replicas)
	}
	if n := strings.Count(a.log.String(), "WARN"); n > 2 {
		t.Errorf("%d warnings, want 2 at most:\n%s", n, a.log.String())
	}
}

func TestWrongAddresses(t *testing.T) {
	for _, o := range []group.Options{{Listen: "nowhere"}, {Listen: "127.0.0.1:0", Advertise: "x"},
		{Listen: "192.0.2.1:7946"}} {
		o.Secret = secret
		if g, err := group.New(o); err == nil {
			g.Close()
			t.Errorf("%+v is taken", o)
		} else if !strings.Contains(err.Error(), "gossip.") {
			t.Errorf("%v does not name the setting", err)
		}
	}
}
