package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestReady: the exit status is what a health check reads, and the words what people do. It asks once: a check that
// waits for a gateway to become ready says nothing of now.
func TestReady(t *testing.T) {
	asked, answer := 0, func(http.ResponseWriter) {}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/readyz" || r.Header.Get("Authorization") != "" {
			t.Errorf("asked for %s %v", r.URL, r.Header)
		}
		answer(w)
	}))
	defer server.Close()
	dir := t.TempDir()
	for _, test := range []struct {
		name   string
		answer func(http.ResponseWriter)
		args   []string
		code   int
		want   string
	}{
		{"ready", func(w http.ResponseWriter) { fmt.Fprint(w, "ready\nwarning: the last reload failed\n") }, nil, 0,
			"ready\nwarning: the last reload failed\n"},
		{
			"ready, as JSON", func(w http.ResponseWriter) { fmt.Fprint(w, "ready\n") },
			[]string{"--json"}, 0, "{\n  \"ready\": true,\n  \"warnings\": []\n}\n",
		},
		{"not ready", unready, nil, 1, "503: Not ready: no rules were loaded yet"},
		{"not ready, as JSON", unready, []string{"--json"}, 1, `"ready": false`},
		{"another server", func(w http.ResponseWriter) { w.WriteHeader(404) }, nil, 1,
			"no answer of a gateway's admin listener"},
		{"where the gateway has its clients", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(404)
			fmt.Fprint(w, `{"type":"about:blank","title":"Not Found","status":404,"detail":"No endpoint is here."}`)
		}, nil, 1, "that is no admin listener: want the address of the setting admin, by default http://127.0.0.1:"},
	} {
		asked, answer = 0, test.answer
		code, out, errs := call(t, dir, append([]string{"ready", "--server", server.URL}, test.args...)...)
		if code != test.code || !strings.Contains(out+errs, test.want) || asked != 1 {
			t.Errorf("%s: exit %d after %d questions, want %d after one\n%s%s", test.name, code, asked,
				test.code, out, errs)
		}
	}
}

func unready(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(503)
	fmt.Fprint(w, `{"type":"urn:headgate:problem:unavailable","title":"Service Unavailable","status":503,"detail":"Not ready: no rules were loaded yet."}`)
}
