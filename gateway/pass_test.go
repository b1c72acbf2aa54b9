package gateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/gateway/upstream"
	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
)

// mirror is an API that tells all it was asked, in the body of the answer, and answers as the request says.
func mirror(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var told bytes.Buffer
	fmt.Fprintf(&told, "%s %s %s %s %d %v %q %v\n", r.Method, r.RequestURI, r.Proto, r.Host, r.ContentLength,
		r.TransferEncoding, body, err)
	_ = r.Header.Write(&told)
	for _, name := range slices.Sorted(keysOf(r.Trailer)) {
		fmt.Fprintf(&told, "trailer %s %q\n", name, r.Trailer[name])
	}
	for _, line := range r.Header["X-Answer"] {
		name, value, _ := strings.Cut(line, "=")
		w.Header().Add(name, value)
	}
	w.Header().Set("Content-Type", "text/plain") // else a server behind may make one up
	switch r.Header.Get("X-Shape") {
	case "chunked":
		_ = http.NewResponseController(w).Flush()
	case "trailer":
		w.Header().Set("Trailer", "X-Sum")
		_ = http.NewResponseController(w).Flush()
		defer func() {
			w.Header().Set("X-Sum", "1")
			w.Header().Set(http.TrailerPrefix+"X-Late", "2")
		}()
	case "early":
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
	case "empty":
		w.WriteHeader(http.StatusNoContent)
		return
	case "same":
		w.Header().Set("Etag", `"x"`)
		w.WriteHeader(http.StatusNotModified)
		return
	case "fails":
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(told.Bytes())
}

func keysOf(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range h {
			if !yield(name) {
				return
			}
		}
	}
}

// ways are the two by which requests go to the API, over one address so that Host is the same.
func ways(t *testing.T, api string, change ...func(*gateway.Options)) (own, net string) {
	t.Helper()
	change = append(change, func(o *gateway.Options) { o.Limiter = newLimiter(t) })
	return newH2Gateway(t, api, change...), newH2Gateway(t, api,
		append(change, func(o *gateway.Options) { o.Transport = gateway.NewTransport(0, 0) })...)
}

// exchanged sends a text to a gateway and returns all that comes back but Date, sorted field by field.
func exchanged(t *testing.T, base, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	in := bufio.NewReader(conn)
	for range 4 { // interim ones too
		response, err := http.ReadResponse(in, &http.Request{Method: text[:strings.IndexByte(text, ' ')]})
		if err != nil {
			fmt.Fprintln(&all, "no answer")
			break
		}
		body, err := io.ReadAll(response.Body)
		delete(response.Header, "Date")
		if lines := response.Header["Ratelimit"]; response.StatusCode < 200 {
			response.Close = false
			// to which net/http's way adds what is for the answer, or for one hop
			response.Header = http.Header{"Link": response.Header["Link"]}
		} else if len(lines) > 0 {
			lines[0], _, _ = strings.Cut(lines[0], ";") // what is left changes
		}
		if strings.Contains(text, "X-Shape: ") { // the server may count what is short
			response.ContentLength, response.TransferEncoding = -1, nil
			delete(response.Header, "Content-Length")
		}
		if response.StatusCode == 100 && strings.Contains(all.String(), "100 Continue") {
			continue // which net/http's way may say twice
		}
		fmt.Fprintf(&all, "%s %d %v %v\n", response.Status, response.ContentLength, response.TransferEncoding,
			response.Close)
		_ = response.Header.Write(&all)
		fmt.Fprintf(&all, "%s %v %v\n", body, err, response.Trailer)
		if response.StatusCode >= 200 {
			break
		}
	}
	return all.String()
}

// shortened has the length of a long body in its place, so that a failure shows what stands behind it.
func shortened(text string) string {
	return regexp.MustCompile(`(0123456789){20,}`).ReplaceAllStringFunc(text, func(digits string) string {
		return fmt.Sprintf("(%d digits)", len(digits))
	})
}

