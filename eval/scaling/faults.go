package main

import (
	"fmt"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// The faults have their own limit, and gateways: as many rules are met at once as there are answers
// to the loss of a store.
const (
	faultLimit = 100 // tokens a second, and burst
	faultOver  = 2   // how many times the limit is sent to each rule
	memberTTL  = time.Second

	before = time.Second // of load before a fault
	after  = 1500 * time.Millisecond
	slow   = 100 * time.Millisecond // each way
)

// answer is a rule, by what it does when the store is lost.
type answer struct{ path, scope, loss string }

var answers = []answer{
	{"/closed", "strict", "closed"}, {"/share", "strict", "share"}, {"/open", "strict", "open"},
	{"/leased", "lease", "share"}, {"/synced", "sync", "share"}, {"/split", "split", ""},
	{"/gossip", "gossip", ""},
}

func (a answer) String() string {
	if a.loss == "" {
		return "`" + a.scope + "`"
	}
	return fmt.Sprintf("`%s`, `%s`", a.scope, a.loss)
}

// rulesOf are the rules of a fleet, a path and what it says besides each.
func rulesOf(all []answer) (rules [][2]string) {
	for _, a := range all {
		settings := "scope: " + a.scope
		if a.loss != "" {
			settings += ", on_store_loss: " + a.loss
		}
		rules = append(rules, [2]string{a.path, settings})
	}
	return rules
}

// fault is what happens amid a load, and what is published for it.
type fault struct {
	name    string
	loses   bool // the store is lost for a while
	forgets bool // the store forgets all it knew
	joins   bool // a gateway joins
	leaves  bool // a gateway leaves for good
	lasts   time.Duration
	make    func(*faults) error
	mend    func(*faults) error

	rules     []answer // that are met
	perSecond float64  // sent to each of them
}

var allFaults = []fault{
	{name: "nothing", make: nothing, mend: nothing},
	{name: "store killed for 2 s", loses: true, forgets: true, make: (*faults).kill, mend: (*faults).restart},
	{name: "store frozen for 2 s", loses: true, make: (*faults).freeze, mend: (*faults).thaw},
	{name: "store restarted empty", forgets: true, make: (*faults).forget, mend: nothing},
	{name: "store slow for 2 s", loses: true, make: (*faults).slow, mend: (*faults).quick},
	{name: "gateway joins", joins: true, make: (*faults).join, mend: nothing},
	{name: "gateway killed", leaves: true, make: (*faults).leave, mend: nothing},
	frozenUnderLoad,
}

// frozenUnderLoad is long, and its load such that what waits for the store is few among many.
var frozenUnderLoad = fault{name: "store frozen for 10 s, under load", loses: true, lasts: 10 * time.Second,
	make: (*faults).freeze, mend: (*faults).thaw,
	rules: answers[1:2], perSecond: 2000}

func nothing(*faults) error      { return nil }
func (f *faults) freeze() error  { return f.store.freeze() }
func (f *faults) thaw() error    { return f.store.thaw() }
func (f *faults) restart() error { return f.store.start() }
func (f *faults) kill() error    { f.store.stop(); return nil }
func (f *faults) forget() error  { f.store.stop(); return f.store.start() }
func (f *faults) slow() error    { f.relay.delay.Store(int64(slow)); return nil }
func (f *faults) quick() error   { f.relay.delay.Store(0); return nil }

// complete fills in what a fault does not say.
func (what fault) complete() fault {
	if what.lasts == 0 {
		what.lasts = 2 * time.Second
	}
	if what.rules == nil {
		what.rules, what.perSecond = answers, faultOver*faultLimit
	}
	return what
}

// bound is how many tokens beyond its burst and rate are published for a rule, with k gateways, by
// the tables of docs/store-loss.md: losses is how often the store was lost, and away for how long.
// Below zero there is none.
func (what fault) bound(a answer, k int, losses int64, away absence) int64 {
	switch {
	case a.scope == "split" && what.leaves: // its share of the burst, used just before
		return faultLimit / int64(k)
	case a.scope == "gossip" && (what.joins || what.leaves): // what one admits before others hear of it
		return faultLimit + int64(gossipHeard.Seconds()*faultLimit)
	case a.scope == "split", a.scope == "gossip":
		return 0
	case a.loss == "open" && losses > 0:
		return -1
	}
	limit := int64(faultLimit)
	if a.scope == "lease" {
		limit -= limit * leaseFree / 100 // gateways have the rest to themselves, store or no store
	}
	fills := func(d time.Duration) int64 { return min(limit, int64(d.Seconds()*float64(limit))) }
	extra, drained := int64(len(away.together)*tries*k), int64(0)
	if a.loss == "share" {
		extra += int64(away.apart*float64(limit)) + 1
	}
	for i, d := range away.together {
		if a.loss == "share" {
			extra += fills(d.most) + 1
		}
		if drained = min(drained, fills(d.least)); i == 0 {
			drained = fills(d.least)
		}
	}
	if what.forgets {
		extra += limit - drained // which nobody owed any more
	}
	if a.scope == "sync" {
		extra += what.untold(k)
	}
	return extra
}

// untold is what is published besides for a limit of scope sync, with k gateways: what the store
// was told and forgot before they knew, what a gateway that is killed did not tell, or what one
// that joins does not know yet.
func (what fault) untold(k int) int64 {
	shape, err := rate.Compile(plan{limit: faultLimit}.rule())
	if err != nil {
		panic(err) // the limit is ours
	}
	headroom := bucket.Headroom(shape, syncInterval, k)
	switch {
	case what.forgets:
		return headroom * int64(k)
	case what.joins, what.leaves:
		return headroom
	}
	return 0
}

// tries is how many requests find the store again, of each gateway.
const tries = 3

// Outcome is what one rule let through amid a fault.
type Outcome struct {
	Rule   string
	Excess int64   // beyond the burst and the rate of its limit
	Bound  int64   // as published; below zero for none
	Used   float64 // of what the limit admits while the fault lasted, which may have been saved up before
}

func (o Outcome) within() bool { return o.Bound < 0 || o.Excess <= o.Bound }

// Fault is what was measured amid one.
type Fault struct {
	Name        string
	Loses       bool
	Outcomes    []Outcome
	Quiet, Amid time.Duration // p99 of requests before it, and while it lasts
	// until all gateways decide without the store, and until all ask it again; below zero if they
	// never ceased
	Lost, Back time.Duration
}

func (o Fault) String() string {
	text := fmt.Sprintf("%-33s p99 %v, then %v; lost after %v, back after %v;", o.Name, micro(o.Quiet), micro(o.Amid),
		milli(o.Lost), milli(o.Back))
	for _, one := range o.Outcomes {
		text += fmt.Sprintf("  %s %d of %d, used %.2f", one.Rule, one.Excess, one.Bound, one.Used)
	}
	return text
}

func micro(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// milli is a time that may never have come.
func milli(d time.Duration) string {
	if d < 0 {
		return "–"
	}
	return d.Round(time.Millisecond).String()
}
