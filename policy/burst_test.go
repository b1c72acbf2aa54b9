package policy_test

import (
	"math"
	"testing"

	"github.com/headgate-io/headgate/policy"
)

// TestBurstOf: rules that give no burst get one by the options, and those that
// count in windows have none beside their limit.
func TestBurstOf(t *testing.T) {
	for _, c := range []struct {
		percent int64
		rule    policy.Rule
		want    int64
	}{
		{0, policy.Rule{Limit: 10}, 10},
		{250, policy.Rule{Limit: 10}, 25},
		{250, policy.Rule{Limit: 1}, 2},
		{250, policy.Rule{Limit: 10, Burst: 7}, 7},
		{250, policy.Rule{Limit: 10, Algorithm: policy.LeakyBucket}, 25},
		{250, policy.Rule{Limit: 10, Algorithm: policy.SlidingWindow}, 10},
		{1_000_000, policy.Rule{Limit: math.MaxInt64}, math.MaxInt64},
	} {
		o := policy.CompileOptions{BurstPercent: c.percent}
		if got := o.BurstOf(&c.rule); got != c.want {
			t.Errorf("BurstOf(%+v) at %d %% = %d, want %d", c.rule, c.percent, got, c.want)
		}
	}
}
