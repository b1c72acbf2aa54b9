package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

func noRules() *policy.Set { return nil }

// TestPressureNamesTheRuleThatSuffers crowds a table by drained buckets of a login rule, six times
// as many as it has slots. The rule of the crowd is named, with the part of its new clients that is
// denied, and the other rule in force is not.
func TestPressureNamesTheRuleThatSuffers(t *testing.T) {
	var templates []endpoint.Template
	for _, text := range []string{"POST /login", "GET /items"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	endpoints, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /items", Limit: 20, Per: time.Second, Burst: 40},
		{Endpoint: "POST /login", Limit: 5, Per: 12 * time.Minute, Burst: 5},
		{Endpoint: "default", Limit: 20}, {Endpoint: "UNKNOWN", Limit: 5},
	}}, policy.CompileOptions{Endpoints: endpoints})
	if set == nil {
		t.Fatal(problems)
	}
	var crowd rate.Shape
	for id := range policy.RuleID(set.Bound()) {
		if set.Rule(id).Endpoint == "POST /login" {
			crowd = set.Terms(id).Shape
		}
	}
	const slots = 1 << 13
	table, err := memory.New(memory.Options{MaxBuckets: slots})
	if err != nil {
		t.Fatal(err)
	}
	now, rng, outs := int64(1_795_176_000_000_000_000), rand.New(rand.NewPCG(1, 2)), make([]bucket.Outcome, 1)
	look := func(cost int64) bool {
		take := bucket.Take{Key: key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}, Shape: crowd, Cost: cost}
		if cost == 1 {
			_, err = table.Peek(t.Context(), now, []bucket.Take{take}, outs)
		} else {
			_, err = table.TryConsume(t.Context(), now, []bucket.Take{take}, outs)
		}
		if err != nil {
			t.Fatal(err)
		}
		return outs[0].Allowed
	}
	for range 6 * slots {
		look(5)
	}
	denied := 0
	for range 10_000 {
		if !look(1) {
			denied++
		}
	}
	title, part := mostDenied(set, table.Stats(now))
	if measured := float64(denied) / 10_000; title != "POST /login" || part < measured-0.02 || part > measured+0.02 ||
		measured < 0.3 {
		t.Errorf("mostDenied = %q, %.3f, want the login rule and %.3f", title, part, measured)
	}
	p := newPressure(nil, func() *policy.Set { return set }, slog.New(slog.DiscardHandler))
	p.look(table.Stats(now))
	if got := strings.Join(p.warnings(), ""); !strings.Contains(got,
		`% of new clients under rule "POST /login" are denied`) {
		t.Errorf("warnings %q", got)
	}
	if _, part := mostDenied(set, table.Stats(now+int64(time.Hour))); part != 0 {
		t.Errorf("when all has drained: %g", part)
	}
}

func TestPressureTellsWhenTheTableIsTooSmall(t *testing.T) {
	var log bytes.Buffer
	p := newPressure(nil, noRules, slog.New(slog.NewTextHandler(&log, nil)))
	for i, step := range []struct {
		stats   memory.Stats
		warning string
		lines   int // logged so far
	}{
		{memory.Stats{Created: 1000}, "", 0},
		{memory.Stats{Created: 2000, EvictedInDebt: 99}, "", 0}, // too few to mean anything
		{memory.Stats{Created: 3000, EvictedInDebt: 199}, "100 of 1000 new buckets", 1},
		{memory.Stats{Created: 4000, EvictedInDebt: 399}, "200 of 1000 new buckets", 1}, // said once
		{memory.Stats{Created: 54000, EvictedInDebt: 899}, "", 2},                       // 1 in 100
	} {
		p.look(step.stats)
		got := strings.Join(p.warnings(), "")
		if step.warning == "" && got != "" || !strings.Contains(got, step.warning) {
			t.Errorf("step %d: warnings %q, want %q", i, got, step.warning)
		}
		if lines := strings.Count(log.String(), "\n"); lines != step.lines {
			t.Errorf("step %d: %d lines logged, want %d:\n%s", i, lines, step.lines, log.String())
		}
	}
}

func TestPressureLooksByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPressure(func() memory.Stats { return memory.Stats{EvictedInDebt: 100} }, noRules,
			slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.run(ctx) }()
		<-time.After(pressureInterval - 1) // by the bubble's clock
		synctest.Wait()
		if w := p.warnings(); w != nil {
			t.Errorf("warnings %q before the first look", w)
		}
		<-time.After(1)
		synctest.Wait()
		if w := p.warnings(); len(w) != 1 {
			t.Errorf("warnings %q after it, want one", w)
		}
		stop()
		<-done
	})
}
