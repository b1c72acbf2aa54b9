package httplimit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/race"
)

// tools is a Handler before an API that takes messages of MCP.
type tools struct {
	http.Handler
	*httplimit.Calls
	asked  headgate.Request // of the limiter; Method is empty if it was not asked
	target string           // that was sent on
	got    []byte
}

func limitedTools(t testing.TB, change func(*httplimit.MCP), rules ...string) *tools {
	t.Helper()
	s := &tools{}
	lim, err := headgate.New(headgate.Options{
		Rules:   append(rules, "default 1000000/s"),
		Now:     func() time.Time { return epoch },
		Observe: func(r *headgate.Request, _ *headgate.Decision) { s.asked = *r },
	})
	if err != nil {
		t.Fatal(err)
	}
	one := httplimit.MCP{Endpoint: "POST /mcp"}
	if change != nil {
		change(&one)
	}
	s.Calls, err = httplimit.NewCalls(httplimit.CallOptions{Endpoints: lim.Endpoints(), MCP: []httplimit.MCP{one}})
	if err != nil {
		t.Fatal(err)
	}
	s.Handler = httplimit.HandlerOfTargets(lim, func(_ http.ResponseWriter, r *http.Request, as httplimit.Charged) {
		s.target = as.Target
		if s.got, err = io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
	}, httplimit.Options{Calls: s.Calls})
	return s
}

