package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
)

const loginEndpoint = "POST /v1/login"

var loginRules = []policy.Rule{
	{Endpoint: loginEndpoint, Limit: 20, Per: time.Hour, Subject: policy.SubjectIP},
	{Endpoint: loginEndpoint, Limit: 5, Per: time.Hour, Subject: policy.SubjectIdentifier},
}

// logins is a Handler before an API that has accounts.
type logins struct {
	http.Handler
	*httplimit.Identifiers
	lim *headgate.Limiter
	api http.HandlerFunc

	mu   sync.Mutex
	last *headgate.Decision // of the limiter
	got  string             // the body that reached the API
}

func newLogins(t testing.TB, l httplimit.Login, rules []policy.Rule, o httplimit.Options) *logins {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range []string{loginEndpoint, "POST /v1/items", "GET /v1/items"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: rules}, policy.CompileOptions{Endpoints: table, Now: epoch})
	buckets, err2 := memory.New(memory.Options{MaxBuckets: 1 << 10})
	who, err3 := identity.New(identity.Options{})
	d := &logins{}
	l.Endpoint = loginEndpoint
	var err4, err5 error
	d.Identifiers, err4 = httplimit.NewIdentifiers(httplimit.IdentifierOptions{Endpoints: table,
		Logins: []httplimit.Login{l}})
	if err := errors.Join(problems.Err(), err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	d.lim, err5 = headgate.New(headgate.Options{
		Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who, Typed: d.Typed,
		Now: func() time.Time { return epoch },
		Observe: func(_ *headgate.Request, decision *headgate.Decision) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.last = new(headgate.Decision)
			*d.last = *decision
		},
	})
	if err5 != nil {
		t.Fatal(err5)
	}
	o.Identifiers = d.Identifiers
	d.Handler = httplimit.Handler(d.lim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		d.mu.Lock()
		d.got = string(text)
		d.mu.Unlock()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if d.api != nil {
			d.api(w, r)
		}
	}), o)
	return d
}

// post sends a login; header holds pairs.
func (d *logins) post(from string, text []byte, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/login", bytes.NewReader(text))
	r.RemoteAddr = from + ":1234"
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// left is what an identifier's bucket has.
func (d *logins) left(t testing.TB, identifier string) int64 {
	t.Helper()
	subject := policy.SubjectIdentifier
	in, err := inspect.Find(context.Background(), d.lim, inspect.Query{Endpoint: loginEndpoint, Identifier: identifier,
		Subject: &subject})
	if err != nil || len(in.Buckets) != 1 {
		t.Fatalf("Inspect = %+v, %v", in, err)
	}
	return in.Buckets[0].Remaining
}

// strict reports whether the last request went the strict way.
func (d *logins) strict() bool {
	return slices.ContainsFunc(d.last.Verdicts(), func(v headgate.Verdict) bool { return v.Unparsable })
}

// Each vector of JSONTestSuite, through the real handler: what is JSON and has
// the field uses its account's budget, everything else the strict way, and what
// reaches the API is what was sent.
func TestJSONVectorsThroughTheHandler(t *testing.T) {
	files, err := filepath.Glob("../body/testdata/test_parsing/*.json")
	if err != nil || len(files) != 149 {
		t.Fatalf("%d vectors, %v", len(files), err)
	}
	rules := []policy.Rule{{Endpoint: loginEndpoint, Limit: 5000, Per: time.Hour, Subject: policy.SubjectIdentifier}}
	d := newLogins(t, httplimit.Login{Field: body.Field{Name: "user", MaxBytes: body.MostBytes}}, rules,
		httplimit.Options{})
	taken := int64(0)
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		send := func(text []byte, identified bool) {
			t.Helper()
			w := d.post("192.0.2.7", text)
			if w.Code != http.StatusOK || d.got != string(text) || d.strict() == identified {
				t.Errorf("%s: %d, body kept: %v, strict: %v, want 200, kept, %v", name, w.Code, d.got == string(text),
					d.strict(), !identified)
			}
			if identified {
				taken++
			}
		}
		send(text, false) // none has the field at its top
		read := name[0] == 'y' || strings.HasPrefix(name, "i_number_")
		send(fmt.Appendf(nil, `{"user":"Alice","v":%s}`, text), read)
		send(fmt.Appendf(nil, `{"v":%s,"user":" alice"}`, text), read)
	}
	if got := d.left(t, "alice"); got != 5000-taken || taken < 80 {
		t.Errorf("%d tokens are left of alice's 5000 after %d requests of hers", got, taken)
	}
	deep := []byte(`{"user":` + strings.Repeat("[", 100_000))
	before := d.Faults(body.Kind) + d.Faults(body.Depth)
	if w := d.post("192.0.2.8", deep); w.Code != http.StatusOK || !d.strict() || d.got != string(deep) ||
		d.Faults(body.Kind)+d.Faults(body.Depth) != before+1 {
		t.Errorf("100,000 opening arrays: %d, strict: %v, want passed on the strict way", w.Code, d.strict())
	}
}

