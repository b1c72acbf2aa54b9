//go:build unix

package charge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// replica is one of the processes that share what a server keeps.
func replica(t *testing.T, server *redistest.Server, templates []string, rules []policy.Rule) *trial.Bench {
	t.Helper()
	conn := redistest.Dial(server.Socket)
	t.Cleanup(conn.Close)
	store, err := redis.New(redis.Options{Server: conn})
	if err != nil {
		t.Fatal(err)
	}
	names, err := key.NewNamer([]byte("a secret of replicas"))
	if err != nil {
		t.Fatal(err)
	}
	return trial.New(t, templates, rules, func(o *headgate.Options) { o.Buckets, o.Names = store, names })
}

func TestReplicasShareBuckets(t *testing.T) {
	server := redistest.Start(t)
	rules := []policy.Rule{
		{Endpoint: "default", Limit: 4, Per: time.Hour, Burst: 4, Scope: policy.Strict},
		{Endpoint: policy.All, Limit: 5, Per: time.Hour, Burst: 5, Scope: policy.Strict},
	}
	// Replicas may list the same endpoints in another order.
	a := replica(t, server, []string{"GET /a", "GET /b"}, rules)
	b := replica(t, server, []string{"GET /b", "GET /a"}, rules)
	for i, step := range []struct {
		at      *trial.Bench
		target  string
		allowed bool
	}{{a, "/a", true}, {b, "/a", true}, {a, "/a", true}, {b, "/a", true}, {a, "/a", false}, {b, "/a", false},
		{b, "/b", true}, {a, "/b", false}} {
		if d := step.at.Get(step.target); d.Allowed != step.allowed || d.Reason == headgate.StoreFailed {
			t.Fatalf("step %d: GET %s: %t, %v, want %t", i, step.target, d.Allowed, d.Reason, step.allowed)
		}
	}
}

func TestReplicasSettleAndResetSharedBuckets(t *testing.T) {
	server := redistest.Start(t)
	rules := []policy.Rule{{Endpoint: "default", Limit: 4, Per: time.Hour, Burst: 4, Scope: policy.Strict}}
	a, b := replica(t, server, []string{"GET /a"}, rules), replica(t, server, []string{"GET /a"}, rules)
	request := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 4}
	made, d := a.Reserve(context.Background(), request, time.Minute)
	if !d.Allowed || b.Get("/a").Allowed {
		t.Fatalf("after a reservation of all: %+v", d)
	}
	if _, err := a.Settle(context.Background(), made.ID, 3); err != nil {
		t.Fatal(err)
	}
	if !b.Get("/a").Allowed || b.Get("/a").Allowed {
		t.Fatal("of four, three were spent, so one is left")
	}
	if _, err := b.Reset(context.Background(), inspect.Query{Endpoint: "GET /a", Address: trial.Client},
		nil); err != nil {
		t.Fatal(err)
	}
	if !a.Get("/a").Allowed {
		t.Fatal("a reset by another replica was not seen")
	}
}

