// Package convert makes rules of the configurations of other limiters, and says in words what differs then and
// what could not be carried over.
//
//	nginx.conf ──▶ limits as they are written ──▶ endpoints, rules ──▶ a policy file and a list of routes
//	                                          └─▶ notes, each with its line
package convert

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// Severity says what a Note means for somebody who comes over.
type Severity int

const (
	Differs Severity = iota // it is carried over, and does not do quite the same
	Lost                    // it is not carried over
)

// String is "differs" or "not carried over".
func (s Severity) String() string {
	if s == Lost {
		return "not carried over"
	}
	return "differs"
}

// Note is something to know about one line.
type Note struct {
	File     string
	Line     int // 0 for the file
	Severity Severity
	Text     string
}

// String is "nginx.conf:12: differs: …".
func (n Note) String() string {
	where := n.File
	if n.Line > 0 {
		where += ":" + strconv.Itoa(n.Line)
	}
	return where + ": " + n.Severity.String() + ": " + n.Text
}

// Rule is one rule and what it was made of.
type Rule struct {
	policy.Rule
	Of string // "nginx.conf:12 limit_req zone=one"
}

// Result is what became of configurations.
type Result struct {
	Limits int // that were found
	Rules  []Rule
	Routes []string // endpoints that the rules are for, as lines of a list
	Notes  []Note
}

// File is a configuration.
type File struct {
	Name string
	Text []byte
}

// Options are what is known besides.
type Options struct {
	// Endpoints are those that the API has. Limits for a part of the paths are for those that lie there. Without
	// any, they are made of the paths.
	Endpoints []endpoint.Template
}

// formats are the formats by name, and what reads them.
var formats = map[string]func(*conversion, []File) error{
	"nginx": nginx, "ingress-nginx": ingress, "kong": kong, "traefik": traefik, "haproxy": haproxy,
}

// Formats are the names of the formats.
func Formats() []string { return slices.Sorted(maps.Keys(formats)) }

// Convert converts files of one format, which are read as one configuration. The error says what keeps them from
// being read, with file and line.
func Convert(format string, files []File, o Options) (Result, error) {
	read, ok := formats[format]
	if !ok {
		return Result{}, fmt.Errorf("format is %q, want one of %s", format, strings.Join(Formats(), ", "))
	}
	files = slices.Clone(files)
	for i := range files { // editors begin files with a mark of UTF-8, which would be a part of the first word
		files[i].Text = bytes.TrimPrefix(files[i].Text, []byte("\uFEFF"))
	}
	c := &conversion{options: o, rules: map[ruleKey]int{}}
	if err := read(c, files); err != nil {
		return Result{}, err
	}
	return c.done(), nil
}

// conversion is a Result in the making.
type conversion struct {
	Result
	options Options
	file    string // that is being read
	rules   map[ruleKey]int
}

type ruleKey struct{ endpoint, project, tier, subject string }

func (c *conversion) note(s Severity, line int, format string, args ...any) {
	n := Note{c.file, line, s, fmt.Sprintf(format, args...)}
	if !slices.Contains(c.Notes, n) {
		c.Notes = append(c.Notes, n)
	}
}

func (c *conversion) differs(line int, format string, args ...any) {
	c.note(Differs, line, format, args...)
}
func (c *conversion) lost(line int, format string, args ...any) { c.note(Lost, line, format, args...) }

// add adds a rule. Of two for the same thing the stricter one stays: rules of one endpoint and subject are one.
func (c *conversion) add(line int, of string, r policy.Rule) {
	if c.file != "" {
		of = c.file + ":" + strconv.Itoa(line) + " " + of
	}
	if len(r.Name) > policy.MaxName {
		r.Name = r.Name[:policy.MaxName]
	}
	r.Name = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, r.Name)
	key := ruleKey{r.Endpoint, r.Project, r.Tier, r.SubjectText()}
	at, twice := c.rules[key]
	if !twice {
		c.rules[key] = len(c.Rules)
		c.Rules = append(c.Rules, Rule{r, of})
		return
	}
	other := &c.Rules[at]
	if other.Limit == r.Limit && other.Per == r.Per && other.Burst == r.Burst && other.Mode == r.Mode &&
		other.CountWhen == r.CountWhen {
		return
	}
	kept, left := other.Rule, r
	if stricter(r, other.Rule) {
		kept, left = r, other.Rule
		*other = Rule{r, of}
	}
	if r.Endpoint == policy.UnknownEndpoint {
		return // as for all others
	}
	c.lost(line, "two limits for %s by %s: %s stays, %s goes; one endpoint has one limit for a subject", r.Endpoint,
		r.SubjectText(), rateOf(kept), rateOf(left))
}

func rateOf(r policy.Rule) string {
	text := r.Rate()
	if r.Burst > 0 {
		text += fmt.Sprintf(" burst %d", r.Burst)
	}
	if r.CountWhen != "" {
		text += " of " + string(r.CountWhen)
	}
	return text
}

// stricter reports whether a gives less in the long run than b, or at once if that is the same. One that counts every
// request is stricter than one that counts only some answers.
func stricter(a, b policy.Rule) bool {
	if (a.CountWhen == "") != (b.CountWhen == "") {
		return a.CountWhen == ""
	}
	x, y := float64(a.Limit)/float64(max(a.Per, 1)), float64(b.Limit)/float64(max(b.Per, 1)) // none: so many at once
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.Burst, b.Burst)) < 0
}

