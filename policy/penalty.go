package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Penalty says when a rule blocks a caller for a time, as PenaltyTerms.Penalty writes it. Empty is never.
//
//	10 in 1m for 15m                          ten denials within a minute: nothing for a quarter of an hour
//	10 in 1m for 15m up to 6h                 twice as long with each repeat, and six hours at most
//	10 in 1m for 15m up to 6h with addresses  also callers who are known by their address alone
type Penalty string

// PenaltyTerms are what a Penalty says.
type PenaltyTerms struct {
	After     int           // denials, 1 to MaxPenaltyAfter
	Within    time.Duration // as many in so long always block, and fewer in a seventh more never do
	For       time.Duration // the first time
	UpTo      time.Duration // the most; it doubles until then
	Addresses bool          // also callers who have no verified credential, and may be many behind one address
}

// The bounds of PenaltyTerms, and what UpTo is where nobody says.
const (
	MaxPenaltyAfter  = 10_000
	maxPenaltyWithin = 24 * time.Hour
	maxPenalty       = 30 * 24 * time.Hour
	usualPenaltyUpTo = 24 * time.Hour
)

const wantPenalty = `"10 in 1m for 15m": after 1 to 10000 denials, within 1s to 24h, for 1s to 720h; then "up to 6h" and "with addresses", or neither`

// Penalty writes t.
func (t PenaltyTerms) Penalty() Penalty {
	text := fmt.Sprintf("%d in %s for %s", t.After, duration(t.Within), duration(t.For))
	if t.UpTo != max(usualPenaltyUpTo, t.For) {
		text += " up to " + duration(t.UpTo)
	}
	if t.Addresses {
		text += " with addresses"
	}
	return Penalty(text)
}

// Terms are what p says; nil if it is empty.
func (p Penalty) Terms() (*PenaltyTerms, error) {
	if p == "" {
		return nil, nil
	}
	wrong := Problem{Code: "penalty", Rule: -1, Field: "penalty", Value: text(string(p)), Want: wantPenalty}
	var t PenaltyTerms
	words := strings.Fields(string(p))
	if len(words) < 5 || words[1] != "in" || words[3] != "for" {
		return nil, wrong
	}
	var errs [4]error
	t.After, errs[0] = strconv.Atoi(words[0])
	t.Within, errs[1] = ParseDuration(words[2])
	t.For, errs[2] = ParseDuration(words[4])
	t.UpTo = max(usualPenaltyUpTo, t.For)
	if words = words[5:]; len(words) >= 3 && words[0] == "up" && words[1] == "to" {
		t.UpTo, errs[3] = ParseDuration(words[2])
		words = words[3:]
	}
	if slices.Equal(words, []string{"with", "addresses"}) {
		t.Addresses, words = true, nil
	}
	for _, d := range []time.Duration{t.Within, t.For, t.UpTo} {
		if d%time.Second != 0 {
			return nil, wrong
		}
	}
	switch {
	case errs != [4]error{}, len(words) > 0, t.After < 1, t.After > MaxPenaltyAfter, t.Within < time.Second,
		t.Within > maxPenaltyWithin,
		t.For < time.Second, t.UpTo < t.For, t.UpTo > maxPenalty:
		return nil, wrong
	}
	return &t, nil
}

// MarshalText writes what stands in a rule.
func (p Penalty) MarshalText() ([]byte, error) { return []byte(p), nil }

// UnmarshalText reads a penalty, and keeps it in the one form that MarshalText writes; none of no text.
func (p *Penalty) UnmarshalText(text []byte) error {
	terms, err := Penalty(text).Terms()
	switch {
	case err != nil:
		return err
	case terms == nil:
		*p = ""
	default:
		*p = terms.Penalty()
	}
	return nil
}

// penalty numbers a Penalty, which must be right.
func (n *numbering) penalty(p Penalty) uint32 {
	if p == "" {
		return 0
	}
	number, ok := n.penaltyNumbers[p]
	if !ok {
		number = uint32(len(n.set.penalties))
		terms, _ := p.Terms()
		n.set.penalties, n.set.penaltyTerms = append(n.set.penalties, p), append(n.set.penaltyTerms, terms)
		n.penaltyNumbers[p] = number
	}
	return number
}

// Penalises reports whether a rule has a Penalty.
func (s *Set) Penalises() bool { return len(s.penalties) > 1 }

// PenaltyOf is the penalty of a rule, nil if it has none.
func (s *Set) PenaltyOf(id RuleID) *PenaltyTerms {
	return s.penaltyTerms[s.extras[s.rows[id].extra].penalty]
}

// checkAfterwards reports what is wrong with what a rule counts by answers, and with its penalty.
func checkAfterwards(r *Rule, wrong func(field, value, want string)) {
	if statuses, err := r.CountWhen.Statuses(); err != nil || len(r.CountWhen) > maxAnswers ||
		statuses != nil && !written(r.CountWhen) {
		wrong("count_when", text(string(r.CountWhen)), wantAnswers)
	}
	if terms, err := r.Penalty.Terms(); err != nil {
		wrong("penalty", text(string(r.Penalty)), wantPenalty)
	} else if terms != nil && terms.Penalty() != r.Penalty {
		wrong("penalty", text(string(r.Penalty)), text(string(terms.Penalty()))+", which is how it is written")
	}
}

// written reports whether a is as UnmarshalText would keep it: else two rules that mean the same differ.
func written(a Answers) bool {
	var read Answers
	return read.UnmarshalText([]byte(a)) == nil && read == a
}

// notePenalty reports what surprises about a rule's penalty.
func (c *advice) notePenalty(i int, r *Rule) {
	terms, err := r.Penalty.Terms()
	if terms == nil || err != nil {
		return
	}
	if r.Mode == Shadow && !c.full("penalty_in_shadow") {
		c.rule(Note, i, "penalty_in_shadow", "penalty", text(string(r.Penalty)),
			"mode enforce: a rule in shadow denies nobody, so nobody is blocked")
	}
	if terms.Addresses && !c.full("penalty_for_addresses") {
		c.rule(Note, i, "penalty_for_addresses", "penalty", text(string(r.Penalty)),
			`the same without "with addresses", unless no two callers share an address: one of them gets all of them blocked`)
	}
	if r.Scope != Local && !c.full("penalty_per_replica") {
		c.rule(Note, i, "penalty_per_replica", "penalty", text(string(r.Penalty)),
			fmt.Sprintf("to know that each gateway counts denials for itself, and blocks for itself, while the "+
				"limit of scope %v is one for all", r.Scope))
	}
}