// What one replica gave to a shared bucket, another's reservation does not give to it again: others may have used it.
func TestReservationsGiveNothingThatAnotherReplicaGave(t *testing.T) {
	mine := inspect.Query{Endpoint: "GET /a", Address: trial.Client}
	reset := func(b *trial.Bench) error {
		_, err := b.Reset(context.Background(), mine, nil)
		return err
	}
	grant := func(amount int64) func(*trial.Bench) error {
		return func(b *trial.Bench) error {
			_, given, err := b.Grant(context.Background(), mine, amount, time.Time{}, nil)
			if err == nil && given != amount {
				return fmt.Errorf("%d given, want %d", given, amount)
			}
			return err
		}
	}
	for _, c := range []struct {
		name string
		give []func(*trial.Bench) error
		used int   // of what was given, by others
		late bool  // the reservation is made after it was given
		left int64 // of 10, of which 6 were reserved and 1 was spent
	}{
		{"nothing was given", nil, 0, false, 9},
		{"the bucket was filled", []func(*trial.Bench) error{reset}, 4, false, 6},
		{"it was filled before", []func(*trial.Bench) error{reset}, 0, true, 9},
		{"two tokens were given", []func(*trial.Bench) error{grant(2)}, 2, false, 7},
		{"two tokens were given, and two more", []func(*trial.Bench) error{grant(2), grant(2)}, 4, false, 5},
		{"two tokens were given, and all", []func(*trial.Bench) error{grant(2), reset}, 4, false, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t)
			rules := []policy.Rule{{Endpoint: "default", Limit: 10, Per: 1000 * time.Hour, Burst: 10,
				Scope: policy.Strict}}
			a, b := replica(t, server, []string{"GET /a"}, rules), replica(t, server, []string{"GET /a"}, rules)
			give := func() {
				t.Helper()
				for _, f := range c.give {
					if err := f(a); err != nil {
						t.Fatal(err)
					}
				}
			}
			if c.late {
				give()
			}
			made, d := b.Reserve(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client,
				Cost: 6}, time.Hour)
			if !d.Allowed {
				t.Fatal(d.Reason)
			}
			if !c.late {
				give()
				b.Now = b.Now.Add(time.Minute)
			}
			for range c.used {
				if !a.Get("/a").Allowed {
					t.Fatal("what was given is not there")
				}
			}
			if _, err := b.Settle(context.Background(), made.ID, 1); err != nil {
				t.Fatal(err)
			}
			in, err := a.Inspect(context.Background(), mine)
			if err != nil {
				t.Fatal(err)
			}
			if got := in.Buckets[0].Remaining; got != c.left {
				t.Errorf("%d are left, want %d", got, c.left)
			}
		})
	}
}

// Tokens that are given once are in the bucket that all replicas share. A larger burst for a time
// would be known to one of them alone: the others would deny what it promises, and each would
// convert the bucket for itself again and again.
func TestGrantsToSharedBucketsAreForAllReplicas(t *testing.T) {
	server := redistest.Start(t)
	rules := []policy.Rule{{Endpoint: "default", Limit: 4, Per: time.Hour, Burst: 4, Scope: policy.Strict}}
	a, b := replica(t, server, []string{"GET /a"}, rules), replica(t, server, []string{"GET /a"}, rules)
	for range 4 {
		a.Get("/a")
	}
	mine := inspect.Query{Endpoint: "GET /a", Address: trial.Client}
	_, _, err := a.Grant(context.Background(), mine, 10, trial.Epoch.Add(time.Hour), nil)
	want := `rule "default" is strict, and other processes would not know of a larger burst of its bucket: grant without an expiry, or set a rule that expires`
	var wrong *inspect.QueryError
	if !errors.As(err, &wrong) || err.Error() != want {
		t.Errorf("a grant for a time: %v, want %s", err, want)
	}
	if a.Get("/a").Allowed {
		t.Error("a grant that was refused gives tokens")
	}
	if _, given, err := a.Grant(context.Background(), mine, 2, time.Time{}, nil); err != nil || given != 2 {
		t.Fatalf("Grant(2) = %d, %v", given, err)
	}
	if !b.Get("/a").Allowed || !a.Get("/a").Allowed || b.Get("/a").Allowed {
		t.Error("of two tokens given at one replica, each has one, and none is left")
	}
}

// What is kept tells nothing of who it is about, and is short whatever clients send.
func TestSharedNamesTellNothing(t *testing.T) {
	server := redistest.Start(t)
	a := replica(t, server, []string{"POST /login"}, []policy.Rule{{
		Endpoint: "default",
		Limit:    4,
		Per:      time.Hour,
		Burst:    4,
		Subject:  policy.SubjectIdentifier,
		Scope:    policy.Strict,
	}})
	for _, account := range []string{"alice@example.org", strings.Repeat("long", 1000)} {
		if d := a.Check(context.Background(), headgate.Request{Method: "POST", Target: "/login", Peer: trial.Client,
			Identifier: account}); !d.Allowed {
			t.Fatal(d.Reason)
		}
	}
	names := server.Do("KEYS", "*").([]any)
	for _, name := range names {
		if n := name.(string); !strings.HasPrefix(n, "hg{") || len(n) != 14 || strings.Contains(n, "alice") {
			t.Errorf("a bucket is called %q, want hg{ and 11 bytes", n)
		}
	}
	slices.SortFunc(names, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	if len(slices.Compact(names)) != 2 {
		t.Errorf("two accounts have buckets %q", names)
	}
}