// However a body is malformed, an attacker with many addresses has one more
// budget for all accounts together, and nobody who sends well is in its way.
func TestMalformedBodiesGainNothing(t *testing.T) {
	bodies := map[string]struct {
		text   string
		header []string
	}{
		"no type":      {`{"user":"victim"}`, []string{"Content-Type", ""}},
		"another type": {`{"user":"victim"}`, []string{"Content-Type", "text/plain"}},
		"multipart": {"--x\r\nContent-Disposition: form-data; name=user\r\n\r\nvictim\r\n--x--\r\n",
			[]string{"Content-Type", "multipart/form-data; boundary=x"}},
		"charset":      {`{"user":"victim"}`, []string{"Content-Type", "application/json; charset=utf-16"}},
		"compressed":   {`{"user":"victim"}`, []string{"Content-Encoding", "gzip"}},
		"twice":        {`{"user":"nobody","user":"victim"}`, nil},
		"another case": {`{"user":"nobody","User":"victim"}`, nil},
		"comment":      {`{"user":"victim"/**/}`, nil},
		"bom":          {"\ufeff" + `{"user":"victim"}`, nil},
		"array":        {`[{"user":"victim"}]`, nil},
		"long":         {`{"user":"victim"` + strings.Repeat(" ", body.DefaultBytes) + `}`, nil},
		"empty":        {``, nil},
		"nul":          {`{"user":"victim\u0000"}`, nil},
	}
	for name, c := range bodies {
		d := newLogins(t, httplimit.Login{Field: body.Field{Name: "user"}}, loginRules, httplimit.Options{})
		admitted := 0
		for i := range 60 {
			if d.post(fmt.Sprintf("198.51.100.%d", i), []byte(c.text), c.header...).Code == http.StatusOK {
				admitted++
				if d.got != c.text {
					t.Errorf("%s: the API got %q", name, d.got)
				}
			}
		}
		if admitted != 5 {
			t.Errorf("%s: %d admitted from 60 addresses, want 5", name, admitted)
		}
		if w := d.post("192.0.2.7", []byte(`{"user":"victim"}`)); w.Code != http.StatusOK || d.left(t, "victim") != 4 {
			t.Errorf("%s: the victim is answered with %d and has %d left, want 200 and 4", name, w.Code,
				d.left(t, "victim"))
		}
		reject := newLogins(t, httplimit.Login{Field: body.Field{Name: "user"}, Reject: true}, loginRules,
			httplimit.Options{})
		if w := reject.post("192.0.2.7", []byte(c.text), c.header...); w.Code != http.StatusBadRequest ||
			reject.last != nil {
			t.Errorf("%s under Reject: %d, want 400 before any limit", name, w.Code)
		}
	}
}

func TestStrictRefusalsNameTheRuleOnce(t *testing.T) {
	d := newLogins(t, httplimit.Login{Field: body.Field{Name: "user"}}, loginRules, httplimit.Options{})
	for i := range 5 {
		d.post(fmt.Sprintf("198.51.100.%d", i), []byte(`{`))
	}
	w := d.post("192.0.2.7", []byte(`{`))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "720" ||
		w.Header().Get("RateLimit") != `"POST /v1/login per ip";r=20, "POST /v1/login per identifier";r=0;t=720` ||
		!strings.Contains(w.Body.String(), `"violated-policies":["POST /v1/login per identifier"]`) {
		t.Errorf("%d %v %s, want the rule named once, with the budget that has less", w.Code, w.Header(), w.Body)
	}
}

// reads counts how often a body is touched.
type touched struct {
	io.Reader
	reads int
}

func (b *touched) Read(p []byte) (int, error) { b.reads++; return b.Reader.Read(p) }
func (*touched) Close() error                 { return nil }

