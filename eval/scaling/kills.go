package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/rate"
)

// Gateways are killed amid a load on rules of every scope, as a power cut would, and started again.
const (
	killLimit = 50 // tokens a second, and burst
	killOver  = 3  // how many times the limit is sent to each rule
	killed    = 4  // gateways, unless a test says less
	dark      = time.Second
)

var killRules = []answer{
	{"/local", "local", ""}, {"/split", "split", ""}, {"/leased", "lease", "share"}, {"/synced", "sync", "share"},
	{"/closed", "strict", "closed"}, {"/gossip", "gossip", ""},
}

// kill is which gateways of k end at the same moment, one group after the other, and what follows.
type kill struct {
	name   string
	groups func(k int) [][]int
	order  bool // they are asked to stop
}

func each(k int) (groups [][]int) {
	for i := range k {
		groups = append(groups, []int{i})
	}
	return groups
}

func firsts(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

var allKills = []kill{
	{name: "each killed in turn", groups: each},
	{name: "all but one killed", groups: func(k int) [][]int { return [][]int{firsts(k)[1:]} }},
	{name: "all killed at once", groups: func(k int) [][]int { return [][]int{firsts(k)} }},
	{name: "each restarted in turn", groups: each, order: true},
}

// bound is how many tokens beyond what all replicas are promised to admit together may come, as so many of k are
// ended and started again: what those leave behind of which nobody knows, and what begins full in their place.
//
//	local, split   what each had of the burst: a process that ends forgets it, and may have used it just before
//	lease          the same of the part that gateways have to themselves; what they leased is lost and not used
//	sync           what each did not tell the store yet
//	strict         nothing
//	gossip         a burst each, and what drains until the others hear of it: the last one of all to end leaves
//	               full buckets, and what one admitted just before it was killed was told to nobody
func (k kill) bound(a answer, replicas int) int64 {
	ended := int64(0)
	for _, g := range k.groups(replicas) {
		ended += int64(len(g))
	}
	switch a.scope {
	case "local":
		return ended * killLimit
	case "split":
		return ended * (killLimit/int64(replicas) + 1)
	case "lease":
		return ended * (killLimit*leaseFree/100/int64(replicas) + 1)
	case "sync":
		return ended * (fault{joins: true}.untold(replicas) + 1)
	case "gossip":
		return ended * (killLimit + int64(gossipHeard.Seconds()*killLimit) + 1)
	}
	return 0
}

// Unrest is what one rule let through while something happened to gateways or between them.
type Unrest struct {
	What     string
	Rule     string
	Replicas int
	Over     int64   // tokens beyond the burst and the rate of one limit, in the worst interval
	Excess   int64   // the same beyond what is promised of a fleet to which nothing happens
	Bound    int64   // of Excess, as published
	Used     float64 // of what the limit admits meanwhile
	After    float64 // and when it was over
}

func (u Unrest) within() bool { return u.Bound < 0 || u.Excess <= u.Bound }

func (u Unrest) String() string {
	return fmt.Sprintf("%-30s %-17s %d gateways, over the limit %4d, excess %4d of %4d, used %.2f, then %.2f", u.What,
		u.Rule, u.Replicas, u.Over, u.Excess, u.Bound, u.Used, u.After)
}

// kills ends gateways of one fleet.
func (f *field) kills(which []kill, replicas int) (found []Unrest, err error) {
	w, err := newWires(replicas)
	if err != nil {
		return nil, err
	}
	defer w.close()
	gateways, err := startFleet(replicas, f.api.URL, f.store.address, ", member_ttl: "+memberTTL.String(), killLimit,
		rulesOf(killRules), w)
	if err != nil {
		return nil, err
	}
	defer gateways.stop()
	for _, one := range which {
		if err := gateways.knowEachOther(); err != nil {
			return nil, err
		}
		time.Sleep(time.Duration(replicas) * time.Second) // as much as rules of scope gossip may owe
		more, err := f.kill(gateways, one)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		for _, u := range more {
			f.progress("%v", u)
		}
		found = append(found, more...)
	}
	return found, nil
}

var errNobody = errors.New("all gateways are killed")

func (f *field) kill(fleet *fleet, what kill) (found []Unrest, err error) {
	var alive atomic.Pointer[[]*harness.Gateway]
	reach := func(dead []int) {
		var all []*harness.Gateway
		for i, g := range fleet.gateways {
			if !slices.Contains(dead, i) {
				all = append(all, g)
			}
		}
		alive.Store(&all)
	}
	reach(nil)
	groups := what.groups(len(fleet.gateways))
	span := before + time.Duration(len(groups))*(dark+after) + after
	for _, a := range killRules {
		f.api.take(a.path)
	}
	loads := make([]sent, len(killRules))
	var all sync.WaitGroup
	began := time.Since(f.api.began)
	for i, a := range killRules {
		var turn atomic.Uint64
		all.Go(func() {
			loads[i] = load(span, killOver*killLimit, []way{func() (bool, error) {
				to := *alive.Load()
				if len(to) == 0 {
					return false, errNobody
				}
				return get(f.client, to[turn.Add(1)%uint64(len(to))].URL+a.path)
			}}, traffics[0])
		})
	}
	time.Sleep(before)
	var failed error
	for _, group := range groups {
		for _, i := range group {
			if what.order {
				failed = errors.Join(failed, fleet.gateways[i].Stop())
			} else {
				fleet.gateways[i].Kill()
			}
		}
		reach(group)
		time.Sleep(dark)
		var starting sync.WaitGroup
		errs := make([]error, len(group))
		for n, i := range group {
			starting.Go(func() {
				g, err := fleet.start(i)
				if err == nil {
					fleet.gateways[i] = g
				}
				errs[n] = err
			})
		}
		starting.Wait()
		failed = errors.Join(append(errs, failed)...)
		reach(nil)
		time.Sleep(after)
	}
	over := time.Since(f.api.began)
	all.Wait()
	if failed != nil {
		return nil, failed
	}
	for i, a := range killRules {
		u, err := f.unrest(what.name, a, len(fleet.gateways), killLimit, loads[i], began+before, over)
		if err != nil {
			return nil, err
		}
		u.Bound += what.bound(a, u.Replicas)
		found = append(found, u)
	}
	return found, nil
}

// unrest puts what came for a rule beside what is promised of a fleet to which nothing happens.
func (f *field) unrest(what string, a answer, replicas int, limit int64, load sent, from, to time.Duration) (Unrest,
	error) {
	u := Unrest{What: what, Rule: a.String(), Replicas: replicas}
	shape, extra, err := promise(plan{limit: limit}.rule(), a.scope, replicas)
	if err != nil {
		return u, err
	}
	one, err := rate.Compile(plan{limit: limit}.rule())
	if err != nil {
		return u, err
	}
	came := f.api.take(a.path)
	u.Over = excess(came, one)
	u.Excess, u.Bound = excess(came, shape), extra+late(shape, load.longest)
	amid, then, last := 0, 0, from
	for _, at := range came {
		switch last = max(last, at); {
		case at >= to:
			then++
		case at >= from:
			amid++
		}
	}
	u.Used = float64(amid) / (float64(limit) * (to - from).Seconds())
	u.After = float64(then) / (float64(limit) * (last - to).Seconds())
	return u, nil
}
