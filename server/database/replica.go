package database

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/server/record"
)

const (
	// forgetAfter is how long a replica is remembered that tells nothing.
	forgetAfter = 24 * time.Hour

	// lately is what a replica that runs may be late by, besides a word that
	// was lost.
	lately = time.Minute

	// tellWait bounds what one replica's word may take: it is never worth a
	// wait of anything else.
	tellWait = 2 * time.Second

	// maxReplicaText bounds each text that a replica tells, in bytes.
	maxReplicaText  = 128
	maxReplicaFault = 512
)

// Report writes down how a replica is. told says that this process has told of
// itself under the name before: if another one has since, the error is
// ErrNameTaken, and nothing is written. Without told the name is taken over
// from whoever had it, which is how a restarted replica keeps its name.
//
// Every statement stands alone and locks no row but the replica's: a process
// that is frozen while it tells must not keep anybody from changing rules.
func (s *Store) Report(ctx context.Context, r record.Replica, told bool) error {
	if s.table != nil {
		return record.ErrNoFleet
	}
	ctx, cancel := context.WithTimeout(ctx, tellWait)
	defer cancel()
	taken := false
	err := s.db.single(ctx, func(on statements) error {
		if !told {
			_, err := on.exec(ctx, "DELETE FROM replicas WHERE seen_at < "+on.dialect.clock+" - ?",
				forgetAfter.Milliseconds())
			if err != nil {
				return err
			}
			return on.put(ctx, r)
		}
		renewed, err := on.exec(ctx,
			`UPDATE replicas SET rules = ?, rules_number = ?, loaded_at = ?, stale_ms = ?, every_ms = ?, last_error = ?, clock_offset_ms = ?, seen_at = `+
				on.dialect.clock+` WHERE name = ? AND process = ?`, append(stateOf(r), r.Name, r.Process)...)
		if err != nil || renewed > 0 {
			return err
		}
		var others int
		if err := on.row(ctx, "SELECT count(*) FROM replicas WHERE name = ?", r.Name).Scan(&others); err != nil {
			return err
		}
		if taken = others > 0; taken {
			return nil
		}
		return on.put(ctx, r) // forgotten, or the database is another one
	})
	if taken && err == nil {
		return record.ErrNameTaken
	}
	return explain(ctx, s.db, err)
}

// statements run each for itself, in no transaction.
type statements struct {
	db interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}
	dialect *dialect
}