func TestOtherEndpointsAreNotTouched(t *testing.T) {
	d := newLogins(t, httplimit.Login{Field: body.Field{Name: "user"}}, loginRules, httplimit.Options{})
	for target, method := range map[string]string{
		"/v1/items":    "POST",
		"/v1/nothing":  "POST",
		"/v1/login%00": "POST",
		"/v1/login":    "PUT",
	} {
		b := &touched{Reader: strings.NewReader(`{"user":"alice"}`)}
		r := at(httptest.NewRequest(method, "/", nil), target)
		r.Body, r.ContentLength = b, 16
		r.Header.Set("Content-Type", "application/json")
		h := httplimit.Handler(d.lim, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			httplimit.Options{Identifiers: d.Identifiers})
		h.ServeHTTP(httptest.NewRecorder(), r)
		if b.reads != 0 || d.strict() {
			t.Errorf("%s %s: the body is read %d times, strict: %v", method, target, b.reads, d.strict())
		}
	}
	// The same endpoint by any spelling is.
	r := at(httptest.NewRequest("POST", "/", strings.NewReader(`{"user":"alice"}`)), "//v1/./l%6fgin/?x=1")
	r.Header.Set("Content-Type", "application/json")
	d.ServeHTTP(httptest.NewRecorder(), r)
	if got := d.left(t, "alice"); got != 4 {
		t.Errorf("%d left of alice's 5 after another spelling of the path, want 4", got)
	}
}

// Bodies in pieces, of known and unknown length, up to the bound and beyond,
// reach the API byte for byte.
func TestBodiesAreReplayed(t *testing.T) {
	f := body.Field{Name: "user", MaxBytes: 600}
	for _, size := range []int{100, 599, 600, 601, 5000} {
		head := `{"user":"alice","x":"`
		text := head + strings.Repeat("y", size-len(head)-2) + `"}`
		for name, reader := range map[string]io.Reader{
			"known": strings.NewReader(text), "chunked": struct{ io.Reader }{strings.NewReader(text)},
			"byte by byte":  iotest.OneByteReader(strings.NewReader(text)),
			"end with data": iotest.DataErrReader(strings.NewReader(text)),
		} {
			d := newLogins(t, httplimit.Login{Field: f}, loginRules, httplimit.Options{})
			r := httptest.NewRequest("POST", "/v1/login", reader)
			r.Header.Set("Content-Type", "application/json; charset=utf-8")
			d.ServeHTTP(httptest.NewRecorder(), r)
			want := int64(4)
			if size > 600 {
				want = 5
			}
			if got := d.left(t, "alice"); d.got != text || got != want || d.strict() != (size > 600) {
				t.Errorf("%d bytes %s: %d arrive, %d left, want all and %d", size, name, len(d.got), got, want)
			}
		}
	}
	d := newLogins(t, httplimit.Login{Field: f}, loginRules, httplimit.Options{})
	r := httptest.NewRequest("POST", "/v1/login",
		io.MultiReader(strings.NewReader(`{"user":"al`), iotest.ErrReader(errors.New("gone"))))
	r.Header.Set("Content-Type", "application/json")
	func() {
		defer func() { _ = recover() }() // the API aborts
		d.ServeHTTP(httptest.NewRecorder(), r)
	}()
	if d.got != `{"user":"al` || !d.strict() || d.Faults(body.Unread) != 1 {
		t.Errorf("a body that breaks off: %q arrives, strict: %v", d.got, d.strict())
	}
}

// serve puts the handler behind a real server.
func (d *logins) serve(t *testing.T) (address string) {
	t.Helper()
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// exchange writes a request to a connection of its own, and returns what comes
// back up to limit of a wait that no test should reach.
func exchange(t *testing.T, address string, parts ...string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	var all []byte
	for i, part := range parts {
		if i > 0 { // what is sent is answered before the next
			buf := make([]byte, 4096)
			n, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, buf[:n]...)
		}
		if _, err := io.WriteString(c, part); err != nil {
			t.Fatal(err)
		}
	}
	rest, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%v after %q", err, rest)
	}
	return string(append(all, rest...))
}

func TestExpectContinueAndChunksOverASocket(t *testing.T) {
	d := newLogins(t, httplimit.Login{Field: body.Field{Name: "user"}}, loginRules, httplimit.Options{})
	address := d.serve(t)
	const head = "POST /v1/login HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
	got := exchange(t, address, head+"Expect: 100-continue\r\nContent-Length: 16\r\n\r\n", `{"user":"alice"}`)
	if !strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n\r\n") || !strings.Contains(got, "HTTP/1.1 200 OK") ||
		d.left(t, "alice") != 4 {
		t.Errorf("Expect: 100-continue: %q", got)
	}
	got = exchange(t, address, head+"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"use\r\nb\r\nr\":\"alice\"}\r\n0\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 OK") || d.got != `{"user":"alice"}` || d.left(t, "alice") != 3 {
		t.Errorf("chunked: %q, the API got %q", got, d.got)
	}
}

