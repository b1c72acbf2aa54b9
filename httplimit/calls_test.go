package httplimit_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/race"
)

// batches is a Handler before an API that takes many requests in one.
type batches struct {
	http.Handler
	*httplimit.Calls
	lim   *headgate.Limiter
	parts int64 // that the limiter was asked for; -1 if it was not asked
	got   []byte
	in    int // requests that reached the API
}

// limitedBatches has a budget of so many an hour for each address at POST /rpc and POST /v1/$batch.
func limitedBatches(t testing.TB, limit int, change func(*httplimit.Batch)) *batches {
	t.Helper()
	s := &batches{}
	lim, err := headgate.New(headgate.Options{
		Rules: []string{
			fmt.Sprintf("POST /rpc %d/h burst %d", limit, limit),
			fmt.Sprintf("POST /v1/$batch %d/h burst %d", limit, limit), "POST /other 1000/s", "default 1000/s",
		},
		Now:     func() time.Time { return epoch },
		Observe: func(r *headgate.Request, _ *headgate.Decision) { s.parts = r.Parts },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.lim = lim
	list := []httplimit.Batch{{Endpoint: "POST /rpc"},
		{Endpoint: "POST /v1/$batch", Parts: body.Batch{Name: "requests"}}}
	if change != nil {
		for i := range list {
			change(&list[i])
		}
	}
	if s.Calls, err = httplimit.NewCalls(httplimit.CallOptions{Endpoints: lim.Endpoints(), Batches: list}); err != nil {
		t.Fatal(err)
	}
	s.Handler = httplimit.Handler(lim, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.in++
		if r.Header.Get("X-Unread") != "" {
			return
		}
		if s.got, err = io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
	}), httplimit.Options{Calls: s.Calls})
	return s
}

