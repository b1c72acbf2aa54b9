package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/lint"
)

// Lint has the gateway look at a policy document in JSON, among its endpoints and
// costs. What it finds is said of source; codes in ignore are accepted.
func (c *Client) Lint(ctx context.Context, text []byte, source string, ignore []string) (lint.Result, error) {
	return c.lint(ctx, question{method: http.MethodPost, path: "/v1/policies/lint", text: text, looks: true},
		source, ignore)
}

// LintDatabase has the gateway look at the rules of its database.
func (c *Client) LintDatabase(ctx context.Context, ignore []string) (lint.Result, error) {
	r, err := c.lint(ctx, question{method: http.MethodGet, path: "/v1/policies/lint"}, c.base.String(), ignore)
	for i := range r.Problems {
		if !r.Read { // then where they are has the name of the database
			r.Problems[i].Source = ""
		}
	}
	return r, err
}

func (c *Client) lint(ctx context.Context, q question, source string, ignore []string) (lint.Result, error) {
	if len(ignore) > 0 {
		q.query = url.Values{"ignore": ignore}
	}
	report := found{source: source}
	if _, err := c.ask(ctx, q, &report); err != nil {
		return lint.Result{}, err
	}
	r := report.result
	slices.SortStableFunc(r.Problems, func(a, b policy.Problem) int { return cmp.Compare(a.Line, b.Line) })
	return r, nil
}

// found reads a lint.Report, a finding after the other: of a million rules there
// may be as many, and their text takes more room than they do.
type found struct {
	source string
	named  string // what the gateway calls it; settings have another name
	result lint.Result
	last   policy.Problem // of most findings a part is that of the one before
}

func (f *found) read(d *json.Decoder) error {
	f.result = lint.Result{Source: f.source} // nothing of an answer that broke off
	if err := begins(d, '{'); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		switch name {
		case "documents":
			err = f.documents(d)
		case "findings", "accepted":
			err = f.findings(d)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func (f *found) documents(d *json.Decoder) error {
	var documents []lint.ReportDocument
	if err := d.Decode(&documents); err != nil {
		return err
	}
	r := &f.result
	for _, d := range documents { // there is one
		f.named = d.Source
		r.Read, r.Rules, r.Endpoints, r.Fallback, r.Broken = d.Read, d.Rules, d.Endpoints, d.Fallback, d.Broken
	}
	return nil
}

func (f *found) findings(d *json.Decoder) error {
	if err := begins(d, '['); err != nil {
		return err
	}
	for d.More() {
		var one lint.Finding
		if err := d.Decode(&one); err != nil {
			return err
		}
		p := policy.Problem{
			Severity: one.Severity, Code: one.Code, Rule: -1, Source: f.source, Line: one.Line, Where: one.Where,
			Field: one.Field, Value: one.Value, Want: one.Want, Accepted: one.Reason,
		}
		if one.Source != "" && one.Source != f.named {
			p.Source = one.Source
		}
		for _, same := range []struct{ text, before *string }{
			{&p.Code, &f.last.Code}, {&p.Where, &f.last.Where}, {&p.Field, &f.last.Field}, {&p.Value, &f.last.Value},
			{&p.Want, &f.last.Want}, {&p.Accepted, &f.last.Accepted},
		} {
			if *same.text == *same.before {
				*same.text = *same.before
			}
		}
		f.last = p
		f.result.Problems = append(f.result.Problems, p)
	}
	_, err := d.Token()
	return err
}

// begins reads the first sign of an object or a list.
func begins(d *json.Decoder, sign json.Delim) error {
	if got, err := d.Token(); err != nil || got != sign {
		return fmt.Errorf("%v where %v should be: %w", got, sign, cmp.Or(err, errNoReport))
	}
	return nil
}

var errNoReport = errors.New("no report of lint")
