package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/eval/rivals/peer"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Result is one limiter in one round. Times are nanoseconds a decision; with two goroutines they
// are wall time over the decisions of both.
type Result struct {
	Hot1, Hot2   float64 // one key
	Many1, Many2 float64 // many keys, in an order that has nothing to do with the order in memory
	Insert       float64 // a key's first decision, among the collections that filling causes

	Bytes     float64       // heap a live key
	Live      int           // keys that are in memory
	Occupancy float64       // live keys a slot, for a table of fixed size
	Allocs    float64       // allocations a decision
	GC        time.Duration // one forced collection with all keys live, wall time
}

func (r Result) String() string {
	return fmt.Sprintf("hot %4.0f %4.0f  many %5.0f %5.0f ns  %5.1f B/key  GC %v", r.Hot1, r.Hot2, r.Many1, r.Many2,
		r.Bytes, r.GC.Round(10*time.Microsecond))
}

var errDenied = errors.New("the limiter denied what it was set up to allow: the measurement compares different work")

func (p plan) measurePeer(which peer.Peer) (Result, error) {
	keys := makeKeys(p.keys)
	order := rand.New(rand.NewPCG(1, 2)).Perm(keys.len())
	before := heap()
	limiter, err := which.Open(keys.len())
	if err != nil {
		return Result{}, err
	}
	r := Result{Live: keys.len()}
	workers := []peer.Decide{limiter.Worker(), limiter.Worker()}

	if r.Insert, err = insert(workers[0], keys, order); err != nil {
		return Result{}, err
	}
	if h, ok := limiter.(*peer.Headgate); ok {
		stats := h.Store.Stats(h.Now())
		r.Live, r.Occupancy = stats.Live, float64(stats.Live)/float64(stats.Capacity)
	}
	r.Bytes = float64(heap()-before) / float64(r.Live)
	runtime.KeepAlive(order)

	r.GC = p.median(func() float64 {
		start := time.Now()
		runtime.GC()
		return float64(time.Since(start))
	}).duration()

	hot := keyTexts(strings.Clone(keys.at(keys.len() / 2)))
	r.Hot1, err = p.perDecision(workers[:1], hot)
	for _, c := range []struct {
		into    *float64
		workers []peer.Decide
		keys    keyTexts
	}{{&r.Hot2, workers, hot}, {&r.Many1, workers[:1], keys}, {&r.Many2, workers, keys}} {
		if err == nil {
			*c.into, err = p.perDecision(c.workers, c.keys)
		}
	}
	if err != nil {
		return Result{}, err
	}
	r.Allocs, err = allocations(workers[0], keys)
	return r, err
}

// insert asks for every key once, in an order, and returns what that takes a key. It asks with copies,
// so that neither the text's address nor when it was allocated is shared with the text that asks
// later. Some are made at a time, before the clock runs: to find a key in an order that is random
// takes a hundred nanoseconds, as long as some limiters do.
func insert(decide peer.Decide, keys keyTexts, order []int) (float64, error) {
	took, ok, copies := time.Duration(0), true, []string(nil)
	for batch := range slices.Chunk(order, 4096) {
		copies = copies[:0]
		for _, i := range batch {
			copies = append(copies, strings.Clone(keys.at(i)))
		}
		start := time.Now()
		for _, text := range copies {
			ok = decide(text) && ok
		}
		took += time.Since(start)
	}
	if !ok {
		return 0, errDenied
	}
	return float64(took) / float64(keys.len()), nil
}

// keyTexts are texts of 32 bytes that lie in memory one after the other, so that to fetch the next
// one is cheap, and what is at random is the limiter's own. They are one text: a million strings
// would be a million pointers, which a collection would have to follow.
type keyTexts string

const keySize = 32

func makeKeys(n int) keyTexts {
	var b strings.Builder
	b.Grow(n * keySize)
	for i := range n {
		fmt.Fprintf(&b, "GET:/v1/order/*|t-%03d|u-%08d", i%1000, i)
	}
	return keyTexts(b.String())
}

func (k keyTexts) len() int { return len(k) / keySize }

func (k keyTexts) at(i int) string { return string(k[i*keySize : (i+1)*keySize]) }

// heap is what is in use after two collections: the second frees what the first one's finalizers and pools held.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// perDecision runs every worker over the keys, round and round, each from another place.
func (p plan) perDecision(workers []peer.Decide, keys keyTexts) (float64, error) {
	from := make([]int, len(workers))
	for i := range from {
		from[i] = i * keys.len() / len(workers)
	}
	denied := make([]bool, len(workers))
	ns := p.median(func() float64 {
		rates := make([]float64, len(workers)) // decisions a nanosecond
		var wg sync.WaitGroup
		start := time.Now()
		for i := range workers {
			wg.Go(func() {
				done := 0
				for time.Since(start) < p.sample {
					const batch = 4096
					if from[i] = walk(workers[i], keys, from[i], batch); from[i] < 0 {
						denied[i], from[i] = true, 0
					}
					done += batch
				}
				rates[i] = float64(done) / float64(time.Since(start))
			})
		}
		wg.Wait()
		sum := 0.0
		for _, r := range rates {
			sum += r
		}
		return 1 / sum
	})
	for _, d := range denied {
		if d {
			return 0, errDenied
		}
	}
	return float64(ns), nil
}

// walk decides n times, on one key after the other, and returns where it got to; -1 if it was ever denied.
func walk(decide peer.Decide, keys keyTexts, at, n int) int {
	ok, end := true, keys.len()
	for range n {
		if at++; at >= end {
			at = 0
		}
		ok = decide(keys.at(at)) && ok
	}
	if !ok {
		return -1
	}
	return at
}

