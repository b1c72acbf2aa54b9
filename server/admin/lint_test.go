package admin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/lint"
)

func TestLint(t *testing.T) {
	items, err := endpoint.ParseTemplate("GET /v1/items")
	if err != nil {
		t.Fatal(err)
	}
	endpoints, err := endpoint.Compile([]endpoint.Template{items}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	door, err := admin.New(admin.Options{
		Metrics: http.NotFoundHandler(), Access: admin.Access{Token: "letmein"},
		Compile: func() policy.CompileOptions { return policy.CompileOptions{Endpoints: endpoints} },
	})
	if err != nil {
		t.Fatal(err)
	}
	const tail = `{"endpoint":"default","limit":1},
{"endpoint":"UNKNOWN","limit":1}]}`
	for body, c := range map[string]struct {
		status int
		code   string // of the one finding
		line   int
	}{
		`{"rules":[` + tail: {200, "", 0},
		`{"rules":[` + "\n" + `{"endpoint":"GET /v1/itms","limit":1},` + tail: {200,
			"no_endpoint", 2},
		`{"rules":[{"endpoint":"GET /v1/items","limit":0},` +
			tail: {200, "limit", 1},
		`{"ignore":[{"code":"no_endpoint","reason":"to come"}],"rules":[{"endpoint":"GET /v1","limit":1},` + tail: {200, "", 0},
		`[`: {400, "", 0},
	} {
		request := httptest.NewRequest("POST", "/v1/policies/lint", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if door.ServeHTTP(w, request); w.Code != 401 {
			t.Errorf("without the token: %d, want 401", w.Code)
		}
		request = httptest.NewRequest("POST", "/v1/policies/lint", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer letmein")
		w = httptest.NewRecorder()
		door.ServeHTTP(w, request)
		if w.Code != c.status {
			t.Errorf("%s: %d, want %d\n%s", body, w.Code, c.status, w.Body)
		}
		if c.status != 200 {
			continue
		}
		var report lint.Report
		if err := json.Unmarshal(w.Body.Bytes(), &report); err != nil {
			t.Fatal(err)
		}
		if c.code == "" && len(report.Findings) > 0 || c.code != "" && (len(report.Findings) != 1 ||
			report.Findings[0].Code != c.code || report.Findings[0].Line != c.line) {
			t.Errorf("%s: findings %+v, want %q at line %d", body, report.Findings, c.code, c.line)
		}
	}
}
