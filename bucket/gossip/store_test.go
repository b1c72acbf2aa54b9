package gossip_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gossip"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// wire carries messages at once.
type wire struct {
	mu  sync.Mutex
	all map[uint64]*gossip.Store // guarded by mu
	cut bool                     // guarded by mu
}

func (w *wire) Send(to uint64, message []byte) {
	w.mu.Lock()
	s := w.all[to]
	if w.cut {
		s = nil
	}
	w.mu.Unlock()
	if s != nil {
		_ = s.Receive(message)
	}
}

// group is so many replicas, on one clock.
func group(t testing.TB, n int, o gossip.Options) (*wire, []*gossip.Store) {
	t.Helper()
	w := &wire{all: map[uint64]*gossip.Store{}}
	var all []*gossip.Store
	var names []uint64
	for i := range n {
		o.Transport, o.Self = w, uint64(i+1)
		s, err := gossip.New(o)
		if err != nil {
			t.Fatal(err)
		}
		w.all[s.Self()] = s
		all, names = append(all, s), append(names, s.Self())
	}
	for _, s := range all {
		if err := s.SetMembers(names); err != nil {
			t.Fatal(err)
		}
	}
	return w, all
}

func limit(t testing.TB, perSecond, burst int64) rate.Shape {
	t.Helper()
	sh, err := rate.Compile(rate.Limit{Tokens: perSecond, Per: time.Second, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

// Requests, messages and changes of the members at once: what was admitted is at most the burst of
// each, as the clock stands still, and after the last message all agree on that.
func TestAllAtOnce(t *testing.T) {
	const replicas, buckets = 3, 40
	sh := limit(t, 1, 50)
	var now atomic.Int64
	now.Store(1)
	_, all := group(t, replicas, gossip.Options{Now: now.Load, MessageBytes: 1200, Messages: 100})
	var admitted [buckets]atomic.Int64
	var work sync.WaitGroup
	for _, s := range all {
		for worker := range 2 {
			work.Go(func() {
				for i := range 2000 {
					b := (i*7 + worker) % buckets
					take := bucket.Take{Key: key.Key{Hi: uint64(b), Lo: 3}, Shape: sh, Cost: 1}
					var o bucket.Outcome
					if s.Take(now.Load(), &take, &o) {
						admitted[b].Add(1)
						if i%9 == 0 && s.Return(&take, now.Load()) {
							admitted[b].Add(-1)
						}
					}
				}
			})
		}
		work.Go(func() {
			for range 200 {
				s.Tick()
				s.Status()
				_ = s.SetMembers([]uint64{1, 2, 3})
				s.Copy(1200)
			}
		})
	}
	work.Wait()
	for range 2 {
		for _, s := range all {
			s.Tick()
		}
	}
	for b := range admitted {
		if got := admitted[b].Load(); got < 50 || got > replicas*50 {
			t.Errorf("bucket %d: %d admitted, want 50 to %d", b, got, replicas*50)
		}
		for i, s := range all {
			var o bucket.Outcome
			s.Look(1, &bucket.Take{Key: key.Key{Hi: uint64(b), Lo: 3}, Shape: sh}, &o)
			if want := time.Duration(admitted[b].Load()) * time.Second; o.ResetAfter != want {
				t.Errorf("bucket %d: replica %d says that %v is owed, want %v", b, i+1, o.ResetAfter, want)
			}
		}
	}
}

// One that joins begins with empty buckets, and goes on with what another knows.
func TestJoin(t *testing.T) {
	sh := limit(t, 10, 100)
	now := int64(1)
	_, all := group(t, 3, gossip.Options{Now: func() int64 { return now }})
	used, other := bucket.Take{Key: key.Key{Hi: 1}, Shape: sh, Cost: 1},
		bucket.Take{Key: key.Key{Hi: 2}, Shape: sh, Cost: 1}
	var o bucket.Outcome
	used.Cost = 60
	if !all[0].Take(now, &used, &o) {
		t.Fatal("a full bucket denies")
	}
	used.Cost = 1
	joins := all[2]
	joins.Join()
	if joins.Take(now, &other, &o) || joins.Look(now, &used, &o) || o.RetryAfter != 100*time.Millisecond ||
		!joins.Status().Joining {
		t.Errorf("one that joins has tokens before it knows what others do, or says %+v", o)
	}
	messages := all[0].Copy(256)
	for i, m := range messages {
		if err := joins.Adopt(m, i == len(messages)-1); err != nil {
			t.Fatal(err)
		}
	}
	if !joins.Look(now, &used, &o) || o.Remaining != 39 || joins.Status().Joining {
		t.Errorf("after the copy %d remain, want 39 beside the one that is taken", o.Remaining)
	}
	third := bucket.Take{Key: key.Key{Hi: 3}, Shape: sh, Cost: 100}
	if !joins.Take(now, &third, &o) {
		t.Error("what nobody used is not full after the copy")
	}
	if err := joins.Adopt(messages[0][:len(messages[0])-1], true); err == nil {
		t.Error("a copy that ends early is taken")
	}
}

// What no member said changes nothing, nor does what was meant for another.
func TestStrangers(t *testing.T) {
	sh := limit(t, 10, 100)
	now := int64(1)
	var sent []byte
	o := gossip.Options{
		Now:       func() int64 { return now },
		Self:      1,
		Transport: send(func(_ uint64, m []byte) { sent = append([]byte(nil), m...) }),
	}
	teller, err := gossip.New(o)
	if err != nil {
		t.Fatal(err)
	}
	_ = teller.SetMembers([]uint64{2})
	var out bucket.Outcome
	take := bucket.Take{Key: key.Key{Hi: 1}, Shape: sh, Cost: 70}
	teller.Take(now, &take, &out)
	teller.Tick()
	for _, c := range []struct {
		self    uint64
		members []uint64
		remain  int64
	}{{2, []uint64{1}, 30}, {2, []uint64{3}, 100}, {2, nil, 100}, {3, []uint64{1, 2}, 100}} {
		o.Self = c.self
		s, err := gossip.New(o)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.SetMembers(c.members)
		_ = s.Receive(sent)
		s.Look(now, &bucket.Take{Key: take.Key, Shape: sh}, &out)
		if out.Remaining != c.remain {
			t.Errorf("to %d of %v: %d remain, want %d", c.self, c.members, out.Remaining, c.remain)
		}
	}
	var many []uint64
	for i := range gossip.MaxReplicas {
		many = append(many, uint64(i+10))
	}
	if err := teller.SetMembers(many); err == nil {
		t.Errorf("%d replicas are taken, want an error", len(many)+1)
	}
}

type send func(to uint64, message []byte)

func (f send) Send(to uint64, message []byte) { f(to, message) }

// A message that somebody kept and sends again does not pass for a word of its teller: who is
// silent stays presumed.
func TestMessagesThatAreSentAgain(t *testing.T) {
	sh := limit(t, 100, 100)
	now := int64(1)
	var kept []byte
	o := gossip.Options{Now: func() int64 { return now }, Self: 1}
	o.Transport = send(func(_ uint64, m []byte) { kept = append([]byte(nil), m...) })
	teller, err := gossip.New(o)
	if err != nil {
		t.Fatal(err)
	}
	_ = teller.SetMembers([]uint64{2})
	teller.Tick()
	o.Self, o.Transport = 2, send(func(uint64, []byte) {})
	s, err := gossip.New(o)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SetMembers([]uint64{1})
	var out bucket.Outcome
	take := bucket.Take{Key: key.Key{Hi: 1}, Shape: sh, Cost: 100}
	if err := s.Receive(kept); err != nil || !s.Take(now, &take, &out) {
		t.Fatalf("%v, and %+v of a full bucket", err, out)
	}
	for range 20 {
		now += int64(100 * time.Millisecond)
		_ = s.Receive(kept)
		s.Tick()
	}
	if s.Status().Silent != 1 {
		t.Error("one that says nothing new for 2 s is not silent")
	}
}

// A table that is full of buckets in debt denies others, and forgets those that owe nothing.
func TestRoom(t *testing.T) {
	sh := limit(t, 10, 10)
	now := int64(1)
	_, all := group(t, 2, gossip.Options{Now: func() int64 { return now }, MaxAccounts: 64, Messages: 100})
	var o bucket.Outcome
	denied := 0
	for i := range uint64(64 * 20) {
		if !all[0].Take(now, &bucket.Take{Key: key.Key{Hi: i, Lo: i}, Shape: sh, Cost: 1}, &o) {
			denied++
			if o.RetryAfter <= 0 {
				t.Fatal("a denial says nothing of when to come back")
			}
		}
	}
	if denied != 64*19 || all[0].Status().Accounts != 64 || all[0].Status().Crowded != 64*19 {
		t.Errorf("%d are denied, and %+v; want %d", denied, all[0].Status(), 64*19)
	}
	now += int64(time.Second)
	for range 20 {
		now += int64(50 * time.Millisecond)
		all[0].Tick()
	}
	if !all[0].Take(now, &bucket.Take{Key: key.Key{Hi: 999, Lo: 5}, Shape: sh, Cost: 1}, &o) {
		t.Error("nothing is forgotten that owes nothing")
	}
}

func TestOptions(t *testing.T) {
	_, err := gossip.New(gossip.Options{
		Interval:     time.Millisecond,
		After:        time.Microsecond,
		Most:         101,
		MessageBytes: 3,
		Messages:     -1,
		MaxAccounts:  3,
	})
	if err == nil {
		t.Fatal("options that are all wrong are taken")
	}
	for _, field := range []string{"Transport", "Interval", "After", "Most", "MessageBytes", "Messages",
		"MaxAccounts"} {
		if !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// A decision takes one map of accounts and one lock, and no memory.
func BenchmarkTake(b *testing.B) {
	_, all := group(b, 1, gossip.Options{})
	take, o := bucket.Take{Key: key.Key{Hi: 1, Lo: 2}, Shape: limit(b, 1, 1<<30), Cost: 1}, bucket.Outcome{}
	b.ReportAllocs()
	for b.Loop() {
		if !all[0].Take(all[0].Now(), &take, &o) {
			b.Fatal("denied")
		}
	}
}
