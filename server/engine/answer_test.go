package engine

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/streams"
)

// told is an answer as a client reads it.
type told struct {
	Status  int
	Header  http.Header
	Body    string
	Length  int64
	Coding  []string
	Trailer http.Header
	Closes  bool
}

// answers reads all answers of a connection.
func answers(t *testing.T, text []byte, methods []string) (all []told) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(text))
	for i := 0; ; {
		if _, err := r.Peek(1); err != nil {
			return all
		}
		method := "GET"
		if i < len(methods) {
			method = methods[i]
		}
		a, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		body, err := io.ReadAll(a.Body)
		if err != nil {
			body = append(body, err.Error()...)
		}
		if a.StatusCode >= 200 {
			i++
		}
		a.Header.Del("Date")
		all = append(all, told{
			a.StatusCode, a.Header, string(body), a.ContentLength, a.TransferEncoding, a.Trailer, a.Close,
		})
	}
}

// various answers in as many ways as there are, by the target.
func various(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	say := func(n int) { _, _ = w.Write(bytes.Repeat([]byte("x"), n)) }
	switch r.URL.Path {
	case "/none":
	case "/small":
		h.Set("Content-Type", "text/plain")
		say(5)
	case "/sniffed":
		_, _ = io.WriteString(w, "<html>")
		_, _ = io.WriteString(w, "hello")
	case "/sniffed/declared":
		h.Set("Content-Length", "6")
		_, _ = io.WriteString(w, "<html>")
	case "/untyped":
		h["Content-Type"] = nil
		say(10)
	case "/coded":
		h.Set("Content-Encoding", "gzip")
		say(10)
	case "/declared":
		h.Set("Content-Length", "3000")
		say(3000)
	case "/short":
		h.Set("Content-Length", "10")
		say(3)
	case "/long":
		h.Set("Content-Length", "3")
		say(10)
	case "/2048":
		say(2048)
	case "/2049":
		say(2049)
	case "/pieces":
		for n := range 100 {
			say(n * 10)
		}
	case "/large":
		say(100_000)
		say(1)
	case "/flushed":
		say(3)
		_ = http.NewResponseController(w).Flush()
		say(4)
	case "/flushed/empty":
		_ = http.NewResponseController(w).Flush()
	case "/204", "/304":
		h.Set("Content-Type", "text/plain")
		h.Set("ETag", `"x"`)
		h.Set("Content-Length", "0")
		w.WriteHeader(map[string]int{"/204": 204, "/304": 304}[r.URL.Path])
		say(3)
	case "/interim":
		h.Set("Link", "</a>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		h.Set("X-After", "1")
		say(3)
	case "/trailer":
		h.Set("Trailer", "X-Sum, X-Never")
		h.Set(http.TrailerPrefix+"X-More", "2")
		say(3)
		h.Set("X-Sum", "1")
		h.Set(http.TrailerPrefix+"X-Late", "3")
	case "/close":
		h.Set("Connection", "close")
		say(3)
	case "/injected":
		h["X-A"] = []string{"a\r\nSet-Cookie: b", "  c  "}
		h["X B"] = []string{"no"}
		say(3)
	case "/twice":
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
		say(3)
	case "/abort":
		say(3)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		h.Set("Content-Type", "application/json")
		fmt.Fprintf(w, "%+v", streams.Seen(r))
	}
}

// exchange sends a stream to a server in memory, and returns what it answers.
func (o *oracle) exchange(stream []byte) []byte {
	c := streams.NewConn(stream)
	c.Keep = true
	o.listener.Connect(c)
	<-c.Closed()
	return c.Out
}

func inMemory(t *testing.T, h http.Handler) (plain, fast *oracle) {
	plain, fast = &oracle{listener: streams.NewListener()}, &oracle{listener: streams.NewListener()}
	s := quiet(h)
	e := New(quiet(h))
	go func() { _ = s.Serve(plain.listener) }()
	// Without those who look by the clock: to them, that these clients have sent all they will is that they have left,
	// and who is answered late would not be answered.
	go func() { _ = e.http.Serve(&e.others) }()
	go func() {
		for {
			c, err := fast.listener.Accept()
			if err != nil {
				return
			}
			go e.serve(c)
		}
	}()
	t.Cleanup(func() {
		_ = s.Close()
		_ = fast.listener.Close()
		_ = e.Close()
	})
	return plain, fast
}

// Every answer is that of net/http: status, fields, body, how it is framed, and whether another request may follow.
func TestAnswersAreThoseOfNetHTTP(t *testing.T) {
	own, fast := inMemory(t, http.HandlerFunc(various))
	for _, path := range []string{"/none", "/small", "/sniffed", "/sniffed/declared", "/untyped", "/coded", "/declared",
		"/short",
		"/long", "/2048", "/2049", "/pieces", "/large", "/flushed", "/flushed/empty", "/204", "/304", "/interim",
		"/trailer",
		"/close", "/injected", "/twice", "/abort", "/echo?a=b"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			for _, fields := range []string{"", "Connection: close\r\n", "X-Y: z\r\n"} {
				body := ""
				if method == "POST" {
					body = "hello"
					fields += "Content-Length: 5\r\n"
				}
				stream := method + " " + path + " HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n" + body
				stream += "GET /small HTTP/1.1\r\nHost: a\r\n\r\n"
				methods := []string{method, "GET"}
				ownText, text := own.exchange([]byte(stream)), fast.exchange([]byte(stream))
				want, got := answers(t, ownText, methods), answers(t, text, methods)
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%q:\n%+v\nwant\n%+v", stream, got, want)
				}
				if heads(text) != heads(ownText) { // the order of fields as well
					t.Errorf("%q:\n%s\nwant\n%s", stream, heads(text), heads(ownText))
				}
			}
		}
	}
}

// Whatever comes, whole conversations are those of net/http: what is plain is served here, all else there.
func TestConversationsAreThoseOfNetHTTP(t *testing.T) {
	own, fast := inMemory(t, http.HandlerFunc(various))
	seed := rand.Uint64()
	var all sync.WaitGroup
	for part := range uint64(64) { // net/http waits for half a second before it closes some
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, part))
			var stream, more []byte
			for range 60 {
				stream = stream[:0]
				for range 1 + r.IntN(3) {
					more = streams.Mutated(r, more)
					stream = append(stream, more...)
				}
				want, got := own.exchange(bytes.Clone(stream)), fast.exchange(bytes.Clone(stream))
				if undated(got) != undated(want) {
					t.Errorf("seed %d: %q:\n%q\nwant\n%q", seed, stream, got, want)
				}
			}
		})
	}
	all.Wait()
}

// undated is answers without Date. That the connection ends net/http does not say if the body of a request broke off.
func undated(text []byte) string {
	lines := strings.SplitAfter(string(text), "\r\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "Date: ") || line == "Connection: close\r\n"
	}), "")
}

var dates = regexp.MustCompile(`Date: [^\r]*`)

// heads are the lines of answers but those of bodies, and the time in Date.
func heads(text []byte) string {
	var lines []string
	for head := range strings.SplitSeq(dates.ReplaceAllString(string(text), "Date"), "HTTP/1.1 ") {
		head, _, _ = strings.Cut(head, "\r\n\r\n")
		lines = append(lines, head)
	}
	return strings.Join(lines, "\n")
}
