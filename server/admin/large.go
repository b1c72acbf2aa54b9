package admin

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// turn is the right to do what takes memory by the number of rules: one has it
// at a time. What clients may do together must not end the gateway that they
// look at; a lint of a million rules alone takes 2 GB for a while.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// wait takes the turn as soon as it is free. It is given back by calling done,
// before the answer is sent: a client may take long to read that.
func (t turn) wait(ctx context.Context) (done func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, fault{unavailable, errors.New("Others look at many rules: it was not your turn in time.")}
	}
}

// uploadWait bounds how long a large body may be under way, and answerWait how
// long the whole may take with the reading of its answer: meanwhile it is nobody
// else's turn.
const (
	uploadWait = time.Minute
	answerWait = 10 * time.Minute
)

// upload makes room for the body of r if it is, or may be, larger than usual.
// Who finds no room is told so: bodies that wait are in memory too.
func (t turn) upload(w http.ResponseWriter, r *http.Request) (done func(), err error) {
	if r.ContentLength >= 0 && r.ContentLength <= maxBody {
		return func() {}, nil
	}
	select {
	case t <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "1")
		return nil,
			fault{unavailable, errors.New("Another large body is being worked on: come again when that is done.")}
	}
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(uploadWait)) // a test's writer has none
	_ = connection.SetWriteDeadline(time.Now().Add(answerWait))
	return func() {
		_ = connection.SetReadDeadline(time.Time{})
		_ = connection.SetWriteDeadline(time.Time{})
		<-t
	}, nil
}
