package gateway_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/policy"
)

// withCalls makes a limiter of these rules for calls of /shop.Chat/Talk.
func withCalls(t testing.TB, lines ...string) func(*headgate.Options) {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range []string{"POST /shop.Chat/Talk", "GRPC-SEND /shop.Chat/Talk", "GRPC-RECEIVE /shop.Chat/Talk",
		"POST /shop.Chat/Other"} {
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
	var rules []policy.Rule
	for _, line := range lines {
		rule, err := policy.ParseRule(line)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, rule)
	}
	set, problems := policy.Compile(policy.Document{Rules: rules}, policy.CompileOptions{Endpoints: table})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return func(o *headgate.Options) { o.Endpoints, o.Policies = table, headgate.Fixed(set) }
}

// message is a message of so many bytes with its head.
func message(length int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), bytes.Repeat([]byte{'x'}, length)...)
}

// FuzzMessages reads bodies of calls in pieces, in both directions. What goes on, and what counts,
// is what a slow reader of the whole finds.
func FuzzMessages(f *testing.F) {
	for _, up := range []bool{true, false} {
		f.Add(append(message(3), message(300)...), uint8(1), up)
		f.Add(append(message(0), message(0)...), uint8(4), up)
		f.Add(message(9)[:7], uint8(200), up)
		f.Add([]byte{0, 0, 0}, uint8(7), up)
		f.Add([]byte{2, 0, 0, 0, 1, 'x'}, uint8(7), up)
		f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 'x'}, uint8(7), up)
	}
	of := gateway.Stream{Send: gateway.Messages, Receive: gateway.Messages, MaxMessage: 1 << 20, BytesPerToken: 1}
	counted := 0
	lim := newLimiter(f, withCalls(f, "default 1000000/s burst 1000000000", "UNKNOWN 1/s"), func(o *headgate.Options) {
		o.Observe = func(*headgate.Request, *headgate.Decision) { counted++ }
	})
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8, up bool) {
		counted = 0
		wantOn, messages, clean := 0, 0, false
		for at := 0; ; {
			if at == len(stream) {
				clean = true
			}
			if len(stream)-at < 5 || stream[at] > 1 {
				break
			}
			n := int(binary.BigEndian.Uint32(stream[at+1:]))
			if up && n > 1<<20 {
				break
			}
			messages++
			wantOn = min(len(stream), at+5+n)
			if at += 5 + n; at > len(stream) {
				break
			}
		}
		sent, received := io.NopCloser(bytes.NewReader(stream)), io.NopCloser(bytes.NewReader(nil))
		if !up {
			sent, received = received, sent
		}
		body, down := gateway.NewCall(lim, of, "/shop.Chat/Talk", sent, received)
		if !up {
			body = down
		}
		var got []byte
		var err error
		for buffer := make([]byte, int(piece)+1); err == nil; {
			var n int
			n, err = body.Read(buffer)
			got = append(got, buffer[:n]...)
		}
		if !bytes.Equal(got, stream[:wantOn]) || counted != messages || up && clean != (err == io.EOF) {
			t.Errorf("in pieces of %d, %x went on with %d messages, %v; want %x with %d, clean %v", int(piece)+1, got,
				counted, err, stream[:wantOn], messages, clean)
		}
	})
}

// Bytes cost tokens by the length that a head says, before any of them goes on.
func TestBytesOfMessages(t *testing.T) {
	lim := newLimiter(t, withCalls(t, "default 1000/s burst 1000", "GRPC-SEND /shop.Chat/Talk 10/d", "UNKNOWN 1/s"))
	of := gateway.Stream{Send: gateway.Bytes, BytesPerToken: 100, MaxMessage: 1 << 20}
	whole := append(append(message(0), message(850)...), message(1)...) // 1, 9 and 1 tokens
	body, _ := gateway.NewCall(lim, of, "/shop.Chat/Talk", io.NopCloser(bytes.NewReader(whole)),
		io.NopCloser(bytes.NewReader(nil)))
	got, err := io.ReadAll(body)
	if len(got) != 5+5+850 || err == nil {
		t.Errorf("%d bytes went on, %v; want those of 2 messages and an end", len(got), err)
	}
}

