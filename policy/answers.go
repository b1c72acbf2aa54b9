package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Statuses are statuses of answers over HTTP, 200 to 599.
type Statuses struct{ has [600]bool }

// ParseStatuses reads statuses: "401", and "4xx" for all from 400 to 499. The error names those that are none.
func ParseStatuses(texts ...string) (*Statuses, error) {
	var s Statuses
	var wrong []string
	for _, text := range texts {
		class, isClass := strings.CutSuffix(text, "xx")
		n, err := strconv.Atoi(class)
		switch {
		case err != nil, strconv.Itoa(n) != class:
			wrong = append(wrong, strconv.Quote(text))
		case isClass && 2 <= n && n <= 5:
			for status := n * 100; status < n*100+100; status++ {
				s.has[status] = true
			}
		case !isClass && 200 <= n && n <= 599:
			s.has[n] = true
		default:
			wrong = append(wrong, strconv.Quote(text))
		}
	}
	switch {
	case len(wrong) > 0:
		return nil, fmt.Errorf("a status is %s, want one from 200 to 599, or 2xx, 3xx, 4xx or 5xx",
			strings.Join(wrong, " and "))
	case len(texts) == 0:
		return nil, fmt.Errorf("there is no status, want at least one, such as 401 or 4xx")
	}
	return &s, nil
}

// Has reports whether a status is among them.
func (s *Statuses) Has(status int) bool { return 0 <= status && status < len(s.has) && s.has[status] }

// Answers says which answers of the API a rule counts: "401,403", "4xx", in ascending order. Empty is all.
type Answers string

// maxAnswers is the longest Answers in bytes.
const maxAnswers = 255

const wantAnswers = "statuses from 200 to 599, or 2xx, 3xx, 4xx or 5xx, such as 401,403 or 4xx; or none for all answers"

// Statuses are the statuses that it names, nil if it is empty.
func (a Answers) Statuses() (*Statuses, error) {
	if a == "" {
		return nil, nil
	}
	return ParseStatuses(strings.Split(string(a), ",")...)
}

// MarshalText writes what stands in a rule.
func (a Answers) MarshalText() ([]byte, error) { return []byte(a), nil }

// UnmarshalText reads statuses with commas or spaces between them, in any order; all of no text.
func (a *Answers) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*a = ""
		return nil
	}
	fields := strings.FieldsFunc(string(text), func(c rune) bool { return c == ',' || c == ' ' })
	slices.Sort(fields)
	fields = slices.Compact(fields)
	written := strings.Join(fields, ",")
	if _, err := ParseStatuses(fields...); err != nil || len(written) > maxAnswers {
		return Problem{
			Code:  "count_when",
			Rule:  -1,
			Field: "count_when",
			Value: fmt.Sprintf("%q", quoted(string(text))),
			Want:  wantAnswers,
		}
	}
	*a = Answers(written)
	return nil
}

// answers numbers an Answers, which must be right.
func (n *numbering) answers(a Answers) uint32 {
	if a == "" {
		return 0
	}
	number, ok := n.answerNumbers[a]
	if !ok {
		number = uint32(len(n.set.answers))
		statuses, _ := a.Statuses()
		n.set.answers, n.set.statuses = append(n.set.answers, a), append(n.set.statuses, statuses)
		n.answerNumbers[a] = number
	}
	return number
}

// CountsAnswers reports whether a rule counts only some answers.
func (s *Set) CountsAnswers() bool { return len(s.answers) > 1 }

// CountWhen are the answers that a rule counts, nil if it counts every request.
func (s *Set) CountWhen(id RuleID) *Statuses { return s.statuses[s.extras[s.rows[id].extra].answers] }

// checkCounted reports a rule that counts only some answers and has nothing beside it that
// counts every request: whoever stays away from those answers asks as often as it likes.
func (c *review) checkCounted(i int, id RuleID) {
	s := c.set
	r := &s.rows[id]
	if s.extras[r.extra].answers == 0 || r.mode != Enforce || !s.live(r, c.wall) || len(c.broken) > 0 ||
		c.countsEvery(r) {
		return
	}
	c.rule(Warning, i, "some_answers", "count_when", text(string(c.written(i).CountWhen)),
		`beside it a rule that counts every request, such as one for "*"; else whoever gets other answers may ask as often as it likes`)
}

// countsEvery reports whether a rule that counts every request holds wherever r does.
func (c *review) countsEvery(r *row) bool {
	s := c.set
	for _, n := range []uint32{r.endpoint, rowDefault, rowAll} {
		if n == rowDefault && (r.endpoint == rowAll || r.endpoint == rowUnknown) ||
			n == rowAll && r.endpoint == rowUnknown {
			continue
		}
		for _, w := range []who{r.who, 0} {
			for subject := range Subject(dimensions) {
				if _, what := subject.Counts(); what == CountsUnderWay {
					continue
				}
				guard, ok := s.of(s.group(n, w), subject)
				// it is r, or r stands in its place
				if !ok || subject == r.subject && (n == rowAll) == (r.endpoint == rowAll) {
					continue
				}
				if g := &s.rows[guard]; g.mode == Enforce && s.live(g, c.wall) && s.extras[g.extra].answers == 0 {
					return true
				}
			}
		}
	}
	return false
}
