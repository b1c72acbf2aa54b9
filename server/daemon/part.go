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
}

func newPart[T any]() *part[T] { return &part[T]{changed: make(chan struct{}, 1)} }

// get returns what is there, or nil.
func (p *part[T]) get() *T { return p.now.Load() }

// put puts next, or nothing, in place.
func (p *part[T]) put(next *T) {
	p.now.Store(next)
	select {
	case p.changed <- struct{}{}:
	default: // run looks soon, and finds the newest
	}
}

// run has what is there run until something else takes its place or ctx ends, and waits for its end.
func (p *part[T]) run(ctx context.Context, run func(context.Context, *T)) {
	for ctx.Err() == nil {
		now := p.get()
		while, end := context.WithCancel(ctx)
		var running sync.WaitGroup
		if now != nil {
			running.Go(func() { run(while, now) })
		}
		for p.get() == now && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-p.changed:
			}
		}
		end()
		running.Wait()
	}
}
