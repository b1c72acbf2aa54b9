package nemesis_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/eval/nemesis"
	"github.com/headgate-io/headgate/policy"
)

// column is a rule whose client may be locked out.
type column struct {
	scope policy.Scope
	loss  policy.StoreLoss
}

var columns = []column{
	{policy.Strict, policy.LossClosed}, {policy.Strict, policy.LossShare}, {policy.Lease, policy.LossClosed},
	{policy.Sync, policy.LossClosed}, {policy.Sync, policy.LossShare},
}

// fault is a row of docs/model.md, and for how many tenths of a second at most it locks a client out, by column.
type fault struct {
	name   string
	most   [5]int
	events []nemesis.Event
}

func faults() []fault {
	const s, ms = time.Second, time.Millisecond
	late, lost := nemesis.Network{Late: 0.3, Longest: s}, nemesis.Network{Loss: 0.1, Longest: s}
	return []fault{
		{"none", [5]int{1, 1, 1, 1, 1}, nil},
		{"the store is away", [5]int{13, 4, 2, 10, 1}, []nemesis.Event{{Kind: nemesis.Down, Lasts: s}}},
		{"the store is away, and empty when it is back", [5]int{13, 4, 2, 10, 1},
			[]nemesis.Event{{Kind: nemesis.Restart, Lasts: s}}},
		{"a replica takes over that lacks the last 0.5 s", [5]int{1, 1, 1, 1, 1},
			[]nemesis.Event{{Kind: nemesis.Failover, By: 500 * ms}}},
		{"the store forgets its scripts", [5]int{1, 1, 1, 1, 1}, []nemesis.Event{{Kind: nemesis.Unlearn}}},
		{"the store's clock is an hour ahead for 0.3 s", [5]int{1, 1, 1, 1, 1},
			[]nemesis.Event{{Kind: nemesis.Glitch, Lasts: 300 * ms, By: time.Hour}}},
		{"the store's clock is set back by an hour", [5]int{1, 1, 1, 1, 1},
			[]nemesis.Event{{Kind: nemesis.Step, By: -time.Hour}}},
		{"nothing of a gateway reaches the store", [5]int{13, 4, 2, 11, 1},
			[]nemesis.Event{{Kind: nemesis.CutTo, Gateway: 1, Lasts: s}}},
		{"nothing of the store reaches a gateway", [5]int{12, 4, 2, 10, 1},
			[]nemesis.Event{{Kind: nemesis.CutFrom, Gateway: 1, Lasts: s}}},
		{"three of ten messages take up to 1 s", [5]int{13, 5, 3, 6, 1},
			[]nemesis.Event{{Kind: nemesis.Noise, Lasts: s, Network: late}}},
		{"one of ten messages is lost", [5]int{5, 5, 3, 2, 1},
			[]nemesis.Event{{Kind: nemesis.Noise, Lasts: s, Network: lost}}},
		{"a gateway stands still", [5]int{11, 11, 11, 11, 11},
			[]nemesis.Event{{Kind: nemesis.Freeze, Gateway: 1, Lasts: s}}},
		{"a gateway is killed; its clients go to another", [5]int{1, 1, 1, 1, 1},
			[]nemesis.Event{{Kind: nemesis.Kill, Gateway: 1, Lasts: s}}},
		{"a gateway joins", [5]int{1, 1, 1, 1, 1}, []nemesis.Event{{Kind: nemesis.Join}}},
		{"the limit becomes 60 per second", [5]int{2, 2, 2, 2, 1},
			[]nemesis.Event{{Kind: nemesis.Change, Spread: 300 * ms, Limit: perSecond(60, policy.Strict)}}},
	}
}

// How long each fault locks a client out that stays below its limit is published, and no less.
func TestLockOuts(t *testing.T) {
	page, err := os.ReadFile("../../docs/model.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, f := range faults() {
		fmt.Fprintf(&rows, "| %s |", f.name)
		for i, c := range columns {
			most := time.Duration(0)
			for seed := range max(*seeds, 1) {
				most = max(most, lockOut(t, f, c, *first+seed))
			}
			tenths := int((most + 99*time.Millisecond) / (100 * time.Millisecond))
			fmt.Fprintf(&rows, " %d.%d |", tenths/10, tenths%10)
			if row := f.row(); !strings.Contains(string(page), row) {
				t.Errorf("docs/model.md lacks the row\n%s", row)
			}
			if tenths > f.most[i] {
				t.Errorf("%s, %v, %v: %v without a request admitted, want %d tenths of a second at most", f.name,
					c.scope, c.loss, most, f.most[i])
			}
		}
		rows.WriteString("\n")
	}
	t.Logf("measured\n%s", rows.String())
}

func (f *fault) row() string {
	row := "| " + f.name + " |"
	for _, tenths := range f.most {
		row += fmt.Sprintf(" %d.%d |", tenths/10, tenths%10)
	}
	return row
}

func lockOut(t *testing.T, f fault, c column, seed uint64) (longest time.Duration) {
	p := plan(c.scope)
	p.Seed, p.Free = seed, 20
	for i := range p.Limits {
		p.Limits[i].Scope, p.Limits[i].Loss = c.scope, c.loss
	}
	for _, e := range f.events {
		e.At, e.Limit.Scope, e.Limit.Loss = 2*time.Second, c.scope, c.loss
		p.Events = append(p.Events, e)
	}
	synctest.Test(t, func(*testing.T) { longest = nemesis.LockOut(p) })
	return longest
}
