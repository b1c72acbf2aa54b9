package httplimit_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// files is an API whose requests say what it does: how much of a body it reads, and how much it answers, announced or
// not. It counts what it was sent.
type files struct {
	got   atomic.Int64
	spent atomic.Int64 // by an account of its own
}

// wrote counts what a handler writes.
type wrote struct {
	http.ResponseWriter
	n int64
}

func (w *wrote) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *wrote) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.n += int64(n)
	return n, err
}

func (f *files) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	w := &wrote{ResponseWriter: to}
	q := r.URL.Query()
	n, err := io.Copy(io.Discard, r.Body)
	f.got.Add(n)
	defer func() { f.spent.Add(max(1, n+w.n)) }()
	if err != nil {
		http.Error(w, "half a body", http.StatusBadRequest)
		return
	}
	size, _ := strconv.Atoi(q.Get("size"))
	w.Header().Set("ETag", `"1"`)
	if q.Has("announced") {
		w.Header().Set("Content-Length", strconv.Itoa(size))
	}
	if status, _ := strconv.Atoi(q.Get("status")); status > 0 {
		w.WriteHeader(status)
	}
	for piece := min(size, 1000); size > 0; piece = min(size, 1000) {
		if _, err := w.Write(make([]byte, piece)); err != nil {
			panic(http.ErrAbortHandler)
		}
		size -= piece
		if q.Has("streamed") {
			_ = http.NewResponseController(w).Flush()
		}
	}
}

type byteBudget struct {
	*httptest.Server
	lim    *headgate.Limiter
	meters *httplimit.Meters
	now    atomic.Int64
	ended  chan struct{}
}

const file = "/v1/files/a"