// TestBothWaysAreTheSame: whichever way requests go, the API is asked the same, and the client answered the same.
func TestBothWaysAreTheSame(t *testing.T) {
	api := newAPI(t, mirror)
	rng := rand.New(rand.NewPCG(19, 2))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	for name, change := range map[string]func(*gateway.Options){
		"plain":   func(*gateway.Options) {},
		"trusted": func(o *gateway.Options) { o.TrustedProxy, o.ClientHeader = netip.Addr.IsLoopback, "X-Real-IP" },
		"with Outgoing": func(o *gateway.Options) {
			o.KeyHeader = "X-Api-Key"
			o.Outgoing = func(r *http.Request) {
				r.Header.Del("X-Api-Key")
				r.URL.RawQuery = strings.Trim(r.URL.RawQuery, "k")
			}
		},
	} {
		var log livelog.Text
		own, other := ways(t, api+"/base", change, func(o *gateway.Options) {
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		for range 300 {
			var b strings.Builder
			method := pick("GET", "GET", "POST", "HEAD")
			target := "/v1/items/7" + pick("", "?", "?a=1&b=%2f;c", "?k")
			if method == "POST" {
				target = "/v1/items" + pick("", "?x")
			}
			fmt.Fprintf(&b, "%s %s HTTP/1.%s\r\nHost: api.example\r\n", method, target, pick("1", "1", "0"))
			for range rng.IntN(6) {
				field := pick(
					"Connection: X-Own\r\nX-Own: a\r\n", "Connection: keep-alive, Content-Type\r\n",
					"X-Two: 1\r\nx-two: 2\r\n", "Te: trailers, deflate\r\n", "Te: gzip\r\n",
					"Keep-Alive: timeout=5\r\n", "Proxy-Authorization: Basic eDp5\r\n", "X-Forwarded-For: 6.6.6.6\r\n",
					"Forwarded: for=6.6.6.6\r\n", "X-Real-IP: 6.6.6.6\r\n",
					"User-Agent: a/1\r\n", "Accept-Encoding: gzip\r\n", "Content-Type: text/plain\r\n",
					"X-Api-Key: k\r\n", "X_Api_Key: k\r\n", "X-Http-Method-Override: PUT\r\n",
					"X-Shape: chunked\r\n", "X-Shape: trailer\r\n", "X-Shape: early\r\n", "X-Shape: empty\r\n",
					"X-Shape: same\r\n", "X-Shape: fails\r\n", "Cookie: a=b\r\nCookie: c=d\r\n", "X-Empty:\r\n",
					"X-Answer: Connection=X-Gone\r\nX-Answer: X-Gone=1\r\n", "X-Answer: Ratelimit=theirs\r\n",
					"X-Answer: Set-Cookie=a\r\nX-Answer: Set-Cookie=b\r\n", "X-Answer: Proxy-Authenticate=x\r\n",
					"Pragma: no-cache\r\n", "Cache-Control: max-age=0\r\n",
				)
				if !strings.Contains(b.String(), field) { // twice net/http's way would send some once
					b.WriteString(field)
				}
			}
			switch body := pick("", "x", strings.Repeat("0123456789", 3000)); {
			case method != "POST":
				b.WriteString("\r\n")
			case rng.IntN(2) == 0:
				fmt.Fprintf(&b, "Content-Length: %d\r\n%s\r\n%s", len(body), pick("", "Expect: 100-continue\r\n"), body)
			case strings.Contains(b.String(), " HTTP/1.0\r\n"): // whose bodies in chunks nobody reads
				b.WriteString("\r\n")
			default:
				fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n%s\r\n",
					pick("", "Trailer: X-Sum\r\n", "Trailer: X-Sum, Authorization\r\n"))
				if len(body) > 0 {
					fmt.Fprintf(&b, "%x\r\n%s\r\n", len(body), body)
				}
				fmt.Fprintf(&b, "0\r\n%s\r\n", pick("", "X-Sum: 1\r\n",
					"X-Sum: 1\r\nAuthorization: x\r\nX-More: 2\r\n"))
			}
			text := b.String()
			if strings.Contains(text, " HTTP/1.0\r\n") { // whose clients net/http's way sends 1xx
				text = strings.NewReplacer("X-Shape: early\r\n", "", "Expect: 100-continue\r\n", "").Replace(text)
			}
			got, want := exchanged(t, own, text), exchanged(t, other, text)
			for _, base := range []string{own, other} {
				port := base[strings.LastIndexByte(base, ':'):]
				got, want = strings.ReplaceAll(got, port, ":PORT"), strings.ReplaceAll(want, port, ":PORT")
			}
			if got != want {
				t.Fatalf("%s: of\n%.900s\nthe gateway's own client makes\n%s\nand net/http\n%s%s", name, text,
					shortened(got), shortened(want), log.String())
			}
		}
	}
}

// TestInterimAnswersLeaveTheFields: what an API announces by 1xx takes nothing out of the answer:
// neither the limit nor that a connection ends whose request may end elsewhere for others.
func TestInterimAnswersLeaveTheFields(t *testing.T) {
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.Copy(w, r.Body)
	})
	own, other := ways(t, api)
	for _, base := range []string{own, other} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn,
			"POST /v1/items HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
		in := bufio.NewReader(conn)
		hint, err := http.ReadResponse(in, nil)
		if err != nil || hint.StatusCode != 103 || hint.Header.Get("Link") != "</a>" {
			t.Fatalf("%v, %v, want the 103 of the API", hint, err)
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil || answer.StatusCode != 200 || answer.Header.Get("RateLimit") == "" || !answer.Close ||
			len(answer.Header["Link"]) != 1 {
			t.Errorf("the answer is %v, %v; want RateLimit, one Link, and that the connection ends", answer, err)
		}
	}
}