func (on statements) exec(ctx context.Context, query string, args ...any) (rows int64, err error) {
	done, err := on.db.ExecContext(ctx, on.dialect.bind(query), args...)
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

func (on statements) row(ctx context.Context, query string, args ...any) *sql.Row {
	return on.db.QueryRowContext(ctx, on.dialect.bind(query), args...)
}

// put makes the row of a replica, in place of the one with its name.
func (on statements) put(ctx context.Context, r record.Replica) error {
	_, err := on.exec(ctx, `INSERT INTO replicas (name, process, program, started_at, rules, rules_number, loaded_at, stale_ms, every_ms, last_error, clock_offset_ms, seen_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, `+on.dialect.clock+`)`+on.dialect.newReplica,
		append([]any{r.Name, r.Process, clip.To(r.Program, maxReplicaText), milli(r.Started)}, stateOf(r)...)...)
	return err
}

// stateOf is what changes between two words of a replica.
func stateOf(r record.Replica) []any {
	var ahead any
	if r.Ahead != nil {
		ahead = r.Ahead.Milliseconds()
	}
	return []any{
		clip.To(r.Rules, maxReplicaText), r.Number, milli(r.Loaded), r.Stale.Milliseconds(), r.Every.Milliseconds(),
		clip.To(r.Error, maxReplicaFault), ahead,
	}
}

// Others reports how many replicas told of themselves lately, without one. What
// was told at a time in the future was before the database's clock was set back: who
// is there says so again.
func (s *Store) Others(ctx context.Context, name string) (n int, err error) {
	if s.table != nil {
		return 0, record.ErrNoFleet
	}
	ctx, cancel := context.WithTimeout(ctx, tellWait)
	defer cancel()
	err = s.db.single(ctx, func(on statements) error {
		return on.row(ctx, "SELECT count(*) FROM replicas WHERE name <> ? AND seen_at + 2 * every_ms + ? >= "+
			on.dialect.clock+" AND seen_at - ? <= "+on.dialect.clock,
			name, lately.Milliseconds(), lately.Milliseconds()).Scan(&n)
	})
	return n, explain(ctx, s.db, err)
}

// Leave removes a replica that stops: it is nobody's worry.
func (s *Store) Leave(ctx context.Context, name, process string) error {
	if s.table != nil {
		return record.ErrNoFleet
	}
	ctx, cancel := context.WithTimeout(ctx, tellWait)
	defer cancel()
	return explain(ctx, s.db, s.db.single(ctx, func(on statements) error {
		_, err := on.exec(ctx, "DELETE FROM replicas WHERE name = ? AND process = ?", name, process)
		return err
	}))
}

// ForgetReplica removes a replica by its name, or reports ErrNotFound.
func (s *Store) ForgetReplica(ctx context.Context, name string) error {
	if s.table != nil {
		return record.ErrNoFleet
	}
	var removed int64
	err := s.db.single(ctx, func(on statements) (err error) {
		removed, err = on.exec(ctx, "DELETE FROM replicas WHERE name = ?", name)
		return err
	})
	if err == nil && removed == 0 {
		return record.ErrNotFound
	}
	return explain(ctx, s.db, err)
}

// Fleet reports the replicas and the version that they should have.
func (s *Store) Fleet(ctx context.Context) (f record.Fleet, err error) {
	if s.table != nil {
		return record.Fleet{}, record.ErrNoFleet
	}
	if f.Rules, err = s.version(ctx); err != nil {
		return record.Fleet{}, err
	}
	err = s.read(ctx, func(tx *tx) error {
		var now int64
		if err := tx.QueryRowContext(ctx, "SELECT "+tx.dialect.clock).Scan(&now); err != nil {
			return err
		}
		f.At = time.UnixMilli(now).UTC()
		if f.Number, err = s.versionOf(ctx, tx); err != nil {
			return err
		}
		if f.Replicas, err = s.queryReplicas(ctx, tx, now-forgetAfter.Milliseconds()); err != nil {
			return err
		}
		return s.findLacking(ctx, tx, f)
	})
	return f, err
}

// findLacking finds out which versions replicas lack.
func (s *Store) findLacking(ctx context.Context, tx *tx, f record.Fleet) error {
	for i := range f.Replicas {
		r := &f.Replicas[i]
		if r.Number == 0 || f.Number <= r.Number {
			continue
		}
		next, err := s.queryVersions(ctx, tx, "WHERE id > ? ORDER BY id LIMIT 1", r.Number)
		if err != nil {
			return err
		}
		r.Behind = f.Number - r.Number
		if len(next) == 1 {
			r.Lacking = next[0].At
		}
	}
	return nil
}

func (s *Store) queryReplicas(ctx context.Context, tx *tx, since int64) ([]record.Replica, error) {
	rows, err := tx.QueryContext(ctx,
		`SELECT name, process, program, started_at, rules, rules_number, loaded_at, stale_ms, every_ms, last_error, clock_offset_ms, seen_at
		FROM replicas WHERE seen_at >= ? ORDER BY name`, since)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []record.Replica
	r := newRow(s.db.name(), "replicas", tx)
	for rows.Next() {
		if err := rows.Scan(r.cells[:12]...); err != nil {
			return nil, err
		}
		r.begin(r.text(0, "name"))
		list = append(list, record.Replica{
			Name: r.text(0, "name"), Process: r.text(1, "process"), Program: r.text(2, "program"),
			Started: r.milli(3, "started_at"),
			Rules:   r.text(4, "rules"), Number: r.whole0(5, "rules_number"), Loaded: r.milli(6, "loaded_at"),
			Stale: r.span(7, "stale_ms"), Every: r.span(8, "every_ms"), Error: r.text(9, "last_error"),
			Ahead: r.offset(10, "clock_offset_ms"), Seen: r.milli(11, "seen_at"),
		})
	}
	return list, errors.Join(rows.Err(), r.err())
}

func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// milli reads a time in milliseconds, 0 for none, span a duration.
func (r *row) milli(i int, field string) time.Time {
	n := r.whole0(i, field)
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(min(n, lastMilli)).UTC()
}

// longestSpan is more than any replica means, and can be added up and multiplied.
const longestSpan = 366 * 24 * time.Hour

// lastMilli is the last time that JSON can write, at the end of the year 9999.
const lastMilli = 253402300799999

func (r *row) span(i int, field string) time.Duration {
	return time.Duration(min(r.whole0(i, field), longestSpan.Milliseconds())) * time.Millisecond
}

// longestOffset is more than clocks that are set by anybody differ by.
const longestOffset = 100 * longestSpan

// offset reads a duration that may be below 0, nil for NULL.
func (r *row) offset(i int, field string) *time.Duration {
	if r.values[i] == nil {
		return nil
	}
	n, ok := r.values[i].(int64)
	if !ok {
		r.wrong(i, field, "a whole number")
		return nil
	}
	most := longestOffset.Milliseconds()
	d := time.Duration(max(-most, min(n, most))) * time.Millisecond
	return &d
}

// whole0 reads a number that may be 0.
func (r *row) whole0(i int, field string) int64 {
	n, ok := r.values[i].(int64)
	if !ok || n < 0 {
		r.wrong(i, field, "a whole number of 0 or more")
		return 0
	}
	return n
}
