package store

import (
	"context"
	"database/sql"
	"fmt"
)

// version reports a text that differs after every change of the file, whoever
// made it. It costs a few microseconds and may be asked often.
//
// SQLite tells a connection, as PRAGMA data_version, when another connection
// has committed. The numbers of two connections cannot be compared, so one is
// kept for this alone; and because it never writes, it hears of this process's
// own changes as well. Should it die, the next one begins with another random
// epoch, so that nothing that happened in between is taken for seen.
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
	var n int64
	if f.watch != nil {
		err := dataVersion(ctx, f.watch, &n)
		if err == nil {
			return fmt.Sprintf("%s.%d", f.epoch, n), nil
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
	if err := dataVersion(ctx, watch, &n); err != nil {
		_ = watch.Close()
		return "", err
	}
	f.watch, f.epoch = watch, newID("")
	return fmt.Sprintf("%s.%d", f.epoch, n), nil
}

func dataVersion(ctx context.Context, c *sql.Conn, n *int64) error {
	return c.QueryRowContext(ctx, "PRAGMA data_version").Scan(n)
}
