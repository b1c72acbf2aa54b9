package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

const followedAt = "GET /v1/items/{id}"

// slowAPI is an API on a clock that its answers move.
type slowAPI struct {
	now, takes atomic.Int64 // the time, and how long an answer takes, in nanoseconds
	fails      atomic.Bool

	arrived chan struct{} // told of each request that is held
	held    sync.Map      // channels by the name of a request: closed when it is to be answered
}

func (a *slowAPI) clock() time.Time       { return time.Unix(0, a.now.Load()) }
func (a *slowAPI) passes(d time.Duration) { a.now.Add(int64(d)) }

func (a *slowAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if free, ok := a.held.Load(r.Header.Get("Held")); ok {
		a.arrived <- struct{}{}
		<-free.(chan struct{})
		return
	}
	a.passes(time.Duration(a.takes.Load()))
	if a.fails.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// following is a gateway before such an API, and what a test knows of it.
type following struct {
	*lives
	*testing.T
	api *slowAPI
	rng *rand.Rand

	each    policy.Rule // at the endpoint, by address
	gone    bool        // it is
	changes int         // of it: of more a place that is given back knows nothing
	under   []*heldRequest
	asked   int
	denied  map[string]int // by rule
	used    [2]int         // by who has a token: admitted and denied
	steps   string
}

type heldRequest struct {
	name, address, principal string
	free, ended              chan struct{}
	rules                    map[string]bool // that count it
}

// TestAllTellTheSameOfNumbersThatFollow: at random an API is slow, fails, is well or silent, requests to it come, stay
// and end, settings are loaded anew, rules change, an operator grants places and the gateway restarts. At each step how
// many requests may be under way is the same in the metrics, by explain, to those who are told of it and to those who
// are let in; and when the decision log is replayed, all is decided as it was.
func TestAllTellTheSameOfNumbersThatFollow(t *testing.T) {
	seeds, given := []uint64{rand.Uint64(), rand.Uint64()}, os.Getenv("HEADGATE_TEST_SEED")
	if seed, err := strconv.ParseUint(given, 10, 64); err == nil {
		seeds = []uint64{seed, seed}
	}
	t.Run("while rules stay", func(t *testing.T) { numbersThatFollow(t, seeds[0], false) })
	t.Run("while rules change", func(t *testing.T) { numbersThatFollow(t, seeds[1], true) })
}

func numbersThatFollow(t *testing.T, seed uint64, rulesChange bool) {
	t.Logf("HEADGATE_TEST_SEED=%d", seed)
	api := &slowAPI{arrived: make(chan struct{})}
	api.now.Store(time.Now().UnixNano())
	behind := httptest.NewServer(api)
	t.Cleanup(behind.Close)
	f := &following{T: t, api: api, rng: rand.New(rand.NewPCG(seed, 47)), denied: map[string]int{}}
	under := func(by policy.Subject) policy.Subject { return by.Counting(policy.CountsUnderWay) }
	f.each = policy.Rule{Endpoint: followedAt, Limit: 6, Per: time.Hour, Name: "each",
		Subject: under(policy.SubjectIP), Penalty: "5 in 10s for 30s with addresses"}
	rules := []policy.Rule{f.each,
		{Endpoint: policy.All, Limit: 8, Per: time.Hour, Name: "all", Subject: under(policy.SubjectIP)},
		{Endpoint: policy.Default, Limit: 7, Per: time.Hour, Name: "default", Subject: under(policy.SubjectPrincipal)},
		{Endpoint: policy.Default, Limit: 1e6, Name: "rate"},
	}
	if rulesChange {
		rules = append(rules, policy.Rule{Endpoint: policy.Default, Tier: "gold", Limit: 4, Per: time.Hour,
			Name: "gold", Subject: under(policy.SubjectPrincipal)})
	}
	f.lives = newLivesBy(t, rules, api.clock, withSecret(t), func(c *config.Config) {
		c.Upstream, c.TrustedProxies = behind.URL, []string{"127.0.0.1"}
		log := filepath.Join(t.TempDir(), "decisions.log")
		c.DecisionLog.File, c.DecisionLog.PerSecond, c.DecisionLog.AdmittedOneIn = log, 100_000, 1
		c.Adaptive = []config.Adaptive{
			{Endpoints: []string{followedAt}, SLO: 100 * time.Millisecond, Floor: 0.125, AtOnce: true}}
		if err := os.WriteFile(c.Routes[0], []byte(followedAt+"\nGET /b\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	defer f.endAll()
	for range 4 {
		f.flood(60*time.Millisecond, false)
	}
	for range race.Fewer(25) {
		f.steps = f.step(rulesChange)
		for range 1 + f.rng.IntN(4) {
			f.check()
		}
		if t.Failed() {
			return
		}
	}
	f.endAll()
	if f.agree(); rulesChange {
		return
	}
	f.stop()
	got, side, _ := decidedAgain(t, f.conf, rules, f.conf.DecisionLog.File)
	if side.Different != 0 || got.Unread != 0 || got.Missing != 0 || side.Same < 100 {
		t.Errorf("%d decisions are as they were and %d are not, %d lines are not read %v, %d are missing", side.Same,
			side.Different, got.Unread, got.Faults, got.Missing)
	}
}

// step does something, and says what.
func (f *following) step(rulesChange bool) string {
	switch n := f.rng.IntN(20); {
	case n < 5:
		takes, fails := time.Duration(f.rng.IntN(5))*30*time.Millisecond, f.rng.IntN(5) == 0
		f.flood(takes, fails)
		return fmt.Sprintf("answers in %v, failing: %v", takes, fails)
	case n == 5:
		d := time.Duration(1+f.rng.IntN(90)) * time.Second
		f.api.passes(d)
		return fmt.Sprintf("%v without a request", d)
	case n == 6:
		f.conf.Adaptive = []config.Adaptive{{Endpoints: []string{followedAt}, Floor: 0.01 + f.rng.Float64()/2,
			SLO: time.Duration(50+f.rng.IntN(100)) * time.Millisecond, AtOnce: f.rng.IntN(3) > 0}}
		if f.rng.IntN(6) == 0 {
			f.conf.Adaptive = nil
		}
		f.must("POST", "/v1/reload", "")
		return fmt.Sprintf("a reload of %+v", f.conf.Adaptive)
	case n == 7 && !rulesChange:
		f.endAll()
		f.api.passes(time.Hour) // until nobody is blocked: callers have other names in the log of another process
		f.restart()
		f.used = [2]int{}
		clear(f.denied)
		return "a restart"
	case n == 7 && f.changes < 6:
		f.changes, f.gone = f.changes+1, false
		f.each.Limit, f.each.Scope = 1+f.rng.Int64N(12), []policy.Scope{policy.Local, policy.Strict}[f.rng.IntN(2)]
		f.must("PUT", "/v1/policies", fmt.Sprintf(
			`{"endpoint":%q,"limit":%d,"per":"1h","name":"each","subject":"in_flight:ip","scope":%q,"penalty":%q}`,
			followedAt, f.each.Limit, f.each.Scope, f.each.Penalty))
		return fmt.Sprintf("a limit of %d, %v", f.each.Limit, f.each.Scope)
	case n == 8 && rulesChange && f.changes < 6 && !f.gone:
		f.endAll()
		f.changes, f.gone = f.changes+1, true
		f.must("DELETE", "/v1/policies?endpoint=GET+/v1/items/{id}&subject=in_flight:ip", "")
		return "the rule gone"
	case n == 9 && rulesChange && !f.gone: // which change nothing while all places are free, but end a penalty
		address, what := f.address(), []string{"reset", "grant"}[f.rng.IntN(2)]
		for _, u := range f.under {
			if u.address == address {
				return "nothing"
			}
		}
		f.must("POST", "/v1/buckets/"+what, fmt.Sprintf(`{"endpoint":%q,"subject":"in_flight:ip","address":%q%s}`,
			followedAt, address, map[string]string{"grant": `,"amount":3`}[what]))
		return "a " + what + " for " + address
	case n < 13 && len(f.under) > 0:
		f.end(f.rng.IntN(len(f.under)))
		return "the end of an answer"
	}
	return "nothing"
}

func (f *following) must(method, path, body string) {
	f.Helper()
	if status, text := call(f.T, method, f.side+path, body, "Content-Type", asJSON); status != http.StatusOK {
		f.Fatalf("%s %s: %d %s", method, path, status, text)
	}
}

func (f *following) address() string { return fmt.Sprintf("198.51.100.%d", f.rng.IntN(2)) }

// flood has the API answer sixty callers, one after the other.
func (f *following) flood(takes time.Duration, fails bool) {
	f.api.takes.Store(int64(takes))
	f.api.fails.Store(fails)
	for n := range 60 {
		call(f.T, "GET", f.gate+"/v1/items/7", "", "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", n))
	}
	f.api.passes(time.Second)
}

// begin asks for what stays under way, if it is let in; else it returns the answer.
func (f *following) begin(u *heldRequest, header ...string) (refused *http.Response, text string) {
	f.asked++
	u.name, u.free, u.ended = fmt.Sprint(f.asked), make(chan struct{}), make(chan struct{})
	f.api.held.Store(u.name, u.free)
	r, err := http.NewRequest("GET", f.gate+"/v1/items/7", nil)
	if err != nil {
		f.Fatal(err)
	}
	r.Header.Set("Held", u.name)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	go func() {
		defer close(u.ended)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			f.Error(err)
			return
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		refused, text = answer, string(body)
	}()
	select {
	case <-f.api.arrived:
		f.under = append(f.under, u)
		return nil, ""
	case <-u.ended:
		return refused, text
	}
}

func (f *following) end(i int) {
	close(f.under[i].free)
	<-f.under[i].ended
	f.under = append(f.under[:i:i], f.under[i+1:]...)
	eventually(f.T, "what has ended is settled", func() bool { return daemon.UnderWay(f.lives.daemon) == len(f.under) })
}

func (f *following) endAll() {
	for len(f.under) > 0 {
		f.end(0)
	}
}

// page is what the metrics say.
func (f *following) page() func(name string) (value float64, told bool) {
	_, text := call(f.T, "GET", f.side+"/metrics", "")
	return func(name string) (float64, bool) {
		match := regexp.MustCompile(`(?m)^headgate_` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
		if match == nil {
			return 0, false
		}
		value, err := strconv.ParseFloat(match[1], 64)
		return value, err == nil
	}
}

// bucketTold is what explain says of a bucket.
type bucketTold struct {
	Rule, Subject, Algorithm, Larger string
	Limit, Places                    int64
}

// check has somebody ask, and all that tell of it agree with what is known.
func (f *following) check() {
	f.Helper()
	wrong := func(format string, args ...any) {
		f.Helper()
		f.Errorf("after %s: %s", f.steps, fmt.Sprintf(format, args...))
	}
	u := &heldRequest{address: f.address(), rules: map[string]bool{}}
	header := []string{"X-Forwarded-For", u.address}
	u.principal = u.address
	if f.rng.IntN(3) == 0 {
		u.principal = "s1"
		header = append(header, "Authorization", "Bearer "+signed(tokenSecret,
			`{"iss":"me","aud":"api","sub":"s1","exp":%d,"plan":"gold"}`, time.Now().Unix()+3000))
	}
	var x struct {
		Adaptive *struct {
			AtOnce float64 `json:"at_once"`
		}
		Buckets []bucketTold
		Verdict struct {
			Allowed      bool
			Reason, Rule string
			RetryAfter   time.Duration `json:"retry_after_ns"`
		}
	}
	var lines []string
	for i := 0; i < len(header); i += 2 {
		lines = append(lines, header[i]+": "+header[i+1])
	}
	asked, _ := json.Marshal(map[string]any{"method": "GET", "target": "/v1/items/7", "header": lines})
	status, body := call(f.T, "POST", f.side+"/v1/explain", string(asked), "Content-Type", asJSON)
	if err := json.Unmarshal([]byte(body), &x); err != nil || status != http.StatusOK {
		f.Fatalf("explain: %d %s", status, body)
	}
	part, follows := f.page()(`adaptive_at_once_multiplier{endpoint="` + followedAt + `"}`)
	if told := x.Adaptive != nil && x.Adaptive.AtOnce > 0; told != follows ||
		told && (x.Adaptive.AtOnce < part-0.0006 || x.Adaptive.AtOnce > part+0.0006) {
		wrong("by the metrics %v is in force (%v), and by explain %+v", part, follows, x.Adaptive)
	}
	inForce, full, own := map[string]int64{}, "", map[string]int64{}
	for _, b := range x.Buckets {
		if b.Algorithm != "concurrency" || b.Larger != "" {
			continue
		}
		u.rules[b.Rule] = true
		for _, other := range f.under {
			if other.rules[b.Rule] && (b.Subject == "in_flight:ip" && other.address == u.address ||
				b.Subject == "in_flight:principal" && other.principal == u.principal) {
				own[b.Rule]++
			}
		}
		most, places := b.Limit, int64(0)
		if follows && b.Rule != "all" && (b.Rule != "each" || f.each.Scope == policy.Local) {
			most = max(1, most*int64(part*adaptive.Whole)/adaptive.Whole)
			places = most
		}
		if b.Places != places {
			wrong("explain says that %d of %s may be under way, want %d", b.Places, b.Rule, places)
		}
		if inForce[b.Rule] = most; own[b.Rule] >= most {
			full += b.Rule + " "
		}
	}
	refused, text := f.begin(u, header...)
	switch {
	case (refused == nil) != x.Verdict.Allowed:
		wrong("explain says %+v, and it is let in: %v %s", x.Verdict, refused == nil, text)
	case x.Verdict.Reason == "in_penalty":
	case (full == "") != x.Verdict.Allowed:
		wrong("%+v with %v under way of %v", x.Verdict, own, inForce)
	}
	if u.principal == "s1" {
		f.used[map[bool]int{true: 0, false: 1}[refused == nil]]++
	}
	if refused != nil {
		wait, want := refused.Header.Get("Retry-After"), fmt.Sprint(math.Ceil(x.Verdict.RetryAfter.Seconds()))
		blocked, reason := x.Verdict.Rule == "each" && want == "1" && wait != want, x.Verdict.Reason
		if blocked { // by this denial
			reason = "in_penalty"
		}
		f.denied[fmt.Sprintf("reason=%q,rule=%q", reason, x.Verdict.Rule)]++
		if refused.StatusCode != http.StatusTooManyRequests || wait != want && !blocked {
			wrong("it is refused with %d and told to come in %s s, want %s", refused.StatusCode, wait, want)
		}
	}
	if refused != nil && x.Verdict.Reason == "over_limit" {
		if !strings.Contains(full, x.Verdict.Rule) {
			wrong("%s denies, want one of %s", x.Verdict.Rule, full)
		}
		for rule, most := range inForce {
			if fields := refused.Header.Get("RateLimit-Policy"); !strings.Contains(fields,
				fmt.Sprintf(`"%s";q=%d;qu`, rule, most)) {
				wrong("clients are told %s, want %d of %s", fields, most, rule)
			}
			left := max(0, most-own[rule])
			if fields := refused.Header.Get("RateLimit"); !strings.Contains(fields,
				fmt.Sprintf(`"%s";r=%d`, rule, left)) {
				wrong("clients are told %s, want that %d are left of %s", fields, left, rule)
			}
		}
		for _, b := range x.Buckets {
			if b.Rule == x.Verdict.Rule && b.Larger == "" &&
				strings.Contains(text, "lowered to") != (inForce[b.Rule] < b.Limit) {
				wrong("clients are told %s, with %d of %d in force", text, inForce[b.Rule], b.Limit)
			}
		}
	}
	counted := map[string]int{}
	for _, one := range f.under {
		for rule := range one.rules {
			counted[rule]++
		}
	}
	told := f.page()
	for rule := range inForce {
		if n, known := told(`in_flight_requests{rule="` + rule + `"}`); known && int(n) != counted[rule] {
			wrong("by the metrics %v of %s are under way, want %d", n, rule, counted[rule])
		}
	}
}

// agree has what was counted agree in the end.
func (f *following) agree() {
	f.Helper()
	told, byRule, byPage := f.page(), map[string]int{}, map[string]int{}
	for by, n := range f.denied {
		_, rule, _ := strings.Cut(by, "rule=")
		byRule[strings.Trim(rule, `"`)] += n
		if counted, _ := told("denied_total{" + by + "}"); int(counted) != n {
			f.Errorf("by the metrics %v were denied by %s, want %d", counted, by, n)
		}
	}
	var shown struct {
		Callers []struct {
			Rule   string
			Denied int
		}
	}
	_, text := call(f.T, "GET", f.side+"/v1/activity", "")
	if err := json.Unmarshal([]byte(text), &shown); err != nil {
		f.Errorf("%v in %s", err, text)
	}
	for _, one := range shown.Callers {
		byPage[one.Rule] += one.Denied
	}
	if !maps.Equal(byRule, byPage) {
		f.Errorf("by the page %v were denied, want %v", byPage, byRule)
	}
	all, used := used(f.T, f.side)
	for _, row := range all.Rows {
		if row.ID == "s1" && (int(row.Admitted) != f.used[0] || int(row.Denied) != f.used[1]) {
			f.Errorf("used: %s, want %v", used, f.used)
		}
	}
}