func (s *batches) post(target string, text io.Reader, header ...string) *httptest.ResponseRecorder {
	s.parts, s.got = -1, nil
	r := httptest.NewRequest("POST", target, text)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestBatchesCountByTheirParts: ten an hour, in whatever bodies.
func TestBatchesCountByTheirParts(t *testing.T) {
	s := limitedBatches(t, 10, nil)
	for _, step := range []struct {
		target, text string
		parts        int64
		status       int
		left         string
	}{
		{"/rpc", `{"method":"a"}`, 1, 200, "9"},
		{"/rpc", `[{"method":"a"},{"method":"b"},{"method":"c"}]`, 3, 200, "6"},
		{"/rpc", `[[1,2],3]`, 3, 200, "3"},
		{"/rpc", `[1,2,3,4]`, 4, 429, "3"}, // all or none
		{"/rpc", ``, 1, 200, "2"},
		{"/rpc", `[` + strings.Repeat("1,", 10) + `1]`, 11, 429, "2"}, // never
		{"/rpc", `[1,2]`, 2, 200, "0"},
		{"/v1/$batch", `{"requests":[{"id":1},{"id":2}]}`, 2, 200, "8"},
		{"/v1/%24batch", `{"requests":[{"id":1},{"id":2}]}`, 2, 200, "6"},
	} {
		w := s.post(step.target, strings.NewReader(step.text))
		if w.Code != step.status || s.parts != step.parts ||
			!strings.Contains(w.Header().Get("RateLimit"), "r="+step.left) {
			t.Errorf("%s %s: %d for %d parts, %s, want %d for %d and r=%s", step.target, step.text, w.Code, s.parts,
				w.Header().Get("RateLimit"), step.status, step.parts, step.left)
		}
		if step.status == 200 && string(s.got) != step.text {
			t.Errorf("the API got %q, want what was sent: %q", s.got, step.text)
		}
	}
	if n := s.Faults(body.None); n != 9 {
		t.Errorf("%d bodies were counted, want 9", n)
	}
}

func compressed(text string) io.Reader {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return &b
}

// TestBatchesThatCannotBeCounted reach nobody, and take nothing.
func TestBatchesThatCannotBeCounted(t *testing.T) {
	two := `{"requests":[1,2]}`
	for _, c := range []struct {
		name, target string
		text         io.Reader
		header       []string
		status       int
		fault        body.Fault
	}{
		{name: "compressed", text: compressed("[1,2]"), header: []string{"Content-Encoding", "gzip"}, status: 415,
			fault: body.Encoding},
		{name: "compressed, not said", text: compressed("[1,2]"), status: 400, fault: body.Syntax},
		{name: "no type", text: strings.NewReader("[1]"), header: []string{"Content-Type", ""}, status: 415,
			fault: body.Media},
		{name: "multipart", target: "/v1/$batch", text: strings.NewReader("--x"), status: 415, fault: body.Media,
			header: []string{"Content-Type", "multipart/mixed; boundary=x"}},
		{name: "UTF-16", text: strings.NewReader("[\x001\x00]\x00"), status: 400, fault: body.Syntax},
		{name: "another charset", text: strings.NewReader("[1]"), status: 415, fault: body.Charset,
			header: []string{"Content-Type", "application/json; charset=utf-7"}},
		{name: "a mark before", text: strings.NewReader("\ufeff[1,2]"), status: 400, fault: body.Syntax},
		{name: "lines", text: strings.NewReader("{}\n{}"), status: 400, fault: body.Syntax},
		{name: "twice", target: "/v1/$batch", text: strings.NewReader(`{"requests":[1],"requests":[1,2]}`),
			status: 400, fault: body.Twice},
		{name: "another case", target: "/v1/$batch", text: strings.NewReader(`{"Requests":[1,2]}`), status: 400,
			fault: body.Alike},
		{name: "deep", text: strings.NewReader(strings.Repeat("[", 65)), status: 400, fault: body.Depth},
		{name: "long", text: strings.NewReader(strings.Repeat(" ", 1000) + two), status: 413, fault: body.Long},
		{name: "long, of unknown length", status: 413, fault: body.Long,
			text: iotest.OneByteReader(strings.NewReader(strings.Repeat(" ", 1000) + two))},
		{name: "many", text: strings.NewReader("[1,2,3,4,5,6]"), status: 413, fault: body.Many},
		{name: "broken off", text: io.MultiReader(strings.NewReader("[1,"), iotest.ErrReader(errors.New("left"))),
			status: 400, fault: body.Unread},
	} {
		s := limitedBatches(t, 10, func(b *httplimit.Batch) { b.Parts.MaxBytes, b.Parts.MaxParts = 500, 5 })
		target := c.target
		if target == "" {
			target = "/rpc"
		}
		w := s.post(target, c.text, c.header...)
		if w.Code != c.status || s.in != 0 || s.parts != -1 || s.Faults(c.fault) != 1 {
			t.Errorf("%s: %d, %d reached the API, %d of %v, want %d, none and 1", c.name, w.Code, s.in,
				s.Faults(c.fault), c.fault, c.status)
		}
	}
}

// TestSingleRefusesBatches: where an API need not know of them.
func TestSingleRefusesBatches(t *testing.T) {
	s := limitedBatches(t, 10, func(b *httplimit.Batch) { b.Single = true })
	for text, want := range map[string]int{
		`{"a":1}`: 200, `[{"a":1}]`: 200, `[]`: 200, `[1,2]`: 413, `[[1,2]]`: 413,
	} {
		if w := s.post("/rpc", strings.NewReader(text)); w.Code != want {
			t.Errorf("%s: %d, want %d", text, w.Code, want)
		}
	}
}

// TestOtherEndpointsBodiesAreNotTouched: nobody waits for them, or holds them.
func TestOtherEndpointsBodiesAreNotTouched(t *testing.T) {
	s := limitedBatches(t, 10, nil)
	w := s.post("/other", iotest.ErrReader(errors.New("it was read")), "X-Unread", "yes")
	if w.Code != 200 || s.in != 1 || s.parts != 0 {
		t.Errorf("%d with %d parts, want the body left alone", w.Code, s.parts)
	}
}

// TestABatchThatDoesNotArrive is answered with 408.
func TestABatchThatDoesNotArrive(t *testing.T) {
	s := limitedBatches(t, 10, func(b *httplimit.Batch) { b.ReadTimeout = 50 * time.Millisecond })
	server := httptest.NewServer(s)
	defer server.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"+
		"Content-Length: 9\r\n\r\n[1,")
	answer, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) || !bytes.HasPrefix(answer, []byte("HTTP/1.1 408 ")) {
		t.Errorf("%q, %v, want 408", answer, err)
	}
}

