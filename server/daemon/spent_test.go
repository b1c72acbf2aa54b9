package daemon_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestWhatIsSpentIsWhatWasAsked: operations, batches and guesses, which the API says the cost of or does not, from
// clients of which many leave at whatever moment: each bucket has spent what the log accounts for, what was refused
// reached nobody, what passed costs what the API said, and each place is given back once.
func TestWhatIsSpentIsWhatWasAsked(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(strings.ReplaceAll(engine, "/", "_"), func(t *testing.T) { whatIsSpent(t, engine) })
	}
}

const perAddress = 6 // requests under way

// spending is what a caller spent under the three rules that count.
type spending struct{ tokens, requests, wrong int64 }

func whatIsSpent(t *testing.T, engine string) {
	var reached, said sync.Map // of bool, and of int64: by the number of the request
	held, release := make(chan string, 100), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		number := r.Header.Get("Number")
		reached.Store(number, true)
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "/held") {
			held <- number
			select {
			case <-release:
			case <-r.Context().Done():
			}
			return
		}
		plan := r.Header.Get("Plan") // how it answers
		cost, _ := strconv.ParseInt(r.Header.Get("Costs"), 10, 64)
		tell := func(name string) {
			if cost >= 0 {
				said.Store(number, cost)
				w.Header().Set(name, fmt.Sprint(cost))
			}
		}
		if !strings.Contains(plan, "trailer") {
			tell("X-Headgate-Cost")
		}
		if strings.Contains(plan, "stays") {
			<-r.Context().Done()
			return
		}
		if strings.Contains(plan, "wrong") {
			w.WriteHeader(http.StatusNotFound)
		}
		for range 3 {
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			_ = http.NewResponseController(w).Flush()
		}
		if strings.Contains(plan, "trailer") {
			tell(http.TrailerPrefix + "X-Headgate-Cost")
		}
		if strings.Contains(plan, "breaks") {
			panic(http.ErrAbortHandler)
		}
	}))
	defer api.Close()
	dir := t.TempDir()
	written := filepath.Join(dir, "decisions.log")
	schema, routes := filepath.Join(dir, "people.graphql"), filepath.Join(dir, "routes.txt")
	for path, text := range map[string]string{schema: people,
		routes: "POST /v1/graphql\nPOST /v1/rpc\nPOST /v1/codes/{id}\nGET /v1/held\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var wrong policy.Answers
	if err := wrong.UnmarshalText([]byte("404")); err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	const tokens, requests, guesses = 1500, 90, 20
	rules := []policy.Rule{
		{Endpoint: policy.All, Limit: 1, Per: day, Burst: tokens, Name: "tokens"},
		{Endpoint: policy.All, Limit: 1, Per: day, Burst: requests, Name: "requests",
			Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests)},
		{Endpoint: "POST /v1/codes/{id}", Limit: 1, Per: day, Burst: guesses, CountWhen: wrong, Name: "wrong"},
		{Endpoint: policy.All, Limit: perAddress, Name: "at once",
			Subject: policy.SubjectIP.Counting(policy.CountsUnderWay)},
		{Endpoint: policy.Default, Limit: 1e6},
	}
	var number atomic.Int64
	exp := time.Now().Unix() + 600
	request := func(ctx context.Context, gate, method, target, text string, caller, address int) *http.Request {
		r, err := http.NewRequestWithContext(ctx, method, gate+target, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Forwarded-For", fmt.Sprint("198.51.100.", address))
		r.Header.Set("Authorization", "Bearer "+signed(tokenSecret,
			`{"iss":"me","aud":"api","sub":"s%d","exp":%d}`, caller, exp))
		r.Header.Set("Number", fmt.Sprint(number.Add(1)))
		return r
	}
	const callers = 6
	var spent []spending
	var least, most [callers]atomic.Int64 // tokens, by what the API said
	var passed, left, refused atomic.Int64
	t.Run("a gateway", func(t *testing.T) { // whose end writes the last lines
		r := newReloading(t, rules, withSecret(t), func(c *config.Config) {
			c.Engine, c.Upstream, c.TrustedProxies, c.Routes = engine, api.URL, []string{"127.0.0.1"}, []string{routes}
			c.DecisionLog.File, c.DecisionLog.PerSecond, c.DecisionLog.AdmittedOneIn = written, 100_000, 1
			c.Settle.Header, c.Costs = "X-Headgate-Cost", map[string]int64{"POST /v1/rpc": 3, "POST /v1/codes/{id}": 2}
			c.Batches = []config.Batch{{Endpoint: "POST /v1/rpc"}}
			c.GraphQL = []config.GraphQL{{Endpoints: []string{"POST /v1/graphql"}, Schema: schema, MaxCost: 60}}
		})
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 20}}
		defer client.CloseIdleConnections()
		one := func(rng *rand.Rand, caller int) {
			text, estimate, target := "", int64(0), "/v1/codes/7"
			switch rng.IntN(3) {
			case 0:
				n := 1 + rng.IntN(6)
				target, text, estimate = "/v1/rpc", "["+strings.Repeat("{},", n-1)+"{}]", int64(3*n)
			case 1:
				n := 1 + rng.IntN(29)
				operation := fmt.Sprintf(`{"query":"{people(first:%d){name}}"}`, n)
				target, text, estimate = "/v1/graphql", operation, int64(n+1)
				if rng.IntN(2) == 0 {
					text, estimate = "["+operation+","+operation+"]", 2*estimate
				}
			default:
				estimate = 2
			}
			cost := rng.Int64N(estimate + 2)
			if rng.IntN(3) == 0 {
				cost = -1
			}
			plan := []string{"", "", "trailer", "trailer", "stays", "breaks", "breaks trailer"}[rng.IntN(7)]
			if rng.IntN(2) == 0 {
				plan += " wrong"
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			x := request(ctx, r.gate, "POST", target, text, caller, caller/2)
			x.Header.Set("Costs", fmt.Sprint(cost))
			x.Header.Set("Plan", plan)
			if strings.Contains(plan, "stays") || rng.IntN(4) == 0 {
				after := time.Duration(rng.IntN(4000)) * time.Microsecond
				time.AfterFunc(after, leave)
			}
			if rng.IntN(8) == 0 { // in the middle of its body
				brokenOff(t, r.gate, x, text, rng)
				left.Add(1)
				most[caller].Add(max(estimate, cost))
				return
			}
			answer, err := client.Do(x)
			whole := false
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				whole = err == nil
			}
			_, came := reached.Load(x.Header.Get("Number"))
			switch {
			case whole && (answer.StatusCode == 200 || answer.StatusCode == 404):
				passed.Add(1)
				if !came {
					t.Errorf("%d of %s, which the API has not seen", answer.StatusCode, target)
				}
				if cost < 0 {
					cost = estimate
				}
				least[caller].Add(cost)
				most[caller].Add(cost)
			case answer != nil && answer.StatusCode >= 400 && answer.StatusCode != 404:
				if refused.Add(1); came && answer.StatusCode != 502 {
					t.Errorf("%d of %s, which reached the API", answer.StatusCode, target)
				}
			default:
				left.Add(1)
				most[caller].Add(max(estimate, cost))
			}
		}
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(n), 40))
				for range 70 {
					one(rng, n)
				}
			})
		}
		all.Wait()
		settled := func() bool {
			_, page := call(t, "GET", r.admin+"/metrics", "")
			return strings.Contains(page, "\nheadgate_reservations 0\n")
		}
		eventually(t, "all have ended", settled)
		for address := range callers / 2 { // each of whose places is free, and no other
			var answers sync.WaitGroup
			got := make(chan int, perAddress+1)
			for n := range perAddress + 1 {
				answers.Go(func() {
					answer, err := client.Do(request(t.Context(), r.gate, "GET", "/v1/held", "", 100+address, address))
					if err != nil {
						t.Error(err)
						return
					}
					_ = answer.Body.Close()
					got <- answer.StatusCode
				})
				if n < perAddress {
					<-held
				}
			}
			if status := <-got; status != http.StatusTooManyRequests {
				t.Errorf("one more than may be under way: %d, want 429", status)
			}
			for range perAddress {
				release <- struct{}{}
			}
			answers.Wait()
		}
		eventually(t, "all have ended", settled)
		for n := range callers {
			spent = append(spent, r.spent(t, fmt.Sprint("s", n)))
			if got := spent[n].tokens; got < least[n].Load() || got > most[n].Load() {
				t.Errorf("a caller has spent %d tokens, want %d to %d by what the API said", got, least[n].Load(),
					most[n].Load())
			}
		}
		for address := range callers / 2 {
			spent = append(spent, r.spent(t, fmt.Sprint("s", 100+address)))
		}
	})
	accounts, admitted := accountsOf(t, written)
	// Of whom nothing passed the log says nothing.
	spent = slices.DeleteFunc(spent, func(a spending) bool { return a == spending{} })
	slices.SortFunc(spent, spending.compare)
	slices.SortFunc(accounts, spending.compare)
	if !slices.Equal(spent, accounts) {
		t.Errorf("spent is %v, and the log accounts for %v", spent, accounts)
	}
	came := int64(0)
	reached.Range(func(any, any) bool { came++; return true })
	p, went := passed.Load(), left.Load()
	if came < p || admitted < came || admitted > came+went || min(p, went, refused.Load()) < 20 {
		t.Errorf("%d were admitted and %d came to the API, of %d that passed, %d refused and %d that left", admitted,
			came, p, refused.Load(), went)
	}
}

