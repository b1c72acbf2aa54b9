package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
)

var _ admin.TokenStore = (*Client)(nil)

// CreateAdminToken makes an admin token and reports its text.
func (c *Client) CreateAdminToken(ctx context.Context, n record.NewAdminToken) (record.AdminToken, string, error) {
	var made admin.MadeToken
	body := admin.NewToken{Name: n.Name, Roles: n.Roles, Expires: n.Expires}
	_, err := c.ask(ctx, question{method: http.MethodPost, path: "/v1/tokens", body: body}, &made)
	return made.AdminToken(), made.Token, err
}

// ListAdminTokens reports all admin tokens, oldest first.
func (c *Client) ListAdminTokens(ctx context.Context) (list []record.AdminToken, err error) {
	err = c.pages(ctx, "/v1/tokens", nil, func(text json.RawMessage, _ http.Header) (string, error) {
		var page admin.Tokens
		if err := json.Unmarshal(text, &page); err != nil {
			return "", err
		}
		for _, t := range page.Tokens {
			list = append(list, t.AdminToken())
		}
		return page.Next, nil
	})
	return list, err
}

// RevokeAdminToken ends an admin token, or reports record.ErrNotFound.
func (c *Client) RevokeAdminToken(ctx context.Context, name string) error {
	_, err := c.ask(ctx, question{method: http.MethodPost, path: "/v1/tokens/" + url.PathEscape(name) + "/revoke"}, nil)
	return err
}

// ListAudit reports what operators did to buckets, the newest, newest first.
func (c *Client) ListAudit(ctx context.Context, most int) (list []record.Audit, err error) {
	query := url.Values{}
	for len(list) < most {
		query.Set("limit", strconv.Itoa(min(most-len(list), pageSize)))
		var page admin.AuditPage
		if _, err := c.ask(ctx, question{method: http.MethodGet, path: "/v1/audit", query: query}, &page); err != nil {
			return nil, err
		}
		for _, a := range page.Audit {
			list = append(list, record.Audit{ID: a.ID, At: a.At, Actor: a.Actor, Claimed: a.By,
				Action: a.Action, Rule: a.Rule,
				Endpoint: a.Endpoint, Subject: a.Subject, Whose: a.Whose, Amount: a.Amount, Expires: a.Expires})
		}
		if page.Next == "" {
			break
		}
		query.Set("cursor", page.Next)
	}
	return list, nil
}

// ListCalls reports the newest calls before the one with an ID, or all before 0,
// at most most of them, newest first.
func (c *Client) ListCalls(ctx context.Context, before int64, most int) (list []record.Call, err error) {
	for len(list) < most {
		query := url.Values{"limit": {strconv.Itoa(min(most-len(list), pageSize))}}
		if before > 0 {
			query.Set("cursor", strconv.FormatInt(before, 10))
		}
		var page admin.Calls
		if _, err := c.ask(ctx, question{method: http.MethodGet, path: "/v1/calls", query: query}, &page); err != nil {
			return nil, err
		}
		for _, e := range page.Calls {
			list = append(list, e.Call())
			before = e.ID
		}
		if page.Next == "" {
			break
		}
	}
	return list, nil
}
