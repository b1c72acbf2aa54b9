package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/openapi"
	"github.com/headgate-io/headgate/server/record"
)

// process is a gateway's parts, running.
type process struct {
	endpoints  *endpoint.Table
	targets    []target // one of each template
	projects   []string
	store      *database.Store
	policies   *policy.Cache
	keys       []string // texts of API keys in the ring
	tokens     *tokens
	identities *identity.Resolver
	buckets    *memory.Store
	limiter    *headgate.Limiter

	with, without *http.Server // the same handler, limited and not
	urls          [2]string
	dir           string
}

// target is a request that a template matches.
type target struct{ method, path string }

var ctx = context.Background()

// start makes everything that a request meets, as `headgate serve` does, and an HTTP server around it.
func (p plan) start() (_ *process, err error) {
	s := &process{}
	if s.dir, err = os.MkdirTemp("", "headgate-overhead-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	for _, part := range []func(plan) error{s.openEndpoints, s.openPolicies, s.openIdentities,
		s.openLimiter, s.listen} {
		if err := part(p); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *process) stop() {
	for _, server := range []*http.Server{s.with, s.without} {
		if server != nil {
			_ = server.Close()
		}
	}
	if s.store != nil {
		_ = s.store.Close()
	}
	_ = os.RemoveAll(s.dir)
}

// openEndpoints reads the two real APIs whose templates the process knows.
func (s *process) openEndpoints(plan) error {
	docs, err := page.Docs()
	if err != nil {
		return err
	}
	data := filepath.Join(docs, "..", "..", "server", "openapi", "testdata")
	operations, err := openapi.Load(filepath.Join(data, "stripe-spec3.json.gz"),
		filepath.Join(data, "digitalocean-public.v2.yaml.gz"))
	if err != nil {
		return err
	}
	templates := openapi.Templates(operations)
	if s.endpoints, err = endpoint.Compile(templates, endpoint.Profile{}); err != nil {
		return err
	}
	for _, t := range templates {
		s.targets = append(s.targets, request(t))
	}
	return nil
}

// request is one that the template matches: parameters become identifiers of the length that real ones have.
func request(t endpoint.Template) target {
	path := make([]byte, 0, 80)
	inside := false
	for _, c := range []byte(t.Path()) {
		switch {
		case c == '{':
			inside = true
			path = append(path, "1Mv9qGZ2eZvKYlo2"...)
		case c == '}':
			inside = false
		case !inside:
			path = append(path, c)
		}
	}
	return target{t.Method(), string(path)}
}

const (
	tenants = 2000
	roomy   = 1e9 // tokens a second: nothing is denied, what is measured is the way
)

// openPolicies fills a database with defaults and overrides of tenants, and loads it.
func (s *process) openPolicies(p plan) (err error) {
	document := policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: roomy},
		{Endpoint: policy.UnknownEndpoint, Limit: roomy}}}
	for i := range tenants {
		s.projects = append(s.projects, fmt.Sprintf("project-%04d", i))
	}
	each := (p.rules + tenants - 1) / tenants
	for i := range p.rules {
		at := (i/tenants + i%tenants) % s.endpoints.Len() // neighbours override different endpoints
		if i/tenants >= each {
			break
		}
		document.Rules = append(document.Rules, policy.Rule{
			Endpoint: s.endpoints.Template(endpoint.ID(at + 1)).String(), Project: s.projects[i%tenants],
			Limit: roomy * int64(1+i%7),
		})
	}
	if s.store, err = database.Open(ctx, "sqlite:"+filepath.Join(s.dir, "headgate.db")); err != nil {
		return err
	}
	if err = s.store.Import(ctx, record.Author{Actor: "eval"}, document, true); err != nil {
		return err
	}
	s.policies, err = policy.NewCache(policy.CacheOptions{Source: s.store,
		Compile: policy.CompileOptions{Endpoints: s.endpoints}})
	if err != nil {
		return err
	}
	return s.policies.Start(ctx)
}

// openIdentities fills a ring of API keys, and opens a verifier of tokens.
func (s *process) openIdentities(p plan) error {
	secret := make([]byte, identity.MinSecretLength)
	digester, err := identity.NewDigester(secret)
	if err != nil {
		return err
	}
	records := make([]identity.KeyRecord, p.keys)
	for i := range records {
		text, err := identity.NewKey()
		if err != nil {
			return err
		}
		s.keys = append(s.keys, text)
		records[i] = identity.KeyRecord{
			Digest: digester.Digest(text), Key: identity.Key{ID: fmt.Sprintf("k_%020d", i),
				Project: s.projects[i%tenants]},
		}
	}
	ring := &identity.Keyring{}
	if err := ring.Replace(records); err != nil {
		return err
	}
	if s.tokens, err = openTokens(s.dir, s.projects); err != nil {
		return err
	}
	s.identities, err = identity.New(identity.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8")},
		Keys:           ring, Digester: digester, Tokens: s.tokens.verifier,
	})
	return err
}

func (s *process) openLimiter(p plan) (err error) {
	if s.buckets, err = memory.New(memory.Options{MaxBuckets: p.buckets * 5 / 4}); err != nil {
		return err
	}
	s.limiter, err = headgate.New(headgate.Options{
		Endpoints: s.endpoints, Policies: s.policies, Buckets: s.buckets, Identities: s.identities,
		Unknown: headgate.LimitUnknown,
	})
	return err
}

// listen serves the same answer twice: behind the limiter and without it.
func (s *process) listen(plan) error {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	for i, handler := range []http.Handler{answer, httplimit.Handler(s.limiter, answer, httplimit.Options{})} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: handler}
		go func() { _ = server.Serve(listener) }()
		s.urls[i] = "http://" + listener.Addr().String()
		if i == 0 {
			s.without = server
		} else {
			s.with = server
		}
	}
	return nil
}

// serveLoad sends requests with API keys at a steady rate until stop is closed, and reports how many were answered.
func (s *process) serveLoad(perSecond int, stop <-chan struct{}) <-chan int {
	done := make(chan int, 1)
	if perSecond == 0 {
		done <- 0
		return done
	}
	go func() {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		random := rand.New(rand.NewPCG(1, 2))
		answered := 0
		for {
			select {
			case <-stop:
				client.CloseIdleConnections()
				done <- answered
				return
			case <-tick.C:
				t := s.targets[random.IntN(len(s.targets))]
				if get(client, s.urls[1], t, s.keys[random.IntN(len(s.keys))]) == nil {
					answered++
				}
			}
		}
	}()
	return done
}

func get(client *http.Client, base string, t target, key string) error {
	r, err := http.NewRequest(t.method, base+t.path, nil)
	if err != nil {
		return err
	}
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s, want 200", t.method, t.path, response.Status)
	}
	return nil
}
