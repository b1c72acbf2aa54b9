package nemesis

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// Plan is all that happens in a run. Equal plans happen alike, but for what goroutines do at the same nanosecond.
type Plan struct {
	Seed     uint64
	Replicas int
	Free     int // percent; scoped.Options.Free
	TTL      time.Duration
	Deadline time.Duration
	Interval time.Duration
	Limits   [buckets]Limit // at the beginning
	Load     [2]Load        // of the two endpoints
	Crowd    float64        // requests a second of other clients; with them gateways remember a few buckets alone
	Store    time.Duration  // what the store's clock is ahead of the world's
	Events   []Event
	Places   *Places   // nil for none
	Adaptive *Adaptive // nil where rates are what rules say
}

// A request for /a takes from the first bucket and from the last, one for /b from the second and from the last.
const buckets = 3

var bucketNames = [buckets]string{"GET /a", "GET /b", policy.All}

// Limit is a rule.
type Limit struct {
	rate.Limit
	Scope policy.Scope
	Loss  policy.StoreLoss

	Priority policy.Priority // how classes share it; of the last bucket alone
}

func (l Limit) String() string {
	text := fmt.Sprintf("%d per %v, burst %d, %v, %v", l.Tokens, l.Per, l.Burst, l.Scope, l.Loss)
	if l.Priority != "" {
		text += ", " + string(l.Priority)
	}
	return text
}

// Load is requests for an endpoint: so many a second, in waves.
type Load struct {
	Rate float64
	Wave time.Duration // for as long there are requests, and then for as long a hundredth of them
	Skew float64       // which part of them goes to the first gateway that is there, besides its share
}

// Kind is what an Event does.
type Kind int

// The kinds of events.
const (
	Offset       Kind = iota // a gateway's clock is off by By, from its start on
	Noise                    // the network is as Network says for Lasts
	CutTo                    // nothing from a gateway reaches the store for Lasts
	CutFrom                  // nothing from the store reaches a gateway for Lasts
	Kill                     // a gateway ends without a word, and another starts in its place after Lasts
	Stop                     // a gateway says goodbye, and another starts in its place after Lasts
	Join                     // one gateway more
	Down                     // the store is away for Lasts, and keeps its data
	Restart                  // the store is away for Lasts, and comes back empty
	Failover                 // the store is what it was By before
	Unlearn                  // the store forgets its scripts
	Step                     // the store's clock is set forward by By, or back
	Glitch                   // the store's clock is ahead by By for Lasts
	Change                   // the limit of a bucket is another one
	Freeze                   // a gateway stands still for Lasts: what it asks and hears, and whoever asks it, waits
	Reset                    // an operator has a bucket filled at a gateway
	Grant                    // an operator gives a bucket Tokens at a gateway
	Reservation              // for Lasts a part of the requests is reserved, held for up to By, and settled, some twice
	Strand                   // one gateway more, of which nothing reaches the store for Lasts
	ChangePlaces             // the limits on requests under way are others
	ResetPlaces              // an operator has the places of a client be free at a gateway
	kinds
)

const drawn = Strand // kinds are drawn, those before it

var kindNames = [kinds]string{"offset", "noise", "cut to", "cut from", "kill", "stop", "join", "store down",
	"store restarted empty", "failover", "scripts forgotten",
	"store's clock stepped", "store's clock off", "limit changed", "frozen", "reset", "grant", "reservations",
	"a gateway joins that cannot reach the store", "places changed", "places reset"}

// Event is one thing that happens.
type Event struct {
	Kind    Kind
	At      time.Duration
	Lasts   time.Duration
	By      time.Duration
	Gateway int
	Bucket  int
	Limit   Limit
	Tokens  int64
	Network Network
	Places  *Places
	Spread  time.Duration // within which all gateways hear of a change
}

func (e Event) String() string {
	text := fmt.Sprintf("%6.3fs %s", e.At.Seconds(), kindNames[e.Kind])
	switch e.Kind {
	case Offset, CutTo, CutFrom, Kill, Stop, Freeze:
		text += fmt.Sprintf(" of gateway %d", e.Gateway)
	case Change:
		text += fmt.Sprintf(" of %s to %v, within %v", bucketNames[e.Bucket], e.Limit, e.Spread)
	case ChangePlaces:
		text += fmt.Sprintf(" to %+v, within %v", *e.Places, e.Spread)
	case ResetPlaces:
		text += fmt.Sprintf(" at gateway %d", e.Gateway)
	case Reset, Grant:
		text += fmt.Sprintf(" of %d tokens to %s at gateway %d", e.Tokens, bucketNames[e.Bucket], e.Gateway)
	case Noise:
		text += fmt.Sprintf(" %+v", e.Network)
	}
	if e.By != 0 {
		text += fmt.Sprintf(" by %v", e.By)
	}
	if e.Lasts != 0 {
		text += fmt.Sprintf(" for %v", e.Lasts)
	}
	return text
}

func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d gateways, free %d%%, TTL %v, deadline %v, interval %v, store's clock %v\n", p.Seed,
		p.Replicas, p.Free, p.TTL, p.Deadline, p.Interval, p.Store)
	for i, l := range p.Limits {
		fmt.Fprintf(&b, "  %s: %v\n", bucketNames[i], l)
	}
	fmt.Fprintf(&b, "  requests for /a %+v, for /b %+v\n", p.Load[0], p.Load[1])
	if p.Crowd > 0 {
		fmt.Fprintf(&b, "  %.0f requests a second of other clients, and few buckets remembered\n", p.Crowd)
	}
	if p.Places != nil {
		fmt.Fprintf(&b, "  requests under way: %+v\n", *p.Places)
	}
	if p.Adaptive != nil {
		fmt.Fprintf(&b, "  rates follow the API: %v\n", p.Adaptive)
	}
	for _, e := range p.Events {
		fmt.Fprintf(&b, "  %v\n", e)
	}
	return b.String()
}