func TestSlowBodiesAreGivenUp(t *testing.T) {
	d := newLogins(t, httplimit.Login{Field: body.Field{Name: "user"}, ReadTimeout: 20 * time.Millisecond}, loginRules,
		httplimit.Options{})
	address := d.serve(t)
	got := exchange(t, address,
		"POST /v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"user\"")
	if !strings.HasPrefix(got, "HTTP/1.1 408 ") || !strings.Contains(got, "Connection: close") ||
		d.last != nil || d.got != "" {
		t.Errorf("a body that stalls: %q, limited: %v, the API got %q", got, d.last != nil, d.got)
	}
}

// deadlined records the deadlines that are set for its body.
type deadlined struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (w *deadlined) SetReadDeadline(t time.Time) error { w.set = append(w.set, t); return nil }

// The deadline is the body's alone, and never later than the server's: one that
// stayed would end the connection under an API that takes longer.
func TestDeadlinesAreTheBodys(t *testing.T) {
	for name, c := range map[string]struct {
		server time.Duration // its ReadTimeout
		set    int
		zero   bool // the last one is none
	}{
		"the server has none": {0, 2, true}, "the server's is later": {time.Hour, 2, false},
		"the server's is sooner": {time.Second, 0, false},
	} {
		d := newLogins(t, httplimit.Login{Field: body.Field{Name: "user"}, ReadTimeout: time.Minute}, loginRules,
			httplimit.Options{})
		ctx := context.WithValue(context.Background(), http.ServerContextKey, &http.Server{ReadTimeout: c.server})
		r := httptest.NewRequestWithContext(ctx, "POST", "/v1/login", strings.NewReader(`{"user":"alice"}`))
		r.Header.Set("Content-Type", "application/json")
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		d.ServeHTTP(w, r)
		if len(w.set) != c.set || c.set > 0 && (w.set[0].IsZero() || w.set[1].IsZero() != c.zero ||
			!c.zero && !w.set[1].After(w.set[0])) {
			t.Errorf("%s: deadlines %v", name, w.set)
		}
	}
}

func TestOnlyFailuresCount(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []int
		api      http.HandlerFunc
		left     int64
	}{
		"200":            {nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, 5},
		"200 by default": {nil, func(http.ResponseWriter, *http.Request) {}, 5},
		"200 by a body": {nil, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "welcome")
		}, 5},
		"204": {nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 5},
		"103 and 200": {nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(200)
		}, 5},
		"401":              {nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 4},
		"302 says nothing": {nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(302) }, 4},
		"422":              {nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(422) }, 4},
		"500":              {nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 4},
		"the first one counts": {nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(401)
			w.WriteHeader(200)
		}, 4},
		"aborted": {nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic(http.ErrAbortHandler)
		}, 4},
		"302 is no failure": {[]int{401, 403}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(302) }, 5},
		"422 is no failure": {[]int{401, 403}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(422) }, 5},
		"403 is one":        {[]int{401, 403}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, 4},
		"502 is always one": {[]int{401, 403}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, 4},
	} {
		d := newLogins(t, httplimit.Login{Field: body.Field{Name: "user"}, CountFailures: true,
			FailureStatuses: c.statuses}, loginRules, httplimit.Options{})
		d.api = c.api
		func() {
			defer func() { _ = recover() }()
			d.post("192.0.2.7", []byte(`{"user":"alice"}`))
		}()
		if got := d.left(t, "alice"); got != c.left {
			t.Errorf("%s: %d left, want %d", name, got, c.left)
		}
		if s := d.lim.Reservations(); s.Outstanding != 0 || s.Settled != 1 {
			t.Errorf("%s: reservations %+v, want one settled", name, s)
		}
	}
}

// Attempts under way count: however many come at once, the budget's are let
// through.
func TestParallelAttemptsAreBounded(t *testing.T) {
	d := newLogins(t, httplimit.Login{Field: body.Field{Name: "user"}, CountFailures: true}, loginRules,
		httplimit.Options{})
	release, arrived := make(chan struct{}), make(chan struct{}, 50)
	d.api = func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release }
	codes := make(chan int, 50)
	for i := range 50 {
		go func() { codes <- d.post(fmt.Sprintf("198.51.100.%d", i), []byte(`{"user":"alice"}`)).Code }()
	}
	for range 45 {
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Errorf("answered with %d while 5 are under way, want 429", code)
		}
	}
	for range 5 {
		<-arrived
	}
	if got := d.left(t, "alice"); got != 0 {
		t.Errorf("%d left while 5 are under way, want 0", got)
	}
	close(release)
	for range 5 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("answered with %d, want 200", code)
		}
	}
	if got := d.left(t, "alice"); got != 5 {
		t.Errorf("%d left after 5 successes, want 5", got)
	}
}

