package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

// CallStore is where calls are written down. *database.Store is one.
type CallStore interface {
	BeginCall(ctx context.Context, c record.Call) (int64, error)
	EndCall(ctx context.Context, id int64, c record.Call) error
	AppendCalls(ctx context.Context, calls []record.Call) error
	ListCalls(ctx context.Context, before int64, most int) ([]record.Call, error)
	PruneCalls(ctx context.Context, before time.Time, looks, changes int64) (int64, error)
}

type callKey struct{}

// about says what the call that r makes is about, for the record. It must not be
// a secret.
func about(r *http.Request, text string) {
	if c, ok := r.Context().Value(callKey{}).(*record.Call); ok {
		c.About = text
	}
}

// serve is an operation for those who may call it, written down.
func (d *Door) serve(op *operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who := callerOf(r); !op.access.allows(who.may) {
			look := *op
			look.changes = false
			d.recorded(&look, w, r, func(w http.ResponseWriter, r *http.Request) {
				refuse(w, r, roleMissing, fmt.Errorf("This needs a token with %s, which %s lacks.",
					op.access.words(), who.actor))
			})
			return
		}
		d.recorded(op, w, r, func(w http.ResponseWriter, r *http.Request) { d.perform(op, w, r) })
	})
}

func (a access) words() string {
	if a == everyRole {
		return "the roles " + list([]string{string(record.RoleRead), string(record.RoleWrite),
			string(record.RoleGrant)}, "and")
	}
	return "the role " + string(a)
}

