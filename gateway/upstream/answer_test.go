package upstream_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/textproto"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/gateway/upstream"
)

// seeds are answers of every shape.
var seeds = []string{
	ok,
	"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n " +
		"world\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Other: " +
		"2\r\n\r\n",
	"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil it closes",
	"HTTP/1.0 200 OK\r\nServer: old\r\n\r\nold",
	"HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\nEtag: \"a\"\r\n\r\n",
	"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nX-A: 1\r\nx-a: " +
		"2\r\n\r\nno\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500\r\nContent-Length: 0\r\n\r\n",
}

// hostile are texts that are put into answers.
var hostile = []string{
	"Content-Length: 5\r\n", "Content-Length: +5\r\n", "Content-Length: 5, 5\r\n", "Content-Length: 05\r\n",
	"Content-Length:\r\n", "Content-Length: 99999999999999999999\r\n",
	"Content-Length: -1\r\n", "Content-Length : 2\r\n", "content-length: 2\r\n", "Transfer-Encoding: chunked\r\n",
	"Transfer-Encoding: gzip, chunked\r\n",
	"Transfer-Encoding: identity\r\n", "Transfer-Encoding: \tchunked \r\n", "Transfer-Encoding : chunked\r\n",
	"Transfer-Encoding:\x0bchunked\r\n", "TRANSFER-ENCODING: CHUNKED\r\n",
	"Connection: close\r\n", "Connection: keep-alive, close\r\n", "Connection: x\r\n", "Trailer: Content-Length\r\n",
	"Pragma: no-cache\r\n",
	" folded\r\n", "\tfolded\r\n", "X: a\x00b\r\n", "X: a\rb\r\n", "X: a\nY: b\r\n", "X\x00: a\r\n", ": none\r\n",
	"no colon\r\n", "X: \xff\xfe\r\n", "X_Y: 1\r\n",
	"\n", "\r\n", "\r", "\r\n\r\n", "\x00", " ", "\t", "HTTP/1.1 200 OK\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "HTTP/1.1 101 X\r\n\r\n", "HTTP/1.1 099 X\r\n\r\n",
	"HTTP/1.1 1000 X\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 200OK\r\n", "http/1.1 200 OK\r\n",
	"HTTP/1.1  200 OK\r\n", "HTTP/1.1 +20 OK\r\n",
	"0\r\n\r\n", "0\r\nContent-Length: 3\r\n\r\n", "5\r\nhello\r\n", "5 \r\nhello\r\n", "0x5\r\nhello\r\n", "-1\r\n",
	"ffffffffffffffff\r\n", "1\r\nab\r\n", "5;a=\"\n\"\r\nhello\r\n", "5\nhello\n",
}

// mutate changes an answer at random.
func mutate(rng *rand.Rand, text string) string {
	for range 1 + rng.IntN(3) {
		at := rng.IntN(len(text) + 1)
		if lines := strings.SplitAfter(text, "\r\n"); rng.IntN(2) == 0 { // at the beginning of a line
			at = len(strings.Join(lines[:rng.IntN(len(lines))], ""))
		}
		switch rng.IntN(5) {
		case 0, 1, 2:
			text = text[:at] + hostile[rng.IntN(len(hostile))] + text[at:]
		case 3:
			text = text[:at] + text[min(len(text), at+1+rng.IntN(4)):]
		case 4:
			text = text[:at]
		}
	}
	return text
}

// reading is what somebody reads of an answer.
type reading struct {
	status  int
	header  http.Header
	length  int64
	body    string
	trailer http.Header
	failed  bool // in the body
	left    string
}

// byNetHTTP is the oracle: http.ReadResponse, which reads interim answers like others.
func byNetHTTP(text, method string) (got reading, err error) {
	in := bufio.NewReader(strings.NewReader(text))
	for {
		response, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return got, err
		}
		body, err := io.ReadAll(response.Body)
		if response.StatusCode < 200 {
			continue
		}
		left, _ := io.ReadAll(in)
		header := response.Header
		if len(response.TransferEncoding) > 0 {
			header["Transfer-Encoding"] = response.TransferEncoding
		}
		return reading{response.StatusCode, header, response.ContentLength, string(body), response.Trailer, err != nil,
			string(left)}, nil
	}
}

