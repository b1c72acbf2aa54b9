package operations_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/rate"
)

// absence is a time for which a gateway decided without a server.
type absence struct{ from, to time.Time }

// absences are those that a gateway tells of in its log.
func absences(t *testing.T, g *harness.Gateway) (all []absence) {
	t.Helper()
	for line := range strings.Lines(g.Log()) {
		switch {
		case strings.Contains(line, `msg="requests are decided without the store`):
			all = append(all, absence{from: said(t, line, "since=")})
		case strings.Contains(line, `msg="requests are decided with the store`):
			if len(all) == 0 {
				t.Fatalf("a store is back that was never lost:\n%s", g.Log())
			}
			all[len(all)-1].to = said(t, line, "time=").Add(time.Millisecond) // to which the log rounds down
		}
	}
	if n := len(all); n > 0 && all[n-1].to.IsZero() {
		all[n-1].to = time.Now()
	}
	return all
}

// said is a time in a line of a log.
func said(t *testing.T, line, name string) time.Time {
	t.Helper()
	_, after, _ := strings.Cut(line, name)
	text, _, _ := strings.Cut(after, " ")
	at, err := time.Parse(time.RFC3339Nano, strings.Trim(text, `"`))
	if err != nil {
		t.Fatalf("%sin %q: %v", name, line, err)
	}
	return at
}

// loss is what the loss of a store may add to what a limit promises, by the
// table in docs/store-loss.md.
type loss struct {
	together []time.Duration // for which all gateways were without it
	apart    float64         // seconds for which some were, each times the part of them
	tries    int64           // requests that find it again
}

// lossOf is what happened to gateways that share a limit.
func lossOf(t *testing.T, gateways []*harness.Gateway) (l loss) {
	t.Helper()
	type turn struct {
		at   time.Time
		away int
	}
	var turns []turn
	for _, g := range gateways {
		for _, a := range absences(t, g) {
			turns = append(turns, turn{a.from, 1}, turn{a.to, -1})
			l.tries += 3
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return a.at.Compare(b.at) })
	away := 0
	for i, now := range turns {
		if i > 0 {
			switch passed := now.at.Sub(turns[i-1].at); away {
			case 0:
			case len(gateways):
				l.together = append(l.together, passed)
			default:
				l.apart += passed.Seconds() * float64(away) / float64(len(gateways))
			}
		}
		away += now.away
	}
	return l
}

// untold is what a store that forgets adds besides to a limit of scope sync: a
// headroom of each gateway.
func untold(t *testing.T, l rate.Limit, gateways int, forgot bool) int64 {
	t.Helper()
	if !forgot {
		return 0
	}
	return int64(gateways) * headroom(t, l, gateways)
}

// adds is how many tokens a loss may add to a limit, with what rules say about
// it; forgot says that the store lost during it what it held, or some of that.
func (l loss) adds(t *testing.T, limit rate.Limit, says bucket.Loss, forgot bool) int64 {
	t.Helper()
	shape, err := rate.Compile(limit)
	if err != nil {
		t.Fatal(err)
	}
	if forgot && len(l.together) == 0 {
		return limit.Burst // nobody noticed
	}
	fills := func(d time.Duration) int64 { return min(limit.Burst, shape.Drained(d)/shape.Unit+1) }
	sum, least := l.tries, limit.Burst
	for _, d := range l.together {
		least = min(least, fills(d))
		if says == bucket.LossShare {
			sum += fills(d)
		}
	}
	if says == bucket.LossShare {
		sum += int64(l.apart*float64(limit.Tokens)/limit.Per.Seconds()) + 1
	}
	if forgot {
		sum += limit.Burst - least
	}
	return sum
}
