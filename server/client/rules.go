package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

var _ rules.Editor = (*Client)(nil)

// pageSize is the most that a gateway gives.
const pageSize = 1000

// restarts is how often a list is begun again that changed while it was read.
const restarts = 10

// pages asks for one page after the other, until each says that there is none
// behind it.
func (c *Client) pages(ctx context.Context, path string, query url.Values,
	each func(page json.RawMessage, header http.Header) (next string, err error)) error {
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		var page json.RawMessage
		header, err := c.ask(ctx, question{method: http.MethodGet, path: path, query: query}, &page)
		if err != nil {
			return err
		}
		next, err := each(page, header)
		if err != nil {
			return fmt.Errorf("ask %s: the answer is not one of a gateway's admin listener: %w", c.base, err)
		}
		if next == "" {
			return nil
		}
		query.Set("cursor", next)
	}
}

// version is the number in an ETag; 0 without one.
func version(header http.Header) int64 {
	n, _ := strconv.ParseInt(strings.Trim(header.Get("ETag"), `"`), 10, 64)
	return n
}

// read makes rules of what the API has of them.
func read(entries json.RawMessage) ([]policy.Rule, error) {
	doc, err := file.Decode(append(append([]byte(`{"rules":`), entries...), '}'), "")
	return doc.Rules, err
}

// Load reports the rules and tiers in the gateway's database, as they are at one
// moment. There is no text for their version.
func (c *Client) Load(ctx context.Context) (doc policy.Document, _ string, err error) {
	for range restarts {
		doc, err = c.load(ctx)
		if !errors.Is(err, errMoved) {
			break
		}
	}
	return doc, "", err
}

func (c *Client) load(ctx context.Context) (policy.Document, error) {
	doc := policy.Document{Source: c.base.String(), Projects: map[string]string{}}
	err := c.pages(ctx, "/v1/policies", url.Values{"in": {"database"}},
		func(page json.RawMessage, header http.Header) (string, error) {
			var p struct {
				Policies json.RawMessage
				Next     string
			}
			if err := json.Unmarshal(page, &p); err != nil {
				return "", err
			}
			list, err := read(p.Policies)
			doc.Rules, doc.Number = append(doc.Rules, list...), version(header)
			return p.Next, err
		})
	if err != nil {
		return doc, err
	}
	moved := false
	err = c.pages(ctx, "/v1/projects", nil, func(page json.RawMessage, header http.Header) (string, error) {
		var p admin.Projects
		if err := json.Unmarshal(page, &p); err != nil {
			return "", err
		}
		moved = moved || version(header) != doc.Number
		for _, project := range p.Projects {
			doc.Projects[project.Project] = project.Tier
		}
		return p.Next, nil
	})
	if err == nil && moved {
		err = errMoved
	}
	return doc, err
}

// Export is Load without a version.
func (c *Client) Export(ctx context.Context) (policy.Document, error) {
	doc, _, err := c.Load(ctx)
	return doc, err
}

// List reports all rules in the gateway's database.
func (c *Client) List(ctx context.Context) ([]policy.Rule, error) {
	doc, _, err := c.Load(ctx)
	return doc.Rules, err
}

// Get reports the rule with a key, or record.ErrNotFound.
func (c *Client) Get(ctx context.Context, k record.RuleKey) (policy.Rule, error) {
	name := admin.NameOf(k)
	query := url.Values{
		"endpoint":  {name.Endpoint},
		"subject":   {name.Subject},
		"temporary": {strconv.FormatBool(name.Temporary)},
	}
	for field, value := range map[string]string{"project": name.Project, "tier": name.Tier} {
		if value != "" {
			query.Set(field, value)
		}
	}
	var one struct{ Policy json.RawMessage }
	if _, err := c.ask(ctx, question{method: http.MethodGet, path: "/v1/policies/one", query: query},
		&one); err != nil {
		return policy.Rule{}, err
	}
	list, err := read(append(append([]byte("["), one.Policy...), ']'))
	if err != nil {
		return policy.Rule{}, err
	}
	return list[0], nil
}

