package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
)

var _ admin.KeyStore = (*Client)(nil)

// CreateKey makes an API key and reports its text.
func (c *Client) CreateKey(ctx context.Context, k record.NewAPIKey) (record.APIKey, string, error) {
	return c.madeKey(ctx, "/v1/keys", admin.NewKey{
		Project: k.Project,
		Name:    k.Name,
		Tier:    k.Tier,
		Expires: k.Expires,
		Scopes:  k.Scopes.List(),
	})
}

// RotateKey makes a key that is like another, which ends.
func (c *Client) RotateKey(ctx context.Context, r record.Rotation) (record.APIKey, string, error) {
	return c.madeKey(ctx, "/v1/keys/"+url.PathEscape(r.ID)+"/rotate", admin.RotatedKey{Grace: r.Grace.String()})
}

func (c *Client) madeKey(ctx context.Context, path string, body any) (record.APIKey, string, error) {
	var made admin.MadeKey
	if _, err := c.ask(ctx, question{method: http.MethodPost, path: path, body: body}, &made); err != nil {
		return record.APIKey{}, "", err
	}
	key, err := made.APIKey()
	return key, made.Key, err
}

// ListKeys reports all API keys, oldest first.
func (c *Client) ListKeys(ctx context.Context) (list []record.APIKey, err error) {
	err = c.pages(ctx, "/v1/keys", nil, func(text json.RawMessage, _ http.Header) (string, error) {
		var page admin.Keys
		if err := json.Unmarshal(text, &page); err != nil {
			return "", err
		}
		for _, entry := range page.Keys {
			key, err := entry.APIKey()
			if err != nil {
				return "", err
			}
			list = append(list, key)
		}
		return page.Next, nil
	})
	return list, err
}

// RevokeKey ends an API key, or reports record.ErrNotFound.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	_, err := c.ask(ctx, question{method: http.MethodPost, path: "/v1/keys/" + url.PathEscape(id) + "/revoke"}, nil)
	return err
}
