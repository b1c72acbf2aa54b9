package admin

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/draw"
	"github.com/headgate-io/headgate/server/rules"
)

// Draw is the body of POST /v1/draw.
type Draw struct {
	Rule json.RawMessage `json:"rule"`
}

// draw says what a rule admits over time. The rule need not be there.
func (d *Door) draw(w http.ResponseWriter, r *http.Request) {
	var body Draw
	err := decode(w, r, &body)
	var list []policy.Rule
	if err == nil {
		list, err = readRules("["+string(body.Rule)+"]", "rule")
	}
	if err == nil && len(list) == 0 {
		err = fault{invalidRequest, errors.New("rule is missing, want one")}
	}
	o := policy.CompileOptions{BurstPercent: d.Compile().BurstPercent} // which endpoints there are does not matter
	if err == nil {
		err = rules.Check(policy.Document{}, list[0], o)
	}
	if err != nil {
		k := invalidRequest
		if errors.As(err, new(policy.Problem)) {
			k = unacceptable
		}
		refuseError(w, r, k, err)
		return
	}
	picture, err := draw.Of(list[0], o)
	if err != nil {
		refuse(w, r, unacceptable, err)
		return
	}
	answer(w, http.StatusOK, picture)
}
