package perrule_test

import (
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/perrule"
	"github.com/headgate-io/headgate/policy"
)

func compile(t *testing.T, limits ...int64) *policy.Set {
	t.Helper()
	var doc policy.Document
	for i, limit := range limits {
		doc.Rules = append(doc.Rules, policy.Rule{Endpoint: policy.Default, Limit: limit, Subject: policy.Subject(i)})
	}
	set, problems := policy.Compile(doc, policy.CompileOptions{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return set
}

func limit(r policy.Rule) *int64 { return &r.Limit }

func TestGetMakesEachValueOnceASet(t *testing.T) {
	made := 0
	count := func(r policy.Rule) *int64 { made++; return limit(r) }
	var values perrule.Values[int64]
	set := compile(t, 10, 20, 30)
	for range 3 {
		for id := range policy.RuleID(3) {
			if got, want := *values.Get(set, id, count), set.Rule(id).Limit; got != want {
				t.Errorf("Get of rule %d = %d, want %d", id, got, want)
			}
		}
	}
	if made != 3 {
		t.Errorf("made %d values, want 3", made)
	}
	next := compile(t, 40)
	if got := *values.Get(next, 0, count); got != 40 || made != 4 {
		t.Errorf("after a change of rules Get = %d with %d made, want 40 and 4", got, made)
	}
}

// Requests that were decided under two Sets may overlap: each gets its own.
func TestGetUnderTwoSetsAtOnce(t *testing.T) {
	var values perrule.Values[int64]
	sets := []*policy.Set{compile(t, 10, 20), compile(t, 30)}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 2000 {
				set := sets[i%2]
				if got, want := *values.Get(set, 0, limit), set.Rule(0).Limit; got != want {
					t.Errorf("Get = %d, want %d", got, want)
					return
				}
			}
		})
	}
	wg.Wait()
}
