package policy

import (
	"fmt"
	"strings"
)

// findings are what is wrong with a document, and what it accepts of that.
type findings struct {
	doc      Document // without its rules
	problems problems

	// The rules at hand: all that were read, or the last of them while they are read. Whoever looked at one has it in
	// looked, found or not.
	rules  []Rule
	first  int // the index in the document of the first of them
	count  int // how many were read
	looked bool

	broken  map[int]bool // by index in Document.Rules: it could not be read
	ignored []bool       // by Document.Ignore: it accepted something
}

// written is a rule by its index in the document; one that is not at hand is empty.
func (f *findings) written(i int) *Rule {
	f.looked = true
	if i -= f.first; i < 0 || i >= len(f.rules) {
		return &Rule{}
	}
	return &f.rules[i]
}

// all are the rules of the document; none if they are not at hand.
func (f *findings) all() []Rule {
	f.looked = true
	if len(f.rules) < f.count {
		return nil
	}
	return f.rules
}

// rule reports a problem with one rule of the document.
func (f *findings) rule(severity Severity, i int, code, field, value, want string) {
	p := Problem{Severity: severity, Code: code, Rule: i, Field: field, Value: value, Want: want}
	if !f.problems.full(code) {
		p.Where = fmt.Sprintf("rules[%d] (%s)", i, describe(f.written(i)))
	}
	f.found(p, f.written(i).Endpoint)
}

// found reports a problem of the document, about an endpoint if it is about one.
func (f *findings) found(p Problem, endpoint string) {
	if p.Source == "" {
		p.Source = f.doc.Source
	}
	p.Accepted = f.accepted(&p, endpoint)
	f.problems.add(p)
}

// accepted reports why the document accepts a problem, or "".
func (f *findings) accepted(p *Problem, endpoint string) string {
	if p.Severity == Error {
		return ""
	}
	var project, tier string
	if p.Rule >= 0 {
		project, tier = f.written(p.Rule).Project, f.written(p.Rule).Tier
	}
	matches := func(want, is string) bool { return want == "" || want == is }
	reason := ""
	for i, a := range f.doc.Ignore {
		if a.Code == p.Code && matches(a.Endpoint, endpoint) && matches(a.Project, project) && matches(a.Tier, tier) {
			f.ignored[i] = true
			if reason == "" {
				reason = strings.TrimSpace(a.Reason)
			}
		}
	}
	return reason
}

// options reports a problem with the options.
func (f *findings) options(field, value, want string) {
	f.problems.add(Problem{Code: field, Rule: -1, Field: field, Value: value, Want: want})
}

// full counts a finding that would not be shown, so that a million of them are
// not put into words.
func (f *findings) full(code string) bool {
	if f.problems.full(code) && len(f.doc.Ignore) == 0 {
		f.problems.counts[code]++
		return true
	}
	return false
}

// duplicateOf is duplicate of a rule that was found.
func (f *findings) duplicateOf(i int, r *Rule, first int) {
	value, want := "the second for its endpoint, project, tier and subject",
		fmt.Sprintf("one of this and rules[%d]", first)
	if r.Subject.Named() {
		value = fmt.Sprintf("the second by a %v for its endpoint, project and tier", r.Subject)
	}
	if !r.Expires.IsZero() {
		value = "the second that expires for its endpoint, project, tier and subject"
		want += "; beside a lasting rule there is room for one that expires"
	}
	f.rule(Error, i, "duplicate", "rule", value, want)
}

func (f *findings) tooManyNames(i int, field string) {
	f.rule(Error, i, "too_many_names", field, "beyond the 4 GiB that all names may take", "fewer or shorter names")
}

// checkIgnore reports what is wrong with the findings that a document accepts.
func (f *findings) checkIgnore() {
	f.ignored = make([]bool, len(f.doc.Ignore))
	if f.problems.counts["ignore"] > 0 {
		return // an entry could not be read, which was told
	}
	for i, a := range f.doc.Ignore {
		wrong := func(field, value, want string) {
			f.found(Problem{
				Code:  "ignore",
				Rule:  -1,
				Where: fmt.Sprintf("ignore[%d]", i),
				Field: field,
				Value: value,
				Want:  want,
			}, "")
		}
		check, err := FindCheck(a.Code)
		switch {
		case err != nil:
			wrong("code", text(a.Code), err.(Problem).Want)
		case check.Severity == Error:
			wrong("code", text(a.Code), "the code of a warning or a note, because a document with errors is not loaded")
		}
		if strings.TrimSpace(a.Reason) == "" {
			wrong("reason", "missing", "why the finding is accepted")
		}
	}
}

// checkUnused reports what a document accepts and nothing finds: the reason
// has gone, and the next such mistake would be hidden.
func (f *findings) checkUnused() {
	for i, a := range f.doc.Ignore {
		if !f.ignored[i] && a.Code != "unused_ignore" {
			f.found(Problem{Severity: Note, Code: "unused_ignore", Rule: -1, Where: fmt.Sprintf("ignore[%d]", i),
				Field: "code", Value: text(a.Code), Want: "a finding that there is, or no such entry"}, a.Endpoint)
		}
	}
}
