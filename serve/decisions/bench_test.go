package decisions_test

import (
	"context"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/serve/decisions"
)

// BenchmarkAsk is what a question costs whatever it came by, without a field in it.
func BenchmarkAsk(b *testing.B) {
	bench := trial.New(b, templates, []policy.Rule{{Endpoint: "default", Name: "each", Limit: 1e9, Per: time.Second}})
	answers, err := decisions.NewAnswers(decisions.Options{Limiter: bench.Limiter, Trusted: netip.Addr.IsLoopback})
	if err != nil {
		b.Fatal(err)
	}
	q := decisions.Question{Method: "GET", Target: "/a", Client: "192.0.2.1"}
	b.ReportAllocs()
	for b.Loop() {
		if !answers.Ask(context.Background(), &q).Allowed {
			b.Fatal("refused")
		}
	}
}

// BenchmarkBatch is what 100 questions in one body cost, from bytes to bytes.
func BenchmarkBatch(b *testing.B) {
	bench := trial.New(b, templates, []policy.Rule{{Endpoint: "default", Name: "each", Limit: 1e9, Per: time.Second}})
	door, err := decisions.New(decisions.Options{Limiter: bench.Limiter, Trusted: netip.Addr.IsLoopback})
	if err != nil {
		b.Fatal(err)
	}
	one := `{"method":"GET","target":"/a","client":"192.0.2.1"}`
	body := `{"requests":[` + strings.Repeat(one+",", 99) + one + `]}`
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/v1/check", strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		if door.ServeHTTP(w, r); w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}
