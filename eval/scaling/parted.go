package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gossip"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/group"
)

// Gateways that tell each other what they admitted do it through a network that fails.
const (
	partedLimit = 100 // tokens a second, and burst
	partedOver  = 3   // how many times the limit is sent
	partedCount = 4   // gateways
)

// trouble is what happens between gateways amid a load.
type trouble struct {
	name  string
	lasts time.Duration
	sky   func(from, to int) weather
	hours func(i int) int                        // by which the wall clock of a gateway is wrong
	with  func(*parted) (stop func(), err error) // what else goes on
	most  int                                    // percent of a limit that one gateway may claim
}

func losing(part float64) func(int, int) weather {
	return func(_, _ int) weather { return weather{loss: part} }
}

var allTroubles = []trouble{
	{name: "nothing"},
	{name: "10 % lost", sky: losing(0.1)},
	{name: "30 % lost", sky: losing(0.3)},
	{name: "50 % lost", sky: losing(0.5)},
	{name: "100 to 150 ms late", sky: func(_, _ int) weather {
		return weather{delay: 100 * time.Millisecond, jitter: 50 * time.Millisecond}
	}},
	{name: "one half parted from the other", lasts: 10 * time.Second, sky: func(from, to int) weather {
		return weather{cut: from >= 0 && from < partedCount/2 != (to < partedCount/2)}
	}},
	{name: "one is not heard", lasts: 5 * time.Second, sky: func(from, _ int) weather {
		return weather{cut: from == 0}
	}},
	{name: "one hears nobody", lasts: 5 * time.Second, sky: func(_, to int) weather {
		return weather{cut: to == 0}
	}},
	{name: "clocks hours apart", hours: func(i int) int { return []int{0, 1, -1, 24}[i%4] }},
	{name: "composed at random", lasts: 20 * time.Second, with: (*parted).composed},
	// It claims all of the limit, and more without end.
	{name: "one lies", with: (*parted).liar, most: 100},
	// Nobody may claim more than is its due among four that are honest and one that is not.
	{name: "one lies, and may claim 25 %", with: (*parted).liar, most: 25},
}

// parted is a fleet whose gateways tell each other over wires.
type parted struct {
	*field
	wires *wires
	fleet *fleet
	seed  uint64
}

// troubles lets each happen to gateways, one after the other; those that lie meet a fleet of their own.
func (f *field) troubles(which []trouble, seed uint64) (found []Unrest, err error) {
	fleets := map[int]*parted{}
	defer func() {
		for _, p := range fleets {
			p.fleet.stop()
			p.wires.close()
		}
	}()
	for _, one := range which {
		if one.lasts == 0 {
			one.lasts = 4 * time.Second
		}
		p := fleets[one.most]
		if p == nil {
			if p, err = f.part(one.most, seed); err != nil {
				return nil, err
			}
			fleets[one.most] = p
		}
		u, err := p.happen(one)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		f.progress("%v", u)
		found = append(found, u)
	}
	return found, nil
}

// part starts gateways of which each may claim so many percent of a limit; 0 is as they have it.
func (f *field) part(most int, seed uint64) (p *parted, err error) {
	p = &parted{field: f, seed: seed}
	if p.wires, err = newWires(partedCount); err != nil {
		return nil, err
	}
	if p.wires.most = most; most == 0 {
		p.wires.most = 100
	}
	p.fleet, err = startFleet(partedCount, f.api.URL, f.store.address, "", partedLimit,
		[][2]string{{"/gossip", "scope: gossip"}}, p.wires)
	if err != nil {
		p.wires.close()
		return nil, err
	}
	for i, g := range p.fleet.gateways {
		p.wires.ends[i].pid.Store(int64(g.PID()))
	}
	return p, nil
}

func (p *parted) happen(what trouble) (u Unrest, err error) {
	if err := p.fleet.agree("headgate_gossip_replicas"); err != nil {
		return u, err
	}
	p.rest("gossip", partedCount)
	if what.hours != nil {
		for i, g := range p.fleet.gateways {
			if err := setClock(g, time.Duration(what.hours(i))*time.Hour); err != nil {
				return u, err
			}
			defer func() { err = errors.Join(err, setClock(g, 0)) }()
		}
	}
	p.api.take("/gossip")
	span := before + what.lasts + after
	var done sync.WaitGroup
	var load1 sent
	began, came := time.Now(), time.Since(p.api.began)
	done.Go(func() {
		load1 = load(span, partedOver*partedLimit, p.fleet.ways(p.client, "/gossip"), traffics[0])
	})
	time.Sleep(time.Until(began.Add(before)))
	stop := func() {}
	if what.sky != nil {
		p.wires.set(what.sky)
	}
	if what.with != nil {
		stop, err = what.with(p)
	}
	time.Sleep(time.Until(began.Add(before + what.lasts)))
	if stop != nil {
		stop()
	}
	p.wires.clear()
	done.Wait()
	if err != nil {
		return u, err
	}
	return p.unrest(what.name, answer{"/gossip", "gossip", ""}, partedCount, partedLimit, load1, came+before,
		came+before+what.lasts)
}

// composed draws another weather for every way, again and again, from the seed.
func (p *parted) composed() (stop func(), err error) {
	r := rand.New(rand.NewPCG(p.seed, 18))
	ctx, end := context.WithCancel(context.Background())
	var drawing sync.WaitGroup
	drawing.Go(func() {
		for ctx.Err() == nil {
			var ways [partedCount][partedCount]weather
			for i := range ways {
				for j := range ways[i] {
					switch r.IntN(6) {
					case 0:
						ways[i][j].cut = true
					case 1:
						ways[i][j].loss = r.Float64() / 2
					case 2:
						ways[i][j].delay = time.Duration(r.IntN(100)) * time.Millisecond
						ways[i][j].jitter = time.Duration(r.IntN(50)) * time.Millisecond
					}
				}
			}
			p.wires.set(func(from, to int) weather {
				if from < 0 || to < 0 {
					return weather{}
				}
				return ways[from][to]
			})
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(200+r.IntN(1800)) * time.Millisecond):
			}
		}
	})
	return func() { end(); drawing.Wait() }, nil
}

// liar is one more member, which has the secret and serves nobody. It charges every bucket that it hears of,
// without end, and tells the others.
func (p *parted) liar() (stop func(), err error) {
	secrets, err := database.ReadSecrets(filepath.Join(p.fleet.dir, secretName), nil)
	if err != nil {
		return nil, err
	}
	g, err := group.New(group.Options{Listen: "127.0.0.1:0", Join: p.wires.fronts(), Secret: secrets.Current})
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	running.Go(func() {
		for tick := time.NewTicker(g.Store().Interval()); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				lie(g.Store())
			}
		}
	})
	return func() { end(); running.Wait() }, nil
}

// lie charges all buckets that a store knows a burst.
func lie(s *gossip.Store) {
	for _, m := range s.Copy(1200) {
		if len(m) < 18+2+16 {
			continue // none
		}
		entry := m[18:] // past a version, a kind and two names
		number := func() int64 {
			n, length := binary.Uvarint(entry)
			entry = entry[length:]
			return int64(n)
		}
		_, _ = number(), number()
		name := key.Key{Hi: binary.BigEndian.Uint64(entry), Lo: binary.BigEndian.Uint64(entry[8:])}
		entry = entry[16:]
		shape := rate.Shape{Drain: number(), Unit: number()}
		shape.Capacity, shape.Tick = number()*shape.Unit, number()
		s.Correct(s.Now(), &bucket.Change{Key: name, Shape: shape, Units: shape.Capacity})
	}
}
