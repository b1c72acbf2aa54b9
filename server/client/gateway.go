package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"

	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/fleet"
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
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/buckets/reset", body: which, once: rand.Text()}, &done)
	return done, err
}

// GrantBucket gives a bucket of the gateway tokens, once as ResetBucket does.
func (c *Client) GrantBucket(ctx context.Context, which admin.BucketRequest) (done admin.BucketChange, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/buckets/grant", body: which, once: rand.Text()}, &done)
	return done, err
}

// Reload has the gateway read its configuration, its documents and the database.
func (c *Client) Reload(ctx context.Context) (done admin.Reloaded, err error) {
	_, err = c.ask(ctx, question{method: http.MethodPost, path: "/v1/reload"}, &done)
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
