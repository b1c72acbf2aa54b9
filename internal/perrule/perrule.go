// Package perrule remembers a value for each rule of the policy Set in force:
// a rendered header, a metric's counters. What it costs to make is paid once a
// rule after a change of rules, and not once a request.
package perrule

import (
	"sync/atomic"

	"github.com/headgate-io/headgate/policy"
)

// Values holds one *T for each rule. The zero value is ready; it is safe for
// concurrent use. It grows with the rules, never with requests.
type Values[T any] struct {
	current atomic.Pointer[table[T]]
}

type table[T any] struct {
	set    *policy.Set
	byRule []atomic.Pointer[T]
}

// Get returns the value of a rule of set, making it if there is none yet. Two
// goroutines that meet may both make it; one result is kept. A request that
// was decided under the Set before the one in force makes the tables change
// places for a moment: slower, and still right.
func (v *Values[T]) Get(set *policy.Set, id policy.RuleID, make func(policy.Rule) *T) *T {
	t := v.of(set)
	if value := t.byRule[id].Load(); value != nil {
		return value
	}
	t.byRule[id].CompareAndSwap(nil, make(set.Rule(id)))
	return t.byRule[id].Load()
}

func (v *Values[T]) of(set *policy.Set) *table[T] {
	t := v.current.Load()
	if t != nil && t.set == set {
		return t
	}
	fresh := &table[T]{set: set, byRule: make([]atomic.Pointer[T], set.Bound())}
	v.current.CompareAndSwap(t, fresh)
	return fresh
}
