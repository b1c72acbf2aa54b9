package admin

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate-io/headgate/server/store"
)

// listFleet answers with a fleet.Report. Replicas whose own database is another
// one are not in it.
func (d *Door) listFleet(w http.ResponseWriter, r *http.Request) {
	report, err := d.Fleet(r.Context())
	switch {
	case errors.Is(err, store.ErrNoFleet):
		refuse(w, r, notFound, errors.New("Replicas tell nothing of themselves here: the rules stand in a table that is only read."))
	case err != nil:
		refuse(w, r, unavailable, fmt.Errorf("The database could not be asked: %w.", err))
	default:
		answer(w, http.StatusOK, report)
	}
}
