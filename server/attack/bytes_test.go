package attack_test

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/attack"
)

// TestRunByBytes: a limit in bytes is held against the bytes that were moved, of long answers too.
func TestRunByBytes(t *testing.T) {
	const body, answer = 10, 100_000
	for _, c := range []struct {
		name    string
		by      func(*http.Request) string
		limit   int64 // of which the limiter admits 10 × (body + answer)
		widened string
	}{
		{"no hole", peer, 10 * (body + answer), ""},
		{"more than the limit", peer, 9 * (body + answer), "plain"},
		{"the leftmost forwarded address", func(r *http.Request) string { return r.Header.Get("X-Forwarded-For") },
			10 * (body + answer), "headers"},
	} {
		l := newLimiter(c.by)
		site := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !l.take(l.name(r)) {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			_, _ = w.Write(make([]byte, answer))
		}))
		p := plan()
		p.Requests, p.Endpoint, p.Body, p.Bytes = 700, "POST /v1/items/1", strings.Repeat("x", body), true
		p.Limit = attack.Limit{Requests: c.limit, Per: time.Hour, Burst: c.limit}
		found, err := attack.Run(t.Context(), site, p, func(attack.Finding) {})
		if (err != nil) != (c.widened == "plain") {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, f := range found {
			want := attack.Held
			if f.Attack == c.widened {
				want = attack.Widened
			}
			if f.Verdict != want {
				t.Errorf("%s: %s: %s, %d bytes", c.name, f.Attack, f.Verdict, f.Admitted)
			}
			if f.Attack == "plain" && f.Admitted != 10*(body+answer) {
				t.Errorf("%s: %d bytes were moved by the plain request, want %d", c.name, f.Admitted, 10*(body+answer))
			}
		}
	}
}

// TestBytesAreSoManyRequests: what moves n bytes is n requests of one at the same moment.
func TestBytesAreSoManyRequests(t *testing.T) {
	random := rand.New(rand.NewPCG(20, 1))
	for range 500 {
		l := attack.Limit{
			Requests: 1 + random.Int64N(20),
			Per:      time.Duration(1+random.IntN(50)) * 100 * ms,
			Burst:    1 + random.Int64N(30),
		}
		var moved []attack.Moved
		var spans []attack.Span
		clock := time.Duration(0)
		for range random.IntN(20) {
			clock += time.Duration(random.IntN(300)) * ms
			m := attack.Moved{
				Span:  attack.Span{Sent: clock, Seen: clock + time.Duration(random.IntN(300))*ms},
				Bytes: random.Int64N(9),
			}
			moved = append(moved, m)
			for range m.Bytes {
				spans = append(spans, m.Span)
			}
		}
		if got, want := l.BeyondBytes(moved), l.Beyond(spans); got != want {
			t.Fatalf("%+v: %v moved %d bytes beyond it, want %d", l, moved, got, want)
		}
	}
}
