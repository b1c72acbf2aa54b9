package policy_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
)

// subjectBytes are bytes as the limiter has them: a tag, a length, a name.
func subjectBytes(i int) []byte {
	name := fmt.Sprintf("k_%08d", i)
	return append(binary.AppendUvarint([]byte{2}, uint64(len(name))), name...)
}

// percentSet compiles a rule for each percentage of one place.
func percentSet(t *testing.T, ep string, percent int64) (*policy.Set, policy.RuleID) {
	t.Helper()
	set := compile(t, policy.Document{Rules: []policy.Rule{{Endpoint: ep, Limit: 1, EnforcePercent: percent}}},
		policy.CompileOptions{})
	return set, 0
}

// TestShareOfSubjects: each percentage takes in that share of the subjects, as
// closely as drawing them would (five standard deviations of the binomial), and
// all of those that a smaller one takes in.
func TestShareOfSubjects(t *testing.T) {
	n := race.Fewer(20_000)
	for _, ep := range []string{policy.Default, policy.All, policy.UnknownEndpoint} {
		in := make([]bool, n)
		for percent := int64(1); percent <= 100; percent++ {
			set, rule := percentSet(t, ep, percent)
			count := 0
			for i := range in {
				is := set.Enforces(rule, subjectBytes(i))
				if in[i] && !is {
					t.Fatalf("%s at %d %%: subject %d is not among them, and was at less", ep, percent, i)
				}
				in[i] = is
				if is {
					count++
				}
			}
			p := float64(percent) / 100
			if off := math.Abs(float64(count) - float64(n)*p); off > 5*math.Sqrt(float64(n)*p*(1-p)) {
				t.Errorf("%s at %d %%: %d of %d subjects", ep, percent, count, n)
			}
		}
	}
}

// TestSharesAreIndependent: who is among one rule's share is no more nor less
// likely to be among another's.
func TestSharesAreIndependent(t *testing.T) {
	const n = 20_000
	a, rule := percentSet(t, policy.Default, 30)
	b, _ := percentSet(t, policy.All, 50)
	both := 0
	for i := range n {
		if a.Enforces(rule, subjectBytes(i)) && b.Enforces(rule, subjectBytes(i)) {
			both++
		}
	}
	if p := 0.3 * 0.5; math.Abs(float64(both)-n*p) > 5*math.Sqrt(n*p*(1-p)) {
		t.Errorf("%d of %d subjects are among both 30 %% and 50 %%, want about %d", both, n, int(n*p))
	}
}

// TestSharesStay: they are the same in every process, so these are written down.
func TestSharesStay(t *testing.T) {
	set, rule := percentSet(t, policy.Default, 50)
	got := ""
	for i := range 32 {
		if set.Enforces(rule, subjectBytes(i)) {
			got += "x"
		} else {
			got += "."
		}
	}
	if want := sharesOf2026; got != want {
		t.Errorf("of 32 subjects %s are enforced, want %s: replicas of two versions would disagree", got, want)
	}
}

// sharesOf2026 was written by the first version that had shares.
const sharesOf2026 = ".xxxx...x.xxx...x..x.x.xx..xxx.x"

// TestPercentOfModes: 0 and 100 are all, and in shadow it is nobody.
func TestPercentOfModes(t *testing.T) {
	for _, tt := range []struct {
		rule     policy.Rule
		percent  int
		enforced bool
	}{
		{policy.Rule{Endpoint: policy.Default, Limit: 1}, 100, true},
		{policy.Rule{Endpoint: policy.Default, Limit: 1, EnforcePercent: 100}, 100, true},
		{policy.Rule{Endpoint: policy.Default, Limit: 1, EnforcePercent: 1}, 1, false},
		{policy.Rule{Endpoint: policy.Default, Limit: 1, EnforcePercent: 99, Mode: policy.Shadow}, 100, false},
	} {
		set := compile(t, policy.Document{Rules: []policy.Rule{tt.rule}}, policy.CompileOptions{})
		if got, enforced := set.Percent(0), set.Enforces(0, subjectBytes(1)); got != tt.percent ||
			enforced != tt.enforced {
			t.Errorf("%+v: Percent = %d, Enforces = %v, want %d, %v", tt.rule, got, enforced, tt.percent, tt.enforced)
		}
		if mode := set.Terms(0).Mode; mode != tt.rule.Mode {
			t.Errorf("%+v: Terms say %v", tt.rule, mode)
		}
	}
}
