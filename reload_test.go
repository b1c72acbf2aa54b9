package headgate_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// slowSource hands out rules of one limit, another one each time, when it is
// allowed to.
type slowSource struct {
	loads   atomic.Int64
	entered chan struct{}
	allowed chan struct{}
}

// projects is how many rules for projects a slowSource has, so that compiling
// them takes a while.
const projects = 20_000

func (s *slowSource) Version(context.Context) (string, error) { return "", nil }

func (s *slowSource) Load(context.Context) (policy.Document, string, error) {
	n := s.loads.Add(1)
	s.entered <- struct{}{}
	<-s.allowed
	doc := policy.Document{Rules: []policy.Rule{
		{Endpoint: policy.Default, Limit: 1_000_000 + n}, {Endpoint: policy.All, Limit: 1_000_000 + n}, {Endpoint: policy.UnknownEndpoint, Limit: 1},
	}}
	for i := range projects {
		doc.Rules = append(doc.Rules, policy.Rule{Endpoint: "GET /a", Project: fmt.Sprint("p", i), Limit: 1_000_000 + n})
	}
	return doc, fmt.Sprint(n), nil
}

// Decisions go on while rules are read, compiled and put in force, and each is
// made under one whole set of rules.
func TestCheckGoesOnWhileRulesLoad(t *testing.T) {
	source := &slowSource{entered: make(chan struct{}, 1), allowed: make(chan struct{}, 1)}
	table := trial.Compile(t, []string{"GET /a"})
	cache, err := policy.NewCache(policy.CacheOptions{Source: source, Compile: policy.CompileOptions{Endpoints: table}})
	if err != nil {
		t.Fatal(err)
	}
	source.allowed <- struct{}{}
	if err := cache.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-source.entered
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: policy.Default, Limit: 1}}, func(o *headgate.Options) {
		o.Endpoints, o.Policies, o.Now = table, cache, time.Now
	})
	decide := func() (limit int64) {
		d := b.Check(t.Context(), headgate.Request{Method: "GET", Target: "/a", Peer: netip.AddrFrom4([4]byte{198, 51, 100, 7})})
		if !d.Allowed || len(d.Verdicts()) != 2 {
			t.Fatalf("Check = %v with %d verdicts, want allowed by two rules", d.Reason, len(d.Verdicts()))
		}
		for i, v := range d.Verdicts() {
			if of := d.Policies().Rule(v.Rule).Limit; i == 0 {
				limit = of
			} else if of != limit {
				t.Fatalf("one decision is made under limits %d and %d, want one set of rules", limit, of)
			}
		}
		return limit
	}
	for reload := int64(1); reload <= 5; reload++ {
		var done sync.WaitGroup
		var failed error
		done.Go(func() { failed = cache.Reload(t.Context()) })
		<-source.entered
		for range 100 { // the source answers only after these
			if got, want := decide(), 1_000_000+reload; got != want {
				t.Fatalf("while load %d is under way, the limit is %d, want %d", reload+1, got, want)
			}
		}
		source.allowed <- struct{}{}
		for cache.Status().LastError == "" && decide() != 1_000_001+reload { // while it is compiled, until it is in force
		}
		done.Wait()
		if failed != nil {
			t.Fatal(failed)
		}
	}
}
