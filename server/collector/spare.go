package collector

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A process that was busy and is quiet keeps what it took meanwhile: garbage, since nothing is collected while nothing
// is made; what pools hold for the next request, which two collections free; stacks, which a collection halves; and
// pages that are free. So once it is quiet all of that is given back, if it is worth it. What was given back and is
// needed again costs the kernel a page of zeros.
const (
	lookEvery  = 2 * time.Second
	quietMakes = 1 << 20  // bytes between two looks; who makes less is quiet
	leastWorth = 12 << 20 // bytes; a quarter of what is alive if that is more, as it is looked through
)

// GiveBack gives memory back that a process does not need any more, whenever it is quiet, until ctx ends. The
// environment can forbid it, as in Relax.
func GiveBack(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var s spare
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.look(measure(), collect)
		}
	}
}

// held is what a process has taken of memory, in bytes.
type held struct {
	made   uint64 // of the heap, since the start
	live   uint64 // of it, at the last collection
	stacks uint64
}

func measure() (h held) {
	into := [...]*uint64{&h.made, &h.live, &h.stacks}
	samples := [len(into)]metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
	}
	metrics.Read(samples[:])
	for i, s := range samples {
		*into[i] = s.Value.Uint64()
	}
	return h
}

// collect gives back what pools hold too.
func collect() {
	runtime.GC()
	debug.FreeOSMemory() // which collects once more
}

// spare is what was known at the last look, and when memory was last given back.
type spare struct {
	made                 uint64 // at the last look
	madeThen, stacksThen uint64 // the latter is the most since
	looked               bool
}

// look gives memory back if the process is quiet, and has made so much since it last did that it is worth to look for
// it, or if goroutines have ended that held so much.
func (s *spare) look(now held, give func()) {
	quiet := s.looked && now.made-s.made < quietMakes
	s.made, s.looked, s.stacksThen = now.made, true, max(s.stacksThen, now.stacks)
	worth := max(leastWorth, now.live/4)
	if quiet && (now.made-s.madeThen >= worth || s.stacksThen-now.stacks >= worth) {
		give()
		s.madeThen, s.stacksThen = now.made, now.stacks
	}
}
