//go:build unix

package doors

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/routertest"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/serve/resp"
	"github.com/headgate-io/headgate/server/envoy"
)

// door decides calls, each on a limiter of its own.
type door struct {
	name   string
	decide func(routertest.Call) routertest.Verdict
}

// bench is a limiter for one door, on the clock that all share.
func bench(t *testing.T, clock *atomic.Int64, trusted ...netip.Prefix) *headgate.Limiter {
	t.Helper()
	o, err := routertest.Limits(clock, trusted...)
	if err != nil {
		t.Fatal(err)
	}
	lim, err := headgate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

func request(t *testing.T, c routertest.Call) *http.Request {
	r, err := http.NewRequest(c.Method, "http://h/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.RequestURI, r.Header, r.RemoteAddr = c.Target, c.Header(), net.JoinHostPort(c.Client, "4711")
	if r.URL, err = url.ParseRequestURI(c.Target); err != nil { // which no server of Go's passes on
		r.URL = nil
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func doors(t *testing.T, clock *atomic.Int64) []door {
	t.Helper()
	limit := func(lim *headgate.Limiter) httplimit.Options {
		return httplimit.Options{Methods: lim.Endpoints().Allowed, MaxWait: -1}
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	upstream := httptest.NewServer(ok)
	t.Cleanup(upstream.Close)
	at, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	must := func(h http.Handler, err error) http.Handler {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	asked := func(lim *headgate.Limiter) decisions.Options {
		return decisions.Options{Limiter: lim, Limit: limit(lim), Trusted: netip.Addr.IsLoopback}
	}
	question := func(method, target string, h http.Header) *http.Request {
		return &http.Request{
			Method:     method,
			RequestURI: target,
			Proto:      "HTTP/1.1",
			ProtoMajor: 1,
			ProtoMinor: 1,
			Header:     h,
			RemoteAddr: "127.0.0.1:1",
			Body:       http.NoBody,
		}
	}
	chain := func(c routertest.Call) string {
		if c.Forwarded == "" {
			return c.Client
		}
		return c.Forwarded + ", " + c.Client
	}
	middle, gate := bench(t, clock), bench(t, clock)
	middleware := httplimit.Handler(middle, ok, limit(middle))
	proxy := must(gateway.New(gateway.Options{Limiter: gate, Upstream: at, Limit: limit(gate)}))
	forward, nginx := must(decisions.New(asked(bench(t, clock)))), must(decisions.New(asked(bench(t, clock))))
	overHTTP, inJSON := must(decisions.New(asked(bench(t, clock)))), must(decisions.New(asked(bench(t, clock))))
	return []door{
		{"`httplimit`", func(c routertest.Call) routertest.Verdict {
			w := serve(middleware, request(t, c))
			return routertest.VerdictOf(w.Code, w.Header())
		}},
		{"gateway", func(c routertest.Call) routertest.Verdict {
			w := serve(proxy, request(t, c))
			return routertest.VerdictOf(w.Code, w.Header())
		}},
		{"Traefik, Caddy, HAProxy by Lua: /forward", func(c routertest.Call) routertest.Verdict {
			h := c.Header()
			h.Set("X-Forwarded-Method", c.Method)
			h.Set("X-Forwarded-Uri", c.Target)
			h.Set("X-Forwarded-For", chain(c))
			w := serve(forward, question("GET", "/forward", h))
			return routertest.VerdictOf(w.Code, w.Header())
		}},
		{"nginx: /nginx", func(c routertest.Call) routertest.Verdict {
			h := c.Header()
			h.Set("X-Original-Method", c.Method)
			h.Set("X-Original-URI", c.Target)
			h.Set("X-Real-IP", c.Client)
			w := serve(nginx, question("GET", "/nginx", h))
			status := w.Code
			if told := w.Header().Get("Headgate-Status"); told != "" {
				status, _ = strconv.Atoi(told)
			}
			return routertest.VerdictOf(status, w.Header())
		}},
		{"Envoy over HTTP: /envoy", func(c routertest.Call) routertest.Verdict {
			h := c.Header()
			h.Set("X-Forwarded-For", chain(c))
			w := serve(overHTTP, question(c.Method, "/envoy"+c.Target, h))
			return routertest.VerdictOf(w.Code, w.Header())
		}},
		{"programs, in JSON", func(c routertest.Call) routertest.Verdict {
			header := map[string][]string(c.Header())
			body, err := json.Marshal(map[string]any{"method": c.Method, "target": c.Target, "client": c.Client,
				"header": header})
			if err != nil {
				t.Fatal(err)
			}
			r := question("POST", "/v1/check", http.Header{})
			r.Body = io.NopCloser(bytes.NewReader(body))
			w := serve(inJSON, r)
			var a decisions.Answer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", body, w.Code, w.Body)
			}
			h := http.Header{}
			for name, value := range a.Header {
				h.Set(name, value)
			}
			if a.Remaining != nil && !strings.Contains(h.Get("RateLimit"),
				fmt.Sprintf(`"%s";r=%d`, a.Rule, *a.Remaining)) {
				t.Errorf("%s: the fields say %s, and the answer %q and %d", body, h.Get("RateLimit"),
					a.Rule, *a.Remaining)
			}
			return routertest.VerdictOf(a.Status, h)
		}},
		overGRPC(t, asked(bench(t, clock))),
		overSPOE(t, asked(bench(t, clock))),
	}
}

func overGRPC(t *testing.T, o decisions.Options) door {
	t.Helper()
	s, err := envoy.New(o, nil, 4)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = s.Shutdown(context.Background()) })
	client := auth.NewAuthorizationClient(conn)
	return door{"Envoy over gRPC", func(c routertest.Call) routertest.Verdict {
		about := &auth.AttributeContext_HttpRequest{Method: c.Method, Path: c.Target, HeaderMap: &core.HeaderMap{}}
		for name, lines := range c.Header() {
			about.HeaderMap.Headers = append(about.HeaderMap.Headers,
				&core.HeaderValue{Key: strings.ToLower(name), RawValue: []byte(lines[0])})
		}
		answer, err := client.Check(t.Context(), &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Source: &auth.AttributeContext_Peer{Address: &core.Address{
				Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: c.Client}}}},
			Request: &auth.AttributeContext_Request{Http: about},
		}})
		if err != nil {
			t.Fatal(err)
		}
		status, fields := http.StatusOK, answer.GetOkResponse().GetResponseHeadersToAdd()
		if denied := answer.GetDeniedResponse(); denied != nil {
			status, fields = int(denied.GetStatus().GetCode()), denied.GetHeaders()
		}
		h := http.Header{}
		for _, f := range fields {
			h.Add(f.GetHeader().GetKey(), f.GetHeader().GetValue())
		}
		return routertest.VerdictOf(status, h)
	}}
}

