package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// Check is what the requests of one process notice: while nothing else goes on; while another
// process loads the same rules again and again, so that the machine is as busy and this process
// does nothing for it; and while this one loads them. All are medians of the phases, the ratios of those
// that followed each other: what else the machine does in one of them then moves little.
type Check struct {
	Quiet, Beside, Reloading Times
	ByQuiet, ByBeside        Times // reloading divided by these
	Reloads                  int
}

// gateway is a limiter over the rules of a database.
type gateway struct {
	rules   *policy.Cache
	limiter *headgate.Limiter
	keys    []string
	close   func() error
}

// callers is how many API keys make requests.
const callers = 1000

func (p plan) newGateway(o policy.CacheOptions) (_ *gateway, err error) {
	g := &gateway{close: func() error { return nil }}
	endpoints, err := table()
	if err != nil {
		return nil, err
	}
	if o.Source == nil {
		s, err := p.at.open()
		if err != nil {
			return nil, err
		}
		o.Source, g.close = s, s.Close
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	o.Compile.Endpoints = endpoints
	copies, err := os.MkdirTemp("", "policies-")
	if err != nil {
		return nil, err
	}
	closed := g.close
	g.close = func() error { return errors.Join(closed(), os.RemoveAll(copies)) }
	o.LastGood = filepath.Join(copies, "last-good.json")
	if g.rules, err = policy.NewCache(o); err != nil {
		return nil, err
	}
	if err := g.rules.Start(ctx); err != nil {
		return nil, err
	}
	return g, g.newLimiter(endpoints, p.at.Rules)
}

func (g *gateway) newLimiter(endpoints *endpoint.Table, rules int) error {
	digester, err := identity.NewDigester(make([]byte, identity.MinSecretLength))
	if err != nil {
		return err
	}
	records := make([]identity.KeyRecord, callers)
	for i := range records {
		text, err := identity.NewKey()
		if err != nil {
			return err
		}
		g.keys = append(g.keys, text)
		records[i] = identity.KeyRecord{
			Digest: digester.Digest(text), Key: identity.Key{ID: fmt.Sprintf("k_%020d", i),
				Project: project(i % max(1, rules/1000))},
		}
	}
	ring := &identity.Keyring{}
	if err := ring.Replace(records); err != nil {
		return err
	}
	identities, err := identity.New(identity.Options{Keys: ring, Digester: digester})
	if err != nil {
		return err
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 20})
	if err != nil {
		return err
	}
	g.limiter, err = headgate.New(headgate.Options{
		Endpoints: endpoints, Policies: g.rules, Buckets: buckets, Identities: identities,
		Unknown: headgate.LimitUnknown,
	})
	return err
}

// requests are callers' at endpoints, in an order that repeats late.
func (g *gateway) requests() []headgate.Request {
	// A caller's requests share their header: a process that serves has few at a time, and what is kept
	// here the collector looks through while rules are loaded.
	headers := make([]http.Header, len(g.keys))
	for i, key := range g.keys {
		headers[i] = http.Header{"X-Api-Key": {key}}
	}
	requests := make([]headgate.Request, 1<<14)
	peer := netip.AddrFrom4([4]byte{198, 51, 100, 7})
	for i := range requests {
		requests[i] = headgate.Request{
			Method: "GET", Target: fmt.Sprintf("/v1/service%d/items/1Mv9qGZ2eZvKYlo2", i*7%endpoints), Peer: peer,
			Header: headers[i%len(headers)],
		}
	}
	return requests
}

// measureCheck times every decision of one caller after the other, in phases of each kind in turn.
func (p plan) measureCheck() (found Check, err error) {
	g, err := p.newGateway(policy.CacheOptions{})
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	requests := g.requests()
	decide := func(into *Times) func() error {
		return func() (err error) { *into, err = p.decide(g, requests); return err }
	}
	if err := decide(new(Times))(); err != nil { // as after some time of running
		return found, err
	}
	phases := make([]Check, p.phases)
	for i := range phases {
		c := &phases[i]
		err := errors.Join(decide(&c.Quiet)(), p.besideLoads(decide(&c.Beside)))
		n, failed := g.duringLoads(decide(&c.Reloading))
		if err := errors.Join(err, failed); err != nil {
			return found, err
		}
		c.ByQuiet, c.ByBeside = c.Reloading.by(c.Quiet), c.Reloading.by(c.Beside)
		found.Reloads += n
	}
	for _, of := range []func(*Check) *Times{
		func(c *Check) *Times { return &c.Quiet }, func(c *Check) *Times { return &c.Beside },
		func(c *Check) *Times { return &c.Reloading },
		func(c *Check) *Times { return &c.ByQuiet }, func(c *Check) *Times { return &c.ByBeside },
	} {
		*of(&found) = medians(phases, of)
	}
	return found, nil
}

// duringLoads runs do while the rules are loaded again and again, and reports how often.
func (g *gateway) duringLoads(do func() error) (loads int, err error) {
	stop, failed := make(chan struct{}), error(nil)
	var loader sync.WaitGroup
	loader.Go(func() { loads, failed = g.load(stop) })
	err = do()
	close(stop)
	loader.Wait()
	return loads, errors.Join(err, failed)
}

// load loads the rules again and again, once at least, until it is told to stop, and reports how often.
func (g *gateway) load(stop <-chan struct{}) (loads int, err error) {
	for {
		if err := g.rules.Reload(ctx); err != nil {
			return loads, err
		}
		loads++
		select {
		case <-stop:
			return loads, nil
		default:
		}
	}
}

// decide makes decisions for a phase, and says how long they took.
func (p plan) decide(g *gateway, requests []headgate.Request) (Times, error) {
	into, begin := new(spent), time.Now()
	last := time.Duration(0)
	for i := 0; last < p.phase; i++ {
		decision := g.limiter.Check(ctx, requests[i&(len(requests)-1)])
		now := time.Since(begin)
		into.add(now - last)
		if !decision.Allowed || decision.Principal.Kind != identity.APIKey {
			return Times{}, fmt.Errorf("a decision is %v of %v, want allowed of an API key", decision.Reason,
				decision.Principal)
		}
		last = time.Since(begin) // what the note took is nobody's
	}
	return into.times(), nil
}
