package httplimit_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
)

// largest is a body that never comes, and remembers what it was asked for.
type largest struct{ asked int }

func (l *largest) Read(p []byte) (int, error) {
	l.asked = max(l.asked, len(p))
	return 0, io.ErrUnexpectedEOF
}

// TestAnnouncedBodiesHoldNoMemory: a Content-Length alone must not make the
// process hold as much as the longest body has.
func TestAnnouncedBodiesHoldNoMemory(t *testing.T) {
	d := newLogins(t, httplimit.Login{Field: body.Field{Name: "email", MaxBytes: body.MostBytes}}, loginRules,
		httplimit.Options{})
	r, b := httptest.NewRequest("POST", "/v1/login", nil), &largest{}
	r.Header.Set("Content-Type", "application/json")
	r.Body, r.ContentLength = io.NopCloser(b), body.MostBytes
	func() {
		defer func() { _ = recover() }() // the API's handler aborts
		d.ServeHTTP(httptest.NewRecorder(), r)
	}()
	if b.asked == 0 || b.asked > body.DefaultBytes+1 {
		t.Errorf("%d bytes were made ready for a body of which none came, want %d at most", b.asked,
			body.DefaultBytes+1)
	}
	text := `{"email":"a","pad":"` + strings.Repeat("x", body.MostBytes-100) + `"}`
	if d.post("192.0.2.1", []byte(text)); d.got != text {
		t.Errorf("of a body of %d bytes %d reach the API", len(text), len(d.got))
	}
	if n := d.Faults(body.None); n != 1 {
		t.Errorf("%d identifiers were read, want 1", n)
	}
}
