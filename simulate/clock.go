package simulate

import "time"

// Clock is a clock of somebody in a World: it may be off, run fast or slow, and be stepped.
type Clock struct {
	World *World

	// Offset is what it is ahead of the world at the world's beginning.
	Offset time.Duration

	// Drift is how much faster it runs, in parts of a million.
	Drift int64
}

// Now is the time it shows, in nanoseconds.
func (c *Clock) Now() int64 {
	elapsed := c.World.Now()
	return int64(c.Offset + elapsed + time.Duration(int64(elapsed/time.Microsecond)*c.Drift/1000))
}

// Step sets it forward by d, or back.
func (c *Clock) Step(d time.Duration) { c.Offset += d }
