package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"testing"

	"github.com/headgate-io/headgate/internal/streams"
)

// marker follows what was taken: it is the next request if that ended where it was thought to.
const marker = "GET /marker HTTP/1.1\r\nHost: marker\r\n\r\n"

// taken is the first request of a stream by these rules, and how many bytes it has; 0 if it is not plain.
func taken(h *head, stream []byte) (streams.Request, int) {
	h.begin()
	h.size = 0
	if h.read(stream) != plain || int64(len(stream)-h.size) < h.length {
		return streams.Request{}, 0
	}
	var u url.URL
	if !readTarget(&u, h.target) {
		return streams.Request{}, 0
	}
	header := http.Header{}
	for _, f := range h.fields {
		header[f.name] = append(header[f.name], f.value)
	}
	end := h.size + int(h.length)
	return streams.Request{
		Method: h.method, Target: h.target, Host: h.host, Proto: "HTTP/1.1",
		Path: u.Path, RawPath: u.RawPath, Query: u.RawQuery, ForceQuery: u.ForceQuery, Closes: h.closes,
		NoBody: h.length == 0, Length: h.length, Header: header, Body: string(stream[h.size:end]),
	}, end
}

// disagreement says how net/http reads a request that is plain, if in another way.
func (o *oracle) disagreement(got streams.Request, stream []byte, end int) string {
	all := o.read(append(bytes.Clone(stream[:end]), marker...))
	want := 2
	if got.Closes {
		want = 1
	}
	if len(all) != want {
		return fmt.Sprintf("net/http reads %d requests in it and one behind it, want %d: %+v", len(all), want, all)
	}
	if want == 2 && all[1].Target != "/marker" {
		return fmt.Sprintf("behind it net/http reads %+v", all[1])
	}
	if !reflect.DeepEqual(got, all[0]) {
		return fmt.Sprintf("read as\n%+v\nby net/http as\n%+v", got, all[0])
	}
	return ""
}

// compare makes so many streams and returns how many were plain and which of those net/http reads in another way.
func compare(seed uint64, n int, without rule, most int) (plain, notPlain int, faults []string) {
	o := newOracle()
	defer func() { _ = o.end() }()
	r := rand.New(rand.NewPCG(seed, 19))
	h := &head{without: without}
	var stream []byte
	for range n {
		stream = streams.Mutated(r, stream)
		got, end := taken(h, stream)
		if end == 0 {
			notPlain++
			continue
		}
		plain++
		if fault := o.disagreement(got, stream, end); fault != "" {
			if faults = append(faults, fmt.Sprintf("%q: %s", stream, fault)); len(faults) == most {
				break
			}
		}
	}
	return plain, notPlain, faults
}

// What is plain, net/http reads in the same way: method, target, fields, body, and where it ends.
func TestPlainIsReadTheSame(t *testing.T) {
	seed := rand.Uint64()
	plain, others, faults := compare(seed, 100_000, none, 5)
	t.Logf("seed %d: %d plain, %d for net/http", seed, plain, others)
	for _, fault := range faults {
		t.Errorf("seed %d: %s", seed, fault)
	}
	if plain < 8000 {
		t.Errorf("%d of the requests were plain, want more than 8,000: the comparison compares nothing", plain)
	}
}

// readAlike are rules whose breach net/http reads as the head without them would: they are here for what is behind the
// gateway, or for what a handler does with it.
var readAlike = map[rule]string{
	percentPairs: "net/http refuses them in a path, and never looks at those of a query",
	lineEnds:     "net/http takes LF for CR LF; other servers do not",
	noUnderscore: "a server may take X_Api_Key for X-Api-Key",
	noUpgrade:    "a handler takes the connection over",
	noTrailer:    "a handler reads TE",
}

