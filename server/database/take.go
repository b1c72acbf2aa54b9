package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"

	"github.com/headgate-io/headgate/policy"
)

// SQLite hands a row over value by value, in two or three calls each. Every call
// locks the connection, and in the translation to Go every lock is looked up in a
// map behind a lock of the whole process: a sixth of what reading cost. A function
// that SQL calls gets all values of a row at once, where they lie, and locks
// nothing. So a condition takes the rows, and the query that it stands in finds
// only one in many:
//
//	SELECT 1 FROM policies WHERE headgate_take(7, endpoint, project_id, rps_limit) ORDER BY rowid

// takers are who takes rows at present, by the number in their query: each is a
// func(values []driver.Value) (pause bool).
var (
	takers    sync.Map
	lastTaker atomic.Int64
)

func init() {
	sqlite.MustRegisterFunction("headgate_take", &sqlite.FunctionImpl{NArgs: -1, VolatileArgs: true, Scalar: take})
}

func take(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	if len(args) > 0 {
		if id, ok := args[0].(int64); ok {
			if do, ok := takers.Load(id); ok {
				return do.(func([]driver.Value) bool)(args[1:]), nil
			}
		}
	}
	return nil, errors.New("headgate_take takes rules for a load of them, and nothing else")
}

// take runs do with the columns of each policy, in order. The values are gone when
// do returns, their texts as well.
func (t *tx) take(ctx context.Context, columns string, do func(values []driver.Value)) error {
	id, n := lastTaker.Add(1), 0
	takers.Store(id, func(values []driver.Value) (pause bool) {
		do(values)
		n++
		return n%lookUp == 0
	})
	defer takers.Delete(id)
	query := fmt.Sprintf("SELECT 1 FROM policies WHERE headgate_take(%d, %s) ORDER BY rowid", id, columns)
	return t.raw(func(conn any) error {
		rows, err := conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
		if err != nil {
			return err
		}
		return errors.Join(pauses(ctx, rows), rows.Close())
	})
}

// pauses runs a query that comes up for air now and then.
func pauses(ctx context.Context, rows driver.Rows) error {
	for one := make([]driver.Value, 1); ; policy.Progress(ctx) {
		if err := rows.Next(one); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
