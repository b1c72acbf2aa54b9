package simulate

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gossip"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Gossip is some replicas that keep buckets in step among themselves.
type Gossip struct {
	World    *World
	Interval time.Duration
	Most     int // as gossip.Options.Most
	Messages int // as gossip.Options.Messages

	// Link is the way from one to another, made when it is first used.
	Link func(from, to *Gossiper) *Link

	All []*Gossiper
}

// Gossiper is one of them.
type Gossiper struct {
	Group *Gossip
	Clock *Clock
	Name  uint64
	Store *gossip.Store
	Down  bool // it neither ticks nor hears

	links map[uint64]*Link
}

// Join adds a replica that begins now. The others hear of it by Members.
func (g *Gossip) Join(name uint64, clock *Clock) *Gossiper {
	r := &Gossiper{Group: g, Clock: clock, Name: name, links: map[uint64]*Link{}}
	store, err := gossip.New(gossip.Options{
		Transport: r, Self: name, Interval: g.Interval, Most: g.Most, Messages: g.Messages, MaxAccounts: 1 << 10,
		Now: clock.Now,
	})
	if err != nil {
		panic(err) // options of a test
	}
	r.Store = store
	g.All = append(g.All, r)
	var tick func()
	tick = func() {
		if !r.Down {
			r.Store.Tick()
		}
		g.World.After(g.Interval, tick)
	}
	g.World.After(g.World.Between(0, g.Interval), tick)
	return r
}

// Members has every replica hear which others there are.
func (g *Gossip) Members() {
	for _, r := range g.All {
		var others []uint64
		for _, o := range g.All {
			if o != r {
				others = append(others, o.Name)
			}
		}
		if err := r.Store.SetMembers(others); err != nil {
			panic(err)
		}
	}
}

// Crash has a replica end without a word, and takes it out of the group; the others hear of that by Members.
func (g *Gossip) Crash(r *Gossiper) {
	r.Down = true
	for i, o := range g.All {
		if o == r {
			g.All = append(g.All[:i:i], g.All[i+1:]...)
		}
	}
}

// Copy has a replica that joins get what another knows.
func (r *Gossiper) Copy(from *Gossiper) {
	messages := from.Store.Copy(1200)
	link := r.Group.Link(from, r)
	link.Loss = 0 // a stream
	link.Send(func() {
		for i, m := range messages {
			if err := r.Store.Adopt(m, i == len(messages)-1); err != nil {
				panic(err)
			}
		}
	})
}

// Send implements gossip.Transport.
func (r *Gossiper) Send(to uint64, message []byte) {
	for _, o := range r.Group.All {
		if o.Name != to {
			continue
		}
		link := r.links[to]
		if link == nil {
			link = r.Group.Link(r, o)
			r.links[to] = link
		}
		sent := append([]byte(nil), message...)
		link.Send(func() {
			if !o.Down {
				if err := o.Store.Receive(sent); err != nil {
					panic(err) // it was written a moment ago
				}
			}
		})
	}
}

// To is the link to another replica, once something was sent.
func (r *Gossiper) To(to *Gossiper) *Link {
	link := r.links[to.Name]
	if link == nil {
		link = r.Group.Link(r, to)
		r.links[to.Name] = link
	}
	return link
}

// Request is a request that arrives. It reports whether it was admitted.
func (r *Gossiper) Request(shape rate.Shape, name key.Key, cost int64) bool {
	if r.Down {
		return false
	}
	var o bucket.Outcome
	return r.Store.Take(r.Clock.Now(), &bucket.Take{Key: name, Shape: shape, Cost: cost}, &o)
}