// TestHostileAnswers: an API that is not to be trusted makes no answer for another request, and
// nothing of what is no answer reaches the client.
func TestHostileAnswers(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		status       int
	}{
		{"two answers", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n" +
			"Set-Cookie: evil=1\r\n\r\nevil", 200},
		{"both lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502},
		{"a split header", "HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n", 502},
		{"a folded header", "HTTP/1.1 200 OK\r\nX: a\r\n Set-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n", 502},
		{"a flood of 1xx", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 1000), 502},
		{"an endless head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20), 502},
		{"another protocol", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
			502},
		{"no HTTP", "SSH-2.0-OpenSSH\r\n", 502},
	} {
		api := newRaw(t, c.answer)
		var log livelog.Text
		base := newGateway(t, "http://"+api,
			func(o *gateway.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }).URL
		for i := range 3 {
			conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, "GET /v1/items/1 HTTP/1.1\r\nHost: api\r\n\r\nGET /v1/items/2 HTTP/1.1\r\nHost: "+
				"api\r\nConnection: close\r\n\r\n")
			in := bufio.NewReader(conn)
			for range 2 {
				for {
					response, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					body, _ := io.ReadAll(response.Body)
					if response.StatusCode == 102 {
						continue
					}
					if response.StatusCode != c.status || response.Header.Get("Set-Cookie") != "" ||
						strings.Contains(string(body), "evil") {
						t.Errorf("%s, time %d: %d %v %q, want %d and nothing else", c.name, i, response.StatusCode,
							response.Header, body, c.status)
					}
					break
				}
			}
			conn.Close()
		}
		if text := log.String(); len(text) > 2000 || c.status == 502 && !strings.Contains(text, "upstream failed") {
			t.Errorf("%s: the log is %.300q of %d bytes", c.name, text, len(text))
		}
	}
}