// serveBytes serves an API behind a budget of so many tokens an hour for each address.
func serveBytes(t *testing.T, api http.Handler, tokens int64, b httplimit.Bytes, cut bool,
	rules ...string) *byteBudget {
	t.Helper()
	s := &byteBudget{ended: make(chan struct{}, 10_000)}
	s.now.Store(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC).UnixNano())
	methods := []string{"GET", "POST"}
	for _, method := range methods {
		rules = append(rules, fmt.Sprintf("%s /v1/files/{name} %d/h", method, tokens))
	}
	lim, err := headgate.New(headgate.Options{
		Rules: append(rules, "default 100000/s"),
		Now:   func() time.Time { return time.Unix(0, s.now.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []httplimit.Metered
	for _, method := range methods {
		all = append(all, httplimit.Metered{Endpoint: method + " /v1/files/{name}", Bytes: &b, Cut: cut})
	}
	s.meters, err = httplimit.NewMeters(httplimit.MeterOptions{Endpoints: lim.Endpoints(), Metered: all})
	if err != nil {
		t.Fatal(err)
	}
	s.lim = lim
	h := httplimit.Handler(lim, api, httplimit.Options{Meters: s.meters})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { s.ended <- struct{}{} }()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *byteBudget) left(t *testing.T, method string) int64 {
	t.Helper()
	found, err := inspect.Find(t.Context(), s.lim, inspect.Query{Endpoint: method + " /v1/files/{name}",
		Address: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range found.Buckets {
		if one.Endpoint == method+" /v1/files/{name}" && one.Rule == one.Endpoint {
			return one.Remaining
		}
	}
	t.Fatalf("no bucket among %+v", found)
	return 0
}

// unsaid is a body without a length.
func unsaid(n int) io.Reader { return struct{ io.Reader }{bytes.NewReader(make([]byte, n))} }

// send returns the status, or 0 if none came, and how many bytes of a body.
func (s *byteBudget) send(method, query string, body io.Reader) (status int, got int64, header http.Header, err error) {
	r, err := http.NewRequest(method, s.URL+file+"?"+query, body)
	if err != nil {
		return 0, 0, nil, err
	}
	answer, err := s.Client().Do(r)
	if err != nil {
		return 0, 0, nil, err
	}
	defer answer.Body.Close()
	got, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, got, answer.Header, err
}

func TestBytesAreSettledByWhatPassed(t *testing.T) {
	both, requests, answers := httplimit.Bytes{}, httplimit.Bytes{Of: httplimit.OfRequests},
		httplimit.Bytes{Of: httplimit.OfAnswers}
	kilo := httplimit.Bytes{PerToken: 1024}
	said := func(n int) func() io.Reader { return func() io.Reader { return bytes.NewReader(make([]byte, n)) } }
	not := func(n int) func() io.Reader { return func() io.Reader { return unsaid(n) } }
	none := func() io.Reader { return nil }
	for _, c := range []struct {
		name   string
		of     httplimit.Bytes
		method string
		query  string
		body   func() io.Reader
		status int
		cost   int64
	}{
		{"an answer of a length", both, "GET", "size=5000&announced", none, 200, 5000},
		{"a stream", both, "GET", "size=5000&streamed", none, 200, 5000},
		{"the head of an answer", both, "HEAD", "size=5000&announced", none, 200, 1},
		{"nothing", both, "GET", "", none, 200, 1},
		{"no body by its status", both, "GET", "status=204", none, 204, 1},
		{"a request of a length", both, "POST", "", said(3000), 200, 3000},
		{"a request without one", both, "POST", "", not(3000), 200, 3000},
		{"both", both, "POST", "size=500", not(3000), 200, 3500},
		{"requests alone", requests, "POST", "size=500", not(3000), 200, 3000},
		{"answers alone", answers, "POST", "size=500&announced", said(4), 200, 500},
		{"kilobytes, rounded once", kilo, "POST", "size=500", not(1549), 200, 3},
		{"kilobytes", kilo, "POST", "size=500", not(1548), 200, 2},
	} {
		for _, cut := range []bool{true, false} {
			s := serveBytes(t, new(files), 10_000, c.of, cut)
			status, _, _, err := s.send(c.method, c.query, c.body())
			<-s.ended
			left := s.left(t, strings.Replace(c.method, "HEAD", "GET", 1))
			if status != c.status || err != nil || left != 10_000-c.cost {
				t.Errorf("%s, cut %v: %d %v, %d tokens are left, want %d, and %d", c.name, cut, status, err, left,
					c.status, 10_000-c.cost)
			}
			if out := s.lim.Reservations().Outstanding; out != 0 {
				t.Errorf("%s: %d reservations are outstanding, want none", c.name, out)
			}
		}
	}
}

// What does not fit is refused before any of it passes, where that is known; else it ends where its caller has no more.
func TestBodiesEndWithTheirBudget(t *testing.T) {
	for _, c := range []struct {
		name   string
		method string
		query  string
		body   io.Reader
		status int   // 0 if the answer breaks off
		cost   int64 // of 10,000 tokens
		got    int64 // bytes of it that reach the API
	}{
		{"a request that says so", "POST", "", bytes.NewReader(make([]byte, 10_001)), 429, 0, 0},
		{"a request that does not", "POST", "", unsaid(100_000), 429, 10_000, 10_000},
		{"an answer that says so", "GET", "size=10001&announced", nil, 429, 1, 0},
		{"an answer that does not", "GET", "size=10001&streamed", nil, 0, 10_000, 0},
		{"an answer to a change, which was made", "POST", "size=10001&announced", unsaid(10), 0, 9010, 10},
	} {
		api := new(files)
		s := serveBytes(t, api, 10_000, httplimit.Bytes{}, true)
		status, got, header, err := s.send(c.method, c.query, c.body)
		<-s.ended
		left := s.left(t, c.method)
		if err == nil && c.status == 0 || c.status != 0 && status != c.status || left < 10_000-c.cost ||
			api.got.Load() > c.got {
			t.Errorf("%s: %d with %d bytes, %v, %d tokens are left, the API got %d; want %d, %d, at most %d", c.name,
				status, got, err, left, api.got.Load(), c.status, 10_000-c.cost, c.got)
		}
		if status == 429 && (header.Get("ETag") != "" || header.Get("Ratelimit") == "" ||
			!strings.HasPrefix(header.Get("Content-Type"), "application/problem+json")) {
			t.Errorf("%s: the refusal has the header %v", c.name, header)
		}
		if ended := s.meters.Ended(); (ended == 1) != (c.got > 0 || c.method == "GET") {
			t.Errorf("%s: %d bodies ended", c.name, ended)
		}
		if out := s.lim.Reservations().Outstanding; out != 0 {
			t.Errorf("%s: %d reservations are outstanding, want none", c.name, out)
		}
	}
}

// A body that ended with its budget stays ended: who reads on gets no later piece of it, however small, and the answer
// is the refusal.
func TestABodyThatEndedStaysEnded(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		var later int
		var spoken string
		s := serveBytes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			spoken = r.Proto
			_, _ = r.Body.Read(make([]byte, 50))
			later, _ = io.ReadFull(r.Body, make([]byte, 5))
			http.Error(w, "half a body", http.StatusBadRequest)
		}), 10, httplimit.Bytes{}, true)
		if proto == "HTTP/2.0" {
			plain := s.Server
			s.Server = httptest.NewUnstartedServer(plain.Config.Handler)
			s.EnableHTTP2 = true
			s.StartTLS()
			t.Cleanup(s.Close)
		}
		status, _, _, err := s.send("POST", "", unsaid(100))
		<-s.ended
		if left := s.left(t, "POST"); spoken != proto || status != 429 || later != 0 || left < 9 {
			t.Errorf("%s for %s: %d, %v, %d bytes behind the end, %d of 10 tokens left; want 429, 0, at least 9",
				spoken, proto, status, err, later, left)
		}
	}
}

// What passes where nothing is cut is owed.
func TestBytesThatPassAreOwed(t *testing.T) {
	s := serveBytes(t, new(files), 10_000, httplimit.Bytes{}, false)
	for _, c := range []struct {
		method, query string
		body          io.Reader
		owed          time.Duration // until the bucket is full, beyond its hour
	}{
		{"GET", "size=15000&announced", nil, 30 * time.Minute}, {"POST", "size=5000", unsaid(10_000), 30 * time.Minute},
	} {
		if status, _, _, err := s.send(c.method, c.query, c.body); status != 200 || err != nil {
			t.Errorf("%s: %d %v, want 200", c.method, status, err)
		}
		<-s.ended
		status, _, header, _ := s.send(c.method, "size=1", nil)
		<-s.ended
		if wait, _ := strconv.Atoi(header.Get("Retry-After")); status != 429 || wait != int(c.owed/time.Second)+1 {
			t.Errorf("%s: %d, retry after %d s, want 429 and %v", c.method, status, wait, c.owed)
		}
	}
}

func TestBytesNameEveryFault(t *testing.T) {
	template, err := endpoint.ParseTemplate("GET /v1/files/{name}")
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = httplimit.NewMeters(httplimit.MeterOptions{Endpoints: table, Metered: []httplimit.Metered{
		{Endpoint: "GET /v1/files/{name}", Bytes: &httplimit.Bytes{Of: 3, PerToken: -1}},
	}})
	for _, want := range []string{"Of is 3", "PerToken is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one that says %q", err, want)
		}
	}
}

