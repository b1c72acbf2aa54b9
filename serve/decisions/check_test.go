package decisions_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/serve/decisions"
)

// post asks in JSON.
func post(t testing.TB, h http.Handler, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequest("POST", "/v1/check", strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:4711"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestCheck(t *testing.T) {
	h, _, faults := door(t)
	ok := func(left string) string {
		return `{"allowed":true,"status":200,"reason":"within_limits","endpoint":"GET /a","cost":1,"rule":"each","remaining":` + left + `,"retry_after":0,"reset_after":` +
			map[string]string{"1": "30", "0": "60"}[left] + `,"header":{"Ratelimit":"\"each\";r=` + left +
			`;t=30","Ratelimit-Policy":"\"each\";q=2;w=60"}}`
	}
	for _, c := range []struct{ question, want string }{
		{`{"method":"GET","target":"/a","client":"192.0.2.1"}`, ok("1")},
		{`{"method":"GET","target":"//a?x","client":"192.0.2.1","header":{"Accept":"*/*","X-A":["b","c"]}}`, ok("0")},
		{`{"method":"GET","target":"/a","client":"::ffff:192.0.2.1"}`,
			`{"allowed":false,"status":429,"reason":"over_limit","endpoint":"GET /a","cost":1,"rule":"each","remaining":0,"retry_after":30,"reset_after":60,` +
				`"header":{"Cache-Control":"no-store","Content-Type":"application/problem+json","Ratelimit":"\"each\";r=0;t=30","Ratelimit-Policy":"\"each\";q=2;w=60","Retry-After":"30","X-Content-Type-Options":"nosniff"},` +
				`"problem":{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"Limit each: 2 per 1m, burst 2. Retry in 30s.","violated-policies":["each"]}}`},
		{`{"method":"GET","target":"/files/x","client":"192.0.2.1","cost":3}`,
			`{"allowed":false,"status":429,"reason":"cost_above_burst","endpoint":"GET /files/{path...}","cost":3,"rule":"each","remaining":2,"retry_after":0,"reset_after":0,` +
				`"header":{"Cache-Control":"no-store","Content-Type":"application/problem+json","Ratelimit":"\"each\";r=2","Ratelimit-Policy":"\"each\";q=2;w=60","X-Content-Type-Options":"nosniff"},` +
				`"problem":{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"This request costs more than the limit's burst ever holds; waiting does not help.","violated-policies":["each"]}}`},
		{`{"method":"GET","target":"/none","client":"192.0.2.1"}`,
			`{"allowed":false,"status":404,"reason":"unknown_endpoint","endpoint":"UNKNOWN","header":{"Cache-Control":"no-store","Content-Type":"application/problem+json","X-Content-Type-Options":"nosniff"},` +
				`"problem":{"type":"about:blank","title":"Not Found","status":404,"detail":"No endpoint has this path."}}`},
		{`{"method":"GET","target":"/%00","client":"192.0.2.1"}`,
			`{"allowed":false,"status":400,"reason":"invalid_target","header":{"Cache-Control":"no-store","Content-Type":"application/problem+json","X-Content-Type-Options":"nosniff"},` +
				`"problem":{"type":"about:blank","title":"Invalid request target","status":400,"detail":"The request target holds an encoded control byte."}}`},
		{`{"method":"GET","target":"/a","client":"192.0.2.9","header":{"x-http-method-override":"DELETE"}}`,
			`{"allowed":false,"status":400,"reason":"override","header":{"Cache-Control":"no-store","Content-Type":"application/problem+json","X-Content-Type-Options":"nosniff"},` +
				`"problem":{"type":"about:blank","title":"Request asks for something else","status":400,"detail":"A header field such as X-HTTP-Method-Override asks the API for another method or target than those of the request line."}}`},
	} {
		if code, got := post(t, h, c.question); code != 200 || got != c.want {
			t.Errorf("%s: %d\n%s, want\n%s", c.question, code, got, c.want)
		}
	}
	if len(*faults) > 0 {
		t.Errorf("told of %v, want no fault", *faults)
	}
}

// Who is logged in has a budget of his own, whatever credential comes along, from wherever.
func TestUsers(t *testing.T) {
	h, _, _ := door(t)
	for i, want := range []string{"within_limits", "within_limits", "over_limit"} {
		for _, user := range []string{`{"id":"7"}`, `{"id":"7","project":"acme"}`, `{"id":"8"}`} {
			q := fmt.Sprintf(
				`{"method":"GET","target":"/a","client":"192.0.2.%d","user":%s,"header":{"X-Api-Key":"hg_made-up"}}`, i, user)
			if code, text := post(t, h, q); code != 200 || !strings.Contains(text, `"reason":"`+want+`"`) {
				t.Errorf("request %d of %s: %d %s, want %s", i, user, code, text, want)
			}
		}
	}
	for _, user := range []string{`{}`, `{"project":"acme"}`, `{"id":"` + strings.Repeat("x", 256) + `"}`,
		`{"id":"x","project":"` + strings.Repeat("x", 256) + `"}`} {
		if code, text := post(t, h, `{"method":"GET","target":"/a","client":"192.0.2.1","user":`+user+
			`}`); code != 400 || !strings.Contains(text, "user.id is missing, or it or user.project is longer") {
			t.Errorf("%s: %d %s", user, code, text)
		}
	}
	if code, text := post(t, h, `{"method":"GET","target":"/a","client":"192.0.2.1","user":{"id":7}}`); code != 400 ||
		!strings.Contains(text, "user.id is a JSON number, want a string") {
		t.Errorf("%d %s", code, text)
	}
}

// The questions of a batch are decided one after the other.
func TestBatch(t *testing.T) {
	h, _, _ := door(t)
	one := `{"method":"GET","target":"/a","client":"192.0.2.1"}`
	code, text := post(t, h, `{"requests":[`+one+`,`+one+`,`+one+
		`,{"method":"GET","target":"/a","client":"192.0.2.2"}]}`)
	var got struct{ Decisions []decisions.Answer }
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != 200 {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	var statuses []int
	for _, a := range got.Decisions {
		statuses = append(statuses, a.Status)
	}
	if fmt.Sprint(statuses) != "[200 200 429 200]" {
		t.Errorf("%v, want [200 200 429 200]", statuses)
	}
}

func TestQuestionsThatAreNone(t *testing.T) {
	many := strings.Repeat(`{"method":"GET","target":"/a","client":"192.0.2.1"},`, decisions.MaxBatch)
	for body, want := range map[string]string{
		``:             "the body is no question: EOF",
		`{`:            "the body is no question: unexpected EOF",
		`[]`:           "the body is no question: cannot unmarshal array",
		`{"meth":""}`:  `the body is no question: unknown field \"meth\"`,
		`{"method":1}`: "method is a JSON number, want a string",
		`{} {}`:        "the body holds more than one JSON value, want one",
		`{}`: "method is missing, want that of the request; target is missing, want " +
			"that of the request line; client is missing, want the address that the request came from",
		`{"requests":[]}`:               "requests has 0 elements, want 1 to 1000",
		`{"requests":[` + many + `{}]}`: "requests has 1001 elements, want 1 to 1000",
		`{"requests":[{"method":"GET"},{"cost":-1}]}`: "requests[0].target is missing, want that of the " +
			"request line; requests[0].client is missing, want the address that the request came from; " +
			"requests[1].method",
		`{"method":"GET","target":"/a","client":"me"}`: "client is no address, want one such as 192.0.2.7",
		`{"requests":[` + strings.Repeat(`{},`, 19) +
			`{}]}`: "and 50 more",
		`{"method":"GET","target":"/a","client":"192.0.2.1","requests":[{"method":"GET","target":"/a","client":"192.0.2.1"}]}`: "there are requests and a question beside them, want one of both",
		`{"header":{"a":1}}`: "the body is no question: ",
	} {
		h, b, faults := door(t)
		code, got := post(t, h, body)
		if code != 400 || !strings.Contains(got, want) || len(*faults) != 1 {
			t.Errorf("%.60s: %d %s, want 400 with %s", body, code, got, want)
		}
		if b.Buckets.Stats(b.Now.UnixNano()).Live != 0 {
			t.Errorf("%.60s: something was charged", body)
		}
	}
	h, _, _ := door(t)
	if code, _ := post(t, h, `{"target":"`+strings.Repeat("x", 9<<20)+`"}`); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 9 MiB: %d, want 413", code)
	}
	r := httptest.NewRequest("GET", "/v1/check", nil)
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d", w.Code)
	}
}

