package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/rate"
)

// Class is how urgent a request is. Where a budget that several share is short, those of the lowest class are denied
// first.
type Class uint8

// The classes, from the highest to the lowest. A request of which no rule says anything is Normal.
const (
	Unclassed Class = iota
	Critical
	High
	Normal
	Low

	classes
)

// Classes is how many classes there are, Unclassed among them; they count from 0.
const Classes = int(classes)

var classTexts = []string{"", "critical", "high", "normal", "low"}

// String reports the text that stands in a rule; "" for Unclassed.
func (c Class) String() string { return enumString(uint8(c), "priority", classTexts) }

// MarshalText writes what String reports.
func (c Class) MarshalText() ([]byte, error) { return marshalEnum(uint8(c), "priority", classTexts) }

// UnmarshalText reads what MarshalText writes and refuses everything else.
func (c *Class) UnmarshalText(text []byte) error {
	return unmarshalEnum((*uint8)(c), text, "priority", classTexts)
}

// Priority is what a rule says of classes, as PriorityTerms.Priority writes it: of which one requests are that it
// applies to, or how classes share its budget. Empty is nothing.
//
//	low                       requests under this rule are of class low
//	high:30,normal:20,low:10  three classes share this rule's budget; each is guaranteed so many percent of it
type Priority string

// PriorityTerms are what a Priority says: one of both.
type PriorityTerms struct {
	Class  Class   // of the requests that the rule applies to
	Shares []Share // who shares the budget, the highest class first
}

// Share is what one class is guaranteed.
type Share struct {
	Class   Class
	Percent int // of the rate and the burst, 0 to mostGuaranteed
}

// mostGuaranteed is how many percent of a budget classes may be guaranteed together. What is left is for whoever needs
// it, the highest class first; without it they would have a budget each.
const mostGuaranteed = 90

const wantPriority = `"critical", "high", "normal" or "low" for the requests that the rule applies to; or two or ` +
	"more of these that share its budget, from the highest, with the percent that each is guaranteed, 90 together at " +
	`most: "high:30,normal:20,low:10"`

// Priority writes t.
func (t *PriorityTerms) Priority() Priority {
	if t.Shares == nil {
		return Priority(t.Class.String())
	}
	words := make([]string, len(t.Shares))
	for i, s := range t.Shares {
		words[i] = s.Class.String() + ":" + strconv.Itoa(s.Percent)
	}
	return Priority(strings.Join(words, ","))
}

// Terms are what p says; nil if it is empty.
func (p Priority) Terms() (*PriorityTerms, error) {
	if p == "" {
		return nil, nil
	}
	wrong := Problem{Code: "priority", Rule: -1, Field: "priority", Value: text(string(p)), Want: wantPriority}
	var t PriorityTerms
	if !strings.Contains(string(p), ":") {
		if t.Class.UnmarshalText([]byte(strings.TrimSpace(string(p)))) != nil || t.Class == Unclassed {
			return nil, wrong
		}
		return &t, nil
	}
	for word := range strings.SplitSeq(string(p), ",") {
		name, percent, _ := strings.Cut(word, ":")
		n, err := strconv.ParseUint(strings.TrimSpace(percent), 10, 7)
		s := Share{Percent: int(n)}
		if err != nil || s.Class.UnmarshalText([]byte(strings.TrimSpace(name))) != nil || s.Class == Unclassed ||
			len(t.Shares) > 0 && s.Class <= t.Shares[len(t.Shares)-1].Class {
			return nil, wrong
		}
		t.Shares = append(t.Shares, s)
	}
	if len(t.Shares) < 2 || t.guaranteed() > mostGuaranteed {
		return nil, wrong
	}
	return &t, nil
}

// MarshalText writes what stands in a rule.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p), nil }

// UnmarshalText reads what a rule says of classes, and keeps it in the one form that MarshalText writes; none of no
// text.
func (p *Priority) UnmarshalText(text []byte) error {
	terms, err := Priority(text).Terms()
	switch {
	case err != nil:
		return err
	case terms == nil:
		*p = ""
	default:
		*p = terms.Priority()
	}
	return nil
}

// guaranteed is how many percent all classes together are guaranteed.
func (t *PriorityTerms) guaranteed() (percent int) {
	for _, s := range t.Shares {
		percent += s.Percent
	}
	return percent
}

