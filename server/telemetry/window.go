package telemetry

import "time"

// cells is how many parts a window has: what it says is late by one of them at most.
const cells = 15

// counts are requests by what became of them.
type counts struct{ sent, accepted, refused int64 }

func (c *counts) add(o counts) {
	c.sent += o.sent
	c.accepted += o.accepted
	c.refused += o.refused
}

func (c *counts) subtract(o counts) {
	c.sent -= o.sent
	c.accepted -= o.accepted
	c.refused -= o.refused
}

// window counts what happened in the last cells parts of a time.
type window struct {
	parts [cells]counts
	total counts
	part  int64 // the number of the newest part
}

// advance forgets what is older than a window. A clock that went back changes nothing.
func (w *window) advance(part int64) {
	if part-w.part >= cells {
		*w = window{part: part}
		return
	}
	for w.part < part {
		w.part++
		old := &w.parts[w.part%cells]
		w.total.subtract(*old)
		*old = counts{}
	}
}

func (w *window) add(part int64, c counts) {
	w.advance(part)
	w.parts[w.part%cells].add(c)
	w.total.add(c)
}

// partOf numbers the parts of windows of a length.
func partOf(at time.Duration, length time.Duration) int64 { return int64(at / (length / cells)) }
