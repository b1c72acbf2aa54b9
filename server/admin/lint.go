package admin

import (
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
	o := lint.Options{Compile: d.Compile, Ignore: r.URL.Query()["ignore"]}
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
	report := lint.NewReport([]lint.Result{lint.Text(body, "body", o)})
	alone()
	answer(w, http.StatusOK, report)
}
