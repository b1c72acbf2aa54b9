package daemon_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// tally counts things by their names, by several goroutines.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (a *tally) add(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]int{}
	}
	a.seen[name]++
}

// counted reads a counter of the metrics by its labels, without those that are 0.
func counted(t *testing.T, page, name string) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, match := range regexp.MustCompile(`(?m)^headgate_`+name+`(?:\{(.*)\})? (\S+)$`).
		FindAllStringSubmatch(page, -1) {
		n, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			all[match[1]] = int(n)
		}
	}
	return all
}

// TestAllCountTheSame: whatever is asked for, under rules of all kinds and while settings change, the metrics, the
// decision log, what callers used and what clients and the API saw agree on who was let in, who was not, and by which
// rule. What explain says of a request is what becomes of it, if it is the next, and counts as none.
func TestAllCountTheSame(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(strings.ReplaceAll(engine, "/", "_"), func(t *testing.T) { allCountTheSame(t, engine) })
	}
}

func allCountTheSame(t *testing.T, engine string) {
	var arrived, answered, spent, told, explained tally
	var traffic sync.RWMutex // locked by who asks alone
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived.add(r.Header.Get("Caller"))
		w.Header().Set("Api", "yes")
		switch n := len(r.URL.RawQuery); {
		case n%3 == 1:
			w.WriteHeader(http.StatusNotFound)
		case n%7 == 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if strings.HasPrefix(r.URL.Path, "/v1/files/") {
			_, _ = w.Write(make([]byte, 100*len(r.URL.RawQuery)))
		}
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(api.Close)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	written := filepath.Join(dir, "decisions.log")
	var notFound policy.Answers
	if err := notFound.UnmarshalText([]byte("404")); err != nil {
		t.Fatal(err)
	}
	rules := []policy.Rule{
		{Endpoint: policy.Default, Limit: 30, Burst: 9, Name: "everybody"},
		{Endpoint: policy.Default, Tier: "gold", Limit: 60, Burst: 12, Name: "gold"},
		{Endpoint: policy.All, Subject: policy.SubjectIP, Limit: 200, Burst: 40, Name: "addresses",
			Priority: "high:30,normal:20,low:10"},
		{Endpoint: policy.All, Subject: policy.SubjectIP.Counting(policy.CountsUnderWay), Limit: 2, Name: "at once"},
		{Endpoint: "GET /v1/items/{id}", Limit: 1, Per: time.Hour, Mode: policy.Shadow, Name: "tried"},
		{Endpoint: "GET /v1/carts/{id}", Limit: 20, Burst: 2, Name: "carts", Penalty: "3 in 1s for 1s with addresses"},
		{Endpoint: "GET /v1/codes/{id}", Limit: 5, CountWhen: notFound, Name: "codes"},
		{Endpoint: "GET /v1/queue", Limit: 1, Per: 2 * time.Minute, Burst: 3, Algorithm: policy.LeakyBucket,
			Name: "queue"},
		{Endpoint: "POST /v1/rpc", Limit: 30, Burst: 10, Name: "how many"},
		{Endpoint: "POST /v1/graphql", Limit: 60, Burst: 60, Name: "operations"},
		{Endpoint: "MCP /v1/mcp/tools/call/report", Limit: 10, Per: time.Hour, Burst: 3, Name: "reports"},
		{Endpoint: "GET /v1/files/{id}", Limit: 1500, Per: time.Hour, Name: "files"},
		{Endpoint: policy.All, Mode: policy.Block},
		{Endpoint: policy.All, Mode: policy.Allow},
		{Endpoint: policy.Default, Tier: "suspect", Limit: 10, Burst: 5, Name: "suspects"},
		{Endpoint: "GET /v1/later", Limit: 1, Per: 40 * time.Second, Burst: 2, Algorithm: policy.LeakyBucket,
			Name: "later"},
	}
	agent := newSigningAgent(t)
	for i, subject := range map[int]string{8: "requests:principal", 12: "ip:192.0.2.0/24", 13: "ip:203.0.113.0/24"} {
		if err := rules[i].SetSubject(subject); err != nil {
			t.Fatal(err)
		}
	}
	exp := time.Now().Unix() + 300
	var page string
	spending := map[string][2]int{}
	t.Run("a gateway", func(t *testing.T) { // whose end writes the last lines
		r := newReloading(t, rules, withSecret(t), withAgents(agent), func(c *config.Config) {
			c.Engine, c.Upstream, c.TrustedProxies = engine, api.URL, []string{"127.0.0.1"}
			c.DecisionLog.File, c.DecisionLog.PerSecond, c.DecisionLog.AdmittedOneIn = written, 100_000, 1
			c.Headers.Rules, c.BadCredentials = "binding", "reject"
			c.MaxWait = time.Minute
			c.Costs = map[string]int64{"POST /v1/rpc": 2}
			c.Batches = []config.Batch{{Endpoint: "POST /v1/rpc"}}
			c.Bytes = []config.ByteCount{{Endpoints: []string{"GET /v1/files/{id}"}, AtEnd: "cut"}}
			c.MCP = []config.MCP{{Endpoint: "POST /v1/mcp"}}
			c.GraphQL = []config.GraphQL{
				{Endpoints: []string{"POST /v1/graphql"}, Schema: write("people.graphql", people), MaxCost: 40}}
			c.Adaptive = []config.Adaptive{{Endpoints: []string{"GET /v1/items/{id}"}, SLO: time.Second, AtOnce: true}}
			c.Priority = config.Priority{Tiers: map[string]string{"gold": "high"}}
			c.Anomalies.Window = 24 * time.Hour
			c.Anomalies.Tiers = []config.ScoreTier{{Score: 60, Tier: "suspect", Addresses: true}}
			c.SignedAgents.Tier = "gold"
			c.Routes = []string{write("routes.txt", "GET /v1/items/{id}\nGET /v1/carts/{id}\nGET /v1/codes/{id}\n"+
				"GET /v1/queue\nGET /v1/later\nGET /v1/files/{id}\nPOST /v1/rpc\n"+
				"POST /v1/graphql\nPOST /v1/mcp\nMCP /v1/mcp/tools/call/report\n")}
		})
		targets := []string{"/v1/items/7", "/v1/carts/8", "/v1/codes/9", "/v1/queue", "/v1/rpc", "/v1/mcp",
			"/v1/files/3", "/v1/graphql", "/v1/nothing", "/v1/items/%2e%2e/x"}
		ask := func(rng *rand.Rand, alone bool, target, caller, address string, header ...string) {
			method, text := "GET", ""
			switch target {
			case "/v1/rpc":
				text = []string{"[" + strings.Repeat("{},", rng.IntN(12)) + "{}]", "[{},"}[rng.IntN(8)/7]
			case "/v1/graphql":
				one := fmt.Sprintf(`{"query":"{people(first:%d){name}}"}`, 1+rng.IntN(44))
				text = []string{one, "[" + one + ", " + one + "]"}[rng.IntN(2)]
			case "/v1/mcp":
				tools := [...]string{"report", "search"}
				text = `{"id":1,"method":"tools/call","params":{"name":"` + tools[rng.IntN(2)] + `"}}`
			default:
				target += "?" + strings.Repeat("x", rng.IntN(20))
			}
			if text != "" || rng.IntN(20) == 0 {
				method = "POST"
			}
			request, err := http.NewRequest(method, r.gate+target, strings.NewReader(text))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("X-Forwarded-For", address)
			request.Header.Set("Caller", caller)
			for i := 0; i < len(header); i += 2 {
				request.Header.Set(header[i], header[i+1])
			}
			var foretold *foretold
			if alone {
				foretold = foretell(t, r, request, text)
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			what := fmt.Sprint(answer.StatusCode)
			switch {
			case answer.Header.Get("Api") != "":
				what = "passed"
			case what == "429":
				what = "limited"
			case what == "200" && strings.Contains(string(body), `"jsonrpc":"2.0"`):
				what = "limited"
			}
			answered.add(what)
			spent.add(caller + " " + what)
			rule := ""
			if _, after, ok := strings.Cut(answer.Header.Get("RateLimit"), `"`); ok {
				rule, _, _ = strings.Cut(after, `"`)
			}
			answersMayEnd := strings.HasPrefix(target, "/v1/files/") // once they begin
			if !answersMayEnd {
				told.add(what + " by " + rule)
			}
			if foretold != nil {
				explained.add(foretold.Verdict.Reason)
				foretold.holds(t, what, rule, answersMayEnd)
			}
		}
		var callers, background sync.WaitGroup
		asked := make(chan struct{})
		background.Go(func() {
			for i := 0; ; i++ {
				for range 60 {
					if _, ok := <-asked; !ok {
						return
					}
				}
				traffic.RLock()
				r.edit(func(c *config.Config) {
					c.BadCredentials = []string{"ignore", "reject", "reject"}[i%3]
					c.Adaptive[0].AtOnce = i%3 == 0
					c.Priority.Endpoints = map[string]string{"GET /v1/items/{id}": []string{"low", "high"}[i/2%2]}
				})
				if status, body := call(t, "POST", r.admin+"/v1/reload", ""); status != 200 {
					t.Errorf("reload: %d %s", status, body)
				}
				if status, body := call(t, "PUT", r.admin+"/v1/policies", fmt.Sprintf(
					`{"endpoint":"GET /v1/items/{id}","limit":%d,"per":"1h","mode":%q,"name":"tried"}`, 1+i%3,
					[]string{"shadow", "enforce"}[i/2%2]), "Content-Type", asJSON); status != 200 {
					t.Errorf("a change: %d %s", status, body)
				}
				traffic.RUnlock()
			}
		})
		for n := range 8 {
			callers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(n), 30))
				token := signed(tokenSecret, `{"iss":"me","aud":"api","sub":"s%d","exp":%d%s}`, n, exp,
					[]string{"", `,"plan":"gold"`}[n%2])
				for range 40 {
					asked <- struct{}{}
					times, alone, target := 1, rng.IntN(14) == 0, targets[rng.IntN(len(targets))]
					lock := traffic.RLocker()
					if alone { // and often enough to be limited
						times, lock = 4, sync.Locker(&traffic)
					}
					func() {
						lock.Lock()
						defer lock.Unlock()
						for range times {
							address := fmt.Sprintf("198.51.100.%d", n/2)
							switch {
							case n == 0 && rng.IntN(4) == 0:
								ask(rng, alone, target, "", "192.0.2.1")
							case n == 1 && rng.IntN(4) == 0:
								ask(rng, alone, target, "", "203.0.113.1")
							case n < 3:
								ask(rng, alone, target, "", address)
							case n == 3:
								ask(rng, alone, target, "agent", address, agent.once()...)
							case rng.IntN(5) == 0:
								ask(rng, alone, target, "", address, "Authorization",
									"Bearer "+token[:len(token)-4]+"AAAA")
							default:
								ask(rng, alone, target, fmt.Sprint("s", n), address, "Authorization", "Bearer "+token)
							}
						}
					}()
				}
			})
		}
		later := func(what string, want int) { // what is in turn later comes to so much
			t.Helper()
			eventually(t, fmt.Sprintf("%s of later is %d", what, want), func() bool {
				_, page := call(t, "GET", r.admin+"/metrics", "")
				return counted(t, page, what)[`rule="later"`] == want
			})
		}
		token := signed(tokenSecret, `{"iss":"me","aud":"api","sub":"leaver","exp":%d}`, exp)
		for n := range 5 { // of whose requests the first one is served, and the others leave while they wait
			ctx, leave := context.WithCancel(t.Context())
			request, err := http.NewRequestWithContext(ctx, "GET", r.gate+"/v1/later", nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range map[string]string{"X-Forwarded-For": "198.51.100.99", "Caller": "leaver",
				"Authorization": "Bearer " + token} {
				request.Header.Set(name, value)
			}
			var gone sync.WaitGroup
			gone.Go(func() {
				answer, err := http.DefaultClient.Do(request)
				if (err == nil) != (n == 0) {
					t.Errorf("request %d for what is in turn later: %v, %v", n, answer, err)
				}
				if err == nil {
					_ = answer.Body.Close()
				}
			})
			later("allowed_total", n+1)
			if n == 0 {
				gone.Wait()
				answered.add("passed")
				spent.add("leaver passed")
				told.add("passed by later")
			}
			leave()
			gone.Wait()
			later("abandoned_total", n)
		}
		eventually(t, "the page says how many left", func() bool {
			_, text := call(t, "GET", r.admin+"/v1/activity", "")
			return strings.Contains(text, `"abandoned":4}`)
		})
		callers.Wait()
		close(asked)
		background.Wait()
		_, page = call(t, "GET", r.admin+"/metrics", "")
		all, _ := used(t, r.admin)
		for _, row := range all.Rows {
			spending[strings.Replace(row.ID, agent.name, "agent", 1)] = [2]int{int(row.Admitted), int(row.Denied)}
		}
	})

	sum := func(of map[string]int) (n int) {
		for _, one := range of {
			n += one
		}
		return n
	}
	byMetrics := map[string]map[string]int{}
	for _, name := range []string{"allowed_total", "abandoned_total", "denied_total", "shadow_denied_total",
		"class_requests_total"} {
		byMetrics[name] = counted(t, page, name)
	}
	byLog, byRule := readCounted(t, written)
	for name, want := range byMetrics {
		if got := byLog[name]; !maps.Equal(got, want) {
			t.Errorf("%s: by the log %v, by the metrics %v", name, got, want)
		}
	}
	maps.DeleteFunc(told.seen, func(what string, _ int) bool {
		return !strings.HasPrefix(what, "passed") && !strings.HasPrefix(what, "limited")
	})
	if !maps.Equal(byRule, told.seen) {
		t.Errorf("by the log %v, and clients were told %v", byRule, told.seen)
	}
	ended := counted(t, page, "bodies_ended_total")[""]
	allowed, denied := sum(byMetrics["allowed_total"])-sum(byMetrics["abandoned_total"]), sum(byMetrics["denied_total"])
	if n := sum(arrived.seen); n != allowed || n != answered.seen["passed"]+ended {
		t.Errorf("%d requests arrived, %d are counted, %d passed and of %d the answer was refused", n, allowed,
			answered.seen["passed"], ended)
	}
	faults := counted(t, page, "calls_total")
	delete(faults, `fault="none"`)
	if n := sum(answered.seen) - answered.seen["passed"]; n != denied+ended+sum(faults) {
		t.Errorf("clients were refused %d times, and %d are counted, %d of answers and %v of bodies", n, denied,
			ended, faults)
	}
	for who, one := range spending {
		passed, limited := spent.seen[who+" passed"], spent.seen[who+" limited"]
		if passed+limited != one[0]+one[1] || one[0] != arrived.seen[who] {
			t.Errorf("%s: %d passed, %d were limited, and %v are counted", who, passed, limited, one)
		}
	}
	bad := byMetrics["denied_total"][`reason="bad_credential",rule=""`]
	if len(spending) != 6 || sum(byMetrics["abandoned_total"]) != 4 || len(byMetrics["shadow_denied_total"]) == 0 ||
		ended == 0 || bad == 0 || len(byMetrics["class_requests_total"]) < 3 || len(explained.seen) < 4 {
		t.Errorf("%v, %v, %d ended and %v were foretold: that shows little", byMetrics, spending, ended, explained.seen)
	}
}

