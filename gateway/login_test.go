package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
)

// newLogin starts a gateway that counts failed logins, five an hour, before
// api; left tells what remains for an account.
func newLogin(t *testing.T, api string, change ...func(*gateway.Options)) (server *httptest.Server,
	left func(string) int64) {
	t.Helper()
	const login = "POST /v1/login"
	template, err1 := endpoint.ParseTemplate(login)
	table, err2 := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: login, Limit: 5, Per: time.Hour, Subject: policy.SubjectIdentifier},
	}}, policy.CompileOptions{Endpoints: table})
	buckets, err3 := memory.New(memory.Options{MaxBuckets: 1 << 10})
	who, err4 := identity.New(identity.Options{})
	identifiers, err5 := httplimit.NewIdentifiers(httplimit.IdentifierOptions{Endpoints: table,
		Logins: []httplimit.Login{
			{Endpoint: login, Field: body.Field{Name: "email"}, CountFailures: true, FailureStatuses: []int{401}},
		}})
	limiter, err6 := headgate.New(headgate.Options{Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets,
		Identities: who})
	if err := errors.Join(err1, err2, problems.Err(), err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	server = newGateway(t, api, append(change, func(o *gateway.Options) {
		o.Limiter, o.Limit.Identifiers = limiter, identifiers
	})...)
	return server, func(account string) int64 {
		t.Helper()
		in, err := inspect.Find(context.Background(), limiter, inspect.Query{Endpoint: login, Identifier: account})
		if err != nil || len(in.Buckets) != 1 {
			t.Fatalf("Inspect = %+v, %v", in, err)
		}
		return in.Buckets[0].Remaining
	}
}

// post sends a login, of unknown length, with a trailer.
func post(t *testing.T, ctx context.Context, base, text string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", base+"/v1/login", struct{ io.Reader }{strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Trailer = http.Header{"X-Sum": {"42"}}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response.StatusCode, err
}

// eventually waits for what a request settles after its answer.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for give := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(give) {
			t.Fatalf("%s does not come true", what)
		}
	}
}

func TestLoginsThroughTheGateway(t *testing.T) {
	type seen struct{ body, trailer string }
	got := make(chan seen, 10)
	release := make(chan struct{})
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got <- seen{string(text), r.Trailer.Get("X-Sum")}
		switch {
		case strings.Contains(string(text), "hang"):
			select {
			case <-r.Context().Done():
			case <-release:
			}
		case strings.Contains(string(text), "cut"):
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case !strings.Contains(string(text), "right"):
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	t.Cleanup(func() { close(release) })
	// Long enough for a slow machine to answer what is answered; one request waits for it.
	server, left := newLogin(t, api, func(o *gateway.Options) { o.UpstreamTimeout = 2 * time.Second })
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		text string
		code int
		left int64 // of alice's 5
	}{
		{`{"email":"alice","password":"right"}`, 200, 5},
		{`{"email":"Alice","password":"wrong"}`, 401, 4},
		// too long to be read, and whole all the same
		{`{"email":"alice","password":"right","x":"` + long + `"}`, 200, 4},
		{`{"email":"alice","password":"hang"}`, 504, 3},
		{`{"email":"alice","password":"right"}`, 200, 3},
	} {
		code, err := post(t, context.Background(), server.URL, c.text)
		if s := <-got; err != nil || code != c.code || s != (seen{c.text, "42"}) {
			t.Errorf("%.60s: %d, %v, the API got %d bytes and trailer %q, want %d", c.text, code, err, len(s.body),
				s.trailer, c.code)
		}
		eventually(t, "what is left of alice's", func() bool { return left("alice") == c.left })
	}
	if _, err := post(t, context.Background(), server.URL, `{"email":"bob","password":"cut"}`); err == nil {
		t.Error("an answer that is cut off ends well")
	}
	<-got
	eventually(t, "a cut answer counts", func() bool { return left("bob") == 4 })

	down, left := newLogin(t, "http://127.0.0.1:1")
	if code, err := post(t, context.Background(), down.URL, `{"email":"alice"}`); err != nil ||
		code != http.StatusBadGateway {
		t.Errorf("an API that is down: %d, %v", code, err)
	}
	eventually(t, "a failure of the API counts", func() bool { return left("alice") == 4 })
}

