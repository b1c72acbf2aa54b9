//go:build unix

package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// A quota that hardly anything comes back to is full again after millions of years: more
// milliseconds than the server takes for an expiry.
func TestDebtThatOutlastsEveryServer(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, redis.Options{Server: connect(t, server)})
	lessor, book := authority(t, s, redis.AuthorityOptions{}), ledger(t, s, redis.LedgerOptions{})
	const quota, cost = 10_000_000, 9_000_000
	of := take(t, 1, rate.Limit{Tokens: 1, Per: 365 * 24 * time.Hour, Burst: quota}, 0)
	for name, spend := range map[string]func(t *testing.T){
		"by a take": func(t *testing.T) {
			all := of
			all.Cost = cost
			try(t, s, 0, all)
		},
		"by a correction": func(t *testing.T) {
			err := s.Correct(context.Background(), 0,
				[]bucket.Change{{Key: of.Key, Shape: of.Shape, Units: cost * of.Shape.Unit}}, make([]int64, 1))
			if err != nil {
				t.Fatal(err)
			}
		},
		"by a lease": func(t *testing.T) {
			if got := ask(t, lessor, 7, of, lease.Question{Seq: 1, Want: cost}); got.Tokens != cost {
				t.Errorf("%+v, want all", got)
			}
		},
		"by a report": func(t *testing.T) {
			tell(t, book, 7, report.Told{Of: of, Report: report.Report{Seq: 1, Tokens: cost}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			server.Do("FLUSHALL")
			spend(t)
			if _, outs := try(t, s, 0, of); outs[0].Remaining != quota-cost {
				t.Errorf("%d are left, want %d", outs[0].Remaining, quota-cost)
			}
		})
	}
}