// inFlight makes a rule one for how many requests of a subject are under way at once.
func inFlight(subject policy.Subject, r policy.Rule) policy.Rule {
	r.Subject, r.Algorithm = subject.Counting(policy.CountsUnderWay), policy.Concurrency
	return r
}

// methods are those that a path without a method stands for. HEAD counts as GET.
var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

// path is a part of the paths of a server.
type path struct {
	text  string // "/api/"
	exact bool   // this one alone; else all that begin so
}

// endpoints are those that lie under a path: of the options, or else made of the path. It reports whether the path
// can be said in templates.
func (c *conversion) endpoints(p path, only []string) (texts []string, ok bool) {
	if len(only) == 0 {
		only = methods
	}
	if len(c.options.Endpoints) > 0 {
		for _, t := range c.options.Endpoints {
			if slices.Contains(only, t.Method()) && p.holds(t) {
				texts = append(texts, t.String())
			}
		}
		return texts, true
	}
	made := []string{p.text}
	if !p.exact {
		made = []string{strings.TrimSuffix(p.text, "/"), strings.TrimSuffix(p.text, "/") + "/{rest...}"}
		if made[0] == "" {
			made[0] = "/"
		}
	}
	for _, path := range made {
		for _, method := range only {
			t, err := endpoint.ParseTemplate(method + " " + path)
			if err != nil {
				return nil, false
			}
			texts = append(texts, t.String())
			if !slices.Contains(c.Routes, t.String()) {
				c.Routes = append(c.Routes, t.String())
			}
		}
	}
	return texts, true
}

// manyBuckets says that a limit has become one for each endpoint.
func (c *conversion) manyBuckets(line int, of string, endpoints int, under, there string) {
	advice := ""
	if len(c.options.Endpoints) == 0 {
		advice = "; with the endpoints of your API (--openapi, --routes) there is one for each of those"
	}
	c.differs(line, "%s: a bucket for each of %d endpoints under %s, where %s has one for all%s", of, endpoints, under,
		there, advice)
}

// holds reports whether the requests of a template lie under the path.
func (p path) holds(t endpoint.Template) bool {
	literal, _, parameters := strings.Cut(t.Path(), "{")
	if p.exact {
		return !parameters && literal == p.text
	}
	return strings.HasPrefix(literal, p.text) || !parameters && literal+"/" == p.text
}

// everywhere adds a rule for all requests together, known or not.
func (c *conversion) everywhere(line int, of string, r policy.Rule) { c.both(policy.All, line, of, r) }

// elsewhere adds a rule for what has no limit of its own.
func (c *conversion) elsewhere(line int, of string, r policy.Rule, there string) {
	c.differs(line, "%s: what has a limit of its own does not have this one. Here it is one for each other "+
		"endpoint, with %s one for all of them", of, there)
	c.both(policy.Default, line, of, r)
}

func (c *conversion) both(at string, line int, of string, r policy.Rule) {
	r.Endpoint = at
	c.add(line, of, r)
	r.Endpoint = policy.UnknownEndpoint
	c.add(line, of, r)
}

// exempt adds a rule that lets a network pass, if it is one.
func (c *conversion) exempt(line int, of, network string) (ok bool) {
	r := policy.Rule{Endpoint: policy.All, Mode: policy.Allow}
	if err := r.SetSubject("ip:" + network); err != nil {
		c.lost(line, "%s: %q is no address or network", of, network)
		return false
	}
	c.add(line, of, r)
	return true
}

func (c *conversion) done() Result {
	slices.SortStableFunc(c.Notes, func(a, b Note) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return c.Result
}

// Policy is the rules as a document.
func (r *Result) Policy() policy.Document {
	var d policy.Document
	for _, rule := range r.Rules {
		d.Rules = append(d.Rules, rule.Rule)
	}
	return d
}

// YAML is a policy file, with what each rule was made of behind it.
func (r *Result) YAML() string {
	var b strings.Builder
	b.WriteString("rules:\n")
	if len(r.Rules) == 0 {
		return "rules: []\n"
	}
	for _, rule := range r.Rules {
		b.WriteString("  - {" + strings.Join(fieldsOf(rule.Rule), ", ") + "}")
		if rule.Of != "" {
			b.WriteString(" # " + rule.Of)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func fieldsOf(r policy.Rule) []string {
	fields := []string{"endpoint: " + strconv.Quote(r.Endpoint)}
	text := func(name, value string) {
		if value != "" {
			fields = append(fields, name+": "+strconv.Quote(value))
		}
	}
	number := func(name string, n int64) {
		if n != 0 {
			fields = append(fields, name+": "+strconv.FormatInt(n, 10))
		}
	}
	text("project", r.Project)
	text("tier", r.Tier)
	if r.SubjectText() != policy.SubjectPrincipal.String() {
		text("subject", r.SubjectText())
	}
	if r.Mode != policy.Enforce {
		fields = append(fields, "mode: "+r.Mode.String())
	}
	number("limit", r.Limit)
	if r.Per > time.Second {
		fields = append(fields, "per: "+strconv.FormatInt(int64(r.Per/time.Second), 10)+"s")
	}
	number("burst", r.Burst)
	if r.Algorithm != policy.TokenBucket && r.Algorithm != policy.Concurrency { // of which the subject tells
		fields = append(fields, "algorithm: "+r.Algorithm.String())
	}
	if r.Scope != policy.Local {
		fields = append(fields, "scope: "+r.Scope.String())
	}
	text("count_when", string(r.CountWhen))
	text("penalty", string(r.Penalty))
	text("refusal", string(r.Refusal))
	text("priority", string(r.Priority))
	text("name", r.Name)
	return fields
}