// place is where a class stands among Shares: one that is not named there counts as the next below, or as the lowest.
func (t *PriorityTerms) place(c Class) int {
	for i, s := range t.Shares {
		if c <= s.Class {
			return i
		}
	}
	return len(t.Shares) - 1
}

// Kept is how many percent of the budget's burst a request of a class leaves for others: what all are guaranteed, and
// of the rest an equal part for each class above. So the highest class may use all of the rest, and the lowest of
// three a third. It is 0 to 99, and for the highest class not 0 unless nobody is guaranteed anything.
func (t *PriorityTerms) Kept(c Class) int {
	guaranteed := t.guaranteed()
	return guaranteed + (100-guaranteed)*t.place(c)/len(t.Shares)
}

// Guaranteed is how many percent of the rate and the burst a class is guaranteed, and the class whose share that is.
func (t *PriorityTerms) Guaranteed(c Class) Share { return t.Shares[t.place(c)] }

// placesOf says how classes share what belongs to no rule, such as the places to wait, if there are several.
func placesOf(named [Classes]bool) *PriorityTerms {
	named[Normal] = true
	t := &PriorityTerms{}
	for c := Critical; c < classes; c++ {
		if named[c] {
			t.Shares = append(t.Shares, Share{c, guaranteedPlaces})
		}
	}
	if len(t.Shares) < 2 {
		return nil
	}
	return t
}

// guaranteedPlaces is how many percent of the places each class is guaranteed.
const guaranteedPlaces = 5

// priority numbers a Priority, which must be right.
func (n *numbering) priority(p Priority) uint32 {
	if p == "" {
		return 0
	}
	number, ok := n.priorityNumbers[p]
	if !ok {
		number = uint32(len(n.set.priorities))
		terms, _ := p.Terms()
		n.set.priorities, n.set.priorityTerms = append(n.set.priorities, p), append(n.set.priorityTerms, terms)
		n.priorityNumbers[p] = number
		n.set.prioritises, n.set.classed[terms.Class] = true, true
		n.set.places = placesOf(n.set.classed)
	}
	return number
}

// Prioritises reports whether a rule has a Priority, or something else says of which class requests are (ClassesBy).
func (s *Set) Prioritises() bool { return s.prioritises }

// PriorityOf is what a rule says of classes, nil if it says nothing.
func (s *Set) PriorityOf(id RuleID) *PriorityTerms {
	return s.priorityTerms[s.extras[s.rows[id].extra].priority]
}

// Leaves is how many tokens of a rule's burst a request of a class leaves for others; 0 where classes do not share it.
func (s *Set) Leaves(id RuleID, c Class) int64 {
	if !s.Prioritises() {
		return 0
	}
	terms := s.PriorityOf(id)
	if terms == nil || terms.Shares == nil {
		return 0
	}
	shape := &s.shapes[s.rows[id].limit]
	return shape.Burst() - shape.Keeping(terms.Kept(c)).Burst()
}

// Holds is what the bucket of a rule has for a request of a class at most: its burst without what is left for others
// (Leaves), and of a limit on how many requests are under way the part that is in force, in 1024ths; 0 is all of it.
func (s *Set) Holds(id RuleID, c Class, part uint16) int64 {
	row := &s.rows[id]
	shape := s.shapes[row.limit]
	if part == 0 || !s.Terms(id).Concurrent {
		return shape.Burst() - s.Leaves(id, c)
	}
	shape = shape.AtOnce(int(part))
	if terms := s.PriorityOf(id); s.Prioritises() && terms != nil && terms.Shares != nil {
		shape = shape.Keeping(terms.Kept(c))
	}
	return shape.Burst()
}

// Places says how classes share places to wait; nil if rules make all requests of one class.
func (s *Set) Places() *PriorityTerms { return s.places }