func (a spending) compare(b spending) int {
	return cmp.Or(cmp.Compare(a.tokens, b.tokens), cmp.Compare(a.requests, b.requests), cmp.Compare(a.wrong, b.wrong))
}

// spent asks what a caller has spent of buckets that drain a token a day.
func (p *process) spent(t *testing.T, token string) (a spending) {
	t.Helper()
	for _, endpoint := range []string{"POST /v1/codes/{id}", "*"} {
		_, text := call(t, "POST", p.admin+"/v1/buckets/inspect",
			fmt.Sprintf(`{"endpoint":%q,"token":%q}`, endpoint, token), "Content-Type", asJSON)
		var found struct {
			Buckets []struct {
				Rule  string
				Reset int64 `json:"reset_after_ns"`
			}
		}
		if err := json.Unmarshal([]byte(text), &found); err != nil || len(found.Buckets) == 0 {
			t.Fatalf("%s: %v", text, err)
		}
		for _, b := range found.Buckets {
			const day = int64(24 * time.Hour)
			of := map[string]*int64{"tokens": &a.tokens, "requests": &a.requests, "wrong": &a.wrong}[b.Rule]
			*of = (b.Reset + day - 1) / day
		}
	}
	return a
}

// accountsOf is what a decision log says that callers spent, and how many requests were admitted.
func accountsOf(t *testing.T, name string) (all []spending, admitted int64) {
	t.Helper()
	log, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	type line struct {
		Decision, Caller, Endpoint, Reservation, Settled string
		Cost, Actual                                     int64
		Requests                                         *int64
		Status                                           int
	}
	made, of := map[string]line{}, map[string]*spending{}
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var e line
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Decision == "allowed":
			admitted++
			if made[e.Reservation] = e; e.Reservation == "" {
				t.Fatalf("%s reserves nothing", lines.Text())
			}
		case e.Settled != "":
			// Its decision is there, as it was written first.
			was, ok := made[e.Settled]
			if !ok {
				t.Fatalf("%s settles what was not reserved, or again", lines.Text())
			}
			delete(made, e.Settled)
			a := of[was.Caller]
			if a == nil {
				a = &spending{}
				of[was.Caller] = a
			}
			a.tokens += e.Actual
			if a.requests++; was.Requests != nil {
				a.requests += *was.Requests - 1
			}
			if strings.HasPrefix(was.Endpoint, "POST /v1/codes/") && (e.Status == 0 || e.Status == 404) {
				a.wrong += e.Actual
			}
		}
	}
	if len(made) > 0 {
		t.Errorf("%d requests were not settled", len(made))
	}
	for _, a := range of {
		all = append(all, *a)
	}
	return all, admitted
}

// brokenOff sends a request whose client leaves within its body, or waits for nothing after it.
func brokenOff(t *testing.T, gate string, r *http.Request, text string, rng *rand.Rand) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(gate, "http://"))
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	var head strings.Builder
	fmt.Fprintf(&head, "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n", r.URL.Path)
	_ = r.Header.Write(&head)
	whole := head.String() + fmt.Sprintf("\r\n%x\r\n%s\r\n0\r\n\r\n", max(1, len(text)), text)
	if text == "" {
		whole = head.String() + "\r\n1\r\n{\r\n0\r\n\r\n"
	}
	_, _ = io.WriteString(conn, whole[:head.Len()+rng.IntN(len(whole)-head.Len()+1)])
}
