package policy

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// Fallback says what happens to requests while the rules in force cannot be relied on: their source
// has not confirmed them for too long, or it has none.
type Fallback uint8

const (
	// Keep goes on with the rules in force, however old they are. With no rule at all, nothing is limited.
	Keep Fallback = iota
	// Limit applies CacheOptions.FallbackRule to every request, in addition to the rules in force: it never admits
	// what they refuse.
	Limit
	// Deny refuses every request.
	Deny

	fallbacks = 3
)

var fallbackTexts = [fallbacks]string{"keep", "limit", "deny"}

// String returns the fallback as configurations write it.
func (f Fallback) String() string { return enumString(uint8(f), "fallback", fallbackTexts[:]) }

// Standing says whether the rules in force can be relied on, and what happens to requests if they cannot.
type Standing struct {
	Stale bool // they were not confirmed within CacheOptions.MaxStale
	Empty bool // there is no rule

	// Fallback is in effect if Stale or Empty. If both are true it is the stricter of the two settings.
	Fallback Fallback
}

// OK reports whether the rules can be relied on.
func (s Standing) OK() bool { return !s.Stale && !s.Empty }

// DefaultFallback is the rule of Limit when CacheOptions.FallbackRule is zero: 100 requests a second for each caller,
// at most 200 at once.
var DefaultFallback = Rule{Limit: 100, Per: time.Second, Burst: 200}

// fallbackName is what clients see of the rule.
const fallbackName = "fallback"

// withFallback is compile with the rule of Limit.
func (o *CacheOptions) withFallback(compile CompileOptions) CompileOptions {
	r := o.fallbackRule(&compile)
	compile.fallback = &r
	return compile
}

// fallbackRule is the rule of Limit with its defaults filled in.
func (o *CacheOptions) fallbackRule(compile *CompileOptions) Rule {
	r := o.FallbackRule
	if r == (Rule{}) {
		r = DefaultFallback
	}
	r.Endpoint, r.Name = All, fallbackName
	if r.Per == 0 {
		r.Per = time.Second
	}
	r.Burst = compile.BurstOf(&r)
	for _, cost := range compile.Costs {
		r.Burst = max(r.Burst, cost) // else such a request could never pass
	}
	return r
}

// checkStale checks the options about rules that cannot be relied on.
func (o *CacheOptions) checkStale() error {
	var errs []error
	if o.MaxStale < 0 {
		errs = append(errs, fmt.Errorf("MaxStale is %v, want more than 0, or 0 for no bound", o.MaxStale))
	}
	if o.OnStale >= fallbacks {
		errs = append(errs, fmt.Errorf("OnStale is %d, want Keep, Limit or Deny", o.OnStale))
	}
	if o.OnEmpty >= fallbacks {
		errs = append(errs, fmt.Errorf("OnEmpty is %d, want Keep, Limit or Deny", o.OnEmpty))
	}
	r := o.fallbackRule(&o.Compile)
	_, err := rate.Compile(rate.Limit{Tokens: r.Limit, Per: r.Per, Burst: r.Burst, Algorithm: r.Algorithm.Counts()})
	if err != nil {
		errs = append(errs, fmt.Errorf("FallbackRule: %w", err))
	}
	if r.Project != "" || r.Tier != "" || r.Mode != Enforce || r.Scope != Local || !r.Expires.IsZero() ||
		r.EnforcePercent != 0 || r.CountWhen != "" || r.Penalty != "" || r.Refusal != "" ||
		r.Priority != "" {
		errs = append(errs,
			errors.New("FallbackRule has more than Limit, Per, Burst, Subject and Algorithm, want these alone: it "+
				"applies to everybody, in each process"))
	}
	return errors.Join(errs...)
}

// addFallback appends the row of the rule of Limit. It is in no group: no look-up finds it, and nothing that compares
// rules with each other sees it.
func (c *compiler) addFallback() {
	if c.o.fallback == nil {
		return
	}
	r := *c.o.fallback
	_, limit := c.limit(&r) // checkStale has seen that it compiles
	c.set.rows = append(c.set.rows, row{
		id:       newHash().text("\x00" + fallbackName).sum(),
		endpoint: rowFallback, limit: limit.index, extra: c.extra(extra{title: c.fallbackTitle}),
		subject: r.Subject, algorithm: r.Algorithm, last: true,
	})
	c.set.hasFallback = true
}

// Fallback returns the rule that applies to every request under Limit, in addition to what Resolve
// returns; false if the Set was not made by a Cache.
func (s *Set) Fallback() (Applied, bool) {
	return Applied{Rule: RuleID(s.Len()), Level: LevelFallback}, s.hasFallback
}

// InForce returns the rules in force, nil before the first good ones, and whether they can be relied on at now, by the
// clock of Cache.Now. It never blocks.
func (c *Cache) InForce(now int64) (*Set, Standing) {
	set := c.value.Get()
	var s Standing
	if set == nil {
		return nil, s
	}
	if set.Len()+set.AccessRules() == 0 {
		s.Empty, s.Fallback = true, c.o.OnEmpty
	}
	if c.o.MaxStale > 0 && now-c.confirmed.Load() > int64(c.o.MaxStale) {
		s.Stale, s.Fallback = true, max(s.Fallback, c.o.OnStale)
	}
	return set, s
}

// noteAge takes how long ago the source confirmed the rules in force. It is counted from there by a clock that does not
// step.
func (c *Cache) noteAge(age time.Duration) { c.confirmed.Store(c.clock.Now() - int64(age)) }

// fallbackRule is that of the rules in force, or of those that are to come.
func (c *Cache) fallbackRule() Rule {
	if set := c.Set(); set != nil {
		if fallback, ok := set.Fallback(); ok {
			return set.Rule(fallback.Rule)
		}
	}
	return c.o.fallbackRule(&c.o.Compile)
}

// Words says for people why the rules cannot be relied on and what happens to requests; "" if they can.
func (c *Cache) Words(s Standing) string {
	var why, then string
	stale := (time.Duration(c.clock.Now()-c.confirmed.Load()) * time.Nanosecond).Round(time.Second)
	switch {
	case s.OK():
		return ""
	case s.Empty && s.Stale:
		why = fmt.Sprintf("there are no rules, and the source has not confirmed that for %v, longer than %v",
			stale, c.o.MaxStale)
	case s.Empty:
		why = "there are no rules"
	default:
		why = fmt.Sprintf("the rules were last confirmed %v ago, longer than %v", stale, c.o.MaxStale)
	}
	switch {
	case s.Fallback == Deny:
		then = "every request is refused"
	case s.Fallback == Limit:
		r := c.fallbackRule()
		then = fmt.Sprintf("every %s is limited to %s, burst %d", subjectWords(r.Subject), r.Rate(), r.Burst)
		if !s.Empty {
			then += ", besides what the rules say"
		}
	case s.Empty:
		then = "nothing is limited"
	default:
		then = "they stay in force"
	}
	return why + ": " + then
}

func subjectWords(s Subject) string {
	if s == SubjectPrincipal {
		return "caller"
	}
	return s.String()
}
