package gateway_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/internal/livelog"
)

// lines is an API that knows no HTTP: it remembers what it was asked, byte for
// byte, and answers 200.
type lines struct {
	url string

	mu  sync.Mutex
	got []string // guarded by mu
}

func newLines(t testing.TB) *lines {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	api := &lines{url: "http://" + l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go api.serve(conn)
		}
	}()
	return api
}

func (l *lines) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		first, err := in.ReadString('\n')
		for next := first; err == nil && next != "\r\n"; {
			next, err = in.ReadString('\n')
		}
		if err != nil {
			return
		}
		l.mu.Lock()
		l.got = append(l.got, strings.TrimSuffix(first, "\r\n"))
		l.mu.Unlock()
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

// take returns the request lines that came since the last call.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.got
	l.got = nil
	return got
}

// newH2Gateway is newGateway, which also speaks HTTP/2 without TLS.
func newH2Gateway(t testing.TB, api string, change ...func(*gateway.Options)) string {
	t.Helper()
	upstream, err := url.Parse(api)
	if err != nil {
		t.Fatal(err)
	}
	o := gateway.Options{Upstream: upstream, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	h, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.DisableGeneralOptionsHandler = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// ask1 sends a request over HTTP/1.1 with whatever stands in its line, and
// returns the status.
func ask1(t testing.TB, base, line string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n", line)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return response.StatusCode
}

// ask2 does so over HTTP/2, whatever stands in the pseudo-fields. It returns 0
// if the stream was reset, and the connection ended.
func ask2(t testing.TB, base, method, path string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var block bytes.Buffer
	for _, field := range [][2]string{{":method", method}, {":scheme", "http"}, {":authority", "api.example"},
		{":path", path}} {
		if method == "CONNECT" && (field[0] == ":scheme" || field[0] == ":path") {
			continue
		}
		block.WriteByte(0) // RFC 7541 section 6.2.2: a literal field, as it is
		for _, text := range field {
			if n := len(text) - 127; n < 0 {
				block.WriteByte(byte(len(text)))
			} else { // RFC 7541 section 5.1
				block.Write(binary.AppendUvarint([]byte{127}, uint64(n)))
			}
			block.WriteString(text)
		}
	}
	out := bytes.NewBufferString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	writeFrame(out, 4, 0, 0, nil)             // SETTINGS
	writeFrame(out, 1, 5, 1, block.Bytes())   // HEADERS that end the stream
	writeFrame(out, 6, 0, 0, make([]byte, 8)) // PING, after which the answer to a reset stream is complete
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return 0
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(in, payload); err != nil {
			return 0
		}
		switch head[3] {
		case 3, 7: // RST_STREAM, GOAWAY
			return 0
		case 1:
			return status(t, payload)
		}
	}
}

func writeFrame(w *bytes.Buffer, kind, flags byte, stream uint32, payload []byte) {
	w.Write([]byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags})
	_ = binary.Write(w, binary.BigEndian, stream)
	w.Write(payload)
}

// status is the first field of a block: one of the seven statuses in the static
// table (RFC 7541 appendix A), or a literal with that name.
func status(t testing.TB, block []byte) int {
	t.Helper()
	if n := int(block[0]) - 0x80 - 8; n >= 0 && n < 7 {
		return []int{200, 204, 206, 304, 400, 404, 500}[n]
	}
	if len(block) < 2 || block[0]&0xF != 8 {
		t.Fatalf("a block begins with % x, want :status", block[:min(8, len(block))])
	}
	text := block[2:]
	if block[1]&0x80 == 0 {
		var code int
		fmt.Sscanf(string(text[:block[1]]), "%d", &code)
		return code
	}
	return digits(text[:block[1]&0x7F])
}

// digits undoes RFC 7541 appendix B for three digits: 0 to 2 have five bits,
// the others six.
func digits(text []byte) (code int) {
	var bits string
	for _, b := range text {
		bits += fmt.Sprintf("%08b", b)
	}
	for range 3 {
		n := 5
		var value int
		fmt.Sscanf(bits[:5], "%b", &value)
		if value > 2 {
			n = 6
			fmt.Sscanf(bits[:6], "%b", &value)
			value -= 0x19 - 3
		}
		bits = bits[n:]
		code = 10*code + value
	}
	return code
}

