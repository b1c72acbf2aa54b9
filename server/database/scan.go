package database

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"io"
	"strconv"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate-io/headgate/policy"
)

// A table of a million rules is read value by value, so what one value costs
// decides how long a load takes. database/sql takes a lock for every row, and
// converts and copies every value: two thirds of the time. So rows come from
// the drivers directly here, inside the same transaction, and PostgreSQL's as
// they are on the wire.

// each runs do after the values of each row were written through cells, which
// are pointers to any. What is bytes there is gone with the next row.
func (t *tx) each(ctx context.Context, query string, args, cells []any, do func()) error {
	if len(args) > 0 || t.dialect.wire {
		return t.scan(ctx, query, args, cells, do)
	}
	return t.raw(func(conn any) error {
		return eachOf(ctx, conn.(driver.QueryerContext), query, cells, do)
	})
}

// raw runs do on the driver's connection. database/sql does not hear of its error: at
// driver.ErrBadConn, by which drivers say that a connection was cut, Conn.Raw closes the
// connection, and waits with that until the transaction on it ends, which is for us to end.
func (t *tx) raw(do func(conn any) error) error {
	var failed error
	if err := t.conn.Raw(func(conn any) error { failed = do(conn); return nil }); err != nil {
		return err
	}
	return failed
}

// scan is each through database/sql.
func (t *tx) scan(ctx context.Context, query string, args, cells []any, do func()) error {
	rows, err := t.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for n := 1; rows.Next(); n++ {
		if err := rows.Scan(cells...); err != nil {
			return err
		}
		do()
		if n%lookUp == 0 {
			policy.Progress(ctx)
		}
	}
	return rows.Err()
}

// lookUp is how many rows are read before whoever waits for them is told, and
// it is asked whether anybody still does.
const lookUp = 1 << 10

func eachOf(ctx context.Context, q driver.QueryerContext, query string, cells []any, do func()) (err error) {
	rows, err := q.QueryContext(ctx, query, nil)
	if err != nil {
		return err
	}
	defer func() {
		if errClose := rows.Close(); err == nil {
			err = errClose
		}
	}()
	values := make([]driver.Value, len(cells))
	for n := 1; ; n++ {
		if err := rows.Next(values); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for i, v := range values {
			*cells[i].(*any) = v
		}
		do()
		if n%lookUp == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			policy.Progress(ctx)
		}
	}
}

// wire is a row of plainColumns as PostgreSQL sends it.
type wire struct {
	id, limit         int64
	endpoint, project []byte // nil is NULL
}

// eachWire runs do for the rows of a query for plainColumns. It reports false if
// it cannot go on, because somebody has given a column another type or let it be
// NULL; what do was given is then to be forgotten.
func (t *tx) eachWire(ctx context.Context, query string, do func(wire)) (can bool, err error) {
	err = t.raw(func(conn any) error {
		rows, err := conn.(*stdlib.Conn).Conn().Query(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		fields := rows.FieldDescriptions()
		can = len(fields) == len(wireTypes)
		for i := 0; can && i < len(fields); i++ {
			can = fields[i].DataTypeOID == wireTypes[i]
		}
		for n := 1; can && rows.Next(); n++ {
			if n%lookUp == 0 {
				policy.Progress(ctx)
			}
			v := rows.RawValues()
			w := wire{endpoint: v[1], project: v[2]}
			w.id, can = wholeOf(v[0], fields[0].Format)
			if can {
				w.limit, can = wholeOf(v[3], fields[3].Format)
			}
			if can {
				do(w)
			}
		}
		rows.Close()
		return rows.Err()
	})
	return can, err
}

// wireTypes are the types of plainColumns.
var wireTypes = []uint32{pgtype.Int8OID, pgtype.TextOID, pgtype.TextOID, pgtype.Int8OID}

// wholeOf reads an int8, which poolers' connections get as a text; NULL is none.
func wholeOf(b []byte, format int16) (int64, bool) {
	if format == pgtype.BinaryFormatCode {
		if len(b) != 8 {
			return 0, false
		}
		return int64(binary.BigEndian.Uint64(b)), true
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}