// byUs reads the answer as Do does, in pieces, from a connection that then ends. It reports whether the connection
// would have been kept.
func byUs(t testing.TB, text, method string, piece int) (got reading, kept bool, err error) {
	t.Helper()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		if _, err := readHead(bufio.NewReader(theirs)); err != nil {
			return
		}
		for at := 0; at < len(text); at += piece {
			if _, err := theirs.Write([]byte(text[at:min(len(text), at+piece)])); err != nil {
				return
			}
		}
		theirs.Close()
	}()
	p := newPool(t, nil, func(o *upstream.Options) {
		o.Servers = []upstream.Server{{Address: "api:80"}}
		o.Dial = func(context.Context, string, string) (net.Conn, error) { return ours, nil }
	})
	var a upstream.Answer
	q := &upstream.Request{Head: []byte(method + " / HTTP/1.1\r\nHost: a\r\n\r\n"), ToHEAD: method == "HEAD"}
	if err := p.Do(context.Background(), q, &a); err != nil {
		return got, false, err
	}
	head := string(a.Head)
	got = reading{status: a.Status, length: a.Length, header: http.Header{}, trailer: http.Header{}}
	for _, f := range a.Fields {
		got.header.Add(f.Name(head), f.Value(head))
	}
	body, err := io.ReadAll(&a)
	got.body, got.failed = string(body), err != nil
	for _, f := range a.Trailer {
		got.trailer.Add(f.Name, f.Value)
	}
	a.Close()
	return got, p.Servers()[0].Idle > 0, nil
}

// agree holds the two readings against each other. What we refuse, net/http may read.
func agree(t testing.TB, text, method string, piece int) (accepted bool) {
	t.Helper()
	got, kept, err := byUs(t, text, method, piece)
	if err != nil {
		return false
	}
	want, err := byNetHTTP(text, method)
	fail := func(what string, g, w any) {
		t.Errorf("%s %q in pieces of %d: %s is %q, net/http has %q", method, text, piece, what, g, w)
	}
	if err != nil {
		fail("the answer", got, err)
		return true
	}
	if want.header.Get("Pragma") == "no-cache" && got.header["Cache-Control"] == nil {
		delete(want.header, "Cache-Control") // which net/http makes up
	}
	if coding := got.header["Transfer-Encoding"]; coding != nil {
		coding[0] = strings.ToLower(coding[0])
	}
	for _, name := range []string{"Connection", "Trailer"} { // which it may remove
		delete(got.header, name)
		delete(want.header, name)
	}
	if got.status < 300 && got.status > 203 || got.status == 304 || method == "HEAD" {
		delete(got.header, "Transfer-Encoding")
		delete(want.header, "Transfer-Encoding")
	}
	switch {
	case got.status != want.status:
		fail("the status", got.status, want.status)
	case !same(got.header, want.header):
		fail("the header", got.header, want.header)
	case got.failed && want.failed:
		return false // where it broke off may differ
	case got.failed:
		return false // in its body it is refused
	case want.failed:
		fail("the body", got.body, "an error after "+want.body)
	case got.body != want.body:
		fail("the body", got.body, want.body)
	case method != "HEAD" && got.status != 304 && got.length != want.length:
		fail("the length", got.length, want.length)
	case kept && want.left != "" && piece >= len(text): // else it may not be here yet
		fail("what is left of a connection that is kept", "", want.left)
	}
	for name, values := range got.trailer {
		if !slices.Equal(values, want.trailer[textproto.CanonicalMIMEHeaderKey(name)]) {
			fail("the trailer", got.trailer, want.trailer)
		}
	}
	return true
}

func same(a, b http.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for name, values := range a {
		if !slices.Equal(values, b[name]) {
			return false
		}
	}
	return true
}

