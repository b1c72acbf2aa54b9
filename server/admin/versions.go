package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

// VersionEntry is a version of the rules as the API tells of it.
type VersionEntry struct {
	ID      int64     `json:"id"` // 0: changes by SQL that have no number yet
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Claimed string    `json:"claimed,omitempty"`
	Why     string    `json:"why,omitempty"`
	Action  string    `json:"action"`
	Of      int64     `json:"of,omitempty"`
	Added   int       `json:"added"`
	Changed int       `json:"changed"`
	Removed int       `json:"removed"`
}

func versionEntry(v record.Version) VersionEntry {
	return VersionEntry{v.ID, v.At.UTC(), v.Actor, v.Claimed, v.Why, v.Action, v.Of, v.Added, v.Changed, v.Removed}
}

// Version is the version that e tells of.
func (e VersionEntry) Version() record.Version {
	return record.Version{ID: e.ID, At: e.At, Author: record.Author{Actor: e.Actor, Claimed: e.Claimed, Why: e.Why},
		Action: e.Action, Of: e.Of, Added: e.Added, Changed: e.Changed, Removed: e.Removed}
}

// Versions is the answer to GET /v1/versions, newest first.
type Versions struct {
	Versions []VersionEntry `json:"versions"`
	Pending  *VersionEntry  `json:"pending,omitempty"` // changes by SQL that have no number yet
	Next     string         `json:"next,omitempty"`
}

// Changes is a page of what is different.
type Changes struct {
	Changes []rules.ChangeEntry `json:"changes"`
	Next    string              `json:"next,omitempty"`
}

// Detail is the answer to GET /v1/versions/{id}.
type Detail struct {
	Version VersionEntry `json:"version"`
	Changes
}

func (d *Door) listVersions(w http.ResponseWriter, r *http.Request) {
	before, most, err := pageBefore(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	d.read(w, r, func(ctx context.Context, db Rules) (any, error) {
		list, err := db.History(ctx, before, most)
		if err != nil {
			return nil, err
		}
		page := Versions{Versions: []VersionEntry{}}
		for _, v := range list {
			page.Versions = append(page.Versions, versionEntry(v))
		}
		if len(list) == most {
			page.Next = strconv.FormatInt(list[most-1].ID, 10)
		}
		if before == 0 {
			pending, err := db.Pending(ctx)
			if err != nil {
				return nil, err
			}
			if !pending.At.IsZero() {
				entry := versionEntry(pending)
				page.Pending = &entry
			}
		}
		return page, nil
	})
}

func (d *Door) getVersion(w http.ResponseWriter, r *http.Request) {
	id, first, most, err := pageOfVersion(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	d.read(w, r, func(ctx context.Context, db Rules) (any, error) {
		done, err := d.looks.wait(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		list, err := db.History(ctx, id+1, 1)
		if err == nil && (len(list) == 0 || list[0].ID != id) {
			err = fmt.Errorf("version %d: %w", id, record.ErrNotFound)
		}
		if err != nil {
			return nil, err
		}
		changes, err := db.Changes(ctx, id)
		return Detail{versionEntry(list[0]), changesPage(changes, first, most)}, err
	})
}

func (d *Door) diffVersions(w http.ResponseWriter, r *http.Request) {
	id, first, most, err := pageOfVersion(r)
	from, errFrom := number(r.URL.Query().Get("from"), "from")
	if err := errors.Join(err, errFrom); err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	d.read(w, r, func(ctx context.Context, db Rules) (any, error) {
		done, err := d.looks.wait(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		changes, err := db.Diff(ctx, from, id)
		return changesPage(changes, first, most), err
	})
}

func changesPage(changes []record.Change, first, most int) Changes {
	first = min(first, len(changes))
	last := min(first+most, len(changes))
	page := Changes{Changes: rules.ChangeEntries(changes[first:last])}
	if last < len(changes) {
		page.Next = strconv.Itoa(last)
	}
	return page
}

// VersionRules is the answer to GET /v1/versions/{id}/policies. The first page
// has the tiers of all projects too.
type VersionRules struct {
	Number   int64             `json:"number"`
	Policies []file.Entry      `json:"policies"`
	Projects map[string]string `json:"projects,omitempty"`
	Next     string            `json:"next,omitempty"`
}

func (d *Door) listVersionPolicies(w http.ResponseWriter, r *http.Request) {
	id, first, most, err := pageOfVersion(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	d.read(w, r, func(ctx context.Context, db Rules) (any, error) {
		doc, err := d.past.at(ctx, db, id, d.Now())
		if err != nil {
			return nil, err
		}
		first = min(first, len(doc.Rules))
		last := min(first+most, len(doc.Rules))
		page := VersionRules{Number: id, Policies: append([]file.Entry{}, rules.Entries(doc.Rules[first:last])...)}
		if first == 0 {
			page.Projects = doc.Projects
		}
		if last < len(doc.Rules) {
			page.Next = strconv.Itoa(last)
		}
		return page, nil
	})
}

// Rollback is the body of POST /v1/versions/{id}/rollback.
type Rollback struct {
	Why string `json:"why,omitempty"`
	By  string `json:"by,omitempty"`
}

func (d *Door) rollbackVersion(w http.ResponseWriter, r *http.Request) {
	var body Rollback
	id, err := number(r.PathValue("id"), "version")
	if err == nil {
		err = decode(w, r, &body)
	}
	base, errBase := ifMatch(r, true)
	if err == nil {
		err = errBase
	}
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	about(r, fmt.Sprintf("rollback to version %d", id))
	d.change(w, r, func(ctx context.Context, db Rules) (v record.Version, warnings []string, err error) {
		v, err = db.RollbackChecked(ctx, author(r, body.By, body.Why), id, base,
			func(before, after policy.Document) error {
				warnings = rules.Waiting(before, after, nil, d.Now())
				return rules.CheckRollback(before, after, d.Compile())
			})
		return v, warnings, err
	})
}

// pageOfVersion reads which version is meant, and where a page of it begins.
// What a version has never changes, so its pages do not move.
func pageOfVersion(r *http.Request) (id int64, first, most int, err error) {
	id, err = number(r.PathValue("id"), "version")
	most, errLimit := pageLimit(r)
	var errCursor error
	if text := r.URL.Query().Get("cursor"); text != "" {
		if first, errCursor = strconv.Atoi(text); errCursor != nil || first < 1 {
			errCursor = fault{invalidRequest, fmt.Errorf("cursor is %q, want the next of the page before",
				asSent(text))}
		}
	}
	return id, first, most, errors.Join(err, errLimit, errCursor)
}

// number reads the number of a version.
func number(text, what string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fault{invalidRequest,
			fmt.Errorf("%s is %q, want the number of a version: GET /v1/versions lists them", what, asSent(text))}
	}
	return n, nil
}
