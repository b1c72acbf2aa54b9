package decisions

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// FuzzPlain: a body that is plain is read as encoding/json reads it.
func FuzzPlain(f *testing.F) {
	for _, body := range plainBodies {
		f.Add(body)
	}
	for _, body := range []string{
		``, `{`, `{}`, `[]`, `{"requests":[]}`, `{"requests":null}`,
		`{"requests":[{}]}x`, `{"requests":[{},]}`, `{"requests":[{}],}`,
		`{"METHOD":"GET"}`, `{"method":"GET","method":"PUT"}`, `{"method":"\u0047"}`, `{"method":null}`,
		`{"user":{"id":"a","project":"b","id":"c"}}`, `{"header":{"a":"b","a":"c"}}`, `{"header":{"a":["b"]}}`,
		`{"cost":01}`, `{"cost":-0}`, `{"cost":1e3}`, `{"cost":1.0}`, `{"cost":9223372036854775808}`, `{"cost":"1"}`,
		`{"message":truely}`, `{"target":"caf\xc3\xa9"}`,
		"{\"target\":\"a\nb\"}", "{\"target\":\"\x7f\"}",
		`{"method" "GET"}`,
		`{"requests":[{"requests":[]}]}`, `{"method":"GET","requests":[{}]}`, `{"header":{"a":"b",}}`,
		`{"user":{"ID":"a"}}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		got, batch, plain := readPlain(body)
		if !plain {
			return
		}
		want, wantBatch, err := readAny([]byte(body))
		if err != nil || batch != wantBatch || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, batch: %v, want %+v, %v, %v", body, got, batch, want, wantBatch, err)
		}
	})
}

// plainBodies are of the kinds that programs write.
var plainBodies = []string{
	`{"method":"GET","target":"/a","client":"192.0.2.1"}`,
	" {\n \"method\" : \"GET\" ,\t\"target\":\"/a\",\r\"client\":\"192.0.2.1\" }\n",
	`{"requests":[{"method":"GET","target":"/a?x=1&y","client":"192.0.2.1"},` +
		`{"method":"POST","target":"/b","client":"::1"}]}`,
	`{"requests": [{"target": "/a", "method": "WS-SEND", "message": true, ` +
		`"client": "192.0.2.1", "cost": 3, "reserve": 60}]}`,
	`{"method":"GET","target":"/a","client":"192.0.2.1",` +
		`"header":{"X-Api-Key":"hg_1","accept":"*/*"},"user":{"id":"7","project":"acme"}}`,
	`{"method":"GET","target":"/a","client":"192.0.2.1","identifier":"me","message":false,"header":{},"user":{},"cost":0}`,
}

// What programs write is plain: else nothing would be won.
func TestPlainBodies(t *testing.T) {
	for _, body := range plainBodies {
		if _, _, plain := readPlain(body); !plain {
			t.Errorf("%s is read by encoding/json", body)
		}
	}
}

// FuzzTarget: a target is read as net/url reads it.
func FuzzTarget(f *testing.F) {
	for _, target := range []string{"/", "/a/b-c_d.e~f", "//a", "///a", "/a?", "/a??", "/a?b?", "/a?b c", "/a?\x7f",
		"/a%20", "/a:b", "a",
		"", "*", "?x",
		"/a#b", "/a?b#c", "http://h/a", "/{a}", "/a;b", "/\xff", "/..", "/a?%zz"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		got := readTarget(new(url.URL), target)
		if want, _ := url.ParseRequestURI(target); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %#v, want %#v", target, got, want)
		}
	})
}

// A batch is answered to the letter as questions that are asked one by one and written by encoding/json.
func TestBatchIsAskedOneByOne(t *testing.T) {
	rules := []policy.Rule{
		{Endpoint: "GET /a", Name: "a \"rule\"", Limit: 3, Per: time.Minute},
		{Endpoint: "GET /b", Limit: 3, Per: time.Minute, Burst: 1, Refusal: "503 as text/plain: later, <you>"},
		{Endpoint: policy.Default, Limit: 7, Per: time.Second},
		{Endpoint: policy.All, Name: "all", Limit: 40, Per: time.Hour},
	}
	var answers [2]*Answers
	for i := range answers {
		b := trial.New(t, []string{"GET /a", "GET /b", "GET /c/{x}"}, rules)
		var err error
		if answers[i], err = NewAnswers(Options{Limiter: b.Limiter, Trusted: netip.Addr.IsLoopback}); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(14, 1))
	pick := func(all ...string) string { return all[rng.IntN(len(all))] }
	statuses := map[int]int{}
	for range 40 {
		var body strings.Builder
		for i := range 1 + rng.IntN(30) {
			if i > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, `{"method":"%s","target":"%s","client":"%s"%s}`, pick("GET", "GET", "GET", "HEAD", "POST"),
				pick("/a", "/b", "/c/d?e=f", "/%61", "/none", "/%00", "*", "http://h/a", "/c/é"),
				pick("192.0.2.1", "192.0.2.2", "::ffff:192.0.2.3", "2001:db8::1"),
				pick("", "", `,"cost":2`, `,"header":{"Origin":"https://x"}`, `,"header":{"x-http-method-override":"PUT"}`,
					`,"header":{"accept":["a","b"]}`, `,"user":{"id":"7"}`, `,"identifier":"me"`))
		}
		questions, batch, err := readQuestions([]byte(`{"requests":[` + body.String() + `]}`))
		if err != nil || !batch {
			t.Fatal(err)
		}
		var all []Answer
		for i := range questions {
			all = append(all, answers[0].Ask(t.Context(), &questions[i]))
			statuses[all[i].Status]++
		}
		want := inJSONSlowly(t, map[string][]Answer{"decisions": all})
		if got, _ := answers[1].appendAnswers(nil, t.Context(), questions, true); !bytes.Equal(got, want) {
			t.Fatalf("%s is answered\n%s\nwant\n%s", body.String(), got, want)
		}
	}
	for _, status := range []int{200, 400, 404, 405, 429, 503} {
		if statuses[status] == 0 {
			t.Errorf("no question was answered %d", status)
		}
	}
}

// Who is shown the requests of a batch may keep them: each is another one.
func TestRequestsThatAreShownStay(t *testing.T) {
	b := trial.New(t, []string{"GET /{x}"}, []policy.Rule{{Endpoint: policy.Default, Limit: 9, Per: time.Second}})
	var shown []*http.Request
	answers, err := NewAnswers(Options{Limiter: b.Limiter, Trusted: netip.Addr.IsLoopback, Limit: httplimit.Options{
		Decided: func(r *http.Request, _ *headgate.Decision) { shown = append(shown, r) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	questions := []Question{{Method: "GET", Target: "/a", Client: "::1"}, {Method: "GET", Target: "/b", Client: "::1"}}
	answers.appendAnswers(nil, t.Context(), questions, true)
	if len(shown) != 2 || shown[0].RequestURI != "/a" || shown[0].URL.Path != "/a" || shown[1].RequestURI != "/b" {
		t.Errorf("shown %v, want /a and /b", shown)
	}
}
