package usage

import (
	"math"
	"sync"

	"github.com/headgate-io/headgate/key"
)

// shard holds the callers of one lock, in a list from the newest to the oldest
// by their last request, and in chains by hash. Nothing in it is a pointer, so
// that its size costs the garbage collector nothing.
//
//	heads    by key: the first caller of a chain, plus 1
//	callers  used first to last and never given back; the oldest is used again
type shard struct {
	mu        sync.Mutex // guards everything below
	latest    int64      // the newest cell that was ever asked for
	forgotten int64      // the newest cell in which a caller that was forgotten was seen
	heads     []int32
	callers   []caller
	used      int32
	newest    int32
	oldest    int32

	_ [64]byte // so that the next lock is not in the same cache line
}

const none = -1

func (s *shard) init(room int, now int64) {
	s.latest, s.forgotten = now, now-cells-1
	buckets := 1
	for buckets < room {
		buckets *= 2
	}
	s.heads, s.callers = make([]int32, buckets), make([]caller, room)
	s.newest, s.oldest = none, none
}

// at is the cell to count in. A clock that steps back counts in the newest cell
// until it has caught up.
func (s *shard) at(now int64) int64 {
	s.latest = max(s.latest, now)
	return s.latest
}

func (s *shard) head(k key.Key) *int32 { return &s.heads[int(k.Lo)&(len(s.heads)-1)] }

func (s *shard) find(k key.Key) *caller {
	for i := *s.head(k) - 1; i != none; i = s.callers[i].next - 1 {
		if s.callers[i].key == k {
			return &s.callers[i]
		}
	}
	return nil
}

// enter returns the caller's place, a new one if need be, and makes it the
// newest; and the cell to count in.
func (s *shard) enter(k key.Key, now int64) (*caller, int64) {
	now = s.at(now)
	for i := *s.head(k) - 1; i != none; i = s.callers[i].next - 1 {
		if s.callers[i].key == k {
			if i != s.newest {
				s.unlink(i)
				s.linkNewest(i)
			}
			return &s.callers[i], now
		}
	}
	i := s.used
	if int(i) < len(s.callers) {
		s.used++
	} else {
		i = s.forgetOldest()
	}
	c := &s.callers[i]
	*c = caller{key: k, next: *s.head(k), forgotten: s.forgotten}
	c.total = tally{newest: now, since: s.forgotten + 1}
	*s.head(k) = i + 1
	s.linkNewest(i)
	return c, now
}

// forgetOldest empties the place of the caller that was not seen for longest.
// Nobody who was forgotten was seen after s.forgotten, so whoever is not in the
// table did nothing since.
func (s *shard) forgetOldest() int32 {
	i := s.oldest
	c := &s.callers[i]
	s.forgotten = max(s.forgotten, c.total.newest)
	s.unlink(i)
	at := s.head(c.key)
	for *at-1 != i {
		at = &s.callers[*at-1].next
	}
	*at = c.next
	return i
}

func (s *shard) unlink(i int32) {
	c := &s.callers[i]
	if c.newer == none {
		s.newest = c.older
	} else {
		s.callers[c.newer].older = c.older
	}
	if c.older == none {
		s.oldest = c.newer
	} else {
		s.callers[c.older].newer = c.newer
	}
}

func (s *shard) linkNewest(i int32) {
	c := &s.callers[i]
	c.newer, c.older = none, s.newest
	if s.newest != none {
		s.callers[s.newest].newer = i
	} else {
		s.oldest = i
	}
	s.newest = i
}

// caller is one verified caller.
type caller struct {
	key          key.Key
	next         int32 // in the chain, plus 1
	older, newer int32 // in the list
	used         int32 // rules

	forgotten int64 // the newest cell in which a rule applied that was forgotten
	ids       [MaxRules]uint64
	total     tally
	rules     [MaxRules]tally
}

// find returns the tally of a rule; nil if it has none.
func (c *caller) find(id uint64) *tally {
	for i := range c.used {
		if c.ids[i] == id {
			return &c.rules[i]
		}
	}
	return nil
}

// rule returns the tally of a rule, a new one if need be.
func (c *caller) rule(id uint64, now int64) *tally {
	if t := c.find(id); t != nil {
		return t
	}
	i := c.used
	if i < MaxRules {
		c.used++
	} else {
		i = c.forgetRule()
	}
	c.ids[i] = id
	c.rules[i] = tally{newest: now, since: c.sinceOfNewRule()}
	return &c.rules[i]
}

// sinceOfNewRule is since when a rule that has no tally counted nothing.
func (c *caller) sinceOfNewRule() int64 { return max(c.total.since, c.forgotten+1) }

func (c *caller) forgetRule() int32 {
	oldest := int32(0)
	for i := range c.rules {
		if c.rules[i].newest < c.rules[oldest].newest {
			oldest = int32(i)
		}
	}
	c.forgotten = max(c.forgotten, c.rules[oldest].newest)
	return oldest
}

// tally counts requests in the cells of an hour, each in place of its number
// modulo cells. Those older than an hour before newest hold nothing of it.
type tally struct {
	newest int64 // the cell that was counted in last
	since  int64 // the cell from which on the counts are complete
	cells  [cells]pair
}

type pair struct{ admitted, denied uint32 }

func (t *tally) add(now int64, admitted bool) {
	if now > t.newest {
		t.advance(now)
	}
	cell := &t.cells[now%cells]
	n := &cell.denied
	if admitted {
		n = &cell.admitted
	}
	if *n != math.MaxUint32 { // 35 million a second
		*n++
	}
}

// takeBack takes back one that was admitted in a cell, or in the next one: it was counted once it had been decided.
func (t *tally) takeBack(then int64) {
	for cell := then; cell <= then+1; cell++ {
		if t.at(cell).admitted > 0 {
			t.cells[cell%cells].admitted--
			return
		}
	}
}

// advance empties the cells that are used again.
func (t *tally) advance(now int64) {
	if now-t.newest >= cells {
		t.cells = [cells]pair{}
	} else {
		for cell := t.newest + 1; cell <= now; cell++ {
			t.cells[cell%cells] = pair{}
		}
	}
	t.newest = now
}

// sum adds up the cells of the hour that ends with now, as far as they are
// complete. What comes back in the cell in which it was forgotten counts from
// the next one on.
func (t *tally) sum(now int64) (admitted, denied uint64) {
	for cell := now - cells + 1; cell <= t.newest; cell++ {
		n := t.at(cell)
		admitted += uint64(n.admitted)
		denied += uint64(n.denied)
	}
	return admitted, denied
}

// at is what was counted in a cell, if it is one of the last hour and complete.
func (t *tally) at(cell int64) pair {
	if cell < max(t.newest-cells+1, t.since, 0) || cell > t.newest {
		return pair{}
	}
	return t.cells[cell%cells]
}