// A length that no bucket holds is refused, whatever is made of it.
func TestLengthsThatNobodyCanSend(t *testing.T) {
	for _, cut := range []bool{true, false} {
		for _, per := range []int64{1, 3, 1 << 40} {
			s := serveBytes(t, new(files), 1000, httplimit.Bytes{PerToken: per}, cut)
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "POST "+file+" HTTP/1.1\r\nHost: x\r\n"+
				"Content-Length: 9223372036854775807\r\n\r\n")
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || answer.StatusCode != 429 || s.left(t, "POST") != 1000 {
				t.Errorf("%v %v, %d tokens are left, want 429 and 1000", answer, err, s.left(t, "POST"))
			}
			_ = conn.Close()
		}
	}
}

// TestBytesBesideWhatElseRulesSay: rules that count some answers, several rules of one request, and those in shadow.
func TestBytesBesideWhatElseRulesSay(t *testing.T) {
	own := policy.Rule{Endpoint: "GET /v1/files/{name}", Limit: 10_000, Per: time.Hour}
	counts := own
	counts.CountWhen = "404"
	shadow := own
	shadow.Mode, shadow.Limit = policy.Shadow, 100
	all := policy.Rule{Endpoint: policy.All, Limit: 6000, Per: time.Hour, Subject: policy.SubjectIP}
	for _, c := range []struct {
		name        string
		rules       []policy.Rule
		query       string
		status      int // 0 if it breaks off
		size        int
		least, most int64 // tokens that the first rule has left
	}{
		{"an answer that counts", []policy.Rule{counts}, "size=5000&status=404&announced", 404, 5000, 5000, 5000},
		{"one that does not", []policy.Rule{counts}, "size=5000&status=200&announced", 200, 5000, 10_000, 10_000},
		{"one that does not, and streams", []policy.Rule{counts}, "size=5000", 200, 5000, 5000, 9999},
		{"one that does not, and ends", []policy.Rule{counts}, "size=50000", 0, -1, 0, 5000},
		{"another rule has no room", []policy.Rule{own, all}, "size=7000&announced", 429, -1, 9999, 9999},
		{"another rule ends it", []policy.Rule{own, all}, "size=7000", 0, 6000, 4000, 4000},
		{"in shadow", []policy.Rule{shadow, all}, "size=5000", 200, 5000, 0, 100},
		{"beyond all", []policy.Rule{own}, "size=10001&announced", 429, -1, 9999, 9999},
	} {
		b := trial.New(t, []string{"GET /v1/files/{name}"}, c.rules)
		meters, err := httplimit.NewMeters(httplimit.MeterOptions{Endpoints: b.Table, Metered: []httplimit.Metered{
			{Endpoint: "GET /v1/files/{name}", Bytes: &httplimit.Bytes{}, Cut: true}}})
		if err != nil {
			t.Fatal(err)
		}
		h := httplimit.Handler(b.Limiter, new(files), httplimit.Options{Meters: meters})
		w, status := httptest.NewRecorder(), 0
		func() {
			defer func() {
				if recover() == nil {
					status = w.Code
				}
			}()
			h.ServeHTTP(w, httptest.NewRequest("GET", file+"?"+c.query, nil))
		}()
		found, err := inspect.Find(t.Context(), b.Limiter, inspect.Query{Endpoint: "GET /v1/files/{name}",
			Address: netip.MustParseAddr("192.0.2.1")})
		if err != nil {
			t.Fatal(err)
		}
		left := found.Buckets[0].Remaining
		if found.Buckets[0].Rule != c.rules[0].Title() {
			left = found.Buckets[1].Remaining
		}
		if status != c.status || c.size >= 0 && w.Body.Len() != c.size || left < c.least || left > c.most {
			t.Errorf("%s: %d with %d bytes, %d tokens are left; want %d with %d, %d to %d", c.name, status,
				w.Body.Len(), left, c.status, c.size, c.least, c.most)
		}
		if out := b.Reservations().Outstanding; out != 0 {
			t.Errorf("%s: %d reservations are outstanding, want none", c.name, out)
		}
	}
}