// TestWhatWeReadTheyReadTheSame: an answer that is not refused is read by net/http in the same way,
// whichever way it is broken up.
func TestWhatWeReadTheyReadTheSame(t *testing.T) {
	for _, seed := range seeds {
		for _, method := range []string{"GET", "HEAD"} {
			for _, piece := range []int{1, 3, 1 << 20} {
				if !agree(t, seed, method, piece) {
					t.Errorf("%s %q is refused", method, seed)
				}
			}
		}
	}
	accepted, rng := 0, rand.New(rand.NewPCG(19, 1))
	const all = 4000
	for range all {
		text := mutate(rng, seeds[rng.IntN(len(seeds))])
		if agree(t, text, []string{"GET", "GET", "HEAD"}[rng.IntN(3)], 1+rng.IntN(1<<rng.IntN(12))) {
			accepted++
		}
		if t.Failed() {
			t.Fatal("the first disagreement is above")
		}
	}
	if accepted < all/20 || accepted > all*9/10 {
		t.Errorf("%d of %d were accepted, which proves little", accepted, all)
	}
}

func FuzzAnswer(f *testing.F) {
	for i, seed := range seeds {
		f.Add(seed, i%2 == 0, 7)
	}
	for _, text := range hostile {
		f.Add("HTTP/1.1 200 OK\r\n"+text+"Content-Length: 2\r\n\r\nok", false, 100)
	}
	f.Fuzz(func(t *testing.T, text string, head bool, piece int) {
		method := "GET"
		if head {
			method = "HEAD"
		}
		agree(t, text, method, 1+(piece&1023))
	})
}

// TestRefused: answers that could be read in two ways, and what is no answer, are errors at once, without the
// connection's end; nothing of them is passed on.
func TestRefused(t *testing.T) {
	const body = "\r\n\r\nok"
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2" + body,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3" + body,
		"HTTP/1.1 200 OK\r\nContent-Length: 2, 2" + body,
		"HTTP/1.1 200 OK\r\nContent-Length: +2" + body,
		"HTTP/1.1 200 OK\r\nContent-Length: 0x2" + body,
		"HTTP/1.1 200 OK\r\nContent-Length: " + body,
		"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999" + body,
		"HTTP/1.1 200 OK\r\nContent-Length : 2" + body,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity" + body,
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: a\r\n b" + body,
		"HTTP/1.1 200 OK\r\n X: a" + body,
		"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
		"HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: evil=1" + body,
		"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: evil=1" + body,
		"HTTP/1.1 200 OK\r\nX: a\x00b" + body,
		"HTTP/1.1 200 OK\r\nno colon" + body,
		"HTTP/1.1 200 OK\r\n: a" + body,
		"HTTP/1.1 200 O\x00K" + body,
		"HTTP/1.1 20 OK" + body,
		"HTTP/1.1 099 OK" + body,
		"HTTP/1.1 2000 OK" + body,
		"HTTP/1.2 200 OK" + body,
		"HTTP/2 200 OK" + body,
		"ICY 200 OK" + body,
		"\r\nHTTP/1.1 200 OK" + body,
		"SSH-2.0-OpenSSH_9.6",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
		"HTTP/1.1 100 Continue\r\nContent-Length: 44\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n",
		strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100) + ok,
		strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("x", 16<<10)+"\r\n\r\n", 30) + ok,
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 300<<10),
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: 1\r\n", 600),
	} {
		o := serve(t, func(c net.Conn, in *bufio.Reader, _ string) bool {
			_, _ = io.WriteString(c, text)
			_, _ = in.ReadByte() // it stays open
			return false
		})
		p := newPool(t, o)
		if _, _, err := ask(p); !errors.Is(err, upstream.ErrMalformed) {
			t.Errorf("%.80q is answered by %v, want ErrMalformed", text, err)
		} else if len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\x00\r\n") {
			t.Errorf("the error is %q, want one short line", err)
		}
		if o.heads.Load() != 1 {
			t.Errorf("%.80q was asked for %d times", text, o.heads.Load())
		}
	}
}

