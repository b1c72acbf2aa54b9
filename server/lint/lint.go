// Package lint is lint as people run it: over several documents, with what is
// found at the line where it stands, in formats for people and for machines,
// and with a text on every check.
//
// The checks themselves are package policy's, which the gateway runs whenever
// it loads rules.
package lint

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/config"
)

// Options says what documents are held against.
type Options struct {
	Compile policy.CompileOptions // without Endpoints, each document's own templates are taken for them
	Ignore  []string              // codes that are accepted everywhere
}

// Result is what was found in one document.
type Result struct {
	Source    string
	Rules     int  // how many it has
	Read      bool // it could be read: else Problems say why not
	Broken    int  // how many of its rules could not be, while the others were linted
	Endpoints int  // how many there are; 0 when that is not known
	Fallback  int  // how many of them have no rule of their own
	Problems  policy.Problems
}

// CheckIgnore reports codes in a list of those to be accepted that cannot be.
// field is where the list came from, such as --ignore.
func CheckIgnore(field string, codes []string) error {
	var faults []error
	for _, code := range codes {
		check, err := policy.FindCheck(code)
		var problem policy.Problem
		switch {
		case errors.As(err, &problem):
			problem.Field = field
			faults = append(faults, problem)
		case check.Severity == policy.Error:
			faults = append(faults,
				fmt.Errorf(
					"%s is %q, want the code of a warning or a note, because a document with errors is not loaded",
					field, code))
		}
	}
	return errors.Join(faults...)
}

// File lints a policy file, JSON or YAML. The error is about a file that is
// not there; what stands in it is in the Result.
func File(path string, o Options) (Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Result{}, err
	}
	return Text(text, path, o), nil
}

// Text lints the content of a policy file.
func Text(text []byte, source string, o Options) Result {
	source = filepath.ToSlash(source)
	read, err := config.ToJSON(text)
	if err != nil {
		return Unread(source, noYAML(source, err))
	}
	doc, whole, err := file.DecodePart(read, source)
	if err != nil && (!whole || len(doc.Rules) == 0) {
		return Unread(source, err)
	}
	r := document(doc, Unread(source, err).Problems, o)
	file.Locate(read, r.Problems)
	r.sort()
	return r
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// noYAML is the problem that a text is no YAML.
func noYAML(source string, err error) policy.Problem {
	p := policy.Problem{
		Code:   "file",
		Rule:   -1,
		Source: source,
		Line:   1,
		Where:  "document",
		Field:  "it",
		Want:   "a YAML or JSON document",
	}
	text := err.Error()
	if match := yamlLine.FindStringSubmatch(text); match != nil {
		p.Line, _ = strconv.Atoi(match[1])
		text = text[len(match[0]):]
	}
	p.Value = "no YAML (" + text + ")"
	return p
}

// Document lints rules that have been read.
func Document(doc policy.Document, o Options) Result { return document(doc, nil, o) }

// document lints rules of which found could not be read.
func document(doc policy.Document, found policy.Problems, o Options) Result {
	own := len(doc.Ignore)
	for _, code := range o.Ignore {
		doc.Ignore = append(doc.Ignore[:len(doc.Ignore):len(doc.Ignore)],
			policy.Ignore{Code: code, Reason: "--ignore " + code})
	}
	r := Result{Source: doc.Source, Rules: len(doc.Rules), Read: len(found) == 0, Broken: rulesIn(found)}
	assumed := o.Compile.Endpoints == nil
	if assumed {
		o.Compile.Endpoints = ownEndpoints(doc)
	} else {
		r.Endpoints = o.Compile.Endpoints.Len()
		r.Fallback = r.Endpoints - ruled(o.Compile.Endpoints, doc)
	}
	problems := policy.Lint
	if len(found) > 0 {
		problems = func(doc policy.Document, o policy.CompileOptions) policy.Problems {
			return policy.LintRest(doc, o, found)
		}
	}
	for _, p := range problems(doc, o.Compile) {
		if p.Code == "unused_ignore" {
			// What the command line accepts need not be there, and what is there
			// may not be seen without the endpoints.
			var at int
			if _, err := fmt.Sscanf(p.Where, "ignore[%d]", &at); assumed || err == nil && at >= own {
				continue
			}
		}
		r.Problems = append(r.Problems, p)
	}
	r.sort()
	return r
}

// rulesIn counts the rules that problems are about.
func rulesIn(problems policy.Problems) int {
	rules := map[int]bool{}
	for _, p := range problems {
		if p.Rule >= 0 {
			rules[p.Rule] = true
		}
	}
	return len(rules)
}

// ownEndpoints makes endpoints of the templates of the rules, so that rules are
// held against each other when nobody said which endpoints there are. Where
// two of them clash, that is nil, and rules for templates are checked each by
// itself.
func ownEndpoints(doc policy.Document) *endpoint.Table {
	var templates []endpoint.Template
	seen := map[string]bool{}
	for i := range doc.Rules {
		text := doc.Rules[i].Endpoint
		if seen[text] {
			continue
		}
		seen[text] = true
		t, err := endpoint.ParseTemplate(text)
		if err != nil {
			continue
		}
		templates = append(templates, t)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		return nil
	}
	return table
}

// ruled counts the endpoints that have a rule of their own.
func ruled(table *endpoint.Table, doc policy.Document) int {
	seen, has := map[string]bool{}, map[endpoint.ID]bool{}
	for i := range doc.Rules {
		text := doc.Rules[i].Endpoint
		if seen[text] {
			continue
		}
		seen[text] = true
		if t, err := endpoint.ParseTemplate(text); err == nil {
			if id, ok := table.Lookup(t); ok {
				has[id] = true
			}
		}
	}
	return len(has)
}

// Unread is the Result of a document that could not be read because of err.
func Unread(source string, err error) Result {
	r := Result{Source: source, Problems: ProblemsIn(err)}
	for i := range r.Problems {
		p := &r.Problems[i]
		if code, ok := columns[p.Code]; ok {
			p.Code = code
		}
	}
	r.sort()
	return r
}

// columns are the codes of checks for what a table calls otherwise.
var columns = map[string]string{
	"project_id": "project", "rps_limit": "limit", "per_seconds": "per", "expires_at": "expires",
	"more": "file", "empty": "file", "column": "file", "sql": "file",
}

// ProblemsIn returns the problems that err, from reading rules, is made of;
// nil when it is about something else.
func ProblemsIn(err error) (found policy.Problems) {
	if one := (policy.Problem{}); errors.As(err, &one) {
		found = policy.Problems{one}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		found = nil
		for _, e := range joined.Unwrap() {
			found = append(found, ProblemsIn(e)...)
		}
	}
	return found
}

// sort puts problems in the order of their lines.
func (r *Result) sort() {
	slices.SortStableFunc(r.Problems, func(a, b policy.Problem) int { return cmp.Compare(a.Line, b.Line) })
}

// Count is how many findings there are that are not accepted, and how many that
// are.
type Count struct {
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Notes    int `json:"notes"`
	Accepted int `json:"accepted"`
}

// Total counts the findings of several documents.
func Total(results []Result) (n Count) {
	for _, r := range results {
		n.Errors += len(r.Problems.Errors())
		n.Warnings += len(r.Problems.Warnings())
		n.Notes += len(r.Problems.Notes())
		n.Accepted += len(r.Problems.Accepted())
	}
	return n
}