// checkPriority reports what is wrong with what a rule says of classes. The rule's limit has the shape sh, the zero
// Shape if that is not known.
func checkPriority(r *Rule, sh rate.Shape, wrong func(field, value, want string)) {
	terms, err := r.Priority.Terms()
	switch {
	case err != nil:
		wrong("priority", text(string(r.Priority)), wantPriority)
		return
	case terms == nil:
		return
	case terms.Priority() != r.Priority:
		wrong("priority", text(string(r.Priority)), text(string(terms.Priority()))+", which is how it is written")
		return
	case terms.Shares == nil:
		return
	}
	_, counted := r.Subject.Counts()
	if counted != CountsUnderWay && !r.Algorithm.Counts().Drains() {
		wrong("algorithm", text(r.Algorithm.String()), `"token_bucket", "leaky_bucket" or "concurrency", because `+
			"classes share the budget (priority)")
	}
	switch {
	case counted == CountsUnderWay && r.Scope != Local:
		wrong("scope", text(r.Scope.String()), `"local", because classes share the budget (priority), and what is free `+
			"of places that several gateways count is not told apart by class")
	case r.Scope == Lease, r.Scope == Sync, r.Scope == Gossip:
		wrong("scope", text(r.Scope.String()), `"local", "split" or "strict", because classes share the budget `+
			"(priority), and what replicas hold in advance is not left for the classes above")
	}
	if r.Penalty != "" {
		wrong("penalty", text(string(r.Penalty)), "none, because classes share the budget (priority): who is denied "+
			"for a higher class is not to blame")
	}
	if sh == (rate.Shape{}) {
		return
	}
	for _, s := range terms.Shares {
		if _, ok := sh.Share(s.Percent); s.Percent > 0 && !ok {
			wrong("priority", text(string(r.Priority)), fmt.Sprintf(
				"a burst of %d or more, so that what %v is guaranteed (%d %% of %d) is a token at least",
				(100+s.Percent-1)/s.Percent, s.Class, s.Percent, sh.Burst()))
			return
		}
	}
}

// checkClassCosts reports a rule whose budget classes share, and of which the lowest never has what a request costs
// that may meet it. costs are in descending order.
func (c *review) checkClassCosts(i int, id RuleID, costs []endpointCost) {
	s := c.set
	r := &s.rows[id]
	_, what := r.subject.Counts()
	terms := s.PriorityOf(id)
	if terms == nil || terms.Shares == nil || what != CountsTokens || !s.live(r, c.wall) {
		return
	}
	room, poorest := int64(math.MaxInt64), Unclassed
	for _, share := range terms.Shares {
		most := s.shapes[r.limit].Keeping(terms.Kept(share.Class)).Burst()
		if own, ok := s.shapes[r.limit].Share(share.Percent); ok {
			most = max(most, own.Burst())
		}
		if most < room {
			room, poorest = most, share.Class
		}
	}
	for _, e := range costs {
		if e.cost > room && e.cost <= s.limits[r.limit].Burst && c.reaches(e.id, r) {
			c.rule(Warning, i, "priority_below_cost", "burst", number(s.limits[r.limit].Burst), fmt.Sprintf(
				"a larger one, or no such cost: %s costs %d, and class %v never has more than %d of it at once",
				s.endpointText(uint32(e.id)), e.cost, poorest, room))
			return
		}
	}
}

// wantShares is what classes are for.
const wantShares = `a rule whose budget classes share, such as priority "high:30,normal:20,low:10"; without one, ` +
	"only places to wait go by class"

// notePriority reports what surprises about what a rule says of classes.
func (c *advice) notePriority(i int, r *Rule) {
	terms, err := r.Priority.Terms()
	if terms == nil || err != nil {
		return
	}
	if terms.Class != Unclassed && !c.sharesBudgets() && !c.full("priority_unused") {
		c.rule(Note, i, "priority_unused", "priority", text(string(r.Priority)), wantShares)
	}
	if terms.Class != Unclassed && r.Mode == Shadow && !c.full("priority_in_shadow") {
		c.rule(Note, i, "priority_in_shadow", "priority", text(string(r.Priority)),
			"mode enforce: a rule in shadow changes nobody's answer, so it says nothing of the class either")
	}
	if terms.Shares == nil {
		return
	}
	for _, s := range terms.Shares {
		if s.Class != Normal && !c.set.classed[s.Class] && !c.full("class_without_rule") {
			c.rule(Note, i, "class_without_rule", "priority", text(string(r.Priority)),
				fmt.Sprintf("a rule, a tier or an endpoint with priority %v: no request is of this class, and the "+
					"%d %% of the burst that it is guaranteed lie idle", s.Class, s.Percent))
		}
	}
}

// sharesBudgets reports whether classes share the budget of some rule.
func (c *advice) sharesBudgets() bool {
	return slices.ContainsFunc(c.set.priorityTerms, func(t *PriorityTerms) bool { return t != nil && t.Shares != nil })
}