// What is refused of calls by gRPC is said as gRPC says it, and of others as before.
func TestRefusedCalls(t *testing.T) {
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("the API was asked for %s", r.URL) })
	lim := newLimiter(t, withCalls(t, "default 1/h", "UNKNOWN 1/s"))
	g := newGateway(t, api, func(o *gateway.Options) {
		o.Limiter, o.Streams = lim, map[string]gateway.Stream{"POST /shop.Chat/Talk": {Send: gateway.Messages}}
	})
	post := func(path, media string) *http.Response {
		t.Helper()
		answer, err := http.Post(g.URL+path, media, strings.NewReader("\x00\x00\x00\x00\x00"))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer
	}
	// What could be framed in another way is not sent on.
	for _, media := range []string{"application/grpc-web", "application/json", "", "Application/gRPC",
		"application/grpcx", "text/plain; application/grpc"} {
		if answer := post("/shop.Chat/Talk", media); answer.StatusCode != http.StatusUnsupportedMediaType &&
			answer.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%q: %d, want 415", media, answer.StatusCode)
		}
	}
	if answer := post("/shop.Chat/Talk", "application/grpc+proto"); answer.StatusCode != 200 ||
		answer.Header.Get("Grpc-Status") != "8" ||
		answer.Header.Get("Content-Type") != "application/grpc" || !strings.HasPrefix(answer.Header.Get("Grpc-Message"),
		"Limit default: 1 per 1h") || answer.Header.Get("Grpc-Retry-Pushback-Ms") == "" {
		t.Errorf("over the limit: %d, %v", answer.StatusCode, answer.Header)
	}
	if answer := post("/shop.Chat/Nothing", "application/grpc"); answer.StatusCode != 200 ||
		answer.Header.Get("Grpc-Status") != "12" || answer.Header.Get("Grpc-Retry-Pushback-Ms") != "" {
		t.Errorf("no such method: %d, %v", answer.StatusCode, answer.Header)
	}
	if answer := post("/shop.Chat/Nothing", "application/json"); answer.StatusCode != 404 {
		t.Errorf("no such path: %d", answer.StatusCode)
	}
	nobody, err := http.Post(newGateway(t, "http://127.0.0.1:1").URL+"/v1/items", "application/grpc",
		strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Body.Close()
	if code := nobody.Header.Get("Grpc-Status"); code != "14" {
		t.Errorf("an API that is away: %d, %v", nobody.StatusCode, nobody.Header)
	}
}

func TestStreamsThatCannotCount(t *testing.T) {
	for text, want := range map[string]string{
		"GET /a":   "want one with POST",
		"POST /a":  "neither what is sent nor what is received counts",
		"nonsense": "Streams: ",
	} {
		_, err := gateway.New(gateway.Options{
			Limiter:  newLimiter(t, withCalls(t, "default 1/h", "UNKNOWN 1/s")),
			Upstream: &url.URL{Scheme: "http", Host: "h"},
			Streams:  map[string]gateway.Stream{text: {}},
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A call goes to the API by HTTP/2, and its messages count on the way, whatever client sends other requests on.
func TestCallsGoByHTTP2(t *testing.T) {
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("X-Got", fmt.Sprint(r.Proto, " ", n))
	}))
	api.Config.Protocols = new(http.Protocols)
	api.Config.Protocols.SetUnencryptedHTTP2(true)
	api.Start()
	t.Cleanup(api.Close)
	lim := newLimiter(t, withCalls(t, "default 100/h", "GRPC-SEND /shop.Chat/Talk 3/h", "UNKNOWN 1/s"))
	g := newGateway(t, api.URL, func(o *gateway.Options) {
		o.Limiter, o.Streams = lim, map[string]gateway.Stream{"POST /shop.Chat/Talk": {Send: gateway.Messages}}
	})
	for i, want := range []string{"HTTP/2.0 12 ", " 8"} {
		two := append(message(1), message(1)...)
		answer, err := http.Post(g.URL+"/shop.Chat/Talk", "application/grpc", bytes.NewReader(two))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := answer.Header.Get("X-Got") + " " + answer.Header.Get("Grpc-Status"); got != want {
			t.Errorf("call %d: %q, want %q", i, got, want)
		}
	}
}

// A refusal in other words than ours, as a rule or the API may have it, is said as gRPC says it as well.
func TestCallsRefusedInOtherWords(t *testing.T) {
	for status, want := range map[int][3]string{
		429: {"8", "Too Many Requests", "2000"},
		503: {"14", "Service Unavailable", "2000"},
	} {
		api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "2")
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "Later.")
		}))
		api.Config.Protocols = new(http.Protocols)
		api.Config.Protocols.SetUnencryptedHTTP2(true)
		api.Start()
		t.Cleanup(api.Close)
		g := newGateway(t, api.URL)
		answer, err := http.Post(g.URL+"/v1/items", "application/grpc", strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		got := [3]string{answer.Header.Get("Grpc-Status"), answer.Header.Get("Grpc-Message"),
			answer.Header.Get("Grpc-Retry-Pushback-Ms")}
		if answer.StatusCode != 200 || got != want || answer.Header.Get("Content-Type") != "application/grpc" {
			t.Errorf("%d: %d, %q, want 200 and %q", status, answer.StatusCode, got, want)
		}
	}
}
