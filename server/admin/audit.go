package admin

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

// Auditor writes down a change of a bucket before it is made, and reports the
// entry's number. It lists the entries before one, or all before 0, newest
// first.
type Auditor interface {
	Append(ctx context.Context, a record.Audit) (int64, error)
	AuditBefore(ctx context.Context, before int64, most int) ([]record.Audit, error)
}

// AuditEntry is what was done to a bucket, or to a request for a higher limit.
type AuditEntry struct {
	ID       int64     `json:"id"`
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"`
	By       string    `json:"by,omitempty"`
	Action   string    `json:"action"`
	Rule     string    `json:"rule"`
	Endpoint string    `json:"endpoint"`
	Subject  string    `json:"subject"`
	Whose    string    `json:"whose"`
	Amount   int64     `json:"amount,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
}

// AuditEntryOf is what the API tells of an entry.
func AuditEntryOf(a record.Audit) AuditEntry {
	expires := a.Expires
	if !expires.IsZero() {
		expires = expires.UTC()
	}
	return AuditEntry{a.ID, a.At.UTC(), a.Actor, a.Claimed, a.Action, a.Rule, a.Endpoint, a.Subject, a.Whose,
		a.Amount, expires}
}

// AuditPage is the answer to GET /v1/audit, newest first.
type AuditPage struct {
	Audit []AuditEntry `json:"audit"`
	Next  string       `json:"next,omitempty"` // cursor of the following page
}

func (d *Door) listAudit(w http.ResponseWriter, r *http.Request) {
	before, most, err := pageBefore(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	list, err := d.Audit.AuditBefore(r.Context(), before, most)
	if err != nil {
		refuse(w, r, unavailable, fmt.Errorf("The audit could not be read: %w.", err))
		return
	}
	page := AuditPage{Audit: []AuditEntry{}}
	for _, a := range list {
		page.Audit = append(page.Audit, AuditEntryOf(a))
	}
	if len(list) == most {
		page.Next = strconv.FormatInt(list[most-1].ID, 10)
	}
	answer(w, http.StatusOK, page)
}
