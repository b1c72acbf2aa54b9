//go:build long

package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// sized answers with what it is asked for: bytes, the usage of a language model as JSON or as a stream in pieces, or a
// status; and breaks off where it is told to.
func sized(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	n := func(name string) int { v, _ := strconv.Atoi(q.Get(name)); return v }
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	text := strings.Repeat("x", n("size"))
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d}`, n("read"), n("wrote"))
	switch q.Get("kind") {
	case "json":
		w.Header().Set("Content-Type", "application/json")
		text = `{"choices":[{"message":{"content":"\"usage\":{"}}],"usage":` + usage + "}"
	case "stream":
		w.Header().Set("Content-Type", "text/event-stream")
		text = strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\r\n\r\n", n("wrote")%30) +
			"data: {\"choices\":[],\"usage\":" + usage + "}\n\ndata: [DONE]\n\n"
	}
	if s := n("status"); s > 0 {
		w.WriteHeader(s)
	}
	pieces := rand.New(rand.NewPCG(uint64(len(text)), 0))
	for len(text) > 0 {
		piece := min(len(text), 1+pieces.IntN(500))
		_, _ = io.WriteString(w, text[:piece])
		_ = http.NewResponseController(w).Flush()
		if text = text[piece:]; q.Has("breaks") && pieces.IntN(4) == 0 {
			panic(http.ErrAbortHandler)
		}
	}
}

// spent is what requests of one caller at one endpoint may have cost: more than is certain where they broke off.
type spent struct{ least, most, requests int64 }

// TestEveryRequestCostsWhatItDid: bytes both ways, tokens of language models, one model of them, batches, tools and
// answers that count, while endpoints change their numbers, callers are scored and rates follow the API: behind either
// engine and either client, what is left in each bucket is the burst without what each request was.
func TestEveryRequestCostsWhatItDid(t *testing.T) {
	for _, engine := range []string{"fast", "net/http"} {
		for _, client := range []string{"own", "net/http"} {
			t.Run(engine+" "+client, func(t *testing.T) {
				for seed := range uint64(3) {
					account(t, seed, func(c *config.Config) { c.Engine, c.Upstreams.Client = engine, client })
				}
			})
		}
	}
}

const burst = 1_000_000 // a day

func account(t *testing.T, seed uint64, change func(*config.Config)) {
	api := httptest.NewServer(http.HandlerFunc(sized))
	defer api.Close()
	routes := filepath.Join(t.TempDir(), "more.txt")
	endpoints := []string{"GET /files", "PUT /files", "POST /chat", "MODEL /chat/large", "POST /rpc", "POST /mcp",
		"MCP /mcp/tools/call/report", "GET /probe"}
	list := func(n uint64) {
		all := append([]string{fmt.Sprint("GET /a/", n)}, endpoints...)
		rand.New(rand.NewPCG(seed, n)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if err := os.WriteFile(routes, []byte(strings.Join(all, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list(0)
	rules := []policy.Rule{{Endpoint: policy.Default, Limit: 1e6}, {Endpoint: policy.Default, Limit: 1e6, Tier: "odd"},
		{Endpoint: "POST /chat", Limit: 1000, Algorithm: policy.Concurrency,
			Subject: policy.SubjectPrincipal.Counting(policy.CountsUnderWay)},
		{Endpoint: "POST /chat", Limit: burst, Per: 24 * time.Hour,
			Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests)}}
	for _, at := range endpoints {
		rule := policy.Rule{Endpoint: at, Limit: burst, Per: 24 * time.Hour}
		if at == "GET /probe" {
			rule.CountWhen = "401,404"
		}
		rules = append(rules, rule)
	}
	odd := config.ScoreTier{Score: 30, Tier: "odd", Addresses: true}
	r := newReloading(t, rules, func(c *config.Config) {
		c.Upstream, c.Routes, c.TrustedProxies = api.URL, append(c.Routes, routes), []string{"127.0.0.0/8"}
		c.LanguageModels = []config.LanguageModel{{Endpoints: []string{"POST /chat"}, AtEnd: "cut"}}
		c.Bytes = []config.ByteCount{{Endpoints: []string{"GET /files"}, AtEnd: "cut"},
			{Endpoints: []string{"PUT /files"}}}
		c.Batches, c.MCP = []config.Batch{{Endpoint: "POST /rpc"}}, []config.MCP{{Endpoint: "POST /mcp"}}
		c.Anomalies.Window, c.Anomalies.Tiers = time.Second, []config.ScoreTier{odd}
		c.Adaptive = []config.Adaptive{{Endpoints: []string{"GET /probe"}, SLO: time.Second}}
	}, change)
	began := time.Now()
	var stop atomic.Bool
	var reloads, callers sync.WaitGroup
	reloads.Go(func() {
		for n := uint64(1); !stop.Load(); n++ {
			list(n)
			r.edit(func(c *config.Config) {
				if c.Anomalies.Window, c.Anomalies.Tiers = 0, nil; n%2 == 0 {
					c.Anomalies.Window, c.Anomalies.Tiers = time.Second, []config.ScoreTier{odd}
				}
			})
			r.reload(t)
		}
	})
	var accounts [6]map[string]*spent
	address := func(n int) string { return fmt.Sprintf("10.0.%d.%d", seed, n+1) }
	for n := range accounts {
		accounts[n] = map[string]*spent{}
		for _, at := range endpoints {
			accounts[n][at] = &spent{}
		}
		callers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(n)))
			for range 100 {
				ask(t, r.gate, address(n), rng, accounts[n])
			}
		})
	}
	callers.Wait()
	stop.Store(true)
	reloads.Wait()
	for range 10_000 { // what was left settles in a moment
		if _, page := call(t, "GET", r.admin+"/metrics", ""); strings.Contains(page, "\nheadgate_reservations 0\n") {
			break
		}
	}
	for n, of := range accounts {
		for at, want := range of {
			query := url.Values{"endpoint": {at}, "address": {address(n)}}
			_, text := call(t, "GET", r.admin+"/v1/buckets?"+query.Encode(), "")
			var found struct {
				Buckets []struct {
					Subject   string
					Remaining int64
				}
			}
			if err := json.Unmarshal([]byte(text), &found); err != nil || len(found.Buckets) == 0 {
				t.Fatal(text)
			}
			drained := int64(time.Since(began).Seconds()*burst/86400) + 1
			for _, b := range found.Buckets {
				used, least, most := burst-b.Remaining, want.least, want.most
				switch of, _, other := strings.Cut(b.Subject, ":"); {
				case of == "in_flight":
					used, least, most = 1000-b.Remaining, 0, 0
				case other:
					least, most = want.requests, want.requests
				}
				if used < least-drained || used > most {
					t.Errorf("seed %d: caller %d spent %d at %s by %s, want %d to %d, of which up to %d has drained",
						seed, n, used, at, b.Subject, least, most, drained)
				}
			}
		}
	}
}

// ask makes one request of a caller, and notes what it may have cost.
func ask(t *testing.T, gate, from string, rng *rand.Rand, accounts map[string]*spent) {
	some := func(of ...string) string { return of[rng.IntN(len(of))] }
	number := func(most int) (int64, string) { n := 1 + rng.IntN(most); return int64(n), strconv.Itoa(n) }
	method, path, body, q := "POST", "", "", url.Values{}
	at, least := "", int64(0)
	switch rng.IntN(5) {
	case 0:
		method, path = some("GET", "PUT"), "/files"
		at = method + " /files"
		least, body = 0, strings.Repeat("x", rng.IntN(5000))
		if method == "GET" {
			body = ""
		}
		size, said := number(5000)
		q.Set("size", said)
		least = size + int64(len(body))
	case 1:
		path, at = "/chat", "POST /chat"
		model := some("small", "Large", "large", `l\u0061rge`)
		if strings.HasPrefix(model, "l") {
			at = "MODEL /chat/large"
		}
		read, saidRead := number(500)
		wrote, saidWrote := number(500)
		q.Set("read", saidRead)
		q.Set("wrote", saidWrote)
		if least = read + wrote; rng.IntN(5) == 0 {
			q.Set("status", some("400", "500"))
			least = 1
		} else {
			q.Set("kind", some("json", "stream"))
		}
		body = fmt.Sprintf(`{"model":"%s","max_tokens":500,"messages":["%s"]}`, model, strings.Repeat("x", 1500))
	case 2:
		path, at = "/rpc", "POST /rpc"
		parts, _ := number(20)
		least, body = parts, "[1"+strings.Repeat(",1", int(parts)-1)+"]"
	case 3:
		path, at, least = "/mcp", "POST /mcp", 1
		tool := some("search", "report", `rep\u006frt`)
		if tool != "search" {
			at = "MCP /mcp/tools/call/report"
		}
		body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `"}}`
	case 4:
		method, path, at = "GET", "/probe", "GET /probe"
		q.Set("status", some("200", "401", "404", "500"))
		if s := q.Get("status"); s == "401" || s == "404" {
			least = 1
		}
	}
	leaves := path == "/files" && rng.IntN(4) == 0
	if path == "/files" && rng.IntN(4) == 0 {
		q.Set("breaks", "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent io.Reader = strings.NewReader(body)
	if rng.IntN(2) == 0 {
		sent = struct{ io.Reader }{sent} // in chunks
	}
	r, err := http.NewRequestWithContext(ctx, method, gate+path+"?"+q.Encode(), sent)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", from)
	r.Header.Set("Content-Type", "application/json")
	if method == "GET" {
		r.Body = nil
	}
	account, most := accounts[at], least
	account.requests++
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		defer answer.Body.Close()
		if leaves {
			cancel()
		}
		_, err = io.Copy(io.Discard, answer.Body)
	}
	if broken := leaves || q.Has("breaks"); broken {
		least, most = 0, most+1000 // an answer of the gateway's own, perhaps
	} else if err != nil || answer.StatusCode == http.StatusTooManyRequests ||
		answer.StatusCode == http.StatusBadGateway {
		t.Errorf("%s %s: %v, %v", method, r.URL, answer, err)
	}
	account.least, account.most = account.least+least, account.most+most
}