// With Reserve, a failure pays what the response says, a success nothing but to
// the rules for all endpoints.
func TestFailuresPayTheirCost(t *testing.T) {
	rules := append([]policy.Rule{{Endpoint: policy.All, Limit: 20, Per: time.Hour, Subject: policy.SubjectIdentifier}},
		loginRules[1])
	d := newLogins(t, httplimit.Login{Field: body.Field{Name: "user"}, CountFailures: true}, rules,
		httplimit.Options{Reserve: &httplimit.Reserve{Field: httplimit.CostField}})
	status := 200
	d.api = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(httplimit.CostField, "3")
		w.WriteHeader(status)
	}
	remaining := func() []int64 {
		t.Helper()
		var all []int64
		for _, at := range []string{loginEndpoint, policy.All} {
			in, err := inspect.Find(context.Background(), d.lim, inspect.Query{Endpoint: at, Identifier: "ALICE"})
			if err != nil || len(in.Buckets) != 1 {
				t.Fatalf("Inspect = %+v, %v", in, err)
			}
			all = append(all, in.Buckets[0].Remaining)
		}
		return all
	}
	d.post("192.0.2.7", []byte(`{"user":"alice"}`))
	if got := remaining(); !slices.Equal(got, []int64{5, 17}) {
		t.Errorf("%v left after a success of cost 3, want 5 and 17", got)
	}
	status = 401
	d.post("192.0.2.7", []byte(`{"user":"alice"}`))
	if got := remaining(); !slices.Equal(got, []int64{2, 14}) {
		t.Errorf("%v left after a failure of cost 3, want 2 and 14", got)
	}
}

func TestNewIdentifiersNamesEveryFault(t *testing.T) {
	_, table := newLimiter(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1}}, nil)
	_, err := httplimit.NewIdentifiers(httplimit.IdentifierOptions{Endpoints: table, Logins: []httplimit.Login{
		{Endpoint: "POST /v1/item", Field: body.Field{Name: "user"}},
		{Endpoint: "POST /v1/items", ReadTimeout: -1, FailureStatuses: []int{500}},
		{Endpoint: "DELETE /v1/items/{id}", Field: body.Field{Name: "user"}},
		{Endpoint: "DELETE /v1/items/{id}", Field: body.Field{Name: "user"}},
	}})
	for _, want := range []string{
		`identifiers[0] (POST /v1/item): Endpoint is "POST /v1/item", want one that the table has, such as "POST /v1/items"`,
		`identifiers[1] (POST /v1/items): Name is ""`, "ReadTimeout is -1ns",
		"FailureStatuses has 500, want 200 to 499", "want CountFailures set too",
		`identifiers[3] (DELETE /v1/items/{id}): Endpoint is "DELETE /v1/items/{id}", which stands twice`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewIdentifiers says %v, want %s", err, want)
		}
	}
	if _, err := httplimit.NewIdentifiers(httplimit.IdentifierOptions{}); err == nil {
		t.Error("NewIdentifiers takes no table")
	}
}

func BenchmarkLogin(b *testing.B) {
	for name, target := range map[string]string{"listed": "/v1/login", "other": "/v1/items"} {
		b.Run(name, func(b *testing.B) {
			rules := []policy.Rule{{Endpoint: policy.Default, Limit: 1 << 40, Subject: policy.SubjectIdentifier}}
			d := newLogins(b, httplimit.Login{Field: body.Field{Name: "user"}}, rules, httplimit.Options{})
			h := httplimit.Handler(d.lim, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
				httplimit.Options{Identifiers: d.Identifiers, OmitFields: true})
			text := []byte(`{"user":"alice","pad":"` + strings.Repeat("x", 1000) + `"}`)
			r := httptest.NewRequest("POST", target, nil)
			r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), 1).String()
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			reader := bytes.NewReader(text)
			b.ReportAllocs()
			for b.Loop() {
				reader.Reset(text)
				r.Body, r.ContentLength = io.NopCloser(reader), int64(len(text))
				h.ServeHTTP(w, r)
			}
		})
	}
}