// Apply makes an edit. The gateway checks it; e.Check is not asked. Who the
// author is, the gateway knows by the token; it is told who they say they are.
func (c *Client) Apply(ctx context.Context, a record.Author, e record.Edit) (record.Version, error) {
	body := admin.Edit{Tiers: e.Tiers, Replace: e.Replace, Action: e.Action, Why: a.Why, By: claim(a)}
	if len(e.Set) > 0 {
		var text bytes.Buffer
		if err := json.NewEncoder(&text).Encode(file.From(policy.Document{Rules: e.Set}).Rules); err != nil {
			return record.Version{}, err
		}
		body.Set = text.Bytes()
	}
	for _, k := range e.Delete {
		body.Delete = append(body.Delete, admin.NameOf(k))
	}
	return c.change(ctx, question{method: http.MethodPost, path: "/v1/policies/apply", body: body}, e.Base)
}

// RollbackChecked brings back the rules of a version. The gateway checks them;
// check is not asked.
func (c *Client) RollbackChecked(ctx context.Context, a record.Author, to, base int64,
	_ func(before, after policy.Document) error) (record.Version, error) {
	body := admin.Rollback{Why: a.Why, By: claim(a)}
	return c.change(ctx, question{method: http.MethodPost, path: fmt.Sprintf("/v1/versions/%d/rollback", to),
		body: body}, base)
}

func claim(a record.Author) string {
	if a.Claimed != "" {
		return a.Claimed
	}
	return strings.TrimPrefix(a.Actor, "local:")
}

func (c *Client) change(ctx context.Context, q question, base int64) (record.Version, error) {
	q.ifMatch = "*"
	if base > 0 {
		q.ifMatch = fmt.Sprintf(`"%d"`, base)
	}
	var done admin.Done
	_, err := c.ask(ctx, q, &done)
	var conflict *record.Conflict
	if errors.As(err, &conflict) {
		conflict.Base = base
	}
	return done.Change.Version(), err
}

// Set writes a rule.
func (c *Client) Set(ctx context.Context, a record.Author, r policy.Rule) error {
	_, err := c.Apply(ctx, a, record.Edit{Set: []policy.Rule{r}, Action: record.ActionSet})
	return err
}

// Delete removes a rule, or reports record.ErrNotFound.
func (c *Client) Delete(ctx context.Context, a record.Author, k record.RuleKey) error {
	_, err := c.Apply(ctx, a, record.Edit{Delete: []record.RuleKey{k}, Action: record.ActionDelete})
	return err
}

// SetTier puts a project into a tier; an empty one takes it out of any.
func (c *Client) SetTier(ctx context.Context, a record.Author, project, tier string) error {
	_, err := c.Apply(ctx, a, record.Edit{Tiers: map[string]string{project: tier}, Action: record.ActionTier})
	return err
}

// Import writes a document's rules and tiers; with replace, nothing else stays.
func (c *Client) Import(ctx context.Context, a record.Author, doc policy.Document, replace bool) error {
	_, err := c.Apply(ctx, a, record.Edit{Set: doc.Rules, Tiers: doc.Projects, Replace: replace,
		Action: record.ActionImport})
	return err
}

// Current reports the newest version.
func (c *Client) Current(ctx context.Context) (record.Version, error) {
	list, err := c.History(ctx, 0, 1)
	if err != nil || len(list) == 0 {
		return record.Version{}, err
	}
	return list[0], nil
}

// Pending reports the changes by SQL that have no number yet.
func (c *Client) Pending(ctx context.Context) (record.Version, error) {
	var page admin.Versions
	_, err := c.ask(ctx, question{method: http.MethodGet, path: "/v1/versions", query: url.Values{"limit": {"1"}}},
		&page)
	if err != nil || page.Pending == nil {
		return record.Version{}, err
	}
	return page.Pending.Version(), nil
}

