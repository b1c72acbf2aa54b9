package database

import (
	"context"
	"database/sql"
	"errors"
)

// version reports a text that differs after every change that gateways must
// learn of, whoever made it, and is the same in all processes. It costs a few
// microseconds and may be asked often.
//
// SQLite tells a connection, as PRAGMA data_version, when another connection
// has committed anything. One connection is kept for this alone; because it
// never writes, it hears of this process's own changes as well. Only then the
// version is read that triggers renew, for much is written that changes no
// rule: the audit, and what replicas tell of themselves. The number of the
// schema goes with it: without a trigger, or with another view, nothing is sure.
func (e *embedded) version(ctx context.Context) (version string, err error) {
	err = e.use(ctx, func(f *file) (err error) {
		version, err = f.version(ctx)
		return err
	})
	return version, err
}

func (e *embedded) load(ctx context.Context, do func(*tx) error) (version string, err error) {
	err = e.use(ctx, func(f *file) (err error) {
		// The version first: what is committed in between is then loaded
		// twice rather than never.
		if version, err = f.version(ctx); err != nil {
			return err
		}
		return f.read(ctx, func(tx *tx) error {
			if err := tx.checkSchema(ctx, f.known); err != nil {
				return err
			}
			return do(tx)
		})
	})
	return version, err
}

// watch ends at once: nobody tells of changes, so they are looked for.
func (e *embedded) watch(context.Context, func()) {}

func (f *file) version(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watch != nil {
		err := f.look(ctx)
		if err == nil {
			return f.stamp, nil
		}
		if ctx.Err() != nil {
			return "", err
		}
		_ = f.watch.Close() // whatever is wrong with it, another one may do
		f.watch = nil
	}
	watch, err := f.reads.Conn(ctx)
	if err != nil {
		return "", err
	}
	f.watch, f.stamp = watch, ""
	if err := f.look(ctx); err != nil {
		_ = watch.Close()
		f.watch = nil
		return "", err
	}
	return f.stamp, nil
}

// look reads the version if anything was committed since the last look. What is
// committed between its two queries is looked at once more the next time.
func (f *file) look(ctx context.Context) error {
	var commits int64
	err := f.watch.QueryRowContext(ctx, "PRAGMA data_version").Scan(&commits)
	if err != nil || f.stamp != "" && commits == f.commits {
		return err
	}
	var stamp string
	err = f.watch.QueryRowContext(ctx,
		"SELECT version || '.' || (SELECT schema_version FROM pragma_schema_version) FROM headgate_version").
		Scan(&stamp)
	if errors.Is(err, sql.ErrNoRows) {
		return fault("has no row in table headgate_version, want one back: INSERT INTO headgate_version (id, " +
			"version) VALUES (1, 'restored')")
	}
	if err == nil {
		f.stamp, f.commits = stamp, commits
	}
	return err
}
