package memory

import (
	"math"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Crowding is what others left in the memory for evicted buckets, as far as a key that was never
// seen may meet it: how many traces of each kind last for how long.
type Crowding struct {
	lines   int
	entries [kinds]lasting

	// lanes is, by class and how long, the chance to read that in a lane, or longer.
	lanes [classes][steps + 2]float64
}

// steps of two units each are twice what any bucket of a class takes to fill.
const steps = 1 << 10

// lasting counts traces by how long they last from now on, in steps of two units of their class:
// that long, and once sum was called, that long or longer. The last counts all that last longer
// than twice what any bucket of the class takes to fill.
type lasting [steps + 2]uint32

func (l *lasting) add(units int64) {
	if units > 0 {
		l[min((units+1)/2, steps+1)]++
	}
}

func (l *lasting) sum() {
	for i := len(l) - 2; i >= 0; i-- {
		l[i] += l[i+1]
	}
}

// longer is the step from which on traces last longer than so many units.
func longer(units int64) int64 { return min(units/2, steps) + 1 }

// FalseDenials estimates the part of new keys under a limit whose first take, of one token, is
// denied because of what others left. They are denied what is theirs; nobody is ever given what is
// not.
//
// A newcomer is denied if the time it reads lies further ahead than its bucket takes to drain all
// but one token. Where windows are counted it lies anywhere in its own window, so the times that
// deny it are those of a window or of a cell, each as likely as the others.
func (c *Crowding) FalseDenials(shape rate.Shape) float64 {
	if c == nil || c.lines == 0 || shape.Unit == 0 {
		return 0
	}
	const samples = 16
	from, over := time.Duration(0), time.Duration(0)
	switch shape.Algorithm {
	case rate.FixedWindow: // see spentUntil
		from, over = time.Duration(shape.Tick), time.Duration(shape.Tick)
	case rate.SlidingWindow:
		from, over = time.Duration(shape.Tick-shape.Tick/shape.Capacity), time.Duration(shape.Tick)
	case rate.SlidingLog:
		over = time.Duration(shape.Tick / bucket.LogCells)
	default:
		return c.reading(kindOf(&shape), shape.TimeToFull(shape.Capacity-shape.Unit))
	}
	sum := 0.0
	for i := range samples {
		sum += c.reading(kindOf(&shape), from+over/(2*samples)*time.Duration(2*i+1))
	}
	return sum / samples
}

// reading is the part of new keys of some kind that read a time that lies further ahead than
// enough. That is the time of an entry that agrees with the key in fingerprint and kind, by chance,
// in two lines; or, if something was spilled from both of them, the earliest of four cells of a
// lane.
func (c *Crowding) reading(k kind, enough time.Duration) float64 {
	from := longer(int64(enough) / (unitNS << (3 * k.class())))
	met := 2 * float64(c.entries[k][from]) / float64(c.lines)
	own := math.Pow(1-1/float64(1<<fpBits-1), met)
	return 1 - own*(1-c.lanes[k.class()][from])
}

// sum ends the counting.
func (c *Crowding) sum() {
	for k := range c.entries {
		c.entries[k].sum()
	}
}

// addLocking counts the traces of a shard, in steps that hold its lock for some ten microseconds. It tidies them on the
// way.
func (c *Crowding) addLocking(s *Store, sh *shard, now int64) {
	const step = stride * ways / 4
	k := &sh.traces
	c.lines += len(k.ledger)
	sh.mu.Lock()
	s.tracesLocked(sh, now).catchUp()
	k.tidy(now)
	last, latest := k.last, k.latest
	sh.mu.Unlock()
	if last <= now {
		return
	}
	// Times are kept in units, rounded up, but none is read that lies further ahead than the latest that was written.
	var most [classes]int64
	for lane := range class(classes) {
		most[lane] = ahead(latest[lane], now, lane)
	}
	spilled := 0 // lines that entries in debt were spilled from
	for from := 0; from < len(k.ledger); from += step {
		sh.mu.Lock()
		clock := units(k.clock, 0)
		for i := from; i < min(from+step, len(k.ledger)); i++ {
			if at := k.ledger[i].spilled; at == late || int64(at)*int64(time.Second) > now {
				spilled++
			}
			for _, e := range &k.ledger[i].entries {
				if e != 0 {
					c.entries[e.kind()].add(min(e.ahead(clock), most[e.kind().class()]))
				}
			}
		}
		sh.mu.Unlock()
	}
	if spilled == 0 {
		return
	}
	both := float64(spilled) / float64(len(k.ledger))
	both *= both
	for lane := range class(classes) {
		if latest[lane] > now {
			c.addLane(sh, lane, both/float64(len(s.shards)), now, most[lane])
		}
	}
}

// ahead is how far a time lies after now, in units of a class, rounded up; 0 if it does not.
func ahead(at, now int64, c class) int64 {
	if at <= now {
		return 0
	}
	unit := unitNS << (3 * c)
	return (at-now-1)/unit + 1
}

// addLane adds the chances of a lane to those of the others, with a weight. Nothing is read further ahead than most.
func (c *Crowding) addLane(sh *shard, lane class, weight float64, now, most int64) {
	k := &sh.traces.lanes
	unit := unitNS << (3 * lane)
	var all [steps + 2]float64
	for i := range all {
		all[i] = weight
	}
	for row := range rows {
		var cells lasting
		sh.mu.Lock()
		ms := now/perMS - k.base
		for _, since := range k.row(lane, row) {
			if ahead := int64(since) - ms; since != 0 && ahead > 0 {
				cells.add(min((ahead*perMS+unit-1)/unit, most))
			}
		}
		sh.mu.Unlock()
		cells.sum()
		for i, n := range cells {
			all[i] *= float64(n) / float64(k.width)
		}
	}
	for i := range all {
		c.lanes[lane][i] += all[i]
	}
}
