package policy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/steady"
	"github.com/headgate-io/headgate/policy"
)

// clocks are a wall clock that may be set and a monotonic one that may not.
type clocks struct{ elapsed, ahead time.Duration }

func (c *clocks) wall() time.Time {
	return time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(c.elapsed + c.ahead)
}

func (c *clocks) cache(t *testing.T, o policy.CacheOptions) *policy.Cache {
	t.Helper()
	began := c.elapsed
	o.Now = c.wall
	cache, err := policy.NewCacheBy(steady.Of(func() time.Duration { return c.elapsed - began }, c.wall), o)
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

// look makes a cache look at its source once.
func look(t *testing.T, c *policy.Cache) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // the usual interval is 250
		defer cancel()
		c.Run(ctx)
	})
}

func standing(c *policy.Cache) policy.Standing {
	_, s := c.InForce(c.Now())
	return s
}

// Rules are stale when their source has not confirmed them for longer than MaxStale, and not a
// nanosecond before; whoever sets the wall clock neither hastens nor delays that.
func TestRulesBecomeStale(t *testing.T) {
	for _, ahead := range []time.Duration{0, 2 * time.Hour, -2 * time.Hour} {
		for _, on := range []policy.Fallback{policy.Keep, policy.Limit, policy.Deny} {
			var at clocks
			source := &script{}
			source.set(10)
			c := at.cache(t, policy.CacheOptions{Source: source, MaxStale: time.Hour, OnStale: on})
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			stale := policy.Standing{Stale: true, Fallback: on}
			at.elapsed = 30 * time.Minute
			if err := c.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
			source.fail(errors.New("away"))
			at.ahead = ahead
			for _, step := range []struct {
				at   time.Duration
				want policy.Standing
			}{
				{30*time.Minute + 1, policy.Standing{}},
				{90 * time.Minute, policy.Standing{}},
				{90*time.Minute + 1, stale},
				{200 * time.Hour, stale},
			} {
				at.elapsed = step.at
				_ = c.Reload(t.Context())
				if got := standing(c); got != step.want {
					t.Errorf("wall clock %v ahead, %v: at %v InForce = %+v, want %+v", ahead, on, step.at,
						got, step.want)
				}
			}
			source.fail(nil)
			if err := c.Reload(t.Context()); err != nil || !standing(c).OK() {
				t.Errorf("confirmed again: %v, %+v, want rules to rely on", err, standing(c))
			}
		}
	}
}

// A document that cannot be used does not confirm the rules in force.
func TestRefusedDocumentConfirmsNothing(t *testing.T) {
	var at clocks
	source := &script{}
	source.set(10)
	c := at.cache(t, policy.CacheOptions{Source: source, MaxStale: time.Hour, OnStale: policy.Deny})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	source.set(-1)
	at.elapsed = time.Hour + 1
	if err := c.Reload(t.Context()); err == nil || !standing(c).Stale {
		t.Errorf("Reload of a limit of -1 = %v, %+v, want an error and stale rules", err, standing(c))
	}
}

// Rules from the last good copy are as old as the source's last word on them, and not as old as the
// process or the file.
func TestStalenessOverARestart(t *testing.T) {
	for name, test := range map[string]struct {
		up    time.Duration // confirmed again and again for so long
		off   time.Duration // until the start without the source
		ahead time.Duration // the wall clock then
		stale bool
	}{
		"at once":                              {time.Minute, 0, 0, false},
		"within the bound":                     {time.Minute, 59 * time.Minute, 0, false},
		"beyond it":                            {time.Minute, 61 * time.Minute, 0, true},
		"unchanged for long, within the bound": {72 * time.Hour, 59 * time.Minute, 0, false},
		"unchanged for long, beyond it":        {72 * time.Hour, 61 * time.Minute, 0, true},
		"a clock that is behind":               {time.Minute, 2 * time.Hour, -3 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			var at clocks
			source := &script{}
			source.set(10)
			path := filepath.Join(t.TempDir(), "copy")
			o := policy.CacheOptions{Source: source, LastGood: path, MaxStale: time.Hour, OnStale: policy.Deny}
			before := at.cache(t, o)
			if err := before.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			at.elapsed = test.up
			look(t, before)
			source.fail(errors.New("away"))
			at.elapsed, at.ahead = test.up+test.off, test.ahead
			for range 2 { // the second start finds what the first one left
				after := at.cache(t, o)
				if err := after.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := standing(after); got.Stale != test.stale {
					t.Errorf("InForce = %+v, status %+v, want Stale %v", got, after.Status(), test.stale)
				}
				if test.ahead < 0 {
					at.elapsed += 61 * time.Minute // from here on its age is known
					if got := standing(after); !got.Stale {
						t.Errorf("61 minutes later: %+v, want stale rules", got)
					}
					test.stale = true // and a start does not make them younger
				}
			}
		})
	}
}

