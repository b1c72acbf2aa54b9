//go:build long && unix

package doors

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

// laterPage is what the rules of TestRulesSayWhatIsAnswered have clients told.
var laterPage = regexp.MustCompile(`^<p>Later: "in" \d+ s</p>\s*$`)

// What a rule says itself reaches clients through every proxy and every package: the status, the body and its type.
func TestRulesSayWhatIsAnswered(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			everyProxy(t, func(t *testing.T, p proxy) {
				w := start(t, p, forLong)
				passes := p.name != "Envoy over HTTP"
				saysItself(t, w.headgate, w.at, "/v1/forbidden", "GET /v1/forbidden", status, passes)
			})
			everyApplication(t, func(t *testing.T, a application) {
				at, headgate := a.serve(t, "deny", 30*time.Second)
				saysItself(t, headgate, at, "/v1/items/7", "GET /v1/items/{id}", status, true)
			})
		})
	}
}

// saysItself gives an endpoint a rule with an answer of its own, and sees what clients get. Passes
// says that a 503 does: Envoy takes what it is told over HTTP from 500 on for a failure, and
// answers what it is set to.
func saysItself(t *testing.T, headgate *harness.Gateway, at, target, endpoint string, status int, passes bool) {
	t.Helper()
	refusal := `as text/html: <p>Later: "in" {retry_after} s</p>`
	if status != http.StatusTooManyRequests {
		refusal = "503 " + refusal
	}
	passes = passes || status != http.StatusServiceUnavailable
	harness.Run(t, headgate.Dir, "policy", "set", endpoint, "1", "--per", "1h", "--refusal", refusal,
		"--db", headgate.DB)
	var got *http.Response
	var body string
	refused := func() bool {
		got, body = send(t, at, "GET", target, "")
		return got.StatusCode == status && (laterPage.MatchString(body) || !passes)
	}
	if !harness.Eventually(time.Minute, refused) {
		t.Fatalf("%d with %v: %q, want %d with the page of the rule", got.StatusCode, got.Header, body, status)
	}
	types := got.Header.Values("Content-Type")
	if passes && (len(types) != 1 || types[0] != "text/html; charset=utf-8" || got.Header.Get("Retry-After") == "") {
		t.Errorf("%d with %v: %q, want the page with its type", got.StatusCode, got.Header, body)
	}
}
