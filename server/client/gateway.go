package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/lint"
)

// Explain reports what the gateway would answer a request, and why.
func (c *Client) Explain(ctx context.Context, request admin.ExplainRequest) (x headgate.Explanation, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/explain", body: request, looks: true}, &x)
	return x, err
}

// Inspect reports buckets of the gateway.
func (c *Client) Inspect(ctx context.Context, which admin.BucketRequest) (in headgate.Inspection, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/buckets/inspect", body: which, looks: true}, &in)
	return in, err
}

// ResetBucket makes a bucket of the gateway full, once: without an answer it is
// asked for again under the same name.
func (c *Client) ResetBucket(ctx context.Context, which admin.BucketRequest) (done admin.BucketChange, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/buckets/reset", body: which, once: rand.Text()}, &done)
	return done, err
}

// GrantBucket gives a bucket of the gateway tokens, once as ResetBucket does.
func (c *Client) GrantBucket(ctx context.Context, which admin.BucketRequest) (done admin.BucketChange, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/buckets/grant", body: which, once: rand.Text()}, &done)
	return done, err
}

// Fleet reports the replicas that share the gateway's database.
func (c *Client) Fleet(ctx context.Context) (report fleet.Report, err error) {
	err = c.pages(ctx, "/v1/fleet", nil, func(text json.RawMessage, _ http.Header) (string, error) {
		var page admin.FleetPage
		if err := json.Unmarshal(text, &page); err != nil {
			return "", err
		}
		// Of the database what is known last, and of the replicas all.
		page.Replicas = append(report.Replicas, page.Replicas...)
		report = page.Report
		return page.Next, nil
	})
	return report, err
}

// Lint has the gateway look at a policy document in JSON, among its endpoints and
// costs. What it finds is said of source; codes in ignore are accepted.
func (c *Client) Lint(ctx context.Context, text []byte, source string, ignore []string) (lint.Result, error) {
	return c.lint(ctx, question{method: http.MethodPost, path: "/v1/policies/lint", text: text, looks: true}, source, ignore)
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
	var report lint.Report
	if _, err := c.ask(ctx, q, &report); err != nil {
		return lint.Result{}, err
	}
	r := lint.Result{Source: source}
	for _, d := range report.Documents { // there is one
		r.Read, r.Rules, r.Endpoints, r.Fallback, r.Broken = d.Read, d.Rules, d.Endpoints, d.Fallback, d.Broken
	}
	for _, f := range slices.Concat(report.Findings, report.Accepted) {
		r.Problems = append(r.Problems, policy.Problem{
			Severity: f.Severity, Code: f.Code, Rule: -1, Source: source, Line: f.Line, Where: f.Where, Field: f.Field, Value: f.Value, Want: f.Want, Accepted: f.Reason,
		})
	}
	slices.SortStableFunc(r.Problems, func(a, b policy.Problem) int { return cmp.Compare(a.Line, b.Line) })
	return r, nil
}