// Where there is no rule, OnEmpty says what happens to requests; if the rules are stale besides, the stricter of both.
func TestStandingWithoutRules(t *testing.T) {
	for _, test := range []struct {
		onEmpty, onStale policy.Fallback
		fresh, stale     policy.Fallback
		words            string
	}{
		{policy.Keep, policy.Keep, policy.Keep, policy.Keep, "there are no rules: nothing is limited"},
		{policy.Limit, policy.Keep, policy.Limit, policy.Limit,
			"there are no rules: every caller is limited to 100 per 1s, burst 200"},
		{policy.Keep, policy.Deny, policy.Keep, policy.Deny, "there are no rules: nothing is limited"},
		{policy.Deny, policy.Limit, policy.Deny, policy.Deny, "there are no rules: every request is refused"},
	} {
		var at clocks
		c := at.cache(t, policy.CacheOptions{
			Source:   &script{},
			MaxStale: time.Hour,
			OnEmpty:  test.onEmpty,
			OnStale:  test.onStale,
		})
		if got := standing(c); !got.OK() {
			t.Errorf("before the first rules: %+v, want nothing but no Set", got)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := standing(c); got != (policy.Standing{Empty: true, Fallback: test.fresh}) ||
			c.Words(got) != test.words {
			t.Errorf("%+v: %+v, %q, want %v, %q", test, got, c.Words(got), test.fresh, test.words)
		}
		at.elapsed = time.Hour + 1
		if got := standing(c); got != (policy.Standing{Empty: true, Stale: true, Fallback: test.stale}) {
			t.Errorf("%+v: stale %+v, want %v", test, got, test.stale)
		}
	}
}

// The rule of Limit is one of the Set, but no look-up finds it, and no list of rules has it.
func TestFallbackIsNoRuleOfTheDocument(t *testing.T) {
	var at clocks
	source := &script{}
	source.set(10)
	c := at.cache(t, policy.CacheOptions{
		Source:       source,
		FallbackRule: policy.Rule{Limit: 3, Per: time.Minute, Burst: 7, Subject: policy.SubjectIP},
	})
	for range 3 { // a Set that has one replaces another that has
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	set := c.Set()
	applied, ok := set.Fallback()
	if rule := set.Rule(applied.Rule); !ok || rule.Endpoint != policy.All || rule.Limit != 3 ||
		rule.Per != time.Minute || rule.Burst != 7 ||
		rule.Subject != policy.SubjectIP || rule.Title() != "fallback" || applied.Level.String() != "(fallback)" ||
		!applied.Level.EveryEndpoint() {
		t.Errorf("Fallback = %+v, %v: %+v", applied, ok, rule)
	}
	if set.Len() != len(source.doc.Rules) || set.Bound() != set.Len()+1 || c.Status().Rules != set.Len() {
		t.Errorf("Len = %d, Bound = %d, want %d rules and one more", set.Len(), set.Bound(), len(source.doc.Rules))
	}
	for id := range set.ForEverybody(0) {
		if id == applied.Rule {
			t.Error("ForEverybody has the rule of the fallback")
		}
	}
	compiled, _ := policy.Compile(policy.Document{Rules: source.doc.Rules}, policy.CompileOptions{})
	if _, ok := compiled.Fallback(); ok || compiled.Version() != set.Version() {
		t.Errorf("Compile makes a fallback (%v) or another version, %s, want %s", ok, compiled.Version(), set.Version())
	}
}

func TestStaleOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]policy.CacheOptions{
		"MaxStale is -1s":       {MaxStale: -time.Second},
		"OnStale is 3":          {OnStale: 3},
		"OnEmpty is 9":          {OnEmpty: 9},
		"FallbackRule: ":        {FallbackRule: policy.Rule{Limit: -1}},
		"FallbackRule has more": {FallbackRule: policy.Rule{Limit: 1, Scope: policy.Strict}},
	} {
		o.Source = &script{}
		if _, err := policy.NewCache(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewCache = %v, want %q", err, want)
		}
	}
}

