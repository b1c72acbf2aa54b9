package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// contender makes a door.
type contender struct {
	name  string
	fixed bool // there is no multiplier
	drawn bool
	make  func(backend) door
}

const (
	adapts   = "adaptive"
	together = "adaptive, three gateways"
)

// contenders are those of a scenario. Three gateways are compared over a day alone, which has all of it.
func contenders(s *scenario) []contender {
	all := []contender{
		{"none", true, false, func(backend) door { return open{} }},
		{"the rule alone", true, true, func(b backend) door { return newOurs(b, false) }},
		{"AIMD alone", false, true, func(b backend) door { return &aimd{newRated(b)} }},
		{"Gradient2-like", true, false, func(backend) door { return newGradient() }},
		{adapts, false, true, func(b backend) door { return newOurs(b, true) }},
	}
	if s.seconds >= 24*hour {
		all = append(all, contender{together, false, true, func(b backend) door { return newSeveral(b, 3) }})
	}
	return all
}

// open admits all.
type open struct{}

func (open) admit(int64, int) (bool, func(int64, time.Duration, bool)) {
	return true, func(int64, time.Duration, bool) {}
}
func (open) multiplier(int64) float64 { return 1 }

// ours is a headgate.Limiter with a rule of as many requests a second as the API can do at its best.
type ours struct {
	now   atomic.Int64
	lim   *headgate.Limiter
	holds bool // requests have places while they are under way
	table *adaptive.Table
	peers []netip.Addr
}

const (
	at    = "GET /work"
	floor = adaptive.Whole / 10
	burst = 20
)

func newOurs(b backend, adapts bool) *ours { return newOursWith(b, adapts, func(*headgate.Options) {}) }

// newGuarded is one with so many requests of each caller under way at once besides, which follow the API as well.
func newGuarded(b backend, atOnce int64) *ours {
	o := newOursWith(b, true, func(o *headgate.Options) {
		places := policy.Rule{Endpoint: at, Limit: atOnce, Per: time.Hour}
		if err := places.SetSubject("in_flight:principal"); err != nil {
			panic(err) // it is ours
		}
		set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{places,
			{Endpoint: at, Limit: int64(b.mu), Burst: burst, Subject: policy.SubjectEndpoint},
			{Endpoint: policy.Default, Limit: 1000}}}, policy.CompileOptions{Endpoints: o.Endpoints})
		if err := problems.Err(); err != nil {
			panic(err) // it is ours
		}
		o.Rules, o.Policies = nil, headgate.Fixed(set)
		o.Adaptive.Use(map[string]adaptive.Settings{at: {SLO: b.slo, Floor: floor, AtOnce: true}}, epoch)
	})
	o.holds = true
	return o
}

func newOursWith(b backend, adapts bool, change func(*headgate.Options)) *ours {
	o := &ours{}
	o.now.Store(epoch)
	options := headgate.Options{
		Rules: []string{fmt.Sprintf("%s %.0f/s burst %d by endpoint", at, b.mu, burst), "default 1000/s"},
		Now:   func() time.Time { return time.Unix(0, o.now.Load()) },
	}
	template, err := endpoint.ParseTemplate(at)
	if err != nil {
		panic(err) // it is ours
	}
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Strictest())
	if err != nil {
		panic(err) // it is ours
	}
	options.Endpoints = table
	if adapts {
		o.table = &adaptive.Table{}
		o.table.Use(map[string]adaptive.Settings{at: {SLO: b.slo, Floor: floor}}, epoch)
		options.Adaptive = o.table
	}
	change(&options)
	if o.lim, err = headgate.New(options); err != nil {
		panic(err)
	}
	for n := range 256 {
		o.peers = append(o.peers, netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}))
	}
	return o
}

