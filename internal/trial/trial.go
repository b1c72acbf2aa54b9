// Package trial holds what tests of a Limiter have in common.
package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// Bench is a Limiter with everything around it in the test's hands.
type Bench struct {
	*headgate.Limiter
	Table   *endpoint.Table
	Buckets *memory.Store
	Now     time.Time
}

var Epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// New compiles rules for templates; change adjusts the options.
func New(t testing.TB, templates []string, rules []policy.Rule, change ...func(*headgate.Options)) *Bench {
	t.Helper()
	b := &Bench{Table: Compile(t, templates), Now: Epoch}
	var err error
	if b.Buckets, err = memory.New(memory.Options{MaxBuckets: 1 << 12}); err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := headgate.Options{
		Endpoints: b.Table, Buckets: b.Buckets, Identities: who,
		Now: func() time.Time { return b.Now },
	}
	for _, c := range change {
		c(&o)
	}
	if o.Policies == nil {
		set, problems := policy.Compile(policy.Document{Rules: rules},
			policy.CompileOptions{Endpoints: b.Table, Now: Epoch, Costs: o.Costs})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		o.Policies, o.Costs = headgate.Fixed(set), nil
	}
	if b.Limiter, err = headgate.New(o); err != nil {
		t.Fatal(err)
	}
	return b
}

func Compile(t testing.TB, templates []string) *endpoint.Table {
	t.Helper()
	parsed := make([]endpoint.Template, len(templates))
	for i, text := range templates {
		var err error
		if parsed[i], err = endpoint.ParseTemplate(text); err != nil {
			t.Fatal(err)
		}
	}
	table, err := endpoint.Compile(parsed, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

var Client = netip.MustParseAddr("192.0.2.7")

func (b *Bench) Get(target string) headgate.Decision {
	return b.Check(context.Background(), headgate.Request{Method: "GET", Target: target, Peer: Client})
}

func (b *Bench) Take(cost int64) headgate.Decision {
	return b.Check(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: Client, Cost: cost})
}

func (b *Bench) MustReserve(t testing.TB, cost int64) headgate.Reservation {
	t.Helper()
	made, d := b.TryReserve(cost, time.Minute)
	if !d.Allowed || made.ID == (reservation.ID{}) || made.Cost != d.Cost {
		t.Fatalf("Reserve(%d) = %+v, %v, want a reservation", cost, made, d.Reason)
	}
	return made
}

func (b *Bench) TryReserve(cost int64, timeout time.Duration) (headgate.Reservation, headgate.Decision) {
	return b.Reserve(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: Client, Cost: cost},
		timeout)
}

func (b *Bench) MustSettle(t testing.TB, id reservation.ID, actual int64) reservation.Settlement {
	t.Helper()
	s, err := b.Settle(context.Background(), id, actual)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TokensLeft reports what remains of the first rule's bucket.
func (b *Bench) TokensLeft() int64 {
	x := b.Explain(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: Client})
	if x.Verdict.Allowed {
		return x.Buckets[0].Remaining + x.Cost // Explain tells what would be left
	}
	return x.Buckets[0].Remaining
}

func (b *Bench) Explain(ctx context.Context, r headgate.Request) inspect.Explanation {
	return inspect.Explain(ctx, b.Limiter, r)
}

func (b *Bench) Inspect(ctx context.Context, q inspect.Query) (inspect.Found, error) {
	return inspect.Find(ctx, b.Limiter, q)
}

func (b *Bench) Reset(ctx context.Context, q inspect.Query, approve inspect.Approve) (inspect.Bucket, error) {
	return inspect.Reset(ctx, b.Limiter, q, approve)
}

func (b *Bench) Grant(ctx context.Context, q inspect.Query, amount int64, until time.Time,
	approve inspect.Approve) (inspect.Bucket, int64, error) {
	return inspect.Grant(ctx, b.Limiter, q, amount, until, approve)
}

func (b *Bench) Caller(ctx context.Context, q inspect.Query) (identity.Principal, error) {
	return inspect.Caller(ctx, b.Limiter, q)
}

func (b *Bench) Budgets(ctx context.Context, who identity.Principal, at string) (inspect.Budgets, error) {
	return inspect.BudgetsOf(ctx, b.Limiter, who, at)
}

// Mine names the bucket of client at GET /a.
var Mine = inspect.Query{Endpoint: "GET /a", Address: Client}

// Tokens is a rule in Tokens of a language model: 100 a second, 1000 at once.
var Tokens = []policy.Rule{{Endpoint: "GET /a", Limit: 100, Burst: 1000}}

var ErrGone = errors.New("gone")

// Database is a policy.Source that can be away.
type Database struct {
	Rules   []policy.Rule
	version int
	Away    bool
}

func (d *Database) Version(context.Context) (string, error) {
	if d.Away {
		return "", errors.New("connection refused")
	}
	return fmt.Sprint(d.version), nil
}

func (d *Database) Load(ctx context.Context) (policy.Document, string, error) {
	version, err := d.Version(ctx)
	return policy.Document{Source: "database", Rules: d.Rules}, version, err
}

func (d *Database) Put(rule policy.Rule) {
	d.Rules, d.Away = []policy.Rule{rule}, false
	d.version++
}

// Switching is Policies that change.
type Switching struct{ atomic.Pointer[policy.Set] }

func (s *Switching) Set() *policy.Set { return s.Load() }

func (s *Switching) Become(t testing.TB, b *Bench, rules ...policy.Rule) {
	t.Helper()
	set, problems := policy.Compile(policy.Document{Rules: rules},
		policy.CompileOptions{Endpoints: b.Table, Previous: s.Load(), Now: b.Now})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	s.Store(set)
}

// StripeTemplates returns the 594 endpoints of Stripe's API, which the
// endpoint package keeps for its tests.
func StripeTemplates(t testing.TB) []string {
	t.Helper()
	return operations(t, "stripe.ops.json")
}

func operations(t testing.TB, path string) []string {
	t.Helper()
	// Tests run in the folder of their package, which is this module's or below it.
	path = filepath.Join("endpoint/testdata", path)
	for range 4 {
		if _, err := os.Stat(path); err == nil {
			break
		}
		path = filepath.Join("..", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Ops []struct{ Method, Path string }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var templates []string
	for _, op := range document.Ops {
		templates = append(templates, op.Method+" "+op.Path)
	}
	if len(templates) == 0 {
		t.Fatalf("%s holds no operations", path)
	}
	return templates
}

// Allocations are how many a test of a pooled path may find and still say none:
// the race detector makes sync.Pool drop one item in four, and what is made anew
// then counts. `make test` runs such tests without it as well.
var Allocations = func() float64 {
	if race.Enabled {
		return 16
	}
	return 1
}()

// Holder knows one API key, which text is.
func Holder(t testing.TB, key identity.Key, change ...func(*identity.Options)) (who *identity.Resolver, text string) {
	t.Helper()
	digester, err := identity.NewDigester(make([]byte, identity.MinSecretLength))
	if err != nil {
		t.Fatal(err)
	}
	if text, err = identity.NewKey(); err != nil {
		t.Fatal(err)
	}
	ring := &identity.Keyring{}
	if err := ring.Replace([]identity.KeyRecord{{Digest: digester.Digest(text), Key: key}}); err != nil {
		t.Fatal(err)
	}
	o := identity.Options{Keys: ring, Digester: digester}
	for _, c := range change {
		c(&o)
	}
	if who, err = identity.New(o); err != nil {
		t.Fatal(err)
	}
	return who, text
}
