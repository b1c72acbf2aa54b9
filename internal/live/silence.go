package live

import (
	"context"
	"fmt"
	"time"
)

// What is bounded is silence, not the whole: a load of many rows from a slow
// source that was cut after a fixed time would begin anew, and be cut again,
// for ever. One that gets on is left to it.

type progressKey struct{}

// Progress tells whoever waits for a load that it gets on. Sources call it now
// and then; outside of a load it does nothing.
func Progress(ctx context.Context) {
	if told, ok := ctx.Value(progressKey{}).(func()); ok {
		told()
	}
}

// WithProgress returns a context whose Progress calls told.
func WithProgress(ctx context.Context, told func()) context.Context {
	return context.WithValue(ctx, progressKey{}, told)
}

// silent is the error about a source that was not heard of for so long.
type silent time.Duration

func (s silent) Error() string { return fmt.Sprintf("nothing came for %v", time.Duration(s)) }

// ask runs f until it ends, or was silent for Timeout.
func (v *Value[D, T]) ask(ctx context.Context, f func(context.Context) error) error {
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	bound := time.AfterFunc(v.o.Timeout, func() { cancel(silent(v.o.Timeout)) })
	defer bound.Stop()
	rests := time.Now()
	asking = WithProgress(asking, func() {
		if !bound.Stop() {
			return // it is too late
		}
		if v.current.Load() != nil && time.Since(rests) >= rest {
			pause(asking, rest)
			rests = time.Now()
		}
		bound.Reset(v.o.Timeout)
	})
	err := safely(func() error { return f(asking) })
	if cause := context.Cause(asking); err != nil && cause != nil && ctx.Err() == nil {
		return cause // and not that somebody has cancelled it
	}
	return err
}

// rest is how long a load is silent after it has worked for as long. While a value
// is in force nobody waits for the next one, and whoever uses it needs the
// processors; and a server that sends in small pieces has sent many meanwhile, so
// that nobody is woken up for each.
const rest = time.Millisecond

// pause waits, or until nobody asks any more.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
