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
	asking = WithProgress(asking, func() {
		if bound.Stop() { // else it is too late
			bound.Reset(v.o.Timeout)
		}
	})
	err := safely(func() error { return f(asking) })
	if cause := context.Cause(asking); err != nil && cause != nil && ctx.Err() == nil {
		return cause // and not that somebody has cancelled it
	}
	return err
}
