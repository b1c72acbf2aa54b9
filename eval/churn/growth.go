package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/eval/rivals/peer"
)

// growth is what a limiter without a bound weighs after one-shot keys: bytes after a quarter of them, a half, and all.
type growth struct {
	name, bound string
	bytes       [3]int64
}

// growAll sends one-shot keys, on the real clock, to a table of a fixed size and to every limiter that has none.
func growAll(keys int, progress io.Writer) ([]growth, error) {
	fixed, err := peer.Find("headgate")
	if err != nil {
		return nil, err
	}
	fixed.Open = func(keys int) (peer.Limiter, error) { return peer.OpenHeadgate(memory.Options{MaxBuckets: keys}) }
	fixed.Bound = fmt.Sprintf("a table of %d slots", keys/8)

	var all []growth
	for _, which := range append([]peer.Peer{fixed}, peer.All()...) {
		if which.Floor || which.Name == fixed.Name && len(all) > 0 || strings.HasPrefix(which.Bound, "LRU") {
			continue
		}
		g, err := grow(which, keys)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
		fmt.Fprintf(progress, "%-24s %d MB after %d one-shot keys\n", g.name, g.bytes[2]>>20, keys)
	}
	return all, nil
}

func grow(which peer.Peer, keys int) (growth, error) {
	g := growth{name: which.Name, bound: which.Bound}
	before := heap()
	limiter, err := which.Open(keys / 8)
	if err != nil {
		return growth{}, err
	}
	decide := limiter.Worker()
	sent := 0
	for i, until := range []int{keys / 4, keys / 2, keys} {
		for ; sent < until; sent++ {
			var name [32]byte
			binary.LittleEndian.PutUint64(name[:], uint64(sent))
			decide(string(name[:]))
		}
		g.bytes[i] = heap() - before
	}
	runtime.KeepAlive(limiter)
	return g, nil
}

// heap is what is in use after two collections.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}
