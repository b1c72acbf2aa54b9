package decisions_test

import (
	"context"
	"net/netip"
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