func (s *tools) post(text io.Reader, header ...string) *httptest.ResponseRecorder {
	s.asked, s.target, s.got = headgate.Request{}, "", nil
	r := httptest.NewRequest("POST", "/mcp", text)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestMessagesAreForTheirTools: what has a template of its own counts there, all else at the endpoint; and what is sent
// on is what came, where it was sent to.
func TestMessagesAreForTheirTools(t *testing.T) {
	s := limitedTools(t, nil, "POST /mcp 100/h burst 100", "MCP /mcp/tools/call/search 2/h burst 2",
		"MCP /mcp/resources/read 10/h burst 10", "MCP /mcp/tools/call/~ 5/h burst 5")
	call := func(name string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `"}}`
	}
	for _, step := range []struct{ text, for_ string }{
		{call("search"), "MCP /mcp/tools/call/search"},
		{call(`s\u0065arch`), "MCP /mcp/tools/call/search"},
		{call("report"), "POST /mcp"},
		{call("Search"), "POST /mcp"},
		{call(".."), "MCP /mcp/tools/call/~"},
		{call("/"), "MCP /mcp/tools/call/~"},
		{call(""), "MCP /mcp/tools/call/~"},
		{call("../call/search"), "POST /mcp"},
		{call("search?x"), "POST /mcp"},
		{call("%73earch"), "POST /mcp"},
		{call("search/"), "POST /mcp"},
		{`{"method":"resources/read","params":{"uri":"x"},"id":"a"}`, "MCP /mcp/resources/read"},
		{`{"method":"resources/../resources/read"}`, "POST /mcp"},
		{`{"method":"initialize","id":0,"params":{"name":"search"}}`, "POST /mcp"},
		{`{"id":3,"result":{}}`, "POST /mcp"},
		{``, "POST /mcp"},
	} {
		w := s.post(strings.NewReader(step.text))
		if got := s.asked.Method + " " + s.asked.Target; got != step.for_ || w.Code != 200 {
			t.Errorf("%s: %d for %s, want 200 for %s", step.text, w.Code, got, step.for_)
		}
		if s.target != "/mcp" || string(s.got) != step.text {
			t.Errorf("%s: %s got %q", step.text, s.target, s.got)
		}
	}
}

// TestRefusalsOfMessages: an error of JSON-RPC that says when to come back, whatever session the client names.
func TestRefusalsOfMessages(t *testing.T) {
	s := limitedTools(t, nil, "POST /mcp 100/h burst 100", "MCP /mcp/tools/call/search 1/h burst 1")
	call := func(id string) string {
		return `{"jsonrpc":"2.0",` + id + `"method":"tools/call","params":{"name":"search"}}`
	}
	if w := s.post(strings.NewReader(call(`"id":1,`)), "Mcp-Session-Id", "a"); w.Code != 200 || s.got == nil {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for i, id := range []string{"7", `"a\"\u0062"`, "-3"} {
		w := s.post(strings.NewReader(call(`"id":`+id+`,`)), "Mcp-Session-Id", fmt.Sprint("b", i))
		want := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32029,"message":"Quota exceeded. ` +
			`Limit MCP /mcp/tools/call/search: 1 per 1h, burst 1. Retry in 1h0m0s.",` +
			`"data":{"status":429,"retryAfterSeconds":3600,"violatedPolicies":["MCP /mcp/tools/call/search"]}}}` + "\n"
		if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" ||
			w.Header().Get("Retry-After") != "3600" || s.got != nil || !json.Valid(w.Body.Bytes()) {
			t.Errorf("id %s: %d %v %s, want %s", id, w.Code, w.Header(), w.Body, want)
		}
	}
	for _, id := range []string{"", `"id":null,`, `"id":"` + strings.Repeat("x", 300) + `",`} {
		if w := s.post(strings.NewReader(call(id))); w.Code != 429 || w.Header().Get("Retry-After") != "3600" {
			t.Errorf("%q, which has no answer: %d %s, want 429", id, w.Code, w.Body)
		}
	}
}

func TestBodiesThatAreNoMessage(t *testing.T) {
	for _, c := range []struct {
		text   io.Reader
		header []string
		status int
		fault  body.Fault
	}{
		{text: strings.NewReader(`[{"method":"a"}]`), status: 400, fault: body.Kind},
		{text: strings.NewReader(`{"method":"a","method":"b"}`), status: 400, fault: body.Twice},
		{text: strings.NewReader(`{"method":"a"}{"method":"b"}`), status: 400, fault: body.Syntax},
		{text: strings.NewReader(`{"method":"a"}`), header: []string{"Content-Type", "text/plain"}, status: 415,
			fault: body.Media},
		{text: compressed(`{"method":"a"}`), header: []string{"Content-Encoding", "gzip"}, status: 415,
			fault: body.Encoding},
		{text: strings.NewReader(strings.Repeat(" ", 1000) + `{}`), status: 413, fault: body.Long},
		{text: iotest.OneByteReader(strings.NewReader(strings.Repeat(" ", 1000) + `{}`)), status: 413,
			fault: body.Long},
		{text: strings.NewReader(`{"method":"` + strings.Repeat("x", 300) + `"}`), status: 400, fault: body.Length},
	} {
		s := limitedTools(t, func(m *httplimit.MCP) { m.MaxBytes = 500 }, "POST /mcp 100/h")
		if w := s.post(c.text, c.header...); w.Code != c.status || s.got != nil || s.asked.Method != "" ||
			s.Faults(c.fault) != 1 {
			t.Errorf("%v: %d %s, and %q reached the API, want %d", c.fault, w.Code, w.Body, s.got, c.status)
		}
	}
}

// TestNobodyAsksForAMessage by the method of a request: such a one is refused.
func TestNobodyAsksForAMessage(t *testing.T) {
	s := limitedTools(t, nil, "POST /mcp 100/h", "MCP /mcp/tools/call/search 1/h burst 1")
	for range 3 {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("MCP", "/mcp/tools/call/search", nil))
		if w.Code != 405 || s.target != "" || w.Header().Get("Allow") != "" {
			t.Errorf("%d, allowed are %q, want 405", w.Code, w.Header().Get("Allow"))
		}
	}
	if w := s.post(strings.NewReader(`{"id":1,"method":"tools/call","params":{"name":"search"}}`)); w.Code != 200 ||
		s.got == nil {
		t.Errorf("%d %s, want room for a call", w.Code, w.Body)
	}
}

// TestWhatCallsAToolIsForIt: of random bodies, none reaches the API as a call of the tool that was not
// for it, however a server decodes; and of a thousand sessions none has more of it.
func TestWhatCallsAToolIsForIt(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 5))
	limit := race.Fewer(100)
	s := limitedTools(t, nil, "POST /mcp 1000000000/h",
		fmt.Sprintf("MCP /mcp/tools/call/search %d/h burst %d", limit, limit))
	pieces := []string{`"method":"tools/call"`, `"method":"ping"`, `"Method":"tools/call"`,
		`"m\u0065thod":"tools\/call"`,
		`"params":{"name":"search"}`, `"params":{"n\u0061me":"search","x":1}`, `"Params":{"name":"search"}`,
		`"params":{"name":"a","name":"search"}`, `"params":{"NAME":"search"}`, `"params":{"name":"search\u0000"}`,
		`"params":{"name":"search "}`, `"params":[]`, `"id":1`, `"x":{"name":"search"}`}
	reached, called := 0, 0
	for range race.Fewer(20_000) {
		var parts []string
		for range 1 + random.IntN(4) {
			parts = append(parts, pieces[random.IntN(len(pieces))])
		}
		text := "{" + strings.Join(parts, ",") + "}"
		w := s.post(strings.NewReader(text), "Mcp-Session-Id", fmt.Sprint(random.IntN(1000)))
		if s.got == nil {
			continue
		}
		reached++
		if !bytes.Equal(s.got, []byte(text)) || w.Code != 200 {
			t.Fatalf("%s: the API got %q", text, s.got)
		}
		var read struct {
			Method string
			Params struct{ Name string }
		}
		_ = json.Unmarshal(s.got, &read)
		if read.Method == "tools/call" && read.Params.Name == "search" {
			called++
		}
	}
	if called != limit || reached < race.Fewer(1000) {
		t.Errorf("%d calls of the tool and %d bodies reached the API, want %d and many; seed %d", called, reached,
			limit, seed)
	}
}

func TestEndpointsOfMessagesAreChecked(t *testing.T) {
	lim, err := headgate.New(headgate.Options{Rules: []string{"POST /mcp 1/s", "GET /mcp 1/s", "POST /{t}/mcp 1/s",
		"default 1/s"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = httplimit.NewCalls(httplimit.CallOptions{Endpoints: lim.Endpoints(), MCP: []httplimit.MCP{
		{Endpoint: "GET /mcp"}, {Endpoint: "POST /{t}/mcp", MaxBytes: 1, ReadTimeout: -1}, {Endpoint: "POST /x"},
	}})
	for _, want := range []string{"mcp[0] (GET /mcp)", "want POST and a path", "mcp[1] (POST /{t}/mcp)",
		"MaxBytes is 1", "ReadTimeout is", "mcp[2] (POST /x)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %q", err, want)
		}
	}
}
