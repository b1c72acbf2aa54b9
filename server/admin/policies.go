package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/lint"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/revert"
	"github.com/headgate-io/headgate/server/rules"
)

// State is how the rules in force came to be.
type State struct {
	Version      string  `json:"version"`
	Number       int64   `json:"number,omitempty"` // in the history; 0 is unknown
	Rules        int     `json:"rules"`
	StaleSeconds float64 `json:"stale_seconds"`
	FromDisk     bool    `json:"from_disk,omitempty"`
	LastError    string  `json:"last_error,omitempty"`

	// Fallback is what happens to requests while the rules cannot be relied on, keep, limit or
	// deny, and Unreliable why; absent while they can.
	Fallback   string `json:"fallback,omitempty"`
	Unreliable string `json:"unreliable,omitempty"`

	// AutoReverted says that these are the rules from before a change that was
	// taken back; absent if they are not.
	AutoReverted *revert.Reverted `json:"auto_reverted,omitempty"`
}

func (d *Door) state() State {
	s := d.Policies.Status()
	state := State{
		Version:      s.Version,
		Number:       s.Number,
		Rules:        s.Rules,
		StaleSeconds: s.Stale.Seconds(),
		FromDisk:     s.FromDisk,
		LastError:    s.LastError,
	}
	if !s.Standing.OK() {
		state.Fallback, state.Unreliable = s.Standing.Fallback.String(), s.StandingWords
	}
	if d.Reverted != nil {
		state.AutoReverted = d.Reverted()
	}
	return state
}

// Listing is the answer to GET /v1/policies: the rules in force, and how they
// came to be.
type Listing struct {
	State
	In       string       `json:"in"` // force
	Policies []file.Entry `json:"policies"`
	Next     string       `json:"next,omitempty"` // cursor of the following page

	// Envelopes tells of those Policies that replicas have to do with.
	Envelopes []Envelope `json:"envelopes,omitempty"`
}

// Envelope is what all replicas together admit at most from one bucket of a rule.
type Envelope struct {
	Policy int `json:"policy"` // place in Policies, from 0
	inspect.Envelope
}

// DatabaseListing is the answer to GET /v1/policies?in=database. What is in force
// may be another version.
type DatabaseListing struct {
	Number   int64        `json:"number,omitempty"` // of the rules that are listed, in the history; 0 is unknown
	In       string       `json:"in"`               // database
	Policies []file.Entry `json:"policies"`
	Next     string       `json:"next,omitempty"` // cursor of the following page
	Force    State        `json:"force"`
}

func (l DatabaseListing) etag() int64 { return l.Number }

func (d *Door) listPolicies(w http.ResponseWriter, r *http.Request) {
	most, err := pageLimit(r)
	switch in := r.URL.Query().Get("in"); {
	case err != nil:
		refuseError(w, r, invalidRequest, err)
	case in == "database":
		d.listDatabase(w, r, most)
	case in == "" || in == "force":
		d.listForce(w, r, most)
	default:
		refuse(w, r, invalidRequest, fmt.Errorf("in is %q, want force or database", asSent(in)))
	}
}

// listForce shows the rules in force: also when there is no database.
func (d *Door) listForce(w http.ResponseWriter, r *http.Request, most int) {
	listing := Listing{State: d.state(), In: "force", Policies: []file.Entry{}}
	first, err := pageAfter(r, listing.Version)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	if set := d.Policies.Set(); set != nil {
		var list []policy.Rule
		limits := set.Len()
		all := limits + set.AccessRules()
		for i := int(first); i < min(int(first)+most, all); i++ {
			if i >= limits {
				list = append(list, set.AccessRule(i-limits))
				continue
			}
			rule := set.Rule(policy.RuleID(i))
			if e, told := inspect.EnvelopeOf(d.Limiter, rule); told {
				listing.Envelopes = append(listing.Envelopes, Envelope{len(list), e})
			}
			list = append(list, rule)
		}
		listing.Policies = append(listing.Policies, rules.Entries(list)...)
		if int(first)+most < all {
			listing.Next = cursor(listing.Version, first+int64(most))
		}
		setETag(w, set.Number())
	}
	answer(w, http.StatusOK, listing)
}