// TestBrokenBodies: what is not whole ends with an error, and what is whole without one.
func TestBrokenBodies(t *testing.T) {
	const chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		text, body string
		want       error
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "half", io.ErrUnexpectedEOF},
		{chunks + "4\r\nhalf", "half", io.ErrUnexpectedEOF},
		{chunks + "4\r\nhalf\r\n", "half", io.ErrUnexpectedEOF},
		{chunks + "4\r\nhalf\r\n0\r\n", "half", io.ErrUnexpectedEOF},
		{chunks + "4\r\nhalf\r\n0\r\nX: 1\r\n", "half", io.ErrUnexpectedEOF},
		{chunks + "4\r\nhalf of it", "half", upstream.ErrMalformed},
		{chunks + "4\r\nhalf\n0\r\n\r\n", "half", upstream.ErrMalformed},
		{chunks + "4\nhalf\r\n0\r\n\r\n", "", upstream.ErrMalformed},
		{chunks + "0x4\r\nhalf\r\n0\r\n\r\n", "", upstream.ErrMalformed},
		{chunks + "-4\r\nhalf\r\n0\r\n\r\n", "", upstream.ErrMalformed},
		{chunks + "\r\nhalf\r\n0\r\n\r\n", "", upstream.ErrMalformed},
		{chunks + "fffffffffffffffff\r\nhalf", "", upstream.ErrMalformed},
		{chunks + "4;" + strings.Repeat("x", 5000), "", upstream.ErrMalformed},
		{chunks + "0\r\n folded: 1\r\n\r\n", "", upstream.ErrMalformed},
		{chunks + "0\r\n" + strings.Repeat("X: 1\r\n", 100) + "\r\n", "", upstream.ErrMalformed},
		{chunks + "0\r\nX: " + strings.Repeat("x", 20<<10) + "\r\n\r\n", "", upstream.ErrMalformed},
		{chunks + "4\r\nhalf\r\n0\r\n\r\n", "half", nil},
		{"HTTP/1.1 200 OK\r\n\r\nall of it", "all of it", nil},
	} {
		o := serve(t, func(conn net.Conn, _ *bufio.Reader, _ string) bool {
			_, _ = io.WriteString(conn, c.text)
			return false
		})
		_, body, err := ask(newPool(t, o))
		if body != c.body || !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%.90q: %q, %v; want %q, %v", c.text, body, err, c.body, c.want)
		}
	}
}

// Answers that announce another are told of, and the fields are theirs.
func TestInterimAnswersAreTold(t *testing.T) {
	var told []string
	q := &upstream.Request{Head: []byte(get), Interim: func(status int, text []byte, fields []upstream.Field) {
		for _, f := range fields {
			told = append(told, fmt.Sprint(status, f.Name(string(text)), f.Value(string(text))))
		}
	}}
	o := serve(t, always("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\nX:  y \r\n\r\n"+ok))
	if status, body, err := send(context.Background(), newPool(t, o), q); status != 200 || body != "ok" || err != nil {
		t.Error(status, body, err)
	}
	if want := []string{"103Link</a>", "102Xy"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}

// A stream of any length passes through little memory.
func TestLongBodies(t *testing.T) {
	const size = 64 << 20
	piece := bytes.Repeat([]byte("0123456789abcdef"), 2<<10)
	chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", len(piece), piece)
	for name, answer := range map[string]func(net.Conn){
		"length": func(c net.Conn) {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
			for range size / len(piece) {
				_, _ = c.Write(piece)
			}
		},
		"chunks": func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for range size / len(piece) {
				_, _ = c.Write(chunk)
			}
			_, _ = io.WriteString(c, "0\r\n\r\n")
		},
	} {
		o := serve(t, func(c net.Conn, _ *bufio.Reader, _ string) bool { answer(c); return true })
		p := newPool(t, o)
		var a upstream.Answer
		if err := p.Do(context.Background(), &upstream.Request{Head: []byte(get)}, &a); err != nil {
			t.Fatal(err)
		}
		buf, total := make([]byte, 32<<10), 0
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for !a.Ended() {
			n, err := a.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
		runtime.ReadMemStats(&after)
		a.Close()
		if total != size || p.Servers()[0].Idle != 1 {
			t.Errorf("%s: %d bytes, %+v", name, total, p.Servers())
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes were allocated for %d that passed", name, n, size)
		}
	}
}
