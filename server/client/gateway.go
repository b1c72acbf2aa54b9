package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/rules"
)

// Explain reports what the gateway would answer a request, and why.
func (c *Client) Explain(ctx context.Context, request admin.ExplainRequest) (x inspect.Explanation, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/explain", body: request, looks: true}, &x)
	return x, err
}

// Inspect reports buckets of the gateway.
func (c *Client) Inspect(ctx context.Context, which admin.BucketRequest) (in inspect.Found, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/buckets/inspect", body: which, looks: true}, &in)
	return in, err
}

// ResetBucket makes a bucket of the gateway full, once: without an answer it is
// asked for again under the same name.
func (c *Client) ResetBucket(ctx context.Context, which admin.BucketRequest) (done admin.BucketChange, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/buckets/reset", body: which, once: rand.Text()},
		&done)
	return done, err
}

// GrantBucket gives a bucket of the gateway tokens, once as ResetBucket does.
func (c *Client) GrantBucket(ctx context.Context, which admin.BucketRequest) (done admin.BucketChange, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/buckets/grant", body: which, once: rand.Text()},
		&done)
	return done, err
}

// Reload has the gateway read its configuration, its documents and the database.
func (c *Client) Reload(ctx context.Context) (done admin.Reloaded, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/reload"}, &done)
	return done, err
}

// Ready reports what the gateway warns of. Its error says why it is not to be sent requests, if it is not.
func (c *Client) Ready(ctx context.Context) (warnings []string, err error) {
	var page []byte
	if _, err := c.once(ctx, question{method: http.MethodGet, path: "/readyz"}, &page); err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(page)) {
		if warning, ok := strings.CutPrefix(line, "warning: "); ok {
			warnings = append(warnings, strings.TrimSuffix(warning, "\n"))
		}
	}
	return warnings, nil
}

// Activity reports what the gateway decided of late, with the names of callers if reveal.
func (c *Client) Activity(ctx context.Context, most int, reveal bool) (now admin.Activity, err error) {
	_, err = c.ask(ctx, question{
		method: http.MethodGet,
		path:   "/v1/activity",
		query:  listing(most, reveal),
		looks:  true,
	}, &now)
	return now, err
}

// Anomalies reports the callers with the highest scores, with their names if reveal.
func (c *Client) Anomalies(ctx context.Context, most int, reveal bool) (now admin.Anomalies, err error) {
	_, err = c.ask(ctx, question{
		method: http.MethodGet,
		path:   "/v1/anomalies",
		query:  listing(most, reveal),
		looks:  true,
	}, &now)
	return now, err
}

// listing asks for so many callers at most, with their names if reveal.
func listing(most int, reveal bool) url.Values {
	query := url.Values{"limit": {strconv.Itoa(most)}}
	if reveal {
		query.Set("reveal", "true")
	}
	return query
}

// Usage reports what each caller did on each day from one to another, all that is remembered where they are empty; with
// the names of callers if reveal.
func (c *Client) Usage(ctx context.Context, from, to string, reveal bool) (told admin.Usage, err error) {
	query := url.Values{}
	for name, value := range map[string]string{"from": from, "to": to} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if reveal {
		query.Set("reveal", "true")
	}
	_, err = c.ask(ctx, question{method: http.MethodGet, path: "/v1/usage", query: query, looks: true}, &told)
	return told, err
}

// Series reports the last hour of the rules with these titles together, of all rules without a title.
func (c *Client) Series(ctx context.Context, titles ...string) (s activity.Series, err error) {
	_, err = c.ask(ctx, question{
		method: http.MethodGet,
		path:   "/v1/activity/series",
		query:  url.Values{"rule": titles},
		looks:  true,
	}, &s)
	return s, err
}

// Try has the gateway decide the requests of the last hour by each of some rules in its place.
func (c *Client) Try(ctx context.Context, tried []policy.Rule, reveal bool) (t admin.Tried, err error) {
	list, err := json.Marshal(rules.Entries(tried))
	if err != nil {
		return t, err
	}
	_, err = c.ask(ctx, question{
		method: http.MethodPost,
		path:   "/v1/try",
		body:   admin.Try{Rules: list, Reveal: reveal},
		looks:  true,
	}, &t)
	return t, err
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
