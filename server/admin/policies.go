package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/revert"
	"github.com/headgate-io/headgate/server/rules"
	"github.com/headgate-io/headgate/server/store"
)

// State is how the rules in force came to be.
type State struct {
	Version      string  `json:"version"`
	Rules        int     `json:"rules"`
	StaleSeconds float64 `json:"stale_seconds"`
	FromDisk     bool    `json:"from_disk,omitempty"`
	LastError    string  `json:"last_error,omitempty"`

	// AutoReverted says that these are the rules from before a change that was
	// taken back; absent if they are not.
	AutoReverted *revert.Reverted `json:"auto_reverted,omitempty"`
}

func (d *Door) state() State {
	s := d.Policies.Status()
	state := State{Version: s.Version, Rules: s.Rules, StaleSeconds: s.Stale.Seconds(), FromDisk: s.FromDisk, LastError: s.LastError}
	if d.Reverted != nil {
		state.AutoReverted = d.Reverted()
	}
	return state
}

// Listing is the answer to GET /v1/policies.
type Listing struct {
	State
	Policies []file.Entry `json:"policies"`
	Next     string       `json:"next,omitempty"` // cursor of the following page
}

// listPolicies shows the rules in force, in the order of the database.
func (d *Door) listPolicies(w http.ResponseWriter, r *http.Request) {
	most, err := pageLimit(r)
	listing := Listing{State: d.state(), Policies: []file.Entry{}}
	first, errCursor := pageAfter(r, listing.Version)
	if err := errors.Join(err, errCursor); err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	if set := d.Policies.Set(); set != nil {
		var doc policy.Document
		for i := first; i < min(first+most, set.Len()); i++ {
			doc.Rules = append(doc.Rules, set.Rule(policy.RuleID(i)))
		}
		listing.Policies = append(listing.Policies, file.From(doc).Rules...)
		if first+most < set.Len() {
			listing.Next = cursor(listing.Version, first+most)
		}
	}
	answer(w, http.StatusOK, listing)
}

// cursor names where a page begins, in one version of what it shows.
func cursor(version string, first int) string { return strconv.Itoa(first) + "@" + version }

// pageAfter reads a cursor. A page of another version has no place after the one
// before it.
func pageAfter(r *http.Request, version string) (first int, err error) {
	text := r.URL.Query().Get("cursor")
	if text == "" {
		return 0, nil
	}
	number, of, ok := strings.Cut(text, "@")
	first, err = strconv.Atoi(number)
	switch {
	case err != nil || first < 1 || !ok:
		return 0, fault{invalidRequest, fmt.Errorf("cursor is %q, want the next of the page before", clip(text))}
	case of != version:
		return 0, fault{pagesMoved, errors.New("The rules have changed since the page before: begin again without cursor.")}
	}
	return first, nil
}

func (d *Door) setPolicy(w http.ResponseWriter, r *http.Request) {
	rule, err := readRule(w, r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	d.change(w, r, "put", rule, func(ctx context.Context) error {
		_, err := rules.Set(ctx, d.Rules, author(r), rule, d.Compile)
		return err
	})
}

func (d *Door) deletePolicy(w http.ResponseWriter, r *http.Request) {
	rule, err := ruleNamed(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	d.change(w, r, "delete", rule, func(ctx context.Context) error {
		_, err := rules.Delete(ctx, d.Rules, author(r), store.KeyOf(rule))
		return err
	})
}

// author is who makes a change of the rules.
func author(r *http.Request) store.Author { return store.Author{Actor: callerOf(r).actor} }

// change makes a change and puts it in force before answering.
func (d *Door) change(w http.ResponseWriter, r *http.Request, verb string, rule policy.Rule, do func(context.Context) error) {
	about(r, verb+" "+rule.Endpoint)
	err := do(r.Context())
	var wrong policy.Problem
	switch {
	case errors.Is(err, store.ErrNotFound):
		refuse(w, r, notFound, errors.New("There is no such rule; GET /v1/policies lists them."))
		return
	case errors.As(err, &wrong):
		refuse(w, r, unacceptable, err)
		return
	case err != nil:
		d.Log.Error("policy change failed", "verb", verb, "error", err)
		refuse(w, r, unavailable, fmt.Errorf("The change could not be written: %w.", err))
		return
	}
	d.Log.Info("policy changed", "verb", verb, "rule", rule.Title())
	if err := d.Policies.Reload(r.Context()); err != nil {
		refuse(w, r, notInForce, fmt.Errorf("The change is written and not in force: %w.", err))
		return
	}
	answer(w, http.StatusOK, d.state())
}

func (d *Door) reload(w http.ResponseWriter, r *http.Request) {
	if err := d.Policies.Reload(r.Context()); err != nil {
		refuse(w, r, notInForce, fmt.Errorf("The last good rules stay in force: %w.", err))
		return
	}
	answer(w, http.StatusOK, d.state())
}

// readRule reads one rule as policy files write it.
func readRule(w http.ResponseWriter, r *http.Request) (policy.Rule, error) {
	body, err := readJSON(w, r)
	if err != nil {
		return policy.Rule{}, err
	}
	doc, err := file.Decode([]byte(`{"rules":[`+string(body)+`]}`), "body")
	if err != nil {
		return policy.Rule{}, err
	}
	return doc.Rules[0], nil
}

// ruleNamed reads which rule a query means.
func ruleNamed(r *http.Request) (policy.Rule, error) {
	query := r.URL.Query()
	rule := policy.Rule{Endpoint: query.Get("endpoint"), Project: query.Get("project"), Tier: query.Get("tier")}
	if rule.Endpoint == "" {
		return rule, errors.New("endpoint is missing from the query, want the rule's endpoint")
	}
	if subject := query.Get("subject"); subject != "" {
		return rule, rule.Subject.UnmarshalText([]byte(subject))
	}
	return rule, nil
}
