package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// measure times every stage in this process while it serves its load.
func (p plan) measure() ([]Row, error) {
	s, err := p.start()
	if err != nil {
		return nil, err
	}
	defer s.stop()
	clock()
	stop := make(chan struct{})
	served := s.serveLoad(p.load, stop)
	rows, err := s.stages(p)
	close(stop)
	if n := <-served; err == nil && p.load > 0 && n == 0 {
		err = fmt.Errorf("none of the requests beside the measurement was answered")
	}
	return rows, err
}

// stages times one stage after the other, in the order in which a request meets them. Inputs are
// drawn before: what is timed is the stage.
func (s *process) stages(p plan) ([]Row, error) {
	var rows []Row
	add := func(name string, call func(i int)) { rows = append(rows, row(name, timed(p.samples, call))) }
	random := rand.New(rand.NewPCG(3, 4))

	matched := make([]endpoint.Match, 1<<12)
	paths := make([]target, len(matched))
	dirty := make([]string, len(matched))
	absent := make([]string, len(matched))
	for i := range paths {
		paths[i] = s.targets[random.IntN(len(s.targets))]
		matched[i] = s.endpoints.Match(paths[i].method, paths[i].path)
		dirty[i] = "/." + paths[i].path[:3] + "%6" + "1/../" + paths[i].path[1:] + "?page=2"
		absent[i] = paths[i].path[:len(paths[i].path)/2] + fmt.Sprintf("/none-%d", i)
		if matched[i].Status != endpoint.Known {
			return nil, fmt.Errorf("%v matches no template", paths[i])
		}
		if m := s.endpoints.Match(paths[i].method, absent[i]); m.Status == endpoint.Known {
			absent[i] = fmt.Sprintf("/none/%d", i)
		}
	}
	mask := len(paths) - 1
	add(rowMatch, func(i int) { sink.match = s.endpoints.Match(paths[i&mask].method, paths[i&mask].path) })
	add(rowDirty, func(i int) { sink.match = s.endpoints.Match(paths[i&mask].method, dirty[i&mask]) })
	add(rowMiss, func(i int) { sink.match = s.endpoints.Match("GET", absent[i&mask]) })

	peer := netip.MustParseAddr("203.0.113.9")
	byToken, err := s.tokens.evidence(peer, 1000)
	if err != nil {
		return nil, err
	}
	byKey := make([]identity.Evidence, 1000)
	byKeys := make([]identity.Evidence, len(s.keys))
	for i := range byKeys {
		byKeys[i] = identity.Evidence{Peer: peer, Header: http.Header{"X-Api-Key": {s.keys[i]}}}
	}
	copy(byKey, byKeys)
	order := random.Perm(len(byKeys))
	agent := http.Header{"User-Agent": {"curl/8"}, "Accept": {"*/*"}}
	hops := http.Header{"User-Agent": {"curl/8"}, "X-Forwarded-For": {"203.0.113.9, 10.1.2.3, 10.4.5.6"}}
	for _, e := range [...]struct {
		evidence identity.Evidence
		want     identity.Kind
	}{{byToken[0], identity.Token}, {byKey[0], identity.APIKey}} {
		if who := s.identities.Resolve(ctx, e.evidence); who.Kind != e.want {
			return nil, fmt.Errorf("a request is %v, want known by its %v", who, e.want)
		}
	}
	add(rowToken, func(i int) { sink.who = s.identities.Resolve(ctx, byToken[i%len(byToken)]) })
	fresh, err := s.tokens.fresh(min(p.samples, 20_000) * 11 / 10)
	if err != nil {
		return nil, err
	}
	rows = append(rows, row(rowTokenFirst, timed(len(fresh)*10/11, func(i int) {
		sink.claims, sink.err = s.tokens.verifier.Verify(ctx, fresh[i%len(fresh)])
	})))
	if sink.err != nil {
		return nil, sink.err
	}
	add(rowKey, func(i int) { sink.who = s.identities.Resolve(ctx, byKey[i%len(byKey)]) })
	add(rowKeys, func(i int) { sink.who = s.identities.Resolve(ctx, byKeys[order[i%len(order)]]) })
	add(rowPeer, func(int) { sink.who = s.identities.Resolve(ctx, identity.Evidence{Peer: peer, Header: agent}) })
	proxy := netip.MustParseAddr("10.7.8.9")
	add(rowHops, func(int) { sink.who = s.identities.Resolve(ctx, identity.Evidence{Peer: proxy, Header: hops}) })

	now := time.Now().UnixNano()
	set := s.policies.Set()
	applied := make([]policy.Applied, 0, policy.MaxApplied)
	owners := make([]string, len(paths))
	for i := range owners {
		owners[i] = s.projects[random.IntN(len(s.projects))]
	}
	add(rowLookup, func(i int) { applied = set.Resolve(applied[:0], now, matched[i&mask], owners[i&mask], "") })
	reloads := max(3, p.samples/20_000)
	rows = append(rows, row(rowReload, timed(reloads, func(int) { sink.err = s.policies.Reload(ctx) })))
	if sink.err != nil {
		return nil, sink.err
	}
	if err := s.consume(p, add, &rows); err != nil {
		return nil, err
	}
	s.whole(paths, byKeys, byToken, add)
	if err := s.overHTTP(p, &rows); err != nil {
		return nil, err
	}
	return rows, nil
}

// The results of calls go here, so that no compiler leaves a call out.
var sink struct {
	match    endpoint.Match
	who      identity.Principal
	claims   identity.Claims
	err      error
	decision headgate.Decision
}

