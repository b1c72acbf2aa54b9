package admin

import (
	"net/http"

	"github.com/headgate-io/headgate/inspect"
)

// BudgetRequest names a caller, as BucketRequest does, and an endpoint. Without
// one it is about all of them.
type BudgetRequest struct {
	Endpoint    string   `json:"endpoint,omitempty"`
	Peer        string   `json:"peer,omitempty"`
	Header      []string `json:"header,omitempty"` // lines "Name: value"
	Key         string   `json:"key,omitempty"`    // ID
	Project     string   `json:"project,omitempty"`
	Tier        string   `json:"tier,omitempty"`
	Address     string   `json:"address,omitempty"`
	Certificate string   `json:"certificate,omitempty"`
	Token       string   `json:"token,omitempty"`
	User        string   `json:"user,omitempty"`
	SignedAgent string   `json:"signed_agent,omitempty"`
}

// budgets answers every rule that applies to a caller.
func (d *Door) budgets(w http.ResponseWriter, r *http.Request) {
	var b BudgetRequest
	err := decode(w, r, &b)
	q := inspect.Query{}
	if err == nil {
		q, err = d.query(r.Context(), &BucketRequest{
			Endpoint: b.Endpoint, Peer: b.Peer, Header: b.Header, Key: b.Key, Project: b.Project, Tier: b.Tier,
			Address: b.Address, Certificate: b.Certificate, Token: b.Token, User: b.User,
			SignedAgent: b.SignedAgent,
		})
	}
	if err != nil {
		d.refuseBucket(w, r, invalidRequest, err)
		return
	}
	who, err := inspect.Caller(r.Context(), d.Limiter, q)
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
