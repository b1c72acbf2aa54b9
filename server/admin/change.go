package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/record"
)

// Done is the answer to a change of the rules: what is in force now, and the
// version that was made. A change that changes nothing makes none, and reports
// the newest.
type Done struct {
	State
	Change VersionEntry `json:"change"`

	// Warnings are what keeps the change from having an effect: temporary rules
	// that stand in for those that it is of.
	Warnings []string `json:"warnings,omitempty"`
}

// Conflict is the problem that somebody has changed the rules meanwhile.
type Conflict struct {
	Problem
	Current int64          `json:"current"`
	Since   []VersionEntry `json:"since"` // newest first
}

// author is who makes a change of the rules, as far as proven, who they say they
// are, and why.
func author(r *http.Request, by, why string) record.Author {
	return record.Author{Actor: callerOf(r).actor, Claimed: by, Why: why}
}

// authorInQuery is author for what has no place for it in its body.
func authorInQuery(r *http.Request) record.Author {
	query := r.URL.Query()
	return author(r, query.Get("by"), query.Get("why"))
}

// ifMatch reads which version a change is of, 0 for whatever is there. With
// needed it must be said, be it only that it does not matter.
func ifMatch(r *http.Request, needed bool) (base int64, err error) {
	values := r.Header.Values("If-Match")
	text := strings.TrimSpace(strings.Join(values, ", "))
	switch {
	case text == "*", text == "" && !needed:
		return 0, nil
	case text == "":
		return 0,
			fault{ifMatchMissing,
				errors.New("If-Match is missing, want the ETag of GET /v1/policies?in=database that the change was " +
					"made from, or * for whatever is there")}
	}
	tag, ok := strings.CutPrefix(text, `"`)
	tag, closed := strings.CutSuffix(tag, `"`)
	base, err = strconv.ParseInt(tag, 10, 64)
	if !ok || !closed || err != nil || base < 1 {
		return 0, fault{invalidRequest,
			fmt.Errorf(`If-Match is %q, want one version as ETag has it, such as "17", or *`, asSent(text))}
	}
	return base, nil
}

// setETag names the version that an answer is of.
func setETag(w http.ResponseWriter, version int64) {
	if version > 0 {
		w.Header().Set("ETag", `"`+strconv.FormatInt(version, 10)+`"`)
	}
}

// change makes a change and puts it in force before answering. Once it is begun
// it is brought to its end, whether or not anybody waits. do also reports what is
// to be warned of.
func (d *Door) change(w http.ResponseWriter, r *http.Request,
	do func(context.Context, Rules) (record.Version, []string, error)) {
	ctx := context.WithoutCancel(r.Context())
	db, err := d.Database(ctx)
	var v record.Version
	var warnings []string
	if err == nil {
		v, warnings, err = do(ctx, db)
	}
	if err != nil {
		d.refuseChange(w, r, err)
		return
	}
	d.Log.Info("rules changed", "version", v.ID, "action", v.Action, "actor", v.Actor, "added", v.Added, "changed",
		v.Changed, "removed", v.Removed)
	if err := d.Policies.Reload(ctx); err != nil {
		refuse(w, r, notInForce, fmt.Errorf("The change is written, as version %d, and not in force: %w.", v.ID, err))
		return
	}
	setETag(w, v.ID)
	answer(w, http.StatusOK, Done{d.state(), versionEntry(v), warnings})
}

// refuseChange answers why a change was not made.
func (d *Door) refuseChange(w http.ResponseWriter, r *http.Request, err error) {
	var conflict *record.Conflict
	var wrong policy.Problem
	var f fault
	switch {
	case errors.As(err, &f):
		refuse(w, r, f.kind, err)
	case errors.As(err, &conflict):
		refuseConflict(w, r, conflict)
	case errors.Is(err, record.ErrNotFound):
		refuse(w, r, notFound, err)
	case errors.As(err, &wrong):
		refuse(w, r, unacceptable, err)
	case errors.Is(err, record.ErrTable):
		refuse(w, r, unacceptable, err)
	default:
		d.Log.Error("the rules could not be changed", "error", err)
		refuse(w, r, unavailable, fmt.Errorf("The change could not be written: %w.", err))
	}
}

func refuseConflict(w http.ResponseWriter, r *http.Request, c *record.Conflict) {
	p := Conflict{
		Problem: Problem{
			Type:   kindPrefix + versionChanged.name,
			Title:  versionChanged.title,
			Status: versionChanged.status,
			Detail: c.Error(),
		},
		Current: c.Current.ID, Since: []VersionEntry{},
	}
	for _, v := range c.Since {
		p.Since = append(p.Since, versionEntry(v))
	}
	setETag(w, c.Current.ID)
	writeProblem(w, r, p)
}

// read answers with what do reports of the database.
func (d *Door) read(w http.ResponseWriter, r *http.Request, do func(context.Context, Rules) (any, error)) {
	db, err := d.Database(r.Context())
	var value any
	if err == nil {
		value, err = do(r.Context(), db)
	}
	var wrong policy.Problem
	var f fault
	switch {
	case err == nil:
		if tagged, ok := value.(interface{ etag() int64 }); ok {
			setETag(w, tagged.etag())
		}
		answer(w, http.StatusOK, value)
	case errors.As(err, &f):
		refuse(w, r, f.kind, err)
	case errors.Is(err, record.ErrNotFound):
		refuse(w, r, notFound, err)
	case errors.Is(err, record.ErrTable):
		refuse(w, r, unacceptable, err)
	case errors.As(err, &wrong): // to ask again would not help
		refuse(w, r, notInForce, err)
	default:
		refuse(w, r, unavailable, fmt.Errorf("The database could not be read: %w.", err))
	}
}

// mustWrite refuses an edit to those who may only make rules that expire, unless
// it is about nothing else.
func (d *Door) mustWrite(r *http.Request, e record.Edit) error {
	if callerOf(r).may(record.RoleWrite) {
		return nil
	}
	lasting := e.Replace || len(e.Tiers) > 0
	for _, rule := range e.Set {
		if err := d.soon(r, rule.Expires); err != nil {
			return err
		}
		lasting = lasting || rule.Expires.IsZero()
	}
	for _, k := range e.Delete {
		lasting = lasting || !k.Temporary
	}
	if lasting {
		return fault{roleMissing,
			fmt.Errorf("This needs a token with the role write, which %s lacks: grant is for rules that expire.",
				callerOf(r).actor)}
	}
	return nil
}

// soon refuses an end that is so far away that the rule would be a lasting one,
// to those who may make none.
func (d *Door) soon(r *http.Request, end time.Time) error {
	if callerOf(r).may(record.RoleWrite) || !end.After(d.Now().Add(developers.MaxLasting)) {
		return nil
	}
	return fault{roleMissing,
		fmt.Errorf("This needs a token with the role write, which %s lacks: rules of grant end within %d days.",
			callerOf(r).actor, developers.MaxLasting/(24*time.Hour))}
}