// FuzzBody: a body is answered, or refused in words; never with a yes for what is no question.
func FuzzBody(f *testing.F) {
	f.Add(`{"method":"GET","target":"/a","client":"192.0.2.1"}`)
	f.Add(`{"requests":[{"method":"GET","target":"/a","client":"192.0.2.1","header":{"a":["b"]}}]}`)
	h, _, _ := door(f)
	f.Fuzz(func(t *testing.T, body string) {
		code, text := post(t, h, body)
		if code != 200 && code != 400 || !json.Valid([]byte(text)) {
			t.Fatalf("%q: %d %s", body, code, text)
		}
	})
}

// A rule's own answer comes through every way of asking, in the place of problem details.
func TestRulesSayWhatIsAnswered(t *testing.T) {
	for refusal, want := range map[policy.Refusal]struct{ contentType, body string }{
		"503 as text/html: <p>Later:\n{retry_after} s</p>": {"text/html; charset=utf-8", "<p>Later:\n30 s</p>"},
		`503 as application/problem+json: {"type":"about:blank"}`: {"application/problem+json",
			`{"type":"about:blank"}`},
	} {
		b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 2, Per: time.Minute, Burst: 1,
			Refusal: refusal}})
		h, err := decisions.New(decisions.Options{Limiter: b.Limiter, Trusted: func(netip.Addr) bool { return true }})
		if err != nil {
			t.Fatal(err)
		}
		ask(t, h, kinds["nginx"]("GET", "/a", "192.0.2.1")...)
		for kind, question := range kinds {
			got := ask(t, h, question("GET", "/a", "192.0.2.1")...)
			body, _ := io.ReadAll(got.Body)
			told, contentType, wanted := string(body), got.Header.Get("Content-Type"), want.body
			if kind == "nginx" {
				told, contentType = got.Header.Get("Headgate-Problem"), got.Header.Get("Headgate-Type")
				wanted = strings.ReplaceAll(wanted, "\n", " ")
			}
			if status := status(t, kind, got); status != 503 || told != wanted || contentType != want.contentType {
				t.Errorf("%s: %d, %s: %q, want 503, %s: %q", kind, status, contentType, told, want.contentType, wanted)
			}
		}
		_, text := post(t, h, `{"method": "GET", "target": "/a", "client": "192.0.2.1"}`)
		var a decisions.Answer
		if err := json.Unmarshal([]byte(text), &a); err != nil || a.Status != 503 || a.Body != want.body ||
			a.Problem != nil || a.Header["Content-Type"] != want.contentType {
			t.Errorf("in JSON: %s, %v, want 503 with the body %q", text, err, want.body)
		}
	}
}
