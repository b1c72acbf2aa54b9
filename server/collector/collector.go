// Package collector sets how often the garbage collector of a gateway runs.
package collector

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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

// Relax sets how often the collector runs, from now on and as what is in use
// changes, unless the environment does.
func Relax() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(mostGrowth)
		(&collected{set: mostGrowth}).watch()
	}
}

// growth is how many percent the heap may grow by when so many bytes are in use.
func growth(inUse uint64) int {
	return int(min(mostGrowth, max(leastGrowth, 100*roomyGarbage/max(inUse, 1))))
}

// collected is collected whenever the collector runs, and comes back.
type collected struct{ set int }

func (c *collected) watch() {
	runtime.SetFinalizer(c, func(c *collected) {
		now := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(now)
		// To set it stops all goroutines for a moment: not for nothing.
		if want := growth(now[0].Value.Uint64()); want < c.set*9/10 || want > c.set*11/10 {
			c.set = want
			debug.SetGCPercent(want)
		}
		c.watch()
	})
}
