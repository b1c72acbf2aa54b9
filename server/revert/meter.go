package revert

import (
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// meter counts the requests of every endpoint, and of endpoints on trial those
// of every caller too.
type meter struct {
	seed      maphash.Seed
	endpoints *endpoint.Table // decisions by another one are not counted
	counts    []counter       // by endpoint.ID
	trial     atomic.Pointer[callers]
}

// counter is both numbers of a Count in one word, the denied in its high half:
// one addition counts a request. Differences of two readings are right as long
// as fewer than 2^32 requests lie between them, whatever has overflown.
type counter struct {
	word atomic.Uint64
	_    [56]byte // a cache line of its own: neighbours are counted by other cores
}

const oneDenied = 1 << 32

// since is the Count between two readings.
func since(before, now uint64) Count {
	d := now - before
	return Count{Total: int64(uint32(d)), Denied: int64(d >> 32)}
}

// callers counts by caller, at the endpoints on trial, what is decided under one
// Set.
type callers struct {
	set *policy.Set
	at  []*cells // by endpoint.ID; nil where no trial is
}

// cells are counters by a hash of the caller. Callers that share one are taken
// for one: that makes them seem fewer, and a change seem less at fault.
type cells [64]atomic.Uint64

func newMeter(endpoints *endpoint.Table) *meter {
	return &meter{seed: maphash.MakeSeed(), endpoints: endpoints, counts: make([]counter, endpoints.Len()+1)}
}

// observe counts one decision. It fits headgate.Options.Observe.
func (m *meter) observe(_ *headgate.Request, d *headgate.Decision) {
	one := uint64(1)
	switch {
	case d.Policies() == nil || d.Policies().Endpoints() != m.endpoints:
		return // refused before any rule was asked, or of before or after a reload
	case d.Allowed:
	case lowered(d):
		return // the API is slow, whatever the rules say
	case d.ByLimit():
		one += oneDenied
	default:
		return
	}
	id := d.Endpoint.ID
	m.counts[id].word.Add(one)
	if t := m.trial.Load(); t != nil && t.at[id] != nil && t.set == d.Policies() {
		t.at[id][m.cell(d)].Add(one)
	}
}

// lowered reports whether a rule denied a request whose rate was lowered (headgate.Options.Adaptive).
func lowered(d *headgate.Decision) bool {
	v, ok := d.Binding()
	return ok && v.Lowered > 0
}

// cell is where a caller is counted. The hash has a key of this process's: no
// client chooses its neighbours.
func (m *meter) cell(d *headgate.Decision) int {
	var room [64]byte
	return int(maphash.Bytes(m.seed, d.Principal.AppendSubject(room[:0])) % uint64(len(cells{})))
}

// read writes the counters into now, which is as long as there are endpoints.
func (m *meter) read(now []uint64) {
	for id := range m.counts {
		now[id] = m.counts[id].word.Load()
	}
}

// without is the sum over all callers but the leave that were denied most.
func (c *cells) without(leave int) Count {
	all := make([]Count, len(c))
	for i := range c {
		all[i] = since(0, c[i].Load())
	}
	slices.SortFunc(all, func(a, b Count) int { return int(b.Denied - a.Denied) })
	var sum Count
	for _, one := range all[min(leave, len(all)):] {
		sum = sum.plus(one)
	}
	return sum
}

func (c *cells) clear() {
	for i := range c {
		c[i].Store(0)
	}
}

// put makes the meter count callers at the endpoints that have cells, under set.
func (m *meter) put(set *policy.Set, trials map[endpoint.ID]*trial) {
	if len(trials) == 0 {
		m.trial.Store(nil)
		return
	}
	t := &callers{set, make([]*cells, len(m.counts))}
	for id, trial := range trials {
		t.at[id] = trial.cells
	}
	m.trial.Store(t)
}
