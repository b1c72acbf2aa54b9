package headgate_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
)

// newModelLimiter gives every caller 10,000 tokens a minute of a language model.
func newModelLimiter(now func() time.Time) *headgate.Limiter {
	chat, err := endpoint.ParseTemplate("POST /v1/chat")
	if err != nil {
		log.Fatal(err)
	}
	endpoints, err := endpoint.Compile([]endpoint.Template{chat}, endpoint.Profile{})
	if err != nil {
		log.Fatal(err)
	}
	rules, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: "POST /v1/chat", Limit: 10_000, Per: time.Minute},
	}}, policy.CompileOptions{Endpoints: endpoints})
	if rules == nil {
		log.Fatal(problems.Err())
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1000})
	if err != nil {
		log.Fatal(err)
	}
	callers, err := identity.New(identity.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := headgate.New(headgate.Options{
		Endpoints: endpoints, Policies: headgate.Fixed(rules), Buckets: buckets, Identities: callers, Now: now,
	})
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

// begin: model
// chat answers a prompt whose answer may have most tokens, and takes spent.
func chat(ctx context.Context, limiter *headgate.Limiter, peer netip.Addr, prompt, most, spent int64) {
	reservation, decision := limiter.Reserve(ctx, headgate.Request{
		Method: "POST", Target: "/v1/chat", Peer: peer,
		Cost: prompt + most, // the most that it can be
	}, 2*time.Minute)
	if !decision.Allowed {
		fmt.Println("refused:", decision.Reason, "retry in", decision.RetryAfter)
		return
	}
	// … the model writes its answer, which takes prompt + spent tokens …
	settlement, err := limiter.Settle(ctx, reservation.ID, prompt+spent)
	if err != nil {
		log.Println(err) // the estimate stays charged
	}
	fmt.Println("reserved", settlement.Reserved, "spent", settlement.Actual)
}

// end: model

func ExampleLimiter_Reserve() {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	limiter := newModelLimiter(func() time.Time { return now })
	ctx, peer := context.Background(), netip.MustParseAddr("192.0.2.7")
	// begin: story
	chat(ctx, limiter, peer, 1000, 4000, 500)  // much less than it might have been
	chat(ctx, limiter, peer, 1000, 4000, 4000) // as much
	chat(ctx, limiter, peer, 1000, 4000, 500)  // 3,500 are left, 5,000 are wanted
	now = now.Add(9 * time.Second)             // 1,500 more
	chat(ctx, limiter, peer, 1000, 4000, 9000) // more than was thought possible
	chat(ctx, limiter, peer, 10, 10, 10)       // somebody has to pay for it
	// end: story
	// Output:
	// reserved 5000 spent 1500
	// reserved 5000 spent 5000
	// refused: over_limit retry in 9s
	// reserved 5000 spent 10000
	// refused: over_limit retry in 30.12s
}

func Example_costsInAHeader() {
	limiter := newModelLimiter(nil)
	// begin: header
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "an answer, piece by piece")
		w.Header().Set(httplimit.CostField, "1500") // known at the end; clients never see it
	})
	limited := httplimit.Handler(limiter, api, httplimit.Options{
		Cost:    func(*http.Request) int64 { return 5000 }, // the estimate
		Reserve: &httplimit.Reserve{Field: httplimit.CostField, Timeout: 2 * time.Minute},
	})
	// end: header
	for range 3 {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat", nil))
		fmt.Println(w.Code, w.Header().Get(httplimit.CostField) == "", limiter.Reservations().Settled)
	}
	// Output:
	// 200 true 1
	// 200 true 2
	// 200 true 3
}

func Example_grant() {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	limiter := newModelLimiter(func() time.Time { return now })
	ctx := context.Background()
	// begin: grant
	query := inspect.Query{Endpoint: "POST /v1/chat", Address: netip.MustParseAddr("192.0.2.7")}
	write := func(b inspect.Bucket) error {
		fmt.Println("audit:", b.Rule, "of", b.Whose) // an error would keep the bucket as it is
		return nil
	}
	state, _, err := inspect.Grant(ctx, limiter, query, 5000, now.Add(time.Hour), write)
	fmt.Println(state.Remaining, err)
	state, err = inspect.Reset(ctx, limiter, query, write)
	fmt.Println(state.Remaining, err)
	// end: grant
	// Output:
	// audit: POST /v1/chat of address 192.0.2.7
	// 15000 <nil>
	// audit: POST /v1/chat of address 192.0.2.7
	// 10000 <nil>
}

// docs/reservations.md shows the code of this file.
func TestReservationsPageShowsTheseExamples(t *testing.T) {
	page, err := os.ReadFile("docs/reservations.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_reservation_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model", "story", "header", "grant"} {
		_, rest, found := strings.Cut(string(source), "// begin: "+name+"\n")
		code, _, ended := strings.Cut(rest, "// end: "+name+"\n")
		if !found || !ended {
			t.Fatalf("there is no example %q", name)
		}
		code = strings.TrimRight(code, "\t\n")
		if strings.HasPrefix(code, "\t") {
			code = strings.TrimPrefix(strings.ReplaceAll(code, "\n\t", "\n"), "\t")
		}
		if !strings.Contains(string(page), "```go\n"+code+"\n```") {
			t.Errorf("docs/reservations.md does not show the example %q as it is:\n%s", name, code)
		}
	}
}
