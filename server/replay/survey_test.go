package replay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/replay"
)

// TestSuggest: of a hundred and one callers, one of whom is in a hurry, the limits are twice what the others use.
func TestSuggest(t *testing.T) {
	var log strings.Builder
	at := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	line := func(when time.Time, client int, target string, status int) {
		fmt.Fprintf(&log, "192.0.2.%d - - [%s] \"GET %s HTTP/1.1\" %d 5\n", client,
			when.Format("02/Jan/2006:15:04:05 -0700"), target, status)
	}
	for minute := range 3 {
		for second := range 60 {
			now := at.Add(time.Duration(minute)*time.Minute + time.Duration(second)*time.Second)
			for client := range 100 {
				if second < 6 { // six of the list a minute, each in the first ten seconds
					line(now, client, "/v1/items", 200)
				}
				if second == 30 {
					line(now, client, fmt.Sprintf("/v1/items/%d", 1000+client), 200)
				}
			}
			line(now, 200, "/v1/items", 200)
			line(now, 200, "/wp-login.php", 404)
		}
	}
	survey := func(table *endpoint.Table) *replay.Survey {
		r, err := replay.New("", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Survey = &replay.Survey{Endpoints: table}
		if err := r.Read(t.Context(), "access.log", strings.NewReader(log.String())); err != nil {
			t.Fatal(err)
		}
		return r.Survey
	}
	made := survey(nil)
	if got := strings.Join(made.Templates(), ", "); got != "GET /v1/items, GET /v1/items/{id}" {
		t.Errorf("endpoints are %s", got)
	}
	want := map[string]policy.Rule{
		"GET /v1/items": {Endpoint: "GET /v1/items", Limit: 15, Per: time.Minute, Burst: 15},
		"default":       {Endpoint: "default", Limit: 15, Per: time.Minute, Burst: 15},
		"UNKNOWN":       {Endpoint: "UNKNOWN", Limit: 10, Per: time.Minute, Burst: 10},
		"*":             {Endpoint: "*", Limit: 30, Per: time.Minute, Burst: 30, Subject: policy.SubjectIP},
	}
	list := made.Suggest(2)
	for _, s := range list {
		if s.Rule != want[s.Of] {
			t.Errorf("%s: %+v, want %+v", s.Of, s.Rule, want[s.Of])
		}
	}
	if len(list) != 3 {
		t.Errorf("%d suggestions, want default, UNKNOWN and *: %+v", len(list), list)
	}
	template, err := endpoint.ParseTemplate("GET /v1/items/{id}")
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range survey(table).Suggest(2) {
		if s.Of == policy.UnknownEndpoint && (s.Callers != 101 ||
			s.Minute != replay.Figures{Half: 6, P95: 6, P99: 6, Most: 120} || s.Rule.Limit != 15) {
			t.Errorf("with one endpoint known, the others are %+v", s)
		}
	}
}

func TestDiscover(t *testing.T) {
	for target, want := range map[string]string{
		"/":                             "GET /",
		"/v1/items/42?x=1":              "GET /v1/items/{id}",
		"/v1/users/7/orders/9/":         "GET /v1/users/{id}/orders/{id2}",
		"/v2/b1e9ab52-73fa-4c1f-9e1e-0": "GET /v2/{id}",
		"/v1/items/search":              "GET /v1/items/search",
		"/deadbeef":                     "GET /deadbeef",
		"/t/eyJhbGciOi1234567890abcdef": "GET /t/{id}",
		"/main.4f3a9b1c2d.js":           "GET /main.4f3a9b1c2d.js",
		"/a%2fb":                        "",
		"/a/{b}":                        "",
		"http://x/":                     "",
		"*":                             "",
	} {
		got, ok := replay.Discover("GET", target)
		if got != want || ok != (want != "") {
			t.Errorf("%s is %q, want %q", target, got, want)
		}
	}
	if got, _ := replay.Discover("HEAD", "/a"); got != "GET /a" {
		t.Errorf("HEAD is %q", got)
	}
}
