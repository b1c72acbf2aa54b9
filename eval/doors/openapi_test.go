//go:build unix

package doors

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/serve/decisions"
)

// What programs ask in JSON, and what they are answered, is as openapi.yaml describes it: what the document takes, the
// door takes, and what the one refuses, the other does.
func TestDescriptionIsOfTheDoor(t *testing.T) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(decisions.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	routes, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
	limiter, err := headgate.New(headgate.Options{Rules: []string{"GET /v1/items/{id} 5/h", "default 2/h"}})
	if err != nil {
		t.Fatal(err)
	}
	door, err := decisions.New(decisions.Options{Limiter: limiter, Trusted: netip.Addr.IsLoopback})
	if err != nil {
		t.Fatal(err)
	}
	reservation := ""
	for _, c := range []struct {
		path, body string
		status     int
		described  bool // the document takes the question
	}{
		{"/v1/check", `{"method":"GET","target":"/v1/items/7","client":"192.0.2.1","header":{"Accept":"*/*","X-A":["b","c"]},"identifier":"ann","cost":1}`, 200, true},
		{"/v1/check", `{"method":"GET","target":"/v1/items/7","client":"192.0.2.1","user":{"id":"7","project":"acme"}}`, 200, true},
		{"/v1/check", `{"method":"GET","target":"/v1/items/7","client":"192.0.2.1","user":{"id":""}}`, 400, false},
		{"/v1/check", `{"method":"GET","target":"/v1/items/7","client":"192.0.2.1","cost":9}`, 200, true},
		{"/v1/check", `{"method":"GET","target":"//","client":"192.0.2.1"}`, 200, true},
		{"/v1/check", `{"requests":[{"method":"GET","target":"/a","client":"192.0.2.1"},{"method":"GET","target":"/a","client":"192.0.2.1"},{"method":"GET","target":"/a","client":"192.0.2.1"}]}`, 200, true},
		{"/v1/check", `{"method":"GET","target":"/v1/items/7","client":"192.0.2.2","cost":3,"reserve":60}`, 200, true},
		{"/v1/settle", `{"reservation":"RESERVATION","actual":5,"forgive":false}`, 200, true},
		{"/v1/settle", `{"settlements":[{"reservation":"RESERVATION","actual":0},{"reservation":"` + strings.Repeat("0",
			32) + `","actual":0}]}`, 200, true},
		{"/v1/check", `{"method":"GET","target":"/a"}`, 400, false},
		{"/v1/check", `{"method":"GET","target":"/a","client":"192.0.2.1","cost":-1}`, 400, false},
		{"/v1/check", `{"method":"GET","target":"/a","client":"192.0.2.1","reserve":86401}`, 400, false},
		{"/v1/check", `{"method":"GET","target":"/a","client":"192.0.2.1","weight":1}`, 400, false},
		{"/v1/check", `{"requests":[]}`, 400, false},
		{"/v1/check", `{"method":"GET","target":"/a","client":"192.0.2.1","header":{"X-A":7}}`, 400, false},
		{"/v1/settle", `{"reservation":"x","actual":5}`, 400, false},
		{"/v1/settle", `{"reservation":"RESERVATION"}`, 400, false},
		{"/v1/settle", `{"settlements":[]}`, 400, false},
	} {
		body := strings.ReplaceAll(c.body, "RESERVATION", reservation)
		r := httptest.NewRequest("POST", "http://127.0.0.1:8082"+c.path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr, r.RequestURI = "127.0.0.1:4711", c.path
		route, params, err := routes.FindRoute(r)
		if err != nil {
			t.Fatal(err)
		}
		in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route}
		if err := openapi3filter.ValidateRequest(t.Context(), in); (err == nil) != c.described {
			t.Errorf("%s %s: the document says %v, want it to take it: %v", c.path, body, err, c.described)
		}
		r.Body = io.NopCloser(strings.NewReader(body))
		w := httptest.NewRecorder()
		door.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.path, body, w.Code, w.Body, c.status)
		}
		var answer decisions.Answer
		if json.Unmarshal(w.Body.Bytes(), &answer) == nil && answer.Reservation != "" {
			reservation = answer.Reservation
		}
		err = openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: in, Status: w.Code, Header: w.Header(),
			Body:    io.NopCloser(bytes.NewReader(w.Body.Bytes())),
			Options: &openapi3filter.Options{IncludeResponseStatus: true},
		})
		if err != nil {
			t.Errorf("%s %s: %d %s is not as described: %v", c.path, body, w.Code, w.Body, err)
		}
	}
}