// overRESP asks by HG.CHECK, which has room for the status, and for the rule that binds with what is left of
// it and when to come back.
func overRESP(t *testing.T, o decisions.Options) func(routertest.Call) (status int, rule, left, retry string) {
	t.Helper()
	answers, err := decisions.NewAnswers(o)
	if err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 64})
	if err != nil {
		t.Fatal(err)
	}
	s, err := resp.New(resp.Options{
		Buckets: buckets, Name: func([]byte) (key.Key, uint16) { return key.Key{}, 0 }, Now: func() int64 { return 0 },
		Check: answers.Ask, Trusted: netip.Addr.IsLoopback, MaxConnections: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = l.Close(); _ = s.Shutdown(context.Background()) })
	in := bufio.NewReader(conn)
	line := func() string {
		text, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimRight(text, "\r\n")
	}
	return func(c routertest.Call) (status int, rule, left, retry string) {
		words := []string{"HG.CHECK", c.Method, c.Target, c.Client}
		for name, lines := range c.Header() {
			words = append(words, "HEADER", name, lines[0])
		}
		text := fmt.Sprintf("*%d\r\n", len(words))
		for _, w := range words {
			text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if first := line(); first != "*7" {
			t.Fatalf("%q is answered %s", words, first)
		}
		var numbers [6]string
		for i := range numbers {
			numbers[i] = strings.TrimPrefix(line(), ":")
		}
		line() // how long the name is
		rule = line()
		if status, err = strconv.Atoi(numbers[5]); err != nil || (numbers[0] == "0") != (status == http.StatusOK) {
			t.Fatalf("%q: %v, %v", words, numbers, err)
		}
		return status, rule, numbers[2], numbers[3]
	}
}