// newRaw starts an API that answers every request by the same bytes and waits for the next one.
func newRaw(t testing.TB, answer string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					for {
						line, err := in.ReadString('\n')
						if err != nil {
							return
						}
						if line == "\r\n" {
							break
						}
					}
					if _, err := io.WriteString(conn, answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestHTTP2BehindTheGateway: an API that chooses HTTP/2 has it, from the first request on, body and all.
func TestHTTP2BehindTheGateway(t *testing.T) {
	api := httptest.NewUnstartedServer(http.HandlerFunc(mirror))
	api.EnableHTTP2 = true
	api.StartTLS()
	t.Cleanup(api.Close)
	for _, speaks := range []bool{true, false} {
		if !speaks {
			api.TLS.NextProtos = []string{"http/1.1"}
		}
		base, err := url.Parse(api.URL)
		if err != nil {
			t.Fatal(err)
		}
		trusts := api.Client().Transport.(*http.Transport).TLSClientConfig
		pool, err := gateway.NewPool(base, upstream.Options{TLS: trusts})
		if err != nil {
			t.Fatal(err)
		}
		transport := gateway.NewTransport(0, 0)
		transport.TLSClientConfig = trusts.Clone()
		gate := newH2Gateway(t, api.URL, func(o *gateway.Options) {
			o.Limiter, o.Pool, o.Transport = newLimiter(t),
				pool, transport
		})
		for range 3 {
			response, err := http.Post(gate+"/v1/items", "text/plain", strings.NewReader("small"))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			version := "HTTP/1.1"
			if speaks {
				version = "HTTP/2.0"
			}
			if response.StatusCode != 200 || !strings.HasPrefix(string(body), "POST /v1/items "+version) ||
				!strings.Contains(string(body), `"small"`) {
				t.Errorf("%d %.200s, want the request over %s", response.StatusCode, body, version)
			}
		}
		if pool.HTTP2() != speaks {
			t.Errorf("the pool says that it is HTTP/2: %v, want %v", pool.HTTP2(), speaks)
		}
		pool.Close()
	}
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// TestAllocations bounds what a request allocates between net/http's server and the API, whose own
// few are counted with them.
func TestAllocations(t *testing.T) {
	api := newRaw(t, "HTTP/1.1 200 OK\r\nServer: x\r\nDate: Wed, 25 Nov 2026 07:00:00 GMT\r\nContent-Type: "+
		"text/plain\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nok\n")
	h, err := gateway.New(gateway.Options{Limiter: newLimiter(t), Upstream: &url.URL{Scheme: "http", Host: api}})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/v1/items/7", nil)
	r.Header.Set("User-Agent", "test")
	w := &discard{http.Header{}}
	n := testing.AllocsPerRun(500, func() {
		clear(w.header)
		r.RequestURI = "/v1/items/7"
		h.ServeHTTP(w, r)
	})
	if most := 18.0; n > most && !race.Enabled { // which allocates itself
		t.Errorf("a request allocates %v times, want at most %v", n, most)
	}
}

// TestNothingIsLeft: after requests of all kinds, of clients that leave too, no goroutine and no
// connection stays busy.
func TestNothingIsLeft(t *testing.T) {
	api := newAPI(t, mirror)
	base, err := url.Parse(api)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := gateway.NewPool(base, upstream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	gate := newGateway(t, api, func(o *gateway.Options) { o.Pool = pool })
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(gate.URL, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			switch i % 4 {
			case 0:
				fmt.Fprint(conn, "POST /v1/items HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhalf")
			case 1:
				fmt.Fprint(conn, "POST /v1/items HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
			case 2:
				fmt.Fprint(conn, "GET /v1/items/1 HTTP/1.1\r\nHost: a\r\n\r\n")
			default:
				fmt.Fprint(conn,
					"POST /v1/items HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20000\r\n\r\n"+
						strings.Repeat("x", 20000))
				_, _ = io.ReadAll(conn)
			}
		})
	}
	all.Wait()
	gate.Close() // waits for the handlers
	pool.Close()
	eventually(t, "that nothing is left", func() bool { // the API's goroutines end in their own time
		s := pool.Servers()[0]
		return s.Busy == 0 && s.Idle == 0 && runtime.NumGoroutine() <= before
	})
}

// BenchmarkPass is a request between net/http's server and the API, whose own work is a part of it.
func BenchmarkPass(b *testing.B) {
	api := newRaw(b, "HTTP/1.1 200 OK\r\nServer: x\r\nDate: Wed, 25 Nov 2026 07:00:00 GMT\r\nContent-Type: "+
		"text/plain\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nok\n")
	lim := newLimiter(b, func(o *headgate.Options) {
		set, _ := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 1 << 40}}},
			policy.CompileOptions{Endpoints: o.Endpoints})
		o.Policies = headgate.Fixed(set)
	})
	h, err := gateway.New(gateway.Options{Limiter: lim, Upstream: &url.URL{Scheme: "http", Host: api}})
	if err != nil {
		b.Fatal(err)
	}
	for name, fields := range map[string]int{"small": 2, "browser": 12} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/v1/items/7", nil)
			for _, field := range []string{
				"User-Agent", "Accept", "Accept-Language", "Accept-Encoding", "Referer", "Cookie", "Sec-Fetch-Dest",
				"Sec-Fetch-Mode", "Sec-Fetch-Site", "Upgrade-Insecure-Requests", "Priority", "X-Request-Id",
			}[:fields] {
				r.Header.Set(field, "a value of some length")
			}
			w := &discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				r.RequestURI = "/v1/items/7"
				h.ServeHTTP(w, r)
			}
		})
	}
}

// TestRequestsThatMayBeSentAgain: a server that ends a connection which is used again costs no answer of a request that
// may be sent twice, as its method is idempotent and its body is at hand.
func TestRequestsThatMayBeSentAgain(t *testing.T) {
	var mu sync.Mutex
	served := map[net.Conn]int{}
	var connected sync.Map // by request's remote address
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		found, _ := connected.Load(r.RemoteAddr)
		mu.Lock()
		served[found.(net.Conn)]++
		second := served[found.(net.Conn)] == 2
		mu.Unlock()
		if second {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, len(body))
	}))
	api.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connected.Store(c.RemoteAddr().String(), c)
		}
	}
	api.Start()
	t.Cleanup(api.Close)
	for _, c := range []struct {
		method string
		size   int
		want   int
	}{
		{"GET", 0, 200}, {"DELETE", 0, 200}, {"PUT", 0, 200}, {"PUT", 1000, 200}, {"PUT", 9000, 502}, {"POST", 0, 502},
		{"POST", 1000, 502}, {"PATCH", 1000, 502},
	} {
		base := newGateway(t, api.URL, func(o *gateway.Options) { // whose first request makes a connection
			lim, err := headgate.New(headgate.Options{Rules: []string{"default 1000/s"}})
			if err != nil {
				t.Fatal(err)
			}
			o.Limiter = lim
		}).URL
		for i, want := range []int{200, c.want} {
			r, err := http.NewRequest(c.method, base+"/v1/items/1", strings.NewReader(strings.Repeat("x", c.size)))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != want || want == 200 && string(body) != fmt.Sprint(c.size) {
				t.Errorf("request %d, %s with %d bytes: %d %s, want %d", i, c.method, c.size, answer.StatusCode, body,
					want)
			}
		}
	}
}
