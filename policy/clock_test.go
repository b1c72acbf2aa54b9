package policy_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/steady"
	"github.com/headgate-io/headgate/policy"
)

// TestCacheDatesChangesEvenly changes a limit while the wall clock is set back
// and forth: changes are dated in their order and as far apart as they were,
// and rules expire by the wall clock.
func TestCacheDatesChangesEvenly(t *testing.T) {
	epoch := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	for _, set := range []time.Duration{10 * time.Second, -10 * time.Second, time.Hour, -time.Hour} {
		t.Run(set.String(), func(t *testing.T) {
			var elapsed, ahead time.Duration
			wall := func() time.Time { return epoch.Add(elapsed + ahead) }
			var log bytes.Buffer
			source := &script{}
			source.set(10)
			c, err := policy.NewCacheBy(steady.Of(func() time.Duration { return elapsed }, wall),
				policy.CacheOptions{Source: source, Now: wall, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			change := func(after time.Duration, limit int64, rules ...policy.Rule) {
				elapsed += after
				source.set(limit, rules...)
				if err := c.Reload(t.Context()); err != nil {
					t.Fatal(err)
				}
				id := c.Set().Resolve(nil, c.Wall(c.Now()), endpoint.Match{ID: 1, Status: endpoint.Known},
					"", "")[0].Rule
				terms := c.Set().Terms(id)
				if got := time.Duration(terms.Since - epoch.UnixNano()); got != elapsed {
					t.Errorf("after %v with the wall clock %v ahead: the limit counts since %v, want %v", elapsed,
						ahead, got, elapsed)
				}
				if c.Set().Since() != c.Now() {
					t.Errorf("after %v: the rules are there since %d, want %d", elapsed, c.Set().Since(), c.Now())
				}
			}
			change(time.Second, 20)
			ahead = set
			change(time.Second, 30)
			ahead = 0
			change(time.Second, 40)
			ahead = set
			gone := policy.Rule{Endpoint: "GET /gone", Limit: 1, Expires: wall()}
			there := policy.Rule{Endpoint: "GET /there", Limit: 1, Expires: wall().Add(2 * time.Second)}
			log.Reset()
			change(time.Second, 50, gone, there)
			if !strings.Contains(log.String(), "GET /gone): expires") ||
				strings.Contains(log.String(), "GET /there): expires") {
				t.Errorf("with the wall clock %v ahead, the log says\n%s\nwant that of two rules the first has expired",
					ahead, log.String())
			}
		})
	}
}
