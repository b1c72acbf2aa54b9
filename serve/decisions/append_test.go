package decisions

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
	"time"
)

// inJSONSlowly is what encoding/json writes.
func inJSONSlowly(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	if err := out.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FuzzAnswersInJSON: whatever an answer says, it is written as encoding/json would.
func FuzzAnswersInJSON(f *testing.F) {
	f.Add(true, 200, "within_limits", int64(3), 0.05, "Ratelimit", `"default";r=19;t=1`, "", int64(0))
	f.Add(false, 429, "over \"limit\" <&>", int64(-1), 1e-9, "A\\b", "\x00\xff\u2028é", `{"title":"x <y>"}`, int64(1))
	f.Add(false, 503, "", int64(0), 1e30, "", "", "", int64(9))
	f.Fuzz(func(t *testing.T, allowed bool, status int, text string, n int64, seconds float64,
		name, value, body string, at int64) {
		if seconds != seconds || seconds-seconds != 0 {
			return // which no JSON has
		}
		a := Answer{Allowed: allowed, Status: status, Reason: text, Endpoint: name, Cost: n, Rule: value, Body: body}
		if at != 0 {
			moment := time.Unix(at%1e9, 0).UTC()
			a.Remaining, a.RetryAfter, a.ResetAfter, a.Expires, a.Reservation = &n, &seconds, &seconds, &moment, name
			a.Header = map[string]string{name: value, "Ratelimit": text, value: name}
		}
		if json.Valid([]byte(body)) {
			a.Problem = json.RawMessage(body)
		}
		header := http.Header{"Content-Length": {"7"}}
		for name, value := range a.Header {
			header[name] = []string{value}
		}
		if delete(a.Header, "Content-Length"); len(a.Header) == 0 {
			a.Header = nil
		}
		if got, want := append(a.append(nil, header), '\n'), inJSONSlowly(t, a); !bytes.Equal(got, want) {
			t.Errorf("written as\n%s\nwant\n%s", got, want)
		}
	})
}