// A client that leaves before the answer has guessed all the same.
func TestClientsThatLeaveHaveGuessed(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	t.Cleanup(func() { close(release) })
	settled := make(chan error, 1)
	server, left := newLogin(t, api, func(o *gateway.Options) {
		o.Limit.Reserve = &httplimit.Reserve{Field: httplimit.CostField, Failed: func(err error) { settled <- err }}
	})
	ctx, leave := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := post(t, ctx, server.URL, `{"email":"alice","password":"right"}`)
		ended <- err
	}()
	<-arrived
	leave()
	if err := <-ended; err == nil {
		t.Error("the request ends well")
	}
	server.Close() // which waits until the gateway is done with it
	if got := left("alice"); got != 4 {
		t.Errorf("%d left after a client left, want 4", got)
	}
}

// TestBodiesThatBreakOffHaveGuessed: the API may have acted on what came of a request before its body broke off, and
// the gateway answers in its place. That is no way to try something for nothing.
func TestBodiesThatBreakOffHaveGuessed(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{} // and has found the code of the path
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	t.Cleanup(func() { close(release) })
	const endpointOf = "POST /v1/codes/{code}"
	template, err1 := endpoint.ParseTemplate(endpointOf)
	table, err2 := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: endpointOf, Limit: 2,
		Per: time.Hour}}}, policy.CompileOptions{Endpoints: table})
	limiter, err3 := headgate.New(headgate.Options{Endpoints: table, Policies: headgate.Fixed(set)})
	guesses, err4 := policy.ParseStatuses("404")
	if err := errors.Join(err1, err2, problems.Err(), err3, err4); err != nil {
		t.Fatal(err)
	}
	server := newGateway(t, api, func(o *gateway.Options) {
		o.Limiter, o.Limit.CountWhen = limiter, map[string]*policy.Statuses{endpointOf: guesses}
	})
	for i, want := range []string{"HTTP/1.1 400", "HTTP/1.1 400", "HTTP/1.1 429"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn,
			"POST /v1/codes/summer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
		if want != "HTTP/1.1 429" {
			<-arrived
		}
		_, _ = io.WriteString(conn, "no chunk\r\n")
		if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), want) {
			t.Errorf("request %d = %.60q, %v, want %s", i, answer, err, want)
		}
		conn.Close()
		eventually(t, "the request is settled", func() bool { return limiter.Reservations().Outstanding == 0 })
	}
}

// TestWhatTheAPIDidNotAnswerCounts: an answer that the gateway gave in the API's place, after the
// API may have acted, counts where only some answers do; as do a client that left and an upgrade.
// Where the API was never reached it does not.
func TestWhatTheAPIDidNotAnswerCounts(t *testing.T) {
	release := make(chan struct{})
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/codes/slow":
			select {
			case <-r.Context().Done():
			case <-release:
			}
		case "/v1/codes/cut":
			panic(http.ErrAbortHandler)
		case "/v1/codes/switch":
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	})
	t.Cleanup(func() { close(release) })
	template, err1 := endpoint.ParseTemplate("GET /v1/codes/{code}")
	table, err2 := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for path, c := range map[string]struct {
		upstream string
		first    int
		second   int
	}{
		"/v1/codes/fine":   {api, 200, 200},
		"/v1/codes/slow":   {api, 504, 429},
		"/v1/codes/cut":    {api, 502, 429},
		"/v1/codes/switch": {api, 101, 429},
		"/v1/codes/down":   {"http://127.0.0.1:1", 502, 502},
	} {
		set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
			{Endpoint: "GET /v1/codes/{code}", Limit: 1, Per: time.Hour, CountWhen: "404"},
		}}, policy.CompileOptions{Endpoints: table})
		limiter, err := headgate.New(headgate.Options{Endpoints: table, Policies: headgate.Fixed(set)})
		if err := errors.Join(problems.Err(), err); err != nil {
			t.Fatal(err)
		}
		server := newGateway(t, c.upstream, func(o *gateway.Options) {
			if o.Limiter = limiter; strings.HasSuffix(path, "slow") {
				o.UpstreamTimeout = time.Second
			}
		})
		ask := func() int {
			t.Helper()
			r, err := http.NewRequest("GET", server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(path, "switch") {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "echo")
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			eventually(t, "the request is settled", func() bool { return limiter.Reservations().Outstanding == 0 })
			return response.StatusCode
		}
		if first, second := ask(), ask(); first != c.first || second != c.second {
			t.Errorf("%s is answered %d and then %d, want %d and %d", path, first, second, c.first, c.second)
		}
	}
}