// recorded serves a call and writes it down: before, if it may change something
// (and refuses it if that cannot be done), else soon.
func (d *Door) recorded(op *operation, w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	who := callerOf(r)
	call := &record.Call{
		At:        d.Now(),
		Actor:     who.actor,
		Token:     who.token,
		Peer:      peer(r).String(),
		Operation: op.id,
		Changes:   op.changes,
	}
	// A change is brought to its end whether or not anybody waits for it.
	kept := context.WithoutCancel(r.Context())
	seen := &statusWriter{ResponseWriter: w}
	var id int64
	if op.changes && d.Calls != nil {
		var err error
		if id, err = d.Calls.BeginCall(kept, *call); err != nil {
			d.Log.Error("a call was refused because it could not be written down", "operation", op.id, "error", err)
			refuse(seen, r, unavailable, fmt.Errorf("The call could not be written down, so it was not made: %w.", err))
			d.Observe(op.id, seen.status)
			return
		}
	}
	done := false
	defer func() {
		call.Status, call.Took = seen.status, d.Now().Sub(call.At)
		if !done { // a panic, which net/http reports
			call.Status = http.StatusInternalServerError
		}
		d.Observe(op.id, call.Status)
		switch {
		case !op.isRecorded():
		case id != 0:
			if err := d.Calls.EndCall(kept, id, *call); err != nil {
				d.Log.Error("how a call ended could not be written down", "call", id, "operation", op.id, "status",
					call.Status, "error", err)
			}
		default:
			d.record.add(*call)
		}
	}()
	serve(seen, r.WithContext(context.WithValue(r.Context(), callKey{}, call)))
	if seen.status == 0 {
		seen.status = http.StatusOK
	}
	done = true
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

const (
	// recordEvery is the time between two writes of the calls that changed
	// nothing. Each is a transaction of the policy database.
	recordEvery   = 10 * time.Second
	recordTimeout = 5 * time.Second
	pruneEvery    = time.Hour

	maxWaiting  = 4096 // calls that wait to be written down; more are lost, and counted
	recordBatch = 256

	// refusalsAMinute is how many refusals of callers who are nobody are
	// written down: a flood of them must not fill the record.
	refusalsAMinute = 60
)

// recorder writes down calls that changed nothing, several at a time.
type recorder struct {
	calls CallStore // nil: nothing is written down
	log   *slog.Logger
	now   func() time.Time
	lost  func()

	access func() *Access // which says what is forgotten

	flushing sync.Mutex // one at a time, so that they stay in order

	mu       sync.Mutex
	waiting  []record.Call // guarded by mu
	failing  bool          // guarded by mu; said so
	minute   int64         // guarded by mu; in which refusals were counted
	refusals int           // guarded by mu
}

func newRecorder(o Options, access func() *Access) *recorder {
	return &recorder{calls: o.Calls, log: o.Log, now: o.Now, lost: o.Unrecorded, access: access}
}

// add has a call written down soon.
func (rec *recorder) add(c record.Call) {
	if rec.calls == nil {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if len(rec.waiting) >= maxWaiting {
		rec.lost()
		return
	}
	rec.waiting = append(rec.waiting, c)
}

// refused is add for somebody who is nobody.
func (rec *recorder) refused(c record.Call) {
	rec.mu.Lock()
	if minute := c.At.Unix() / 60; minute != rec.minute {
		rec.minute, rec.refusals = minute, 0
	}
	rec.refusals++
	few := rec.refusals <= refusalsAMinute
	rec.mu.Unlock()
	if few {
		rec.add(c)
	}
}

// run writes down what waits, and calls tick as often.
func (rec *recorder) run(ctx context.Context, tick func()) {
	write, prune := time.NewTicker(recordEvery), time.NewTicker(pruneEvery)
	defer write.Stop()
	defer prune.Stop()
	rec.prune(ctx)
	for {
		select {
		case <-ctx.Done():
			_ = rec.flush(context.WithoutCancel(ctx)) // it has said so
			return
		case <-write.C:
			_ = rec.flush(ctx)
			tick()
		case <-prune.C:
			rec.prune(ctx)
		}
	}
}

// flush writes down what waits. What cannot be written waits on, as long as
// there is room.
func (rec *recorder) flush(ctx context.Context) error {
	rec.flushing.Lock()
	defer rec.flushing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	for {
		rec.mu.Lock()
		batch := rec.waiting[:min(len(rec.waiting), recordBatch)]
		rec.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		err := rec.calls.AppendCalls(ctx, batch)
		rec.mu.Lock()
		if err == nil {
			rec.waiting = append([]record.Call(nil), rec.waiting[len(batch):]...)
		}
		first := err != nil && !rec.failing
		rec.failing = err != nil
		rec.mu.Unlock()
		if first {
			rec.log.Warn("calls cannot be written down: those that change something are refused, the others wait",
				"error", err)
		}
		if err != nil {
			return err
		}
	}
}

func (rec *recorder) prune(ctx context.Context) {
	a := rec.access()
	if rec.calls == nil || a.KeepCalls == 0 {
		return
	}
	gone, err := rec.calls.PruneCalls(ctx, rec.now().Add(-a.KeepCalls), a.MostCalls, a.MostChanges)
	switch {
	case err != nil && ctx.Err() == nil:
		rec.log.Warn("old calls could not be taken out of the record", "error", err)
	case gone > 0:
		rec.log.Info("old calls were taken out of the record", "calls", gone)
	}
}

// CallEntry is a call as the API tells of it.
type CallEntry struct {
	ID        int64     `json:"id"`
	At        time.Time `json:"at"`
	Actor     string    `json:"actor"`
	Token     string    `json:"token,omitempty"` // ID
	Peer      string    `json:"peer"`
	Operation string    `json:"operation"`
	Changes   bool      `json:"changes"`
	About     string    `json:"about,omitempty"`
	Status    int       `json:"status,omitempty"` // none: not ended, or the gateway ended first
	Seconds   float64   `json:"seconds,omitempty"`
}

// EntryOf is what the API tells of a call.
func EntryOf(c record.Call) CallEntry {
	return CallEntry{c.ID, c.At.UTC(), c.Actor, c.Token, c.Peer, c.Operation, c.Changes, c.About, c.Status,
		c.Took.Seconds()}
}

// Call is the call that e tells of.
func (e CallEntry) Call() record.Call {
	return record.Call{ID: e.ID, At: e.At, Actor: e.Actor, Token: e.Token, Peer: e.Peer, Operation: e.Operation,
		Changes: e.Changes,
		About:   e.About, Status: e.Status, Took: time.Duration(e.Seconds * float64(time.Second))}
}

// Calls is the answer to GET /v1/calls, newest first.
type Calls struct {
	Calls []CallEntry `json:"calls"`
	Next  string      `json:"next,omitempty"` // cursor of the following page
}

func (d *Door) listCalls(w http.ResponseWriter, r *http.Request) {
	before, most, err := pageBefore(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	if d.Calls == nil {
		answer(w, http.StatusOK, Calls{Calls: []CallEntry{}})
		return
	}
	if err = d.record.flush(r.Context()); err == nil {
		var list []record.Call
		if list, err = d.Calls.ListCalls(r.Context(), before, most); err == nil {
			page := Calls{Calls: []CallEntry{}}
			for _, c := range list {
				page.Calls = append(page.Calls, EntryOf(c))
			}
			if len(list) == most {
				page.Next = strconv.FormatInt(list[most-1].ID, 10)
			}
			answer(w, http.StatusOK, page)
			return
		}
	}
	refuse(w, r, unavailable, fmt.Errorf("The record of calls could not be read: %w.", err))
}

// pageBefore reads the bounds of a page of something that is only added to: such
// pages never move.
func pageBefore(r *http.Request) (before int64, most int, err error) {
	most, err = pageLimit(r)
	if text := r.URL.Query().Get("cursor"); text != "" {
		n, errCursor := strconv.ParseInt(text, 10, 64)
		if errCursor != nil || n < 1 {
			errCursor = fault{invalidRequest, fmt.Errorf("cursor is %q, want the next of the page before",
				asSent(text))}
		}
		before, err = n, errors.Join(err, errCursor)
	}
	return before, most, err
}
