package admin

import (
	"fmt"
	"net/http"

	"github.com/headgate-io/headgate/server/lint"
)

// lint says what would be found in the policy document that the body is,
// among the endpoints and costs of this gateway. It changes nothing: 200 means
// that it was looked at, not that it is good.
func (d *Door) lint(w http.ResponseWriter, r *http.Request) {
	done, err := d.documents.upload(w, r)
	if err != nil {
		refuseError(w, r, unavailable, err)
		return
	}
	defer done()
	body, err := readJSON(w, r, maxEdit)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	d.report(w, r, func(o lint.Options) (lint.Result, error) { return lint.Text(body, "body", o), nil })
}

// lintDatabase is lint of the rules of the database, be it that they cannot be
// read as rules.
func (d *Door) lintDatabase(w http.ResponseWriter, r *http.Request) {
	d.report(w, r, func(o lint.Options) (lint.Result, error) {
		db, err := d.Database(r.Context())
		if err != nil {
			return lint.Result{}, err
		}
		doc, _, err := db.Load(r.Context())
		switch {
		case err == nil:
			return lint.Document(doc, o), nil
		case lint.ProblemsIn(err) != nil:
			return lint.Unread("database", err), nil
		}
		return lint.Result{}, err
	})
}

// report answers what look finds. All of it is said of one source.
func (d *Door) report(w http.ResponseWriter, r *http.Request, look func(lint.Options) (lint.Result, error)) {
	o := lint.Options{Compile: d.Compile(), Ignore: r.URL.Query()["ignore"]}
	if err := lint.CheckIgnore("ignore", o.Ignore); err != nil {
		refuse(w, r, invalidRequest, err)
		return
	}
	if o.Compile.Endpoints != nil && o.Compile.Endpoints.Len() == 0 {
		o.Compile.Endpoints = nil // the gateway knows none
	}
	alone, err := d.looks.wait(r.Context())
	if err != nil {
		refuseError(w, r, unavailable, err)
		return
	}
	result, err := look(o)
	alone()
	if err != nil {
		refuse(w, r, unavailable, fmt.Errorf("The database could not be read: %w.", err))
		return
	}
	announce(w, http.StatusOK)
	_ = lint.WriteReport(w, []lint.Result{result}) // the client is gone if this fails
}
