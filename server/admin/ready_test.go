package admin_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-io/headgate/server/admin"
)

// A warning is told and makes nobody less ready.
func TestWarningsAreNoReasonNotToBeReady(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		warnings []string
		code     int
		body     string
	}{
		"ready": {nil, nil, 200, "ready\n"},
		"with a warning": {nil, []string{"the bucket table is too small"}, 200,
			"ready\nwarning: the bucket table is too small\n"},
		"not ready anyway": {errors.New("shutting down"), []string{"a"}, 503, ""},
	} {
		door, err := admin.New(admin.Options{
			Metrics: http.NotFoundHandler(), Ready: func() error { return c.err },
			Warnings: func() []string { return c.warnings },
		})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		door.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		if w.Code != c.code || c.body != "" && w.Body.String() != c.body {
			t.Errorf("%s: readyz = %d %q, want %d %q", name, w.Code, w.Body, c.code, c.body)
		}
	}
}