// foretold is what explain says of a request that is the next.
type foretold struct {
	r     *reloading
	asked string
	at    time.Time

	Adaptive *struct{ Multiplier, AtOnce float64 }
	Body     *struct{ Status int }
	Verdict  struct {
		Allowed    bool
		Reason     string
		Rule       string
		RetryAfter time.Duration `json:"retry_after_ns"`
	}
}

// foretell asks explain once nothing is under way.
func foretell(t *testing.T, r *reloading, request *http.Request, text string) *foretold {
	f := &foretold{r: r}
	var header []string
	for name, values := range request.Header {
		for _, value := range values {
			header = append(header, name+": "+value)
		}
	}
	asked, err := json.Marshal(map[string]any{"method": request.Method, "target": request.URL.RequestURI(),
		"header": header, "body": text})
	if err != nil {
		t.Error(err)
	}
	f.asked = string(asked)
	eventually(t, "all requests have ended", func() bool { return daemon.UnderWay(r.daemon) == 0 })
	f.at = time.Now()
	f.ask(t)
	return f
}

func (f *foretold) ask(t *testing.T) {
	status, body := call(t, "POST", f.r.admin+"/v1/explain", f.asked, "Content-Type", asJSON)
	if err := json.Unmarshal([]byte(body), f); err != nil || status != 200 {
		t.Errorf("explain %s: %d %s", f.asked, status, body)
	}
}