// Keep is the plan with some of its events alone.
func (p *Plan) Keep(events []int) *Plan {
	fewer := *p
	fewer.Events = nil
	for _, i := range events {
		if i >= 0 && i < len(p.Events) {
			fewer.Events = append(fewer.Events, p.Events[i])
		}
	}
	return &fewer
}

const (
	memberTTL = 900 * time.Millisecond
	chaos     = 8 * time.Second // in which faults begin and end
)

// Draw is the plan of a seed.
func Draw(seed uint64) *Plan {
	r := rand.New(rand.NewPCG(seed, 2026))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(r.Int64N(int64(most-least)+1))
	}
	either := func(all ...time.Duration) time.Duration { return all[r.IntN(len(all))] }
	p := &Plan{
		Seed: seed, Replicas: 1 + r.IntN(4), Free: []int{0, 20}[r.IntN(2)],
		TTL:      either(50, 100, 300) * time.Millisecond,
		Deadline: either(5, 20, 50) * time.Millisecond, Interval: either(20, 100, 400) * time.Millisecond,
		Store: either(0, 0, time.Minute, -time.Minute, time.Hour, -time.Hour),
	}
	for i := range p.Limits {
		p.Limits[i] = drawLimit(r, false)
	}
	for i := range p.Load {
		fast := float64(p.Limits[i].Tokens) / p.Limits[i].Per.Seconds()
		p.Load[i] = Load{
			Rate: min(300, max(20+200*r.Float64()*float64(r.IntN(2)), fast*(0.5+3*r.Float64()))),
			Wave: between(300*time.Millisecond, 3*time.Second),
			Skew: r.Float64() * float64(r.IntN(2)),
		}
	}
	for range 1 + r.IntN(7) {
		e := Event{
			Kind:    Kind(r.IntN(int(drawn))),
			At:      between(0, chaos*3/4),
			Gateway: r.IntN(p.Replicas),
			Bucket:  r.IntN(buckets),
		}
		e.Lasts = between(10*time.Millisecond, 2*time.Second)
		switch e.Kind {
		case Offset:
			e.At, e.Lasts, e.By = 0, 0, either(time.Second, time.Minute, time.Hour)
			if r.IntN(2) == 0 {
				e.By = -e.By
			}
		case Noise:
			e.Network = Network{
				Delay: between(0, 2*time.Millisecond), Jitter: between(0, 2*p.Deadline),
				Loss: r.Float64() * 0.3 * float64(r.IntN(2)), Late: r.Float64() * 0.3,
				Longest: either(between(p.TTL, 10*p.TTL), between(0, 4*time.Second)),
				Twice:   r.Float64() * 0.2 * float64(r.IntN(2)), Of: Message(r.IntN(int(messages)) * r.IntN(2)),
			}
		case Join, Unlearn, Reset:
			e.Lasts = 0
		case Grant:
			e.Lasts, e.Tokens = 0, 1+r.Int64N(200)
		case Freeze:
			e.Lasts = either(between(p.TTL/2, 4*p.TTL), between(0, 3*time.Second))
		case Failover:
			e.Lasts, e.By = 0, between(time.Millisecond, min(e.At, time.Second)+time.Millisecond)
		case Step:
			e.Lasts, e.By = 0, between(-2*time.Second, 2*time.Second)
		case Glitch:
			e.Lasts, e.By = between(time.Millisecond, 500*time.Millisecond),
				either(-time.Hour, time.Hour, 10*time.Second, -10*time.Second)
		case Change:
			e.Lasts, e.Spread, e.Limit = 0, between(0, 300*time.Millisecond), drawLimit(r, true)
			if r.IntN(2) == 0 {
				e.Limit.Scope = p.Limits[e.Bucket].Scope
			}
		case Reservation:
			e.Lasts, e.By = between(time.Second, chaos), between(10*time.Millisecond, 2*time.Second)
		}
		p.Events = append(p.Events, e)
	}
	if other := rand.New(rand.NewPCG(seed, 7)); other.IntN(3) == 0 { // beside r, so that plans stay what they were
		p.Crowd = 50 + 250*other.Float64()
	}
	p.Adaptive = drawAdaptive(seed)
	return p
}

// drawLimit is a limit; a slow one only where it is met later, or hardly anything would happen.
func drawLimit(r *rand.Rand, slow bool) Limit {
	l := Limit{Limit: rate.Limit{Tokens: 5 + r.Int64N(300), Per: time.Second}}
	if slow && r.IntN(4) == 0 {
		l.Tokens, l.Per = 5+r.Int64N(20), []time.Duration{time.Minute, time.Hour, 24 * time.Hour}[r.IntN(3)]
	}
	l.Burst = max(5, int64(float64(l.Tokens)*(0.3+1.7*r.Float64())))
	if !slow && r.IntN(4) == 0 { // what is held ahead of need is much then, and what drains in a TTL little
		l.Tokens, l.Burst = 1+r.Int64N(10), 50+r.Int64N(500)
	}
	l.Scope = []policy.Scope{policy.Strict, policy.Strict, policy.Lease, policy.Lease, policy.Lease, policy.Sync,
		policy.Sync, policy.Split}[r.IntN(8)]
	if l.Scope.Shared() {
		l.Loss = []policy.StoreLoss{policy.LossClosed, policy.LossClosed, policy.LossShare, policy.LossShare,
			policy.LossOpen}[r.IntN(5)]
	}
	return l
}
