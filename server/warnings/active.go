package warnings

import (
	"cmp"
	"slices"
	"sync"
)

// active are the events of warnings that have begun and are not over. There are no more of them than callers that are
// remembered, and kinds.
type active struct {
	mu     sync.Mutex
	events map[about]Event // guarded by mu
}

// about is what an event is about.
type about struct{ kind, caller, rule, endpoint string }

// note keeps an event that begins, until the one comes that says that it is over.
func (a *active) note(e *Event) {
	k := about{e.Kind, e.Caller, e.Rule, e.Endpoint}
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.State == "over" {
		delete(a.events, k)
		return
	}
	if a.events == nil {
		a.events = map[about]Event{}
	}
	a.events[k] = *e
}

// Active returns warnings that have begun and are not over, the newest first, at most so many, and
// how many there are.
func (w *Watch) Active(most int) (events []Event, all int) {
	w.active.mu.Lock()
	events = make([]Event, 0, len(w.active.events))
	for _, e := range w.active.events {
		events = append(events, e)
	}
	w.active.mu.Unlock()
	slices.SortFunc(events, func(a, b Event) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.ID, b.ID)) })
	all = len(events)
	return events[:min(all, most)], all
}
