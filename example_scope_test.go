package headgate_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// begin: scoped
// newReplica is one of several processes that share buckets on a server.
func newReplica(server redis.Evaler, secret []byte, replicas func() int, endpoints *endpoint.Table,
	rules []policy.Rule) (*headgate.Limiter, error) {
	local, err := memory.New(memory.Options{})
	if err != nil {
		return nil, err
	}
	shared, err := redis.New(redis.Options{Server: server})
	if err != nil {
		return nil, err
	}
	buckets, err := scoped.New(scoped.Options{
		Local: local, Strict: shared, Replicas: replicas,
		Changed: func(one scoped.Server, _ scoped.Status) { log.Printf("the shared store is lost: %t", one.Lost) },
	})
	if err != nil {
		return nil, err
	}
	names, err := key.NewNamer(secret) // the same at all replicas
	if err != nil {
		return nil, err
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		return nil, err
	}
	set, problems := policy.Compile(policy.Document{Rules: rules}, policy.CompileOptions{
		Endpoints: endpoints, Shared: true,
		Keeps: func(sh rate.Shape) error { _, err := redis.Coarsen(sh); return err },
	})
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return headgate.New(headgate.Options{
		Endpoints: endpoints, Policies: headgate.Fixed(set), Identities: who, Buckets: buckets, Names: names,
	})
}

// end: scoped

// away is a server that answers nobody.
type away struct{}

func (away) Eval(context.Context, string, string, []string, []string) (any, error) {
	return nil, fmt.Errorf("connection refused")
}

// A rule that is open while the shared store is lost lets requests pass, once it is certain that it is.
func Example_scopes() {
	log.SetFlags(0)
	payments, err := endpoint.ParseTemplate("POST /v1/payments")
	if err != nil {
		fmt.Println(err)
		return
	}
	endpoints, err := endpoint.Compile([]endpoint.Template{payments}, endpoint.Profile{})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := newReplica(away{}, []byte("a secret of sixteen or more bytes"), func() int { return 2 }, endpoints,
		[]policy.Rule{
			{Endpoint: policy.Default, Limit: 10, Per: time.Minute, Scope: policy.Strict, OnStoreLoss: policy.LossOpen},
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 6 {
		d := limiter.Check(context.Background(),
			headgate.Request{Method: "POST", Target: "/v1/payments", Peer: netip.MustParseAddr("192.0.2.1")})
		fmt.Println(d.Allowed, d.Reason)
	}
	// Output:
	// false store_failed
	// false store_failed
	// false store_failed
	// false store_failed
	// false store_failed
	// true within_limits
}
