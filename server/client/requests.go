package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

// Requests reports requests for a higher limit, newest first.
func (c *Client) Requests(ctx context.Context, q record.RequestQuery) (list []record.LimitRequest, err error) {
	query := url.Values{}
	for name, value := range map[string]string{"state": string(q.State), "project": q.Project, "cursor": q.Before} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for len(list) < q.Most {
		query.Set("limit", strconv.Itoa(min(q.Most-len(list), pageSize)))
		var page admin.LimitRequests
		if _, err := c.ask(ctx, question{method: http.MethodGet, path: "/v1/requests", query: query},
			&page); err != nil {
			return nil, err
		}
		for i := range page.Requests {
			r, err := page.Requests[i].Stored()
			if err != nil {
				return nil, err
			}
			list = append(list, r)
		}
		if page.Next == "" {
			break
		}
		query.Set("cursor", page.Next)
	}
	return list, nil
}

// Request reports one request, or record.ErrNotFound.
func (c *Client) Request(ctx context.Context, id string) (record.LimitRequest, error) {
	return c.oneRequest(ctx, question{method: http.MethodGet, path: requestPath(id)})
}

// Decline closes an open request with a note to those who filed it. Who declines
// it the gateway knows by the token; it is told who they say they are.
func (c *Client) Decline(ctx context.Context, id, actor, claimed, note string) (record.LimitRequest, error) {
	body := admin.RequestDecline{Note: note, By: claim(record.Author{Actor: actor, Claimed: claimed})}
	return c.oneRequest(ctx, question{method: http.MethodPost, path: requestPath(id) + "/decline", body: body})
}

// Approve makes a temporary rule of a request, among the endpoints of the
// gateway, and reports what lint has to say of it.
func (c *Client) Approve(ctx context.Context, id string, a rules.Approval) (record.LimitRequest, []string, error) {
	body := admin.RequestApproval{
		Limit: a.Limit, Per: file.Seconds(a.Per), Burst: a.Burst, Until: a.Until, Note: a.Note,
		By: claim(record.Author{Actor: a.Actor, Claimed: a.Claimed}),
	}
	if a.For > 0 {
		body.For = a.For.Round(time.Second).String()
	}
	var approved admin.Approved
	if _, err := c.ask(ctx, question{method: http.MethodPost, path: requestPath(id) + "/approve", body: body},
		&approved); err != nil {
		return record.LimitRequest{}, nil, err
	}
	r, err := approved.Request.Stored()
	return r, approved.Findings, err
}

func (c *Client) oneRequest(ctx context.Context, q question) (record.LimitRequest, error) {
	var found admin.LimitRequest
	if _, err := c.ask(ctx, q, &found); err != nil {
		return record.LimitRequest{}, err
	}
	return found.Stored()
}

func requestPath(id string) string { return "/v1/requests/" + url.PathEscape(id) }