// TestWhatReachesTheAPIWasCounted: of random bodies, none that the API reads has more parts than
// were charged.
func TestWhatReachesTheAPIWasCounted(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	s := limitedBatches(t, 1_000_000_000, nil)
	pieces := []string{`"requests"`, `"Requests"`, `"\u0072equests"`, `:`, `[`, `]`, `{`, `}`, `,`, `1`,
		`{"id":1}`, `[1,2]`, " ", "\n", "null", `"x":`, `,`, `[1,2,3`, `{"requests":[`, `]}`, "\ufeff", "//"}
	whole := []string{`1`, `null`, `{"id":1}`, `[1,2]`, `{"requests":[1,2]}`}
	passed := 0
	for range race.Fewer(20000) {
		var text []byte
		for range 1 + random.IntN(8) {
			text = append(text, pieces[random.IntN(len(pieces))]...)
		}
		if random.IntN(2) == 0 { // of pieces alone, one in thirty is JSON
			values := make([]string, random.IntN(4))
			for i := range values {
				values[i] = whole[random.IntN(len(whole))]
			}
			text = []byte("[" + strings.Join(values, ",") + "]")
			if random.IntN(2) == 0 {
				text = fmt.Appendf(nil, "{%s:%s}", pieces[random.IntN(3)], text)
			}
		}
		target := []string{"/rpc", "/v1/$batch"}[random.IntN(2)]
		if w := s.post(target, bytes.NewReader(text)); w.Code != 200 {
			continue
		}
		passed++
		if !bytes.Equal(s.got, text) {
			t.Fatalf("the API got %q, want what was sent: %q", s.got, text)
		}
		if n := readByAPI(s.got, target == "/v1/$batch"); int64(n) > s.parts {
			t.Fatalf("%s %q has %d parts for the API, %d were charged; seed %d", target, text, n, s.parts, seed)
		}
	}
	if passed < race.Fewer(4000) {
		t.Errorf("%d bodies passed, want more", passed)
	}
}

// readByAPI is how many requests an API may find in a body: one that ignores the case of names, takes the last of two,
// and looks for them in objects too where that is configured.
func readByAPI(text []byte, objects bool) int {
	var array []json.RawMessage
	if json.Unmarshal(text, &array) == nil {
		return len(array)
	}
	if !objects {
		return 1
	}
	var object struct{ Requests []json.RawMessage }
	_ = json.Unmarshal(text, &object)
	return len(object.Requests)
}

func TestCallsAreChecked(t *testing.T) {
	table := limitedBatches(t, 1, nil).lim.Endpoints()
	_, err := httplimit.NewCalls(httplimit.CallOptions{Endpoints: table, Batches: []httplimit.Batch{
		{Endpoint: "POST /nowhere"}, {Endpoint: "rpc", ReadTimeout: -1, Parts: body.Batch{MaxParts: -1}},
	}})
	for _, want := range []string{"batches[0] (POST /nowhere)", "batches[1] (rpc)", "MaxParts is -1",
		"ReadTimeout is"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %q", err, want)
		}
	}
	if _, err := httplimit.NewCalls(httplimit.CallOptions{}); err == nil {
		t.Error("no table is accepted")
	}
}

// TestBodiesHaveBoundedRoom: what is read before requests are decided does not grow with how many are sent at once; it
// is given back when the API has read it, or the request is over.
func TestBodiesHaveBoundedRoom(t *testing.T) {
	lim, err := headgate.New(headgate.Options{Rules: []string{"POST /rpc 1000000/s", "default 1000/s"}})
	if err != nil {
		t.Fatal(err)
	}
	calls, err := httplimit.NewCalls(httplimit.CallOptions{Endpoints: lim.Endpoints(),
		Batches: []httplimit.Batch{{Endpoint: "POST /rpc"}}})
	if err != nil {
		t.Fatal(err)
	}
	inside, leave := make(chan bool), make(chan bool)
	h := httplimit.Handler(lim, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Read") != "" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		inside <- true
		<-leave
	}), httplimit.Options{Calls: calls, MaxHeld: 150 << 10})
	post := func(size int, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/rpc", strings.NewReader("["+strings.Repeat(" ", size-3)+"1]"))
		r.Header.Set("Content-Type", "application/json")
		for _, name := range header {
			r.Header.Set(name, "yes")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	status := make(chan int)
	begin := func(size int, header ...string) {
		go func() { status <- post(size, header...).Code }()
		<-inside
	}
	for range 3 {
		begin(60 << 10) // in a buffer of 64 KiB
		w := post(60 << 10)
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Header().Get("Connection") != "close" {
			t.Errorf("%d %v beside another body of that address, want 503, Retry-After: 1 and the connection's end",
				w.Code, w.Header())
		}
		begin(4 << 10) // needs no room
		for range 2 {
			leave <- true
			if got := <-status; got != 200 {
				t.Errorf("%d, want 200 for those who found room", got)
			}
		}
	}
	if n := calls.Faults(body.Crowded); n != 3 {
		t.Errorf("%d bodies found no room, want 3", n)
	}
	for range 5 { // all of whose answers take long
		begin(60<<10, "X-Read")
	}
	for range 5 {
		leave <- true
		if got := <-status; got != 200 {
			t.Errorf("%d, want 200 beside bodies that the API has read", got)
		}
	}
	if post(200<<10).Code != 503 { // longer than all of the room
		t.Error("a body beyond the room was read")
	}
}