// TestTheAPIGetsWhatWasCharged: the request line that reaches the API is made of
// the target that the limiter saw.
func TestTheAPIGetsWhatWasCharged(t *testing.T) {
	api := newLines(t)
	for _, basePath := range []string{"", "/", "/base", "/base/", "/b%20a/%2F/"} {
		base := newH2Gateway(t, api.url+basePath, func(o *gateway.Options) { o.Limiter = newLimiter(t) })
		before := strings.TrimSuffix(basePath, "/")
		for target, want := range map[string]string{
			"/v1/items/7":                        "/v1/items/7",
			"//v1/items/7":                       "//v1/items/7",
			"//v1/./items//7/":                   "//v1/./items//7/",
			"/v1/%69tems/a%20b%3a?x=1&y=%2F":     "/v1/%69tems/a%20b%3a?x=1&y=%2F",
			"/v1/items/7?":                       "/v1/items/7?",
			"/v1/items/7??":                      "/v1/items/7??",
			"/v1/items/7?http://x/y":             "/v1/items/7?http://x/y",
			"/v1/items/:@!$&'()*+,=[]":           "/v1/items/:@!$&'()*+,=[]",
			"/v1/items/7?b=2;c&a=%zz&{|}^`\"<>'": "/v1/items/7?b=2;c&a=%zz&{|}^`\"<>'",
			"/v1/items/%7b{a}|\"<>^`":            "/v1/items/%7b%7Ba%7D%7C%22%3C%3E%5E%60",
			"//v1/items/{a}":                     "//v1/items/%7Ba%7D",
			"/v1/items/a+b~%E2%82%AC":            "/v1/items/a+b~%E2%82%AC",
		} {
			line := "GET " + before + want + " HTTP/1.1"
			if code := ask1(t, base, "GET "+target); code != 200 || !slices.Equal(api.take(), []string{line}) {
				t.Errorf("before %q: GET %s = %d, and the API did not get %s alone", basePath, target, code, line)
			}
			if code := ask2(t, base, "GET", target); code != 200 || !slices.Equal(api.take(), []string{line}) {
				t.Errorf("before %q over HTTP/2: GET %s = %d, and the API did not get %s alone", basePath,
					target, code, line)
			}
			if strings.HasPrefix(target, "//") {
				continue
			}
			if code := ask1(t, base, "GET HTTP://other.example:8080"+target); code != 200 ||
				!slices.Equal(api.take(), []string{line}) {
				t.Errorf("before %q: GET HTTP://other.example:8080%s = %d, and the API did not get %s alone", basePath,
					target, code, line)
			}
		}
	}
}

// confusing are request lines that the limiter once read as GET /v1/items/{id},
// or that are no request for a path.
var confusing = []string{
	"GET x:/v1/exports?://z/v1/items/1",
	"GET x:http://127.0.0.1/v1/items/1",
	"GET x:http://169.254.169.254/v1/items/1",
	"GET a+b:/v1/exports?://z/v1/items/1",
	"GET https:v1/exports?://z/v1/items/1",
	"GET http:/v1/exports?://z/v1/items/1",
	"GET h:/v1/exports?://z/v1/items/1",
	"GET x://z/v1/items/1",
	"GET http:///v1/items/1",
	"GET http://user@z/v1/items/1",
	"GET v1/items/1",
	"GET *",
	"OPTIONS *",
	"OPTIONS http://z",
	"GET z:443",
	"CONNECT z:443",
	"CONNECT /v1/items/1",
	"CONNECT http://z/v1/items/1",
	"GET /v1/items/1#x",
	"GET /v1/items/\x80",
	"GET /v1/items/1?\xff",
	"GET /v1/items/1\t/v1/exports",
}

// TestNothingElsePasses: what is no plain target is a 400, whatever the protocol
// and whatever happens to unknown requests, and the API sees none of it.
func TestNothingElsePasses(t *testing.T) {
	api := newLines(t)
	for _, unknown := range []headgate.UnknownMode{headgate.RejectUnknown, headgate.LimitUnknown} {
		base := newH2Gateway(t, api.url, func(o *gateway.Options) {
			o.Limiter = newLimiter(t, func(o *headgate.Options) { o.Unknown = unknown })
		})
		for _, line := range confusing {
			if code := ask1(t, base, line); code != 400 {
				t.Errorf("unknown %v: %q = %d, want 400", unknown, line, code)
			}
			method, target, _ := strings.Cut(line, " ")
			if code := ask2(t, base, method, target); code != 400 && code != 0 {
				t.Errorf("unknown %v: over HTTP/2 %q = %d, want 400 or a stream reset", unknown, line, code)
			}
		}
		if code := ask2(t, base, "GET", "http://z/v1/items/1"); code != 400 {
			t.Errorf("unknown %v: an absolute form over HTTP/2 = %d, want 400", unknown, code)
		}
		for _, method := range []string{"GET /v1/exports?", "G\tT", "g\xc3\xa9t", "(GET)"} {
			if code := ask2(t, base, method, "/v1/items/1"); code != 400 && code != 0 {
				t.Errorf("unknown %v: over HTTP/2 the method %q = %d, want 400 or a stream reset",
					unknown, method, code)
			}
		}
		for _, target := range []string{"/v1/items/1", "/nothing"} {
			if code := ask1(t, base, "TRACE "+target); code != 405 && code != 404 {
				t.Errorf("unknown %v: TRACE %s = %d, want 405 or 404", unknown, target, code)
			}
		}
		if got := api.take(); len(got) > 0 {
			t.Errorf("unknown %v: the API got %q, want nothing", unknown, got)
		}
	}
}

