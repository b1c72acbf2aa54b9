package attack_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/server/attack"
)

const (
	report = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"report","arguments":{"of":"tides"}}}`
	large  = `{"model":"large","max_tokens":10,"messages":[{"role":"user","content":"Hello"}]}`
)

// readings are how servers read a name in an object: by decoders that ignore case, to the letter with the last of two,
// and with the first.
func readings(text []byte, name string) []any {
	var folded, last any
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil
	}
	var first any
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil
		}
		var value any
		if d.Decode(&value) != nil {
			return nil
		}
		word := key.(string)
		if strings.EqualFold(word, name) {
			folded = value
		}
		if word == name {
			if last = value; first == nil {
				first = value
			}
		}
	}
	return []any{folded, last, first}
}

// asksFor says whether some server finds in a body what the plan's message asks for.
func asksFor(text []byte) bool {
	for _, m := range readings(text, "method") {
		if m != "tools/call" {
			continue
		}
		for _, p := range readings(text, "params") {
			inner, err := json.Marshal(p)
			if err != nil {
				return false
			}
			for _, n := range readings(inner, "name") {
				if n == "report" {
					return true
				}
			}
		}
	}
	for _, m := range readings(text, "model") {
		if m == "large" {
			return true
		}
	}
	return false
}

// TestMessagesHaveOneReading: of all ways to write a message, what some server would take for it counts for it, or
// reaches nobody.
func TestMessagesHaveOneReading(t *testing.T) {
	for _, c := range []struct{ target, text, counts string }{
		{"/mcp", report, "MCP /mcp/tools/call/report"},
		{"/v1/messages", large, "MODEL /v1/messages/large"},
	} {
		var asked string
		lim, err := headgate.New(headgate.Options{
			Rules: []string{"POST /mcp 1000000/s", "POST /v1/messages 1000000/s",
				"MCP /mcp/tools/call/report 1000000/s", "MODEL /v1/messages/large 1000000/s", "default 1000000/s"},
			Observe: func(_ *headgate.Request, d *headgate.Decision) { asked = d.Template().String() },
		})
		if err != nil {
			t.Fatal(err)
		}
		calls, err := httplimit.NewCalls(httplimit.CallOptions{Endpoints: lim.Endpoints(),
			MCP:    []httplimit.MCP{{Endpoint: "POST /mcp"}},
			Models: []httplimit.Models{{Endpoint: "POST /v1/messages"}}})
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		h := httplimit.Handler(lim, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got, err = io.ReadAll(r.Body); err != nil {
				t.Error(err)
			}
		}), httplimit.Options{Calls: calls})
		a, ok := attack.Messages(c.text)
		if !ok {
			t.Fatalf("%s is no message", c.text)
		}
		through := 0
		for _, f := range append(a.Families, a.Doubtful...) {
			different := map[string]bool{}
			for i := range 33 {
				made := f.Make(attack.Request{Method: "POST", Target: c.target, Body: c.text}.With(
					attack.Field{Name: "Content-Type", Value: "application/json"}), i)
				r := httptest.NewRequest(made.Method, made.Target, strings.NewReader(made.Body))
				for _, one := range made.Header {
					r.Header.Add(one.Name, one.Value)
				}
				different[made.Body+"\n"+made.Target+"\n"+string(must(json.Marshal(made.Header)))] = true
				asked, got = "", nil
				h.ServeHTTP(httptest.NewRecorder(), r)
				if got != nil && string(got) != made.Body {
					t.Errorf("%s, %d: the API got %.200q", f.Name, i, got)
				}
				if got != nil && asksFor(got) && asked != c.counts {
					t.Errorf("%s, %d: %.200q counted for %s, want %s", f.Name, i, got, asked, c.counts)
				}
				if got != nil && asked == c.counts {
					through++
				}
			}
			plain := c.text + "\n" + c.target + "\n" + `[{"Name":"Content-Type","Value":"application/json"}]`
			if different[plain] && c.target == "/mcp" {
				t.Errorf("%s is the plain request", f.Name)
			}
		}
		if through < 100 {
			t.Errorf("%s: %d of all were let through, want some", c.text, through)
		}
	}
	for _, text := range []string{"", "x", "[1]", `{"id":"1"}`, `{"method":7}`, `{"params":{"name":"report"}}`,
		`{"query":"red shoes"}`} {
		if _, ok := attack.Messages(text); ok {
			t.Errorf("%s is a message", text)
		}
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

// TestRunFindsHolesInMessages: a limiter that reads a message in another way than the API, or goes by the session, is
// found; and one that refuses by errors of JSON-RPC alone is understood.
func TestRunFindsHolesInMessages(t *testing.T) {
	type message struct {
		Method string
		Params struct{ Name string }
	}
	lastInAnyCase := func(r *http.Request, text []byte) string {
		var m message
		_ = json.Unmarshal(text, &m)
		return m.Method + " " + m.Params.Name
	}
	firstToTheLetter := func(_ *http.Request, text []byte) string {
		for _, name := range readings(text, "method")[2:] {
			if name != "tools/call" {
				return "others"
			}
		}
		return "tools/call"
	}
	for _, c := range []struct {
		name   string
		by     func(r *http.Request, text []byte) string
		family string // that must be named; empty if the limit holds
	}{
		{"as the API does", lastInAnyCase, ""},
		{"by the session", func(r *http.Request, _ []byte) string { return r.Header.Get("Mcp-Session-Id") },
			"another session"},
		{"by the id", func(_ *http.Request, text []byte) string {
			return string(must(json.Marshal(readings(text, "id"))))
		}, "another id"},
		{"by the first of two", firstToTheLetter, "method: another before it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLimiter(nil)
			site := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				var read message
				bad := json.Unmarshal(text, &read) != nil || r.URL.Path != "/mcp" || len(text) > 1<<20
				switch {
				case bad:
					w.WriteHeader(http.StatusBadRequest)
				case c.name == "by the first of two" && c.by(r, text) == "others":
					// has much room for others
				case !l.take(c.by(r, text)):
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32029,"data":{"status":429}}}`)
					return
				}
				switch {
				case bad:
				case read.Method != "tools/call" || read.Params.Name != "report":
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"unknown"}}`)
				default:
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
				}
			}))
			p := plan()
			p.Endpoint, p.Body, p.Requests = "POST /mcp", report, 3000
			found, err := attack.Run(t.Context(), site, p, func(attack.Finding) {})
			if err != nil {
				t.Fatal(err)
			}
			last := found[len(found)-1]
			if last.Attack != "messages" || last.Note != "" {
				t.Errorf("the last attack is %s, %q; want messages, with all families", last.Attack, last.Note)
			}
			for _, f := range found {
				want := attack.Held
				if f.Attack == "messages" && c.family != "" {
					want = attack.Widened
				}
				if f.Verdict != want {
					t.Errorf("%s: %s with %d of %d admitted, want %s: %v", f.Attack, f.Verdict, f.Admitted, f.Sent,
						want, f.Families[:min(3, len(f.Families))])
				}
			}
			if c.family != "" && !strings.Contains(string(must(json.Marshal(last.Families[:6]))), c.family) {
				t.Errorf("most was admitted of %v, want %s among it", last.Families[:6], c.family)
			}
		})
	}
}