// holds checks that what was foretold has come: but for what time gives back, and rates that were lowered meanwhile.
func (f *foretold) holds(t *testing.T, what, rule string, answersMayEnd bool) {
	verdict, want, took := f.Verdict, "", time.Since(f.at)
	switch {
	case verdict.Allowed && answersMayEnd:
		return
	case verdict.Allowed:
		want = "passed"
	case verdict.RetryAfter > 0 && took >= verdict.RetryAfter:
		return
	case verdict.Reason == "in_penalty" && verdict.RetryAfter == time.Second &&
		(what == "passed" || what == "limited" && rule != verdict.Rule):
		return // the whole time: this denial would have begun it, and the bucket has room again; maybe another has none
	case slices.Contains([]string{"over_limit", "cost_above_burst", "in_penalty"}, verdict.Reason):
		want = "limited"
	case f.Body != nil && f.Body.Status != 0:
		want = fmt.Sprint(f.Body.Status)
	default:
		want = map[string]string{"unknown_endpoint": "404", "unknown_method": "405", "invalid_target": "400",
			"bad_credential": "401", "blocked": "403"}[verdict.Reason]
	}
	if what == want && (want != "limited" || rule == "" || rule == verdict.Rule) {
		return
	}
	if then := f.Adaptive; then != nil {
		if f.ask(t); *f.Adaptive != *then {
			return
		}
	}
	t.Errorf("explain %s: %+v, %v later it was %s by %q", f.asked, verdict, took, what, rule)
}