// slow is a limit under which a bucket stays in debt for half a minute after one token, and denies nothing.
var slow = rate.Limit{Tokens: 1, Per: 30 * time.Second, Burst: 100_000_000}

// consume times a bucket's part: its key's hash, a reading of the clock, one token from the table.
func (s *process) consume(p plan, add func(string, func(int)), rows *[]Row) error {
	shape, err := rate.Compile(slow)
	if err != nil {
		return err
	}
	keys := key.NewHasher()
	worker := func(store *memory.Store, subject func(i int, dst []byte)) func(int) {
		takes, outs, text := []bucket.Take{{Shape: shape, Cost: 1}}, make([]bucket.Outcome, 1), make([]byte, 17)
		return func(i int) {
			subject(i, text)
			takes[0].Key = keys.Key(1, 1, text)
			_, sink.err = store.TryConsume(ctx, s.now(), takes, outs)
		}
	}
	one := func(int, []byte) {}
	number := func(i int, text []byte) {
		text[0], text[1], text[2], text[3] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24)
	}
	add(rowHot, worker(s.buckets, one))

	// Two goroutines, one key. Their times are one sample.
	both := make([][]float64, 2)
	var wait sync.WaitGroup
	for g := range both {
		wait.Add(1)
		call := contender(s, keys, shape)
		go func() { defer wait.Done(); both[g] = timed(p.samples/2, call) }()
	}
	wait.Wait()
	*rows = append(*rows, row(rowContended, append(both[0], both[1]...)))

	fill := worker(s.buckets, number)
	for i := range p.buckets {
		fill(i)
	}
	random := rand.New(rand.NewPCG(5, 6))
	order := make([]int32, 1<<20)
	for i := range order {
		order[i] = int32(random.IntN(p.buckets))
	}
	add(rowMany, func(i int) { fill(int(order[i&(1<<20-1)])) })

	small, err := memory.New(memory.Options{MaxBuckets: max(1<<10, p.samples/8)})
	if err != nil {
		return err
	}
	churn := worker(small, number)
	for i := range p.samples {
		churn(-1 - i)
	}
	add(rowChurn, churn)
	return sink.err
}

// contender takes tokens of the one key of rowHot, with buffers of its own.
func contender(s *process, keys *key.Hasher, shape rate.Shape) func(int) {
	takes, outs, text := []bucket.Take{{Shape: shape, Cost: 1}}, make([]bucket.Outcome, 1), make([]byte, 17)
	return func(int) {
		takes[0].Key = keys.Key(1, 1, text)
		_, _ = s.buckets.TryConsume(ctx, s.now(), takes, outs)
	}
}

// now is the clock as Limiter reads it.
func (s *process) now() int64 { return anchor + int64(time.Since(base)) }

var anchor = base.UnixNano()

// whole times all stages together, as a library's user and as a handler's meets them.
func (s *process) whole(paths []target, byKeys, byToken []identity.Evidence, add func(string, func(int))) {
	mask := len(paths) - 1
	requests := func(from func(i int) identity.Evidence) func(int) {
		return func(i int) {
			e := from(i)
			t := &paths[(i%1000+i/1000%16)&mask] // 16 endpoints for each caller
			sink.decision = s.limiter.Check(ctx, headgate.Request{Method: t.method, Target: t.path, Peer: e.Peer,
				Header: e.Header})
		}
	}
	agent := http.Header{"User-Agent": {"curl/8"}, "Accept": {"*/*"}}
	add(rowCheckPeer, requests(func(i int) identity.Evidence {
		return identity.Evidence{
			Peer:   netip.AddrFrom4([4]byte{198, 51, byte(i % 1000 >> 8), byte(i % 1000)}),
			Header: agent,
		}
	}))
	add(rowCheckKey, requests(func(i int) identity.Evidence { return byKeys[i%1000] }))
	add(rowCheckToken, requests(func(i int) identity.Evidence { return byToken[i%len(byToken)] }))

	handler := httplimit.Handler(s.limiter, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		httplimit.Options{})
	recorder := httptest.NewRecorder()
	served := make([]*http.Request, len(paths))
	for i, t := range paths {
		served[i] = httptest.NewRequest(t.method, t.path, nil)
		served[i].Header = agent
		served[i].RemoteAddr = fmt.Sprintf("198.51.100.%d:4711", i&255)
	}
	add(rowHandler, func(i int) {
		clear(recorder.Header())
		handler.ServeHTTP(recorder, served[i&mask])
	})
}

// overHTTP times requests over a connection, with the limiter and without it, in turns of a
// hundred. What the limiter adds is the difference of the percentiles: no single request can be
// sent both ways.
func (s *process) overHTTP(p plan, rows *[]Row) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	defer client.CloseIdleConnections()
	var failed error
	var spent [2][]float64
	turns := max(4, p.samples/10_000)
	for turn := range 2 * turns {
		way := turn % 2
		spent[way] = append(spent[way], timed(100, func(i int) {
			t := s.targets[(turn/2*100+i)%len(s.targets)]
			if err := get(client, s.urls[way], t, s.keys[i%1000]); err != nil && failed == nil {
				failed = err
			}
		})...)
	}
	without, with := row(rowWithout, spent[0]), row(rowWith, spent[1])
	added := Row{
		Name:    rowAdded,
		P50:     with.P50 - without.P50,
		P95:     with.P95 - without.P95,
		P99:     with.P99 - without.P99,
		Samples: with.Samples,
	}
	*rows = append(*rows, without, with, added)
	return failed
}
