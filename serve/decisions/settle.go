package decisions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/reservation"
)

// Spent says what a request has cost that was reserved for.
type Spent struct {
	Reservation string `json:"reservation"` // of an Answer

	// Actual is what it has cost, in tokens. It has to be there.
	Actual *int64 `json:"actual"`

	// Forgive says that the rules of its endpoint turn out not to count it, as a
	// login that succeeded where only failures count; see
	// headgate.Answer.Forgiven.
	Forgive bool `json:"forgive"`

	// Status is that of the answer, for rules that count only some (headgate.Answer.Status);
	// 0, or none, counts.
	Status int `json:"status"`
}

// Settled says what became of it.
type Settled struct {
	Status    string `json:"status"`              // a word of reservation.Status
	Reserved  int64  `json:"reserved"`            // tokens
	Actual    int64  `json:"actual"`              // tokens
	Uncharged int64  `json:"uncharged,omitempty"` // of what was spent above the estimate; see reservation.Settlement
}

// settle answers a program that says what requests have cost: one, or up to MaxBatch
// by {"settlements": [...]}. Whoever does not know whether it was heard says it again.
func (d *door) settle(w http.ResponseWriter, r *http.Request) {
	text, ok := d.posted(w, r)
	if !ok {
		return
	}
	spent, ids, batch, err := readSpent(text)
	if err != nil {
		d.incomplete(w, r, err)
		return
	}
	settled := make([]Settled, len(spent))
	for i := range spent {
		// Not the request's context: a program that has gone pays too.
		if settled[i], err = d.settleOne(context.WithoutCancel(r.Context()), ids[i], &spent[i]); err != nil {
			w.Header().Set("Retry-After", "1")
			problem.Write(w, r, problem.Details{
				Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity, Title: "Not settled",
				Detail: "The limits cannot be corrected at the moment. Say the same again: what is settled stays " +
					"as it is.",
			})
			return
		}
	}
	if !batch {
		reply(w, inJSON(settled[0]))
		return
	}
	reply(w, inJSON(map[string][]Settled{"settlements": settled}))
}

func (d *door) settleOne(ctx context.Context, id reservation.ID, spent *Spent) (Settled, error) {
	s, err := d.options.Limiter.SettleAnswer(ctx, id,
		headgate.Answer{Actual: *spent.Actual, Status: spent.Status, Forgiven: spent.Forgive})
	return Settled{Status: s.Status.String(), Reserved: s.Reserved, Actual: s.Actual, Uncharged: s.Uncharged}, err
}

// readSpent reads a body and names every fault in it.
func readSpent(text []byte) (spent []Spent, ids []reservation.ID, batch bool, err error) {
	var both struct {
		Spent
		Settlements []Spent `json:"settlements"`
	}
	if err := decode(text, &both); err != nil {
		return nil, nil, false, err
	}
	spent, batch = []Spent{both.Spent}, both.Settlements != nil
	if batch {
		if both.Spent != (Spent{}) {
			return nil, nil, true, errors.New("there are settlements and one beside them, want one of both")
		}
		if spent = both.Settlements; len(spent) == 0 || len(spent) > MaxBatch {
			return nil, nil, true, fmt.Errorf("settlements has %d elements, want 1 to %d", len(spent), MaxBatch)
		}
	}
	ids = make([]reservation.ID, len(spent))
	var faults []string
	for i := range spent {
		where := ""
		if batch {
			where = fmt.Sprintf("settlements[%d].", i)
		}
		if ids[i].UnmarshalText([]byte(spent[i].Reservation)) != nil { // not repeated: it may be confidential
			faults = append(faults, where+"reservation is not 32 hexadecimal digits, want that of an answer")
		}
		if spent[i].Actual == nil || *spent[i].Actual < 0 {
			faults = append(faults, where+"actual is missing or below zero, want what was spent in tokens")
		}
		if status := spent[i].Status; status != 0 && (status < 200 || status > 599) {
			faults = append(faults, fmt.Sprintf("%sstatus is %d, want that of the answer, 200 to 599, or none",
				where, status))
		}
	}
	return spent, ids, batch, listed(faults)
}

// listed is an error of the first of many faults, or nil.
func listed(faults []string) error {
	const most = 10
	if n := len(faults); n > most {
		faults = append(faults[:most], fmt.Sprintf("and %d more", n-most))
	}
	if len(faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(faults, "; "))
}
