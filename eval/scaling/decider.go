package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	servers "github.com/headgate-io/headgate/server/redis"
)

// decider is Headgate's decision as a program has it that links the library: one rule of scope
// strict, a bucket for each address.
type decider struct {
	limiter *headgate.Limiter
	client  *servers.Client
}

func newDecider(store string) (d *decider, err error) {
	d = &decider{}
	if d.client, err = servers.Dial(servers.Options{Addresses: []string{store}}); err != nil {
		return nil, err
	}
	shared, err := d.client.Buckets("cpu")
	if err != nil {
		return nil, err
	}
	local, err := memory.New(memory.Options{})
	if err != nil {
		return nil, err
	}
	places, err := scoped.New(scoped.Options{Local: local, Strict: shared, Deadline: patience})
	if err != nil {
		return nil, err
	}
	items, err := endpoint.ParseTemplate("GET /v1/items")
	if err != nil {
		return nil, err
	}
	endpoints, err := endpoint.Compile([]endpoint.Template{items}, endpoint.Profile{})
	if err != nil {
		return nil, err
	}
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
		{
			Endpoint: "GET /v1/items",
			Limit:    1_000_000,
			Per:      time.Second,
			Subject:  policy.SubjectIP,
			Scope:    policy.Strict,
		},
	}}, policy.CompileOptions{Endpoints: endpoints, Shared: true})
	if err := problems.Err(); err != nil {
		return nil, err
	}
	names, err := key.NewNamer([]byte("a secret of sixteen or more bytes"))
	if err != nil {
		return nil, err
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		return nil, err
	}
	d.limiter, err = headgate.New(headgate.Options{
		Endpoints:  endpoints,
		Policies:   headgate.Fixed(set),
		Identities: who,
		Buckets:    places,
		Names:      names,
	})
	return d, err
}

// patience is how long a decision waits for the store here, where both processors are busy on purpose.
const patience = 2 * time.Second

// decide is one decision about the bucket of a random address.
func (d *decider) decide() error {
	got := d.limiter.Check(context.Background(),
		headgate.Request{Method: http.MethodGet, Target: "/v1/items", Peer: somebody()})
	if !got.Allowed {
		return fmt.Errorf("%w: %v", errNotAllowed, got.Reason)
	}
	return nil
}

var errNotAllowed = errors.New(
	"a decision is not to let through what no limit forbids: the measurement compares different work")

// subjects is how many keys, or addresses, decisions are about.
const subjects = 10_000

// somebody is a random address of them.
func somebody() netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 192<<24+uint32(rand.IntN(subjects)))
	return netip.AddrFrom4(a)
}

// clientField names the address that a request over HTTP is decided for.
const clientField = "X-Client"

// serve answers requests over HTTP with a decision each, until listening fails.
func (d *decider) serve(l net.Listener) error {
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	return http.Serve(l, httplimit.Handler(d.limiter, answer, httplimit.Options{
		Peer: func(r *http.Request) netip.Addr { a, _ := netip.ParseAddr(r.Header.Get(clientField)); return a },
	}))
}
