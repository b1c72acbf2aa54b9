package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// Check is what requests notice of reloads, in one process.
type Check struct {
	Quiet, Reloading Times
	Reloads          int
}

// Times are percentiles of one decision, in microseconds.
type Times struct {
	P50, P99, P999 float64
	Samples        int
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
			Digest: digester.Digest(text), Key: identity.Key{ID: fmt.Sprintf("k_%020d", i), Project: project(i % max(1, rules/1000))},
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
		Endpoints: endpoints, Policies: g.rules, Buckets: buckets, Identities: identities, Unknown: headgate.LimitUnknown,
	})
	return err
}

// requests are callers' at endpoints, in an order that repeats late.
func (g *gateway) requests() []headgate.Request {
	requests := make([]headgate.Request, 1<<14)
	peer := netip.AddrFrom4([4]byte{198, 51, 100, 7})
	for i := range requests {
		requests[i] = headgate.Request{
			Method: "GET", Target: fmt.Sprintf("/v1/service%d/items/1Mv9qGZ2eZvKYlo2", i*7%endpoints), Peer: peer,
			Header: http.Header{"X-Api-Key": {g.keys[i%len(g.keys)]}},
		}
	}
	return requests
}

// measureCheck times every decision of one caller after the other, in phases in which nothing else goes on and in phases in which the rules
// are loaded again and again.
func (p plan) measureCheck() (found Check, err error) {
	g, err := p.newGateway(policy.CacheOptions{})
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	requests := g.requests()
	p.decide(g, requests, p.phase, nil) // as after some time of running
	var quiet, reloading []float64
	for range p.phases {
		if quiet, err = p.decide(g, requests, p.phase, quiet); err != nil {
			return found, err
		}
		stop, failed := make(chan struct{}), error(nil)
		var loader sync.WaitGroup
		loader.Go(func() {
			for failed == nil {
				select {
				case <-stop:
					return
				default:
					failed = g.rules.Reload(ctx)
					found.Reloads++
				}
			}
		})
		reloading, err = p.decide(g, requests, p.phase, reloading)
		close(stop)
		loader.Wait()
		if err := errors.Join(err, failed); err != nil {
			return found, err
		}
	}
	found.Quiet, found.Reloading = times(quiet), times(reloading)
	return found, nil
}

// decide makes decisions for some time and appends how long each took, in nanoseconds.
func (p plan) decide(g *gateway, requests []headgate.Request, during time.Duration, spent []float64) ([]float64, error) {
	begin := time.Now()
	last := time.Duration(0)
	for i := 0; last < during; i++ {
		decision := g.limiter.Check(ctx, requests[i&(len(requests)-1)])
		now := time.Since(begin)
		spent, last = append(spent, float64(now-last)), now
		if !decision.Allowed || decision.Principal.Kind != identity.APIKey {
			return spent, fmt.Errorf("a decision is %v of %v, want allowed of an API key", decision.Reason, decision.Principal)
		}
		last = time.Since(begin) // what append took is nobody's
	}
	return spent, nil
}

func times(spent []float64) Times {
	slices.Sort(spent)
	at := func(share float64) float64 { return spent[min(len(spent)-1, int(share*float64(len(spent))))] / 1000 }
	return Times{at(0.50), at(0.99), at(0.999), len(spent)}
}
