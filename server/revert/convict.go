package revert

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/record"
)

// convict goes back to the version before the changes at fault, if nobody has
// changed anything else since. That is asked of the database in the transaction
// that goes back: of several replicas one does so, and an operator who was
// faster is never overruled.
func (w *Watcher) convict(ctx context.Context, g guilty) {
	if !g.onlyBlame(w.number) {
		w.count(func(s *Stats) *uint64 { return &s.Mixed })
		w.o.Log.Warn(
			"auto-revert: a change denies callers, and is not reverted, because an unrelated change came after it",
			"endpoint", w.name(g.endpoint), "why", w.why(g, record.Version{ID: g.blamed[0]}))
		delete(w.bench.trials, g.endpoint)
		w.bench.on(w.set)
		return
	}
	history := w.o.History()
	if history == nil {
		return
	}
	blamed := record.Version{ID: g.blamed[0]}
	if list, err := history.History(ctx, g.blamed[0]+1, 1); err == nil && len(list) == 1 {
		blamed = list[0]
	}
	author := record.Author{Actor: Actor, Claimed: w.o.Name, Why: w.why(g, blamed)}
	made, err := history.Revert(ctx, author, g.first, w.number, w.o.Check)
	var conflict *record.Conflict
	switch {
	case errors.As(err, &conflict):
		w.count(func(s *Stats) *uint64 { return &s.Conflicts })
		w.o.Log.Info("auto-revert: somebody else was faster", "version", conflict.Current.ID, "actor",
			conflict.Current.Actor, "action", conflict.Current.Action)
		w.bench.acquit()
		return
	case err != nil:
		w.count(func(s *Stats) *uint64 { return &s.Failed })
		w.o.Log.Error("auto-revert: a change turns callers away, and could not be taken back", "error", err,
			"why", author.Why)
		return // it is tried again at the end of the next part
	}
	w.count(func(s *Stats) *uint64 { return &s.Reverted })
	w.o.Log.Warn("auto-revert: a change was taken back", "version", made.ID, "restores", g.first, "undoes", g.blamed,
		"why", author.Why)
	w.bench.acquit()
	if err := w.o.Reload(ctx); err != nil {
		w.o.Log.Warn("auto-revert: the rules from before are not in force yet", "error", err)
	}
}

// why says in a line what happened:
//
//	GET /x: 93 % of 412 requests denied for 30s after version 17 by alice; before: 2 % of 388
func (w *Watcher) why(g guilty, blamed record.Version) string {
	version := fmt.Sprintf("version %d", blamed.ID)
	if n := len(g.blamed); n > 1 {
		version = fmt.Sprintf("versions %d to %d, the first", blamed.ID, g.blamed[n-1])
	}
	if blamed.Actor != "" {
		version += " by " + blamed.Actor
	}
	before := "no requests"
	if g.before.Total > 0 {
		before = percent(g.before)
	}
	text := fmt.Sprintf("%s: %s denied for %v after %s; before: %s",
		w.name(g.endpoint), percent(g.count), g.took.Round(100*time.Millisecond), version, before)
	for len(text) > record.MaxWhy {
		r := []rune(text)
		text = string(r[:len(r)-1])
	}
	return text
}

func percent(c Count) string {
	return strconv.FormatFloat(c.Percent(), 'f', 0, 64) + " % of " + strconv.FormatInt(c.Total, 10) + " requests"
}

func (w *Watcher) name(id endpoint.ID) string {
	if id == endpoint.Unknown {
		return "UNKNOWN"
	}
	return w.bench.meter.endpoints.Template(id).String()
}
