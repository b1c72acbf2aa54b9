package daemon

import (
	"context"
	"sync"
	"sync/atomic"
)

// part is something of this process in whose place a reload may put another, or nothing, while requests use it.
type part[T any] struct {
	now     atomic.Pointer[T]
	changed chan struct{} // has one place

	mu   sync.Mutex
	puts []*T // that run has not had run yet; guarded by mu
}

func newPart[T any]() *part[T] { return &part[T]{changed: make(chan struct{}, 1)} }

// get returns what is there, or nil.
func (p *part[T]) get() *T { return p.now.Load() }

// put puts next, or nothing, in place.
func (p *part[T]) put(next *T) {
	p.mu.Lock()
	p.now.Store(next)
	p.puts = append(p.puts, next)
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default: // run looks soon
	}
}

// run has what is there run until something else takes its place or ctx ends, and waits for its end. What was there for
// a moment alone is run too, and ended at once: requests may have left something in it.
func (p *part[T]) run(ctx context.Context, run func(context.Context, *T)) {
	var running sync.WaitGroup
	end := func() {}
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-p.changed:
		}
		p.mu.Lock()
		puts := p.puts
		p.puts = nil
		p.mu.Unlock()
		for _, next := range puts {
			end()
			running.Wait()
			var while context.Context
			while, end = context.WithCancel(ctx)
			if next != nil {
				running.Go(func() { run(while, next) })
			}
		}
	}
	end()
	running.Wait()
}