// listDatabase shows the rules in the database.
func (d *Door) listDatabase(w http.ResponseWriter, r *http.Request, most int) {
	d.read(w, r, func(ctx context.Context, db Rules) (any, error) {
		first, version := int64(0), ""
		if text := r.URL.Query().Get("cursor"); text != "" {
			var err error
			if first, version, err = parseCursor(text); err != nil {
				return nil, err
			}
		}
		page, err := db.Page(ctx, first, most)
		if err != nil {
			return nil, err
		}
		if of := strconv.FormatInt(page.Number, 10); version != "" && version != of {
			return nil, moved(page.Number)
		}
		listing := DatabaseListing{
			Number:   page.Number,
			In:       "database",
			Policies: append([]file.Entry{}, rules.Entries(page.Rules)...),
			Force:    d.state(),
		}
		if page.Last > 0 {
			listing.Next = cursor(strconv.FormatInt(page.Number, 10), page.Last)
		}
		return listing, nil
	})
}

// cursor names where a page begins, in one version of what it shows.
func cursor(version string, first int64) string { return strconv.FormatInt(first, 10) + "@" + version }

func parseCursor(text string) (first int64, version string, err error) {
	number, version, ok := strings.Cut(text, "@")
	first, err = strconv.ParseInt(number, 10, 64)
	if err != nil || first < 1 || !ok {
		return 0, "", fault{invalidRequest, fmt.Errorf("cursor is %q, want the next of the page before", asSent(text))}
	}
	return first, version, nil
}

// pageAfter reads the cursor of a page of version. A page of another one has no
// place after the one before it.
func pageAfter(r *http.Request, version string) (first int64, err error) {
	text := r.URL.Query().Get("cursor")
	if text == "" {
		return 0, nil
	}
	first, of, err := parseCursor(text)
	if err == nil && of != version {
		return 0, moved(0)
	}
	return first, err
}

func moved(number int64) error {
	text := "The rules have changed since the page before: begin again without cursor"
	if number > 0 {
		text += fmt.Sprintf("; those of GET /v1/versions/%d/policies never change", number)
	}
	return fault{pagesMoved, errors.New(text + ".")}
}

// One is the answer to GET /v1/policies/one.
type One struct {
	Policy file.Entry `json:"policy"`

	number int64
}

func (o One) etag() int64 { return o.number }