// allocations is how many there are in a decision.
func allocations(decide peer.Decide, keys keyTexts) (float64, error) {
	n := min(200_000, 10*keys.len())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	at := walk(decide, keys, 0, n)
	runtime.ReadMemStats(&after)
	if at < 0 {
		return 0, errDenied
	}
	return float64(after.Mallocs-before.Mallocs) / float64(n), nil
}

type number float64

func (n number) duration() time.Duration { return time.Duration(n) }

// median takes the samples of one case, after one that nobody counts.
func (p plan) median(sample func() float64) number {
	sample()
	found := make([]float64, p.samples)
	for i := range found {
		found[i] = sample()
	}
	return number(median(found))
}

// Rules is Headgate deciding one rule and three, all or nothing, in nanoseconds.
type Rules struct {
	Hot, Hot3, Many, Many3 float64
}

func (r Rules) String() string {
	return fmt.Sprintf("hot %.0f, three %.0f; many %.0f, three %.0f ns", r.Hot, r.Hot3, r.Many, r.Many3)
}

// measureRules compares a decision about one bucket with one about three. Both go over the same
// table, which holds three buckets of every key and is filled to 80 %: what differs is the
// decision.
func (p plan) measureRules() (Rules, error) {
	const rules = 3
	keys := makeKeys(p.keys)
	h, err := peer.OpenHeadgate(memory.Options{MaxBuckets: rules * keys.len() * 5 / 4})
	if err != nil {
		return Rules{}, err
	}
	one, all := h.OneOf(rules), h.Rules(rules)
	if walk(all, keys, 0, keys.len()) < 0 {
		return Rules{}, errDenied
	}
	var r Rules
	for _, c := range []struct {
		into   *float64
		decide peer.Decide
		keys   keyTexts
	}{{&r.Hot, one, keys[:keySize]}, {&r.Hot3, all, keys[:keySize]}, {&r.Many, one, keys}, {&r.Many3, all, keys}} {
		if *c.into, err = p.perDecision([]peer.Decide{c.decide}, c.keys); err != nil {
			return Rules{}, err
		}
	}
	return r, nil
}

// Sized is Headgate's heap a live key where the table's options are what they say suffices for one that is never
// over-subscribed: a quarter more slots than keys, and traces for a quarter of them.
type Sized struct{ Bytes, Occupancy float64 }

func (p plan) measureSized() (Sized, error) {
	keys := makeKeys(p.keys)
	order := rand.New(rand.NewPCG(1, 2)).Perm(keys.len())
	before, slots := heap(), keys.len()*5/4
	h, err := peer.OpenHeadgate(memory.Options{MaxBuckets: slots, SketchWidth: slots / 4})
	if err != nil {
		return Sized{}, err
	}
	decide := h.Worker()
	for _, i := range order {
		if !decide(keys.at(i)) {
			return Sized{}, errDenied
		}
	}
	bytes := float64(heap() - before)
	runtime.KeepAlive(order) // which was there before
	stats := h.Store.Stats(h.Now())
	runtime.KeepAlive(keys)
	return Sized{Bytes: bytes / float64(stats.Live), Occupancy: float64(stats.Live) / float64(stats.Capacity)}, nil
}

// Large is a table of many slots, filled to 80 %.
type Large struct {
	Slots, Live int
	Heap, Peak  int64         // bytes in use, and the most that the process ever had in memory
	Insert      float64       // nanoseconds
	GC          time.Duration // one forced collection, wall time
	Pause       time.Duration // the longest that one of them stopped the program
	PauseBefore time.Duration // the same without the table
}

func (l Large) String() string {
	return fmt.Sprintf("%d slots, %d live: %.2f GB of heap, %.2f GB at most, GC %v, pause %v (%v without the table)",
		l.Slots, l.Live, float64(l.Heap)/1e9, float64(l.Peak)/1e9, l.GC, l.Pause, l.PauseBefore)
}

func measureLarge(slots int) (Large, error) {
	var l Large
	_, l.PauseBefore = collect()
	store, err := memory.New(memory.Options{MaxBuckets: slots})
	if err != nil {
		return Large{}, err
	}
	shape, err := rate.Compile(rate.Limit{Tokens: 1, Per: time.Second, Burst: 1000})
	if err != nil {
		return Large{}, err
	}
	const noon = int64(1_795_176_000_000_000_000)
	rng, ctx, n := rand.NewPCG(1, 2), context.Background(), slots/5*4
	takes, outs := []bucket.Take{{Shape: shape, Cost: 1}}, make([]bucket.Outcome, 1)
	start := time.Now()
	for range n {
		takes[0].Key = key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}
		if _, err := store.TryConsume(ctx, noon, takes, outs); err != nil {
			return Large{}, err
		}
	}
	l.Insert = float64(time.Since(start)) / float64(n)
	l.Heap = heap()
	l.GC, l.Pause = collect()
	stats := store.Stats(noon)
	l.Slots, l.Live = stats.Capacity, stats.Live
	l.Peak, err = peak()
	return l, err
}

// collect forces ten collections. It returns the median of how long one takes, and the longest time
// that any stopped the program.
func collect() (wall, pause time.Duration) {
	const n = 10
	took := make([]float64, n)
	for i := range took {
		start := time.Now()
		runtime.GC()
		took[i] = float64(time.Since(start))
	}
	var stats debug.GCStats
	debug.ReadGCStats(&stats)
	for _, p := range stats.Pause[:min(n, len(stats.Pause))] {
		pause = max(pause, p)
	}
	return time.Duration(median(took)), pause
}

// peak is the most memory that this process ever had.
func peak() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0, fmt.Errorf("read VmHWM of /proc/self/status: %w", err)
	}
	return kib << 10, nil
}