// History reports versions below before, or the newest if that is 0, at most
// most of them, newest first.
func (c *Client) History(ctx context.Context, before int64, most int) (list []record.Version, err error) {
	for len(list) < most {
		query := url.Values{"limit": {strconv.Itoa(min(most-len(list), pageSize))}}
		if before > 0 {
			query.Set("cursor", strconv.FormatInt(before, 10))
		}
		var page admin.Versions
		if _, err := c.ask(ctx, question{method: http.MethodGet, path: "/v1/versions", query: query},
			&page); err != nil {
			return nil, err
		}
		for _, v := range page.Versions {
			list = append(list, v.Version())
			before = v.ID
		}
		if page.Next == "" {
			break
		}
	}
	return list, nil
}

// Changes reports what a version changed.
func (c *Client) Changes(ctx context.Context, id int64) ([]record.Change, error) {
	return c.changes(ctx, fmt.Sprintf("/v1/versions/%d", id), nil)
}

// Diff reports what is different in version b from version a.
func (c *Client) Diff(ctx context.Context, a, b int64) ([]record.Change, error) {
	return c.changes(ctx, fmt.Sprintf("/v1/versions/%d/diff", b), url.Values{"from": {strconv.FormatInt(a, 10)}})
}

func (c *Client) changes(ctx context.Context, path string, query url.Values) (list []record.Change, err error) {
	err = c.pages(ctx, path, query, func(page json.RawMessage, _ http.Header) (string, error) {
		var p struct {
			Changes []struct {
				Before, After json.RawMessage
				Project       string
				TierBefore    string `json:"tier_before"`
				TierAfter     string `json:"tier_after"`
				FaultBefore   string `json:"fault_before"`
				FaultAfter    string `json:"fault_after"`
			}
			Next string
		}
		if err := json.Unmarshal(page, &p); err != nil {
			return "", err
		}
		for _, entry := range p.Changes {
			before, errBefore := readSide(entry.Before, entry.FaultBefore)
			after, errAfter := readSide(entry.After, entry.FaultAfter)
			if err := errors.Join(errBefore, errAfter); err != nil {
				return "", err
			}
			list = append(list, record.Change{Before: before, After: after, Project: entry.Project,
				TierBefore: entry.TierBefore, TierAfter: entry.TierAfter, FaultBefore: entry.FaultBefore,
				FaultAfter: entry.FaultAfter})
		}
		return p.Next, nil
	})
	return list, err
}

// readSide reads one side of a change: a rule, or what can be read of a row that
// is none.
func readSide(text json.RawMessage, fault string) (*policy.Rule, error) {
	if text == nil {
		return nil, nil
	}
	if fault != "" {
		var row rules.Row
		if err := json.Unmarshal(text, &row); err != nil {
			return nil, fmt.Errorf("what can be read of a row that is no rule (%s): %w", fault, err)
		}
		r := row.Rule()
		return &r, nil
	}
	list, err := read(append(append([]byte("["), text...), ']'))
	if err != nil {
		return nil, err
	}
	return &list[0], nil
}

// At reports the rules and tiers of a version.
func (c *Client) At(ctx context.Context, id int64) (policy.Document, error) {
	doc := policy.Document{Source: c.base.String(), Number: id, Projects: map[string]string{}}
	err := c.pages(ctx, fmt.Sprintf("/v1/versions/%d/policies", id), nil,
		func(page json.RawMessage, _ http.Header) (string, error) {
			var p struct {
				Policies json.RawMessage
				Projects map[string]string
				Next     string
			}
			if err := json.Unmarshal(page, &p); err != nil {
				return "", err
			}
			for project, tier := range p.Projects {
				doc.Projects[project] = tier
			}
			list, err := read(p.Policies)
			doc.Rules = append(doc.Rules, list...)
			return p.Next, err
		})
	return doc, err
}
