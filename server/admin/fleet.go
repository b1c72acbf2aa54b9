package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/record"
)

// FleetPage is the answer to GET /v1/fleet. What it says of the database and the
// counts are of all replicas, on every page.
type FleetPage struct {
	fleet.Report
	Next string `json:"next,omitempty"` // cursor of the following page
}

// listFleet answers with a page of a fleet.Report. Replicas whose own database is
// another one are not in it.
func (d *Door) listFleet(w http.ResponseWriter, r *http.Request) {
	most, err := pageLimit(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	report, err := d.Fleet(r.Context())
	switch {
	case errors.Is(err, record.ErrNoFleet):
		refuse(w, r, notFound,
			errors.New("Replicas tell nothing of themselves here: the rules stand in a table that is only read."))
	case err != nil:
		refuse(w, r, unavailable, fmt.Errorf("The database could not be asked: %w.", err))
	default:
		answer(w, http.StatusOK, fleetPage(report, r.URL.Query().Get("cursor"), most))
	}
}

// fleetPage has the replicas whose names come after one. So a page begins where
// the one before ended, whoever has come or gone meanwhile.
func fleetPage(report fleet.Report, after string, most int) FleetPage {
	page := FleetPage{Report: report}
	page.Replicas = []fleet.Replica{}
	for _, one := range report.Replicas {
		if one.Name > after {
			page.Replicas = append(page.Replicas, one)
		}
	}
	slices.SortFunc(page.Replicas, func(a, b fleet.Replica) int { return strings.Compare(a.Name, b.Name) })
	if len(page.Replicas) > most {
		page.Replicas = page.Replicas[:most]
		page.Next = page.Replicas[most-1].Name
	}
	return page
}
