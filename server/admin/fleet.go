package admin

import (
	"errors"
	"net/http"

	"github.com/headgate-io/headgate/server/store"
)

// fleet answers with a fleet.Report. Replicas whose own database is another one
// are not in it.
func (a *api) fleet(w http.ResponseWriter, r *http.Request) {
	report, err := a.Fleet(r.Context())
	switch {
	case errors.Is(err, store.ErrNoFleet):
		refuse(w, r, http.StatusNotFound, "Replicas tell nothing of themselves here: the rules stand in a table that is only read.")
	case err != nil:
		refuse(w, r, http.StatusServiceUnavailable, "The database could not be asked: "+err.Error()+".")
	default:
		answer(w, http.StatusOK, report)
	}
}