// getPolicy shows one rule of the database.
func (d *Door) getPolicy(w http.ResponseWriter, r *http.Request) {
	key, err := ruleNamed(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	d.read(w, r, func(ctx context.Context, db Rules) (any, error) {
		// The version first: a newer rule under an older ETag is refused when
		// it is changed, and the other way round it would be lost.
		now, err := db.Current(ctx)
		if err != nil {
			return nil, err
		}
		rule, err := db.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		return One{rules.Entries([]policy.Rule{rule})[0], now.ID}, nil
	})
}

func (d *Door) setPolicy(w http.ResponseWriter, r *http.Request) {
	body, err := readJSON(w, r, maxBody)
	var list []policy.Rule
	if err == nil {
		list, err = readRules("["+string(body)+"]", "body")
	}
	d.edit(w, r, err, authorInQuery(r), func(e *record.Edit) string {
		e.Set, e.Action = list, record.ActionSet
		return "set " + record.KeyOf(list[0]).String()
	}, false)
}

func (d *Door) deletePolicy(w http.ResponseWriter, r *http.Request) {
	key, err := ruleNamed(r)
	d.edit(w, r, err, authorInQuery(r), func(e *record.Edit) string {
		e.Delete, e.Action = []record.RuleKey{key}, record.ActionDelete
		return "delete " + key.String()
	}, false)
}

// edit makes the edit that fill describes, of the version that If-Match names.
func (d *Door) edit(w http.ResponseWriter, r *http.Request, err error, a record.Author, fill func(*record.Edit) string,
	needsBase bool) {
	base, errBase := ifMatch(r, needsBase)
	if err == nil {
		err = errBase
	}
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	e := record.Edit{Base: base}
	about(r, fill(&e))
	if err := d.mustWrite(r, e); err != nil {
		refuseError(w, r, roleMissing, err)
		return
	}
	d.change(w, r, func(ctx context.Context, db Rules) (v record.Version, warnings []string, err error) {
		others := len(e.Delete) + len(e.Tiers)
		said := namedBy(e)
		check := rules.CheckAll
		switch {
		case len(e.Set) == 1 && others == 0 && !e.Replace:
			// What was wrong with other rules before is not this one's fault.
			check = func(before, _ policy.Document, o policy.CompileOptions) error {
				return rules.Check(before, e.Set[0], o)
			}
		case len(e.Set) == 0 && !e.Replace: // which leaves less that can be wrong
			if v, err = db.Apply(ctx, a, e); err == nil {
				warnings = rules.Waiting(policy.Document{}, policy.Document{Rules: standIns(ctx, db, said)},
					said, d.Now())
			}
			return v, warnings, err
		}
		e.Check = func(before, after policy.Document) error {
			warnings = rules.Waiting(before, after, said, d.Now())
			return check(before, after, d.Compile())
		}
		v, err = db.Apply(ctx, a, e)
		return v, warnings, err
	})
}

// namedBy are the lasting rules that an edit names; nil if it is of all rules.
func namedBy(e record.Edit) []record.RuleKey {
	if e.Replace {
		return nil
	}
	keys := []record.RuleKey{}
	for _, r := range e.Set {
		if r.Expires.IsZero() {
			keys = append(keys, record.KeyOf(r))
		}
	}
	for _, k := range e.Delete {
		if !k.Temporary {
			keys = append(keys, k)
		}
	}
	return keys
}

// mostLookedUp is how many deleted rules are looked up one by one.
const mostLookedUp = 20

// standIns are the temporary rules in the places of the first of some lasting
// ones. One that cannot be read is none: the change is made either way.
func standIns(ctx context.Context, db Rules, lasting []record.RuleKey) (list []policy.Rule) {
	for _, key := range lasting[:min(len(lasting), mostLookedUp)] {
		key.Temporary = true
		if r, err := db.Get(ctx, key); err == nil {
			list = append(list, r)
		}
	}
	return list
}

// Reloaded is the answer to POST /v1/reload: what is in force now, and what changed of the configuration.
type Reloaded struct {
	State
	Reload *record.Reload `json:"reload,omitempty"` // nil if the door knows of no configuration
}

func (d *Door) reload(w http.ResponseWriter, r *http.Request) {
	var done Reloaded
	if d.Reload != nil {
		reload, err := d.Reload(r.Context())
		if err != nil {
			refuse(w, r, notInForce, fmt.Errorf("What was in force before stays: %w.", err))
			return
		}
		done.Reload = &reload
	}
	if err := d.Policies.Reload(r.Context()); err != nil {
		refuse(w, r, notInForce, fmt.Errorf("The last good rules stay in force: %w.", err))
		return
	}
	done.State = d.state()
	answer(w, http.StatusOK, done)
}

// readRules reads a list of rules as policy files write it.
func readRules(list, source string) ([]policy.Rule, error) {
	doc, err := file.Decode([]byte(`{"rules":`+list+`}`), source)
	return doc.Rules, err
}

// ruleNamed reads which rule a query means.
func ruleNamed(r *http.Request) (record.RuleKey, error) {
	query := r.URL.Query()
	name := RuleName{
		Endpoint: query.Get("endpoint"),
		Project:  query.Get("project"),
		Tier:     query.Get("tier"),
		Subject:  query.Get("subject"),
	}
	var err error
	if text := query.Get("temporary"); text != "" {
		if name.Temporary, err = strconv.ParseBool(text); err != nil {
			err = fmt.Errorf("temporary is %q, want true or false", asSent(text))
		}
	}
	key, errName := name.Key()
	return key, errors.Join(errName, err)
}

// RuleName names a rule.
type RuleName struct {
	Endpoint  string `json:"endpoint"`
	Project   string `json:"project,omitempty"`
	Tier      string `json:"tier,omitempty"`
	Subject   string `json:"subject,omitempty"` // default principal
	Temporary bool   `json:"temporary,omitempty"`
}

// Key is what the database finds the rule by.
func (n RuleName) Key() (record.RuleKey, error) {
	if n.Endpoint == "" {
		return record.RuleKey{}, errors.New("endpoint is missing, want the rule's endpoint")
	}
	rule := policy.Rule{Endpoint: n.Endpoint, Project: n.Project, Tier: n.Tier}
	if n.Subject != "" {
		if err := rule.SetSubject(n.Subject); err != nil {
			return record.RuleKey{}, err
		}
	}
	key := record.KeyOf(rule)
	key.Temporary = n.Temporary
	return key, nil
}

// NameOf is how the API names the rule with a key.
func NameOf(k record.RuleKey) RuleName {
	return RuleName{
		Endpoint:  k.Endpoint,
		Project:   k.Project,
		Tier:      k.Tier,
		Subject:   policy.Whom{Subject: k.Subject, Only: k.Only}.String(),
		Temporary: k.Temporary,
	}
}

// Edit is the body of POST /v1/policies/apply.
type Edit struct {
	Set     json.RawMessage   `json:"set,omitempty"` // rules, as policy files have them
	Delete  []RuleName        `json:"delete,omitempty"`
	Tiers   map[string]string `json:"tiers,omitempty"` // an empty one takes a project out of any
	Replace bool              `json:"replace,omitempty"`
	DryRun  bool              `json:"dry_run,omitempty"`
	Action  string            `json:"action,omitempty"`
	Why     string            `json:"why,omitempty"`
	By      string            `json:"by,omitempty"`
}

// read translates an edit, or names every field at fault.
func (e *Edit) read() (edit record.Edit, err error) {
	edit = record.Edit{Tiers: e.Tiers, Replace: e.Replace, Action: record.ActionApply}
	var errs []error
	if e.Set != nil {
		edit.Set, err = readRules(string(e.Set), "set")
		errs = append(errs, err)
	}
	for _, name := range e.Delete {
		key, err := name.Key()
		edit.Delete, errs = append(edit.Delete, key), append(errs, err)
	}
	switch e.Action {
	case "":
	case record.ActionApply, record.ActionImport, record.ActionTier, record.ActionSet, record.ActionDelete:
		edit.Action = e.Action
	default:
		errs = append(errs, fmt.Errorf("action is %q, want apply, import, tier, set or delete", asSent(e.Action)))
	}
	return edit, errors.Join(errs...)
}

// Plan is what an edit with dry_run would do.
type Plan struct {
	Number int64 `json:"number,omitempty"` // of the rules that it would change
	Changes
}

func (p Plan) etag() int64 { return p.Number }

func (d *Door) applyPolicies(w http.ResponseWriter, r *http.Request) {
	done, err := d.edits.upload(w, r)
	if err != nil {
		refuseError(w, r, unavailable, err)
		return
	}
	defer done()
	var body Edit
	err = decodeUpTo(w, r, &body, maxEdit)
	var edit record.Edit
	if err == nil {
		edit, err = body.read()
	}
	if err == nil && body.DryRun {
		d.plan(w, r, edit)
		return
	}
	d.edit(w, r, err, author(r, body.By, body.Why), func(e *record.Edit) string {
		e.Set, e.Delete, e.Tiers, e.Replace, e.Action = edit.Set, edit.Delete, edit.Tiers, edit.Replace, edit.Action
		return fmt.Sprintf("%s: %s, %d to delete, %s", e.Action,
			lint.Counted(len(e.Set), "rule", "rules"), len(e.Delete),
			lint.Counted(len(e.Tiers), "tier", "tiers"))
	}, true)
}

// errPlanned ends a transaction that was only to show what it would do.
var errPlanned = errors.New("nothing was changed: dry_run")

// plan makes an edit and takes it back before anybody sees it.
func (d *Door) plan(w http.ResponseWriter, r *http.Request, e record.Edit) {
	base, err := ifMatch(r, false)
	if err == nil {
		err = d.mustWrite(r, e)
	}
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	about(r, "plan")
	var plan Plan
	e.Base = base
	e.Check = func(before, after policy.Document) error {
		if err := rules.CheckAll(before, after, d.Compile()); err != nil {
			return err
		}
		changes := d.Compare(before, after)
		plan = Plan{before.Number, changesPage(changes, 0, len(changes))}
		return errPlanned
	}
	db, err := d.Database(r.Context())
	if err == nil {
		_, err = db.Apply(r.Context(), author(r, "", ""), e)
	}
	if !errors.Is(err, errPlanned) {
		d.refuseChange(w, r, err)
		return
	}
	setETag(w, plan.Number)
	answer(w, http.StatusOK, plan)
}