// Each rule hands over what breaks it, and no other rule does.
func TestEachRuleHandsOver(t *testing.T) {
	const host = "Host: a\r\n"
	for broken, text := range map[rule]string{
		knownMethod: "CONNECT /a HTTP/1.1\r\n" + host, originForm: "GET http://b/ HTTP/1.1\r\n" + host,
		targetBytes: "GET /a#b HTTP/1.1\r\n" + host, percentPairs: "GET /a?%z HTTP/1.1\r\n" + host,
		version11: "GET /a HTTP/1.0\r\n" + host, lineEnds: "GET /a HTTP/1.1\n" + host,
		firstLine: "\r\nGET /a HTTP/1.1\r\n" + host, nameBytes: "GET /a HTTP/1.1\r\n(X): y\r\n" + host,
		spaceBeforeColon: "GET /a HTTP/1.1\r\nX : y\r\n" + host, noUnderscore: "GET /a HTTP/1.1\r\nX_Y: z\r\n" + host,
		valueBytes: "GET /a HTTP/1.1\r\nX: \x01\r\n" + host, oneHost: "GET /a HTTP/1.1\r\n" + host + host,
		hostBytes: "GET /a HTTP/1.1\r\nHost: a/b\r\n", oneLength: "GET /a HTTP/1.1\r\n" + host +
			"Content-Length: 1\r\nContent-Length: 1\r\n",
		lengthDigits:      "GET /a HTTP/1.1\r\n" + host + "Content-Length: +1\r\n",
		noCoding:          "GET /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n",
		connectionOptions: "GET /a HTTP/1.1\r\n" + host + "Connection: close, x\r\n",
		noPragma:          "GET /a HTTP/1.1\r\n" + host + "Pragma: no-cache\r\n",
		noExpect:          "GET /a HTTP/1.1\r\n" + host + "Expect: 100-continue\r\n",
		noUpgrade:         "GET /a HTTP/1.1\r\n" + host + "Upgrade: websocket\r\n",
		noTrailer:         "GET /a HTTP/1.1\r\n" + host + "TE: trailers\r\n",
	} {
		text += "\r\n"
		if got := (&head{}).read([]byte(text)); got != other {
			t.Errorf("rule %d: %q is %d, want %d: it is for net/http", broken, text, got, other)
		}
		if got := (&head{without: broken}).read([]byte(text)); got != plain {
			t.Errorf("without rule %d %q is %d, want %d: it alone is broken", broken, text, got, plain)
		}
	}
}

// The comparison with net/http notices if a rule were missing.
func TestEachRuleIsNeeded(t *testing.T) {
	for without := none + 1; without < rules; without++ {
		if readAlike[without] != "" {
			continue
		}
		found := false
		for seed := uint64(1); seed <= 40 && !found; seed++ {
			_, _, faults := compare(seed, 20_000, without, 1)
			found = len(faults) > 0
		}
		if !found {
			t.Errorf("without rule %d net/http reads nothing in another way in 800,000 streams", without)
		}
	}
}

// FuzzPlainIsReadTheSame is TestPlainIsReadTheSame for what a fuzzer finds.
func FuzzPlainIsReadTheSame(f *testing.F) {
	for _, seed := range streams.Seeds {
		f.Add([]byte(seed))
	}
	o := newOracle()
	h := &head{}
	f.Fuzz(func(t *testing.T, stream []byte) {
		if got, end := taken(h, stream); end > 0 {
			if fault := o.disagreement(got, stream, end); fault != "" {
				t.Errorf("%q: %s", stream, fault)
			}
		}
	})
}

// A head that comes in pieces is read as the whole is.
func FuzzPiecesAreReadAsTheWhole(f *testing.F) {
	for _, seed := range streams.Seeds {
		f.Add([]byte(seed), uint16(7))
	}
	f.Fuzz(func(t *testing.T, stream []byte, at uint16) {
		whole := &head{}
		want := whole.read(stream)
		parts := &head{}
		end := int(at) % (len(stream) + 1)
		got := parts.read(stream[:end])
		if got == incomplete {
			got = parts.read(stream)
		}
		if got != want || got == plain && (whole.text != parts.text || !reflect.DeepEqual(whole.fields, parts.fields)) {
			t.Errorf("%q, cut at %d: %v, want %v", stream, end, got, want)
		}
	})
}
