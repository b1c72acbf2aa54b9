package admin

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/server/usage"
)

// Usage is the answer to GET /v1/usage: what callers with a verified credential did, by the day.
type Usage struct {
	At       time.Time `json:"at"`
	Gateway  string    `json:"gateway,omitempty"`
	Since    time.Time `json:"since"`     // when counting began: the day of it is not complete
	KeptDays int       `json:"kept_days"` // the present one among them

	// Incomplete are times of which something may be missing, as a process was killed before it had written it down.
	Incomplete []usage.Gap `json:"incomplete,omitempty"`

	Rows []UsageRow `json:"rows"`
}

// UsageRow is what one caller did on one day of UTC.
type UsageRow struct {
	Day      string `json:"day"`            // 2026-11-25
	Hash     string `json:"hash,omitempty"` // names the caller while the process runs
	Kind     string `json:"kind"`           // api_key, token …, or others
	ID       string `json:"id,omitempty"`   // for those who may know, as Project
	Project  string `json:"project,omitempty"`
	Admitted uint64 `json:"admitted"` // requests
	Denied   uint64 `json:"denied"`
	Tokens   uint64 `json:"tokens"` // what those that were admitted cost
}

var errNoUsage = fault{notFound, errors.New("Nothing is counted by caller here: usage.max_callers is 0.")}

func (d *Door) usage(w http.ResponseWriter, r *http.Request) {
	from, to, reveal, err := d.usageQuery(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	rows := d.Usage.Rows(from, to)
	told := Usage{
		At:       d.Now().UTC(),
		Gateway:  d.Gateway,
		Since:    d.Usage.Since(),
		KeptDays: usage.KeptDays, Incomplete: d.Usage.Gaps(),
		Rows: make([]UsageRow, len(rows)),
	}
	for i, row := range rows {
		told.Rows[i] = UsageRow{
			Day: row.Day.Format(time.DateOnly), Hash: row.Hash, Kind: row.Kind,
			Admitted: row.Admitted, Denied: row.Denied, Tokens: row.Tokens,
		}
		if reveal {
			told.Rows[i].ID, told.Rows[i].Project = row.ID, row.Project
		}
	}
	answer(w, http.StatusOK, told)
}

// usageQuery reads which days somebody wants to see, and whether with the names of callers, which is
// for those who may reset buckets.
func (d *Door) usageQuery(r *http.Request) (from, to time.Time, reveal bool, err error) {
	if d.Usage == nil {
		return from, to, false, errNoUsage
	}
	query := r.URL.Query()
	to = d.Now()
	for name, day := range map[string]*time.Time{"from": &from, "to": &to} {
		if text := query.Get(name); text != "" {
			if *day, err = usage.ParseDay(text); err != nil {
				return from, to, false, fault{invalidRequest, fmt.Errorf("%s %w", name, err)}
			}
		}
	}
	reveal, err = revealed(r)
	return from, to, reveal, err
}
