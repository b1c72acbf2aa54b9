package adaptive

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// Table has the endpoints whose rates may be lowered. The zero value has none. It is safe for concurrent use.
type Table struct {
	// Notify, if set, is told when the rates of an endpoint begin to be lowered, and when they are what the rules say
	// again. It must be quick: requests wait for it. It is not changed once endpoints are there.
	Notify func(Event)

	// Changed, if set, is told of each change of what rates are lowered to, in the order in which decisions went by
	// them. It must be quick, and ask the table for nothing: requests wait for it. It is not changed once endpoints
	// are there.
	Changed func(Change)

	// KeepShared says that the store of shared buckets cannot lower rates, as CL.THROTTLE cannot: they stay what the
	// rules say. It is not changed once endpoints are there.
	KeepShared bool

	mu   sync.Mutex // held by who makes another view
	view atomic.Pointer[view]
}

// view is which endpoints there are, by their templates and by their IDs in one table. It never changes.
type view struct {
	byName map[string]*Endpoint
	of     *endpoint.Table
	byID   []*Endpoint
}

// Use has the rates of these endpoints lowered from now on, by their templates, and of no others. What is known of one
// that is there already stays.
func (t *Table) Use(all map[string]Settings, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := &view{byName: make(map[string]*Endpoint, len(all))}
	before := t.view.Load()
	for name, s := range all {
		e := before.named(name)
		if e == nil {
			e = newEndpoint(name, s, now, t)
		} else if e.settings() != s {
			e.use(s, now)
		}
		next.byName[name] = e
	}
	if before != nil {
		for name, e := range before.byName {
			if next.byName[name] == nil {
				e.leave(now)
			}
		}
	}
	if len(all) == 0 {
		next = nil
	}
	t.view.Store(next)
}

func (e *Endpoint) settings() Settings {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.s
}

func (v *view) named(name string) *Endpoint {
	if v == nil {
		return nil
	}
	return v.byName[name]
}

// Named is the endpoint of a template, as it is written; nil if its rates are never lowered.
func (t *Table) Named(template string) *Endpoint { return t.view.Load().named(template) }

// At is the endpoint of an ID; nil if its rates are never lowered.
func (t *Table) At(of *endpoint.Table, id endpoint.ID) *Endpoint {
	v := t.view.Load()
	if v == nil {
		return nil
	}
	if v.of != of {
		v = t.viewOf(of)
	}
	if v == nil || int(id) >= len(v.byID) {
		return nil
	}
	return v.byID[id]
}

// Lowered is by how much the rates of an endpoint are lowered at now, and were of late; see Endpoint.Lowered.
func (t *Table) Lowered(of *endpoint.Table, id endpoint.ID, now int64) (l rate.Lowerings) {
	if e := t.At(of, id); e != nil {
		l = e.Lowered(now)
	}
	return l
}

// viewOf finds the endpoints in another table of IDs. Requests that were under way when that changed may have it found
// once more.
func (t *Table) viewOf(of *endpoint.Table) *view {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.view.Load()
	if v == nil || v.of == of {
		return v
	}
	next := &view{byName: v.byName, of: of, byID: make([]*Endpoint, of.Len()+1)}
	for id := range next.byID {
		if endpoint.ID(id) != endpoint.Unknown {
			next.byID[id] = v.byName[of.Template(endpoint.ID(id)).String()]
		}
	}
	t.view.Store(next)
	return next
}

// Any reports whether the rates of any endpoint may be lowered.
func (t *Table) Any() bool { return t.view.Load() != nil }

// Statuses are how all endpoints stand at now, by their templates in order.
func (t *Table) Statuses(now int64) []Status {
	v := t.view.Load()
	if v == nil {
		return nil
	}
	all := make([]Status, 0, len(v.byName))
	for _, name := range slices.Sorted(maps.Keys(v.byName)) {
		all = append(all, v.byName[name].Status(now))
	}
	return all
}
