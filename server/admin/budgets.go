package admin

import (
	"errors"
	"net/http"

	"github.com/headgate-io/headgate"
)

// budgets answers every rule that applies to a caller, who is named as for
// /v1/buckets/inspect. Without an endpoint it is about all of them.
func (d *Door) budgets(w http.ResponseWriter, r *http.Request) {
	b, err := readBucket(w, r)
	switch {
	case err != nil:
	case b.Amount != 0 || !b.Expires.IsZero() || b.By != "":
		err = errors.New("amount, expires and by are for changes of a bucket")
	case b.Subject != "" || b.Identifier != "" || b.Unparsable:
		err = errors.New("subject, identifier and unparsable pick one bucket: ask /v1/buckets/inspect")
	}
	q := headgate.BucketQuery{}
	if err == nil {
		q, err = d.query(r.Context(), &b)
	}
	if err != nil {
		d.refuseBucket(w, r, invalidRequest, err)
		return
	}
	who, err := d.Limiter.Caller(r.Context(), q)
	if err != nil {
		d.refuseBucket(w, r, unavailable, err)
		return
	}
	report, err := d.Budgets.Report(r.Context(), who, b.Endpoint)
	if err != nil {
		d.refuseBucket(w, r, unavailable, err)
		return
	}
	answer(w, http.StatusOK, report)
}