// readCounted counts the lines of a decision log as the metrics do, and those of requests that are known to pass or not
// by their heads by what their clients are told.
func readCounted(t *testing.T, name string) (byMetric map[string]map[string]int, told map[string]int) {
	t.Helper()
	log, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	byMetric, told = map[string]map[string]int{}, map[string]int{}
	add := func(name, format string, args ...any) {
		if byMetric[name] == nil {
			byMetric[name] = map[string]int{}
		}
		byMetric[name][fmt.Sprintf(format, args...)]++
	}
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var e struct {
			Decision, Reason, Rule, Endpoint, Class string
			Requests                                *int64
			Shadow                                  []string `json:"shadow_denied"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Decision == "" || e.Requests != nil && *e.Requests == 0 {
			continue // it is about one that was decided before
		}
		for _, rule := range e.Shadow {
			add("shadow_denied_total", "rule=%q", rule)
		}
		if e.Reason == "abandoned" { // it was let through, and nobody was told
			add("abandoned_total", "rule=%q", e.Rule)
			told["passed by "+e.Rule]--
			continue
		}
		limited := slices.Contains([]string{"over_limit", "cost_above_burst", "in_penalty"}, e.Reason)
		what := "passed"
		switch {
		case e.Reason == "exempt":
			add("allowed_total", `rule="(exempt)"`)
			e.Rule = ""
		case e.Decision == "allowed":
			add("allowed_total", "rule=%q", e.Rule)
		case limited:
			add("denied_total", "reason=%q,rule=%q", e.Reason, e.Rule)
			what = "limited"
		default:
			add("denied_total", `reason=%q,rule=""`, e.Reason)
			what = ""
		}
		if e.Class != "" && e.Rule != "" {
			add("class_requests_total", "class=%q,result=%q", e.Class, e.Decision)
		}
		if what != "" && e.Endpoint != "GET /v1/files/{id}" {
			told[what+" by "+e.Rule]++
		}
	}
	return byMetric, told
}