// TestNothingAboveTheBasePath: dots must not take the base path away.
func TestNothingAboveTheBasePath(t *testing.T) {
	api := newLines(t)
	base := newH2Gateway(t, api.url+"/base/path", func(o *gateway.Options) { o.Limiter = newLimiter(t) })
	for _, target := range []string{"/../v1/items/1", "/%2e./v1/items/1", "/x/../../v1/items/1", "/./.%2E/v1/items/1",
		"/v1/items/../../../v1/items/1"} {
		if code := ask1(t, base, "GET "+target); code != 400 {
			t.Errorf("GET %s = %d, want 400", target, code)
		}
	}
	if got := api.take(); len(got) > 0 {
		t.Errorf("the API got %q, want nothing", got)
	}
	if code := ask1(t, base, "GET /x/../v1/./items/1"); code != 200 ||
		!slices.Equal(api.take(), []string{"GET /base/path/x/../v1/./items/1 HTTP/1.1"}) {
		t.Errorf("GET /x/../v1/./items/1 = %d, want 200: it stays under the base path", code)
	}
}

// TestAnotherTargetIsNotSent: should this program ever make another request of
// the one that was charged, then nothing is sent.
func TestAnotherTargetIsNotSent(t *testing.T) {
	api := newLines(t)
	for name, meddle := range map[string]func(*http.Request){
		"path":      func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/v1/exports", "" },
		"query":     func(r *http.Request) { r.URL.RawQuery = "x" },
		"opaque":    func(r *http.Request) { r.URL.Opaque = "http://z/v1/exports" },
		"authority": func(r *http.Request) { r.URL.Host = "169.254.169.254" },
		"method":    func(r *http.Request) { r.Method = http.MethodConnect },
	} {
		var out *http.Request
		var failed []int
		var log livelog.Text
		base := newH2Gateway(t, api.url+"/base", func(o *gateway.Options) {
			o.Limiter = newLimiter(t)
			o.Transport = gateway.NewTransport(0, 0)
			o.Outgoing = func(r *http.Request) { out = r }
			o.TrustedProxy = func(netip.Addr) bool { meddle(out); return false } // asked when the line is made
			o.Failed = func(status int) { failed = append(failed, status) }
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		code := ask1(t, base, "GET /v1/items/1")
		if name == "method" { // which httputil.ReverseProxy refuses itself
			if code != 502 || len(api.take()) != 0 {
				t.Errorf("%s: %d, want 502 and nothing sent", name, code)
			}
			continue
		}
		if code != 500 || len(api.take()) != 0 || !slices.Equal(failed, []int{500}) ||
			!strings.Contains(log.String(), "nothing is sent") {
			t.Errorf("%s: %d, told %v, log %q; want 500 once, a line, and nothing sent", name, code,
				failed, log.String())
		}
	}
	// The gateway's own client has written the line by then.
	for name, meddle := range map[string]func(*http.Request){
		"path":      func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/v1/exports", "" },
		"query":     func(r *http.Request) { r.URL.RawQuery = "x" },
		"authority": func(r *http.Request) { r.URL.Host, r.URL.Opaque = "169.254.169.254", "http://z/" },
		"method":    func(r *http.Request) { r.Method = http.MethodConnect },
		"target":    func(r *http.Request) { r.RequestURI = "/v1/exports" },
	} {
		var out *http.Request
		base := newH2Gateway(t, api.url+"/base", func(o *gateway.Options) {
			o.Limiter = newLimiter(t)
			o.Outgoing = func(r *http.Request) { out = r }
			o.TrustedProxy = func(netip.Addr) bool { meddle(out); return false }
		})
		if code, got := ask1(t, base, "GET /v1/items/1"), api.take(); code != 200 ||
			!slices.Equal(got, []string{"GET /base/v1/items/1 HTTP/1.1"}) {
			t.Errorf("%s: %d, and the API got %q; want what was charged", name, code, got)
		}
	}
	// What credentials are taken out of is not the path.
	base := newH2Gateway(t, api.url+"/base", func(o *gateway.Options) {
		o.Limiter = newLimiter(t)
		o.Outgoing = func(r *http.Request) {
			r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.Method = "/v1/exports", "", "", "DELETE"
		}
	})
	if code := ask1(t, base, "GET /v1/items/1?key=K"); code != 200 ||
		!slices.Equal(api.take(), []string{"GET /base/v1/items/1 HTTP/1.1"}) {
		t.Errorf("with another path by Outgoing the answer is %d; want the path that was charged without the query",
			code)
	}
}
