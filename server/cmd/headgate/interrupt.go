package main

import (
	"context"
	"fmt"
	"time"
)

// interruptWithin is how long one is waited for who was asked to end, and does what cannot be interrupted.
const interruptWithin = time.Second

// interruptible returns what f does. Once ctx has ended f is waited for no longer than that: it may open a FIFO that
// nobody writes to, which nothing interrupts. What f is doing stands in the error.
func interruptible[T any](ctx context.Context, doing string, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(interruptWithin):
		var none T
		return none, fmt.Errorf("interrupted while %s", doing)
	}
}