func (o *ours) admit(now int64, caller int) (bool, func(int64, time.Duration, bool)) {
	o.now.Store(now)
	request := headgate.Request{Method: http.MethodGet, Target: "/work", Peer: o.peers[caller]}
	ctx := context.Background()
	var d headgate.Decision
	var place headgate.Reservation
	if o.holds {
		place, d = o.lim.Reserve(ctx, request, reservation.MaxTimeout)
	} else {
		d = o.lim.Check(ctx, request)
	}
	if !d.Allowed {
		return false, nil
	}
	x := o.lim.Exchange(&d)
	x.Sent()
	return true, func(now int64, _ time.Duration, failed bool) {
		o.now.Store(now)
		x.Answered(failed)
		if o.holds {
			if _, err := o.lim.SettleAnswer(ctx, place.ID, headgate.Answer{Actual: 1}); err != nil {
				panic(err)
			}
		}
	}
}

func (o *ours) multiplier(now int64) float64 {
	o.now.Store(now)
	if o.table == nil {
		return 1
	}
	return float64(o.table.Named(at).Status(now).Multiplier) / adaptive.Whole
}

// rated is a token bucket whose rate is changed, as others have it.
type rated struct {
	backend

	rate, tokens float64
	at           int64
	begun        int64
	took         []time.Duration // in this window
	asked, sent  int
}

func newRated(b backend) rated {
	return rated{backend: b, rate: b.mu, tokens: burst, at: epoch, begun: epoch}
}

func (r *rated) take(now int64) bool {
	r.tokens = min(burst, r.tokens+float64(now-r.at)/1e9*r.rate)
	r.at = now
	r.asked++
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	r.sent++
	return true
}

// aimd is additive increase and multiplicative decrease alone, by the 95th percentile of all answers of a second.
type aimd struct{ rated }

func (a *aimd) judge(now int64) {
	if now-a.begun < max(int64(time.Second), 2*int64(a.slo)) {
		return
	}
	slices.Sort(a.took)
	switch p95 := percentile(a.took, 95); {
	case len(a.took) < adaptive.MinAnswers:
	case p95 > a.slo*6/10:
		a.rate = max(a.mu*floor/adaptive.Whole, 0.9*a.rate)
	case a.asked > a.sent:
		a.rate = min(a.mu, a.rate+0.02*a.mu)
	}
	a.begun, a.took, a.asked, a.sent = now, a.took[:0], 0, 0
}

func (a *aimd) admit(now int64, _ int) (bool, func(int64, time.Duration, bool)) {
	a.judge(now)
	return a.take(now), func(_ int64, took time.Duration, _ bool) { a.took = append(a.took, took) }
}
func (a *aimd) multiplier(int64) float64 { return a.rate / a.mu }

// gradient limits how many requests are under way, by how much longer the answers of a second take than they have done
// for long: what Netflix's concurrency-limits calls Gradient2, with its defaults: 20 at first, 200 at most, a queue of
// 4, a tolerance of 1.5, a smoothing of 0.2, and 600 windows for what is usual.
type gradient struct {
	limit    float64
	inFlight int
	most     int     // in this window
	long     float64 // seconds
	windows  int
	begun    int64
	sum      float64
	seen     int
}

func newGradient() *gradient { return &gradient{limit: 20, begun: epoch} }

func (g *gradient) admit(now int64, _ int) (bool, func(int64, time.Duration, bool)) {
	if now-g.begun >= int64(time.Second) && g.seen >= 10 {
		g.judge()
		g.begun, g.sum, g.seen, g.most = now, 0, 0, g.inFlight
	}
	if float64(g.inFlight) >= g.limit {
		return false, nil
	}
	g.inFlight++
	g.most = max(g.most, g.inFlight)
	return true, func(_ int64, took time.Duration, _ bool) {
		g.inFlight--
		g.sum, g.seen = g.sum+took.Seconds(), g.seen+1
	}
}

func (g *gradient) judge() {
	now := g.sum / float64(g.seen)
	if g.windows++; g.windows <= 10 {
		g.long += (now - g.long) / float64(g.windows)
	} else {
		g.long += (now - g.long) * 2 / 601
	}
	if g.long/now > 2 {
		g.long *= 0.95
	}
	if float64(g.most) < g.limit/2 {
		return // what is asked for is the limit
	}
	gradient := max(0.5, min(1, 1.5*g.long/now))
	g.limit = max(20, min(200, g.limit*0.8+0.2*(g.limit*gradient+4)))
}

func (g *gradient) multiplier(int64) float64 { return math.Min(1, g.limit/200) }
