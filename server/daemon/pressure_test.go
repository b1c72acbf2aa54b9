package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket/memory"
)

func TestPressureTellsWhenTheTableIsTooSmall(t *testing.T) {
	var log bytes.Buffer
	p := newPressure(nil, slog.New(slog.NewTextHandler(&log, nil)))
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
		{memory.Stats{Created: 54000, EvictedInDebt: 899, FalseDenials: 0.01}, "", 2},
		{memory.Stats{Created: 54000, EvictedInDebt: 899, FalseDenials: 0.034}, "3.4 % of new clients", 3},
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
		p := newPressure(func() memory.Stats { return memory.Stats{FalseDenials: 1} }, slog.New(slog.DiscardHandler))
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
