package policy

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Severity tells a problem that stops a document from one that does not.
type Severity uint8

// The severities.
const (
	Error   Severity = iota // the document does not compile
	Warning                 // it compiles, and probably does not do what was meant
	Note                    // it does what it says, and somebody should know what that is
)

// String reports "error", "warning" or "note".
func (s Severity) String() string {
	switch s {
	case Warning:
		return "warning"
	case Note:
		return "note"
	}
	return "error"
}

// MarshalText writes what String reports.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes and refuses everything else.
func (s *Severity) UnmarshalText(text []byte) error {
	return unmarshalEnum((*uint8)(s), text, "severity", []string{"error", "warning", "note"})
}

// Problem is one finding about a document: where it is, which field has which
// value, and what it should be.
type Problem struct {
	Severity Severity
	Code     string // names the kind of problem, for programs; stable
	Rule     int    // index into Document.Rules, or -1
	Source   string // the document, if it has a name
	Line     int    // in the document, from 1; 0 where there are no lines, or nobody has looked
	Where    string // for people: the place in the document
	Field    string
	Value    string // as it would be written, text in quotes
	Want     string

	// Accepted is the reason that the document gives for living with this
	// finding; empty if it does not.
	Accepted string
}

// Error reports the problem on one line: where: field is value, want what.
func (p Problem) Error() string {
	text := p.Field + " is " + p.Value + ", want " + p.Want
	if p.Where != "" {
		text = p.Where + ": " + text
	}
	switch {
	case p.Source == "" && p.Line > 0:
		return "line " + strconv.Itoa(p.Line) + ": " + text
	case p.Line > 0:
		return p.Source + ":" + strconv.Itoa(p.Line) + ": " + text
	case p.Source != "":
		return p.Source + ": " + text
	}
	return text
}

// Problems is everything found in one document, in the order of its rules.
type Problems []Problem

// Errors reports the problems that stop the document.
func (ps Problems) Errors() Problems { return ps.of(Error) }

// Warnings reports the doubts that the document does not accept.
func (ps Problems) Warnings() Problems { return ps.of(Warning) }

// Notes reports what is worth knowing and not accepted.
func (ps Problems) Notes() Problems { return ps.of(Note) }

// Accepted reports what the document accepts, with a reason.
func (ps Problems) Accepted() Problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p Problem) bool { return p.Accepted == "" })
}

// unaccepted leaves out what the document accepts.
func (ps Problems) unaccepted() Problems {
	return slices.DeleteFunc(ps, func(p Problem) bool { return p.Accepted != "" })
}

func (ps Problems) of(s Severity) Problems {
	var out Problems
	for _, p := range ps {
		if p.Severity == s && p.Accepted == "" {
			out = append(out, p)
		}
	}
	return out
}

// Err reports the errors as one error that unwraps to each Problem, or nil when
// there are only warnings.
func (ps Problems) Err() error {
	var errs []error
	for _, p := range ps.Errors() {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// String reports the problems, one a line, each after its severity.
func (ps Problems) String() string {
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Severity.String())
		b.WriteString(": ")
		b.WriteString(p.Error())
	}
	return b.String()
}

// perCode is how many problems of one kind a document may report. A mistake in
// a generated table of a million rows is understood long before that.
const perCode = 100

// problems collects findings, at most perCode of each kind.
type problems struct {
	list   Problems
	counts map[string]int
}

func (c *problems) add(p Problem) {
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	kind := p.Code
	if p.Accepted != "" {
		kind += ", accepted" // they take no room from those that are not
	}
	c.counts[kind]++
	if c.counts[kind] <= perCode {
		c.list = append(c.list, p)
	}
}

// full reports whether another problem of this kind would not be shown.
func (c *problems) full(code string) bool { return c.counts[code] > perCode }

// done closes the list with the number of problems that were left out.
func (c *problems) done() Problems {
	for _, p := range c.list[:len(c.list):len(c.list)] {
		more := c.counts[p.Code] - perCode
		if more <= 0 || p.Accepted != "" {
			continue
		}
		delete(c.counts, p.Code) // once a kind
		c.list = append(c.list, Problem{
			Severity: p.Severity, Code: p.Code, Rule: -1, Source: p.Source, Where: "rules", Field: p.Code,
			Value: "wrong " + strconv.Itoa(more) + " times more",
			Want:  "the problems above mended first",
		})
	}
	return c.list
}
