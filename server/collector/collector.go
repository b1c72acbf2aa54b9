// Package collector sets how often the garbage collector of a gateway runs, and gives back what it does not need.
package collector

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The collector runs when the heap has grown by so many percent since it ran
// last. The bucket table holds no pointers, so a heap of a few megabytes is
// scanned quickly, and collecting it a quarter as often as Go would is worth a
// fifth of the proxy's CPU. But while many rules are loaded, what is in use is
// several times what it is later, and four times as much garbage beside it would
// be the most that the process ever takes:
//
//	in use    16 MiB  garbage until the next collection    64 MiB
//	          64 MiB                                      128 MiB
//	         500 MiB                                      500 MiB
const (
	mostGrowth   = 400       // percent
	leastGrowth  = 100       // percent; Go's own
	roomyGarbage = 128 << 20 // bytes, with which nothing is gained any more
)

// Until a gateway has started, almost nothing that it makes is garbage: rules and
// keys, and the room for them. To collect meanwhile takes time of those who wait for
// the start, and all of that room is looked at, which has the kernel find memory for
// pages that nobody has written yet. So the heap may be so large before the first
// collection.
const (
	startRoom = 64 << 20 // bytes, enough for 100,000 rules
	leastHeap = 4 << 20  // bytes in use, of which Go takes growth to be a percentage if there are less
)

// Relax sets how often the collector runs, from now on and as what is in use
// changes, unless the environment does. It is for the beginning of a process, which
// calls started when it has made what it needs.
func Relax() (started func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	p := &pace{starting: true}
	p.keep()
	(&collected{p}).watch()
	return func() {
		p.mu.Lock()
		p.starting = false
		p.mu.Unlock()
		p.keep()
	}
}

// growth is how many percent the heap may grow by when so many bytes are in use.
func growth(inUse uint64, starting bool) int {
	percent := min(mostGrowth, max(leastGrowth, 100*roomyGarbage/max(inUse, 1)))
	if starting {
		percent = max(percent, 100*startRoom/max(inUse, leastHeap))
	}
	return int(percent)
}

// pace is how often the collector runs.
type pace struct {
	mu       sync.Mutex
	starting bool // guarded by mu
	set      int  // guarded by mu; percent
}

// keep sets it for what is in use. That stops all goroutines for a moment, so it is
// not done for nothing.
func (p *pace) keep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(now)
	if want := growth(now[0].Value.Uint64(), p.starting); want < p.set*9/10 || want > p.set*11/10 {
		p.set = want
		debug.SetGCPercent(want)
	}
}

// collected is collected whenever the collector runs, and comes back.
type collected struct{ pace *pace }

func (c *collected) watch() {
	runtime.SetFinalizer(c, func(c *collected) {
		c.pace.keep()
		c.watch()
	})
}