// Each time the rules cease to be reliable, and are again, is one line of the log.
func TestStalenessIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		source := &script{}
		source.set(10)
		c, err := policy.NewCache(policy.CacheOptions{
			Source: source, MaxStale: time.Minute, OnStale: policy.Limit, Interval: 10 * time.Second,
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil || c.Start(t.Context()) != nil {
			t.Fatal(err)
		}
		go c.Run(t.Context())
		for _, step := range []struct {
			err         error
			lasts       time.Duration
			stale, good int
		}{
			{nil, 5 * time.Minute, 0, 0}, {errors.New("away"), 5 * time.Minute, 1, 0}, {nil, 5 * time.Minute, 1, 1},
			{errors.New("away"), 2 * time.Minute, 2, 1},
		} {
			source.fail(step.err)
			<-time.After(step.lasts)
			synctest.Wait()
			stale, good := strings.Count(log.String(),
				"longer than 1m0s: every caller is limited to 100 per 1s, burst 200, besides"),
				strings.Count(log.String(), "can be relied on again")
			if stale != step.stale || good != step.good {
				t.Errorf("%d and %d lines, want %d and %d\n%s", stale, good, step.stale, step.good, log.String())
			}
		}
	})
}

// What nobody confirms is not dated: the copy is as old as it was.
func TestCopyIsDatedByConfirmationsAlone(t *testing.T) {
	var at clocks
	source := &script{}
	source.set(10)
	path := filepath.Join(t.TempDir(), "copy")
	c := at.cache(t, policy.CacheOptions{Source: source, LastGood: path})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	dated := func() time.Duration {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime().Sub((&clocks{}).wall())
	}
	at.elapsed = time.Hour
	look(t, c)
	if got := dated(); got != time.Hour {
		t.Errorf("confirmed after 1h: the copy is dated %v", got)
	}
	source.fail(errors.New("away"))
	at.elapsed = 2 * time.Hour
	look(t, c)
	if got := dated(); got != time.Hour {
		t.Errorf("away after 2h: the copy is dated %v, want 1h", got)
	}
}

// The row of the rule that applies when rules are stale does not make a Set move to a block a quarter larger, whichever
// way its rows were placed.
func TestFallbackTakesOneRow(t *testing.T) {
	for _, document := range []policy.Document{
		{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 5}}},
		{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 5, Subject: policy.SubjectIP},
			{Endpoint: policy.All, Limit: 7}}},
	} {
		for i := range 5000 {
			document.Rules = append(document.Rules, policy.Rule{Endpoint: policy.Default,
				Project: fmt.Sprint(i), Limit: 5})
		}
		document.Rules = append(document.Rules, policy.Rule{Endpoint: policy.Default, Limit: 6,
			Subject: policy.SubjectEndpoint})
		c := new(clocks).cache(t, policy.CacheOptions{Source: constant(document)})
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if spare := c.Set().SpareRows(); spare > 1 {
			t.Errorf("%d rules have room for %d more", c.Set().Len(), spare)
		}
	}
}
