package httplimit_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

func ExampleNew() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/reports/{report}",
		func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "a report") })
	// begin: lines
	limited, err := httplimit.New(mux, "GET /v1/reports/{report} 2/h", "default 20/s burst 40")
	if err != nil {
		log.Fatal(err)
	}
	// http.ListenAndServe("127.0.0.1:8080", limited)
	// end: lines
	for _, target := range []string{"/v1/reports/1", "/v1/reports/2", "/v1/reports/3", "/v1/nothing"} {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		fmt.Println(w.Code, w.Header().Get("Retry-After") != "")
	}
	// Output:
	// 200 false
	// 200 false
	// 429 true
	// 404 false
}

func ExampleNewIdentifiers() {
	template, err := endpoint.ParseTemplate("POST /v1/login")
	if err != nil {
		log.Fatal(err)
	}
	endpoints, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err != nil {
		log.Fatal(err)
	}
	// begin: login
	identifiers, err := httplimit.NewIdentifiers(httplimit.IdentifierOptions{
		Endpoints: endpoints,
		Logins: []httplimit.Login{{
			Endpoint:      "POST /v1/login",
			Field:         body.Field{Name: "email"},
			CountFailures: true,
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	// end: login
	rules, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: "POST /v1/login", Limit: 20, Per: time.Hour, Subject: policy.SubjectIP},
		{Endpoint: "POST /v1/login", Limit: 2, Per: time.Hour, Subject: policy.SubjectIdentifierIP},
	}}, policy.CompileOptions{Endpoints: endpoints, Identified: identifiers.Endpoints()})
	if err := problems.Err(); err != nil {
		log.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1000})
	if err != nil {
		log.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := headgate.New(headgate.Options{
		Endpoints: endpoints, Policies: headgate.Fixed(rules), Buckets: buckets, Identities: who,
		Typed: identifiers.Typed,
	})
	if err != nil {
		log.Fatal(err)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, _ := io.ReadAll(r.Body); !strings.Contains(string(text), "right") {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	h := httplimit.Handler(limiter, api, httplimit.Options{Identifiers: identifiers})
	for _, text := range []string{
		`{"email":"alice@example.org","password":"right"}`,
		`{"email":"alice@example.org","password":"1234"}`,
		`{"email":"Alice@Example.org","password":"qwerty"}`,
		`{"email":"alice@example.org ","password":"letmein"}`,
		`{"email":"bob@example.org","password":"1234"}`,
	} {
		r := httptest.NewRequest("POST", "/v1/login", strings.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 401
	// 401
	// 429
	// 401
}

// A caller has three calls an hour, in whatever bodies.
func ExampleCalls() {
	api := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	lim, err := headgate.New(headgate.Options{
		Rules: []string{"POST /rpc 3/h burst 3", "POST /v1/$batch 100/h", "default 20/s"},
	})
	if err != nil {
		log.Fatal(err)
	}
	// begin: batches
	calls, err := httplimit.NewCalls(httplimit.CallOptions{
		Endpoints: lim.Endpoints(),
		Batches: []httplimit.Batch{
			{Endpoint: "POST /rpc"},
			{Endpoint: "POST /v1/$batch", Parts: body.Batch{Name: "requests", MaxParts: 20}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	limited := httplimit.Handler(lim, api, httplimit.Options{Calls: calls})
	// end: batches

	two, one := `[{"method":"a"},{"method":"b"}]`, `{"method":"a"}`
	for _, text := range []string{two, two, one} {
		r := httptest.NewRequest("POST", "/rpc", strings.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
	// 200
}

// A caller may fetch a thousand bytes an hour.
func ExampleMeters() {
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "400")
		_, _ = w.Write(make([]byte, 400))
	})
	lim, err := headgate.New(headgate.Options{Rules: []string{"GET /v1/files/{name} 1000/h", "default 20/s"}})
	if err != nil {
		log.Fatal(err)
	}
	// begin: bytes
	meters, err := httplimit.NewMeters(httplimit.MeterOptions{
		Endpoints: lim.Endpoints(),
		Metered:   []httplimit.Metered{{Endpoint: "GET /v1/files/{name}", Bytes: &httplimit.Bytes{}, Cut: true}},
	})
	if err != nil {
		log.Fatal(err)
	}
	limited := httplimit.Handler(lim, api, httplimit.Options{Meters: meters})
	// end: bytes

	for range 3 {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("GET", "/v1/files/a", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
}