var rewrite = flag.Bool("write", false, "write the table of docs/doors.md")

// Every door says the same of every call: the verdict, the rules that apply with what is left, and
// when to come back. The table of docs/doors.md is what was counted here.
func TestConformance(t *testing.T) {
	clock := routertest.Start()
	all := doors(t, clock)
	redis := overRESP(t, decisions.Options{Limiter: bench(t, clock), Trusted: netip.Addr.IsLoopback})
	rows := make([]routertest.Row, len(all))
	byCommand := routertest.Row{Door: "clients of Redis, by HG.CHECK"}
	statuses, calls := map[int]int{}, routertest.Corpus()
	for i, c := range calls {
		want := all[0].decide(c)
		statuses[want.Status]++
		rows[0].Count(want, want)
		for j, d := range all[1:] {
			got := d.decide(c)
			if rows[j+1].Count(got, want); got != want {
				t.Errorf("call %d, %s %.80s of %s (%q, %q): %s says %+v, want %+v as %s", i, c.Method, c.Target,
					c.Client, c.Forwarded, c.Fields, d.name, got, want, all[0].name)
			}
		}
		status, rule, left, retry := redis(c)
		if retry == "-1" {
			retry = ""
		}
		got := routertest.Verdict{Status: status, Left: want.Left, Limits: want.Limits, Retry: retry}
		if rule != "" && !strings.Contains(want.Left, fmt.Sprintf(`"%s";r=%s`, rule, left)) ||
			(rule == "") != (want.Left == "") {
			got.Left = "other"
		}
		byCommand.Count(got, want)
		if got.Methods = want.Methods; got != want {
			t.Errorf("call %d, %s %.80s of %s: HG.CHECK says %d, %q with %s left, again in %s, want %+v as %s", i,
				c.Method, c.Target, c.Client, status, rule, left, retry, want, all[0].name)
		}
		clock.Add(int64(routertest.Step))
	}
	for _, status := range []int{200, 400, 403, 404, 405, 429} {
		if statuses[status] < 10 {
			t.Errorf("%d calls were answered %d, want 10 or more: the corpus lacks something", statuses[status], status)
		}
	}
	table := "| door | status | limits, and what is left | Retry-After | Allow |\n|---|---|---|---|---|\n"
	for i := range rows {
		rows[i].Door = all[i].name
		table += rows[i].String()
	}
	table += fmt.Sprintf("| %s | %d | %d, of the rule that binds | %d | not told |\n", byCommand.Door, byCommand.Status,
		byCommand.Left, byCommand.Retry)
	compareTable(t,
		fmt.Sprintf("<!-- begin: go test ./doors -run TestConformance -write -->\nOf %d calls, how many were "+
			"answered as by `httplimit`:\n\n%s<!-- end -->\n", len(calls), table))
}

// compareTable compares what was counted with the page, or writes it there.
func compareTable(t *testing.T, want string) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "docs", "doors.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(want, "\n")
	begin := strings.Index(string(text), before)
	end := begin + strings.Index(string(text[max(begin, 0):]), "<!-- end -->\n")
	switch {
	case begin < 0 || end < begin:
		t.Fatalf("docs/doors.md has no %s, or nothing that ends it", before)
	case *rewrite:
		write(t, path, string(text[:begin])+want+string(text[end+len("<!-- end -->\n"):]))
	case string(text[begin:end])+"<!-- end -->\n" != want:
		t.Errorf("docs/doors.md has\n%s\nwant\n%s", text[begin:end], want)
	}
}
