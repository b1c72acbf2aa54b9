package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

// database is a database/sql driver of a few tables in memory. It understands
// what the package asks and nothing else.
type database struct {
	mu     sync.Mutex
	tables map[string]*rowsOf
	fails  error // of every query
	breaks error // of reading, after the first row
	asked  []string
}

// rowsOf is one table.
type rowsOf struct {
	columns []string
	rows    [][]driver.Value
}

func newDatabase(t *testing.T) (*database, *sql.DB) {
	t.Helper()
	d := &database{tables: map[string]*rowsOf{}}
	db := sql.OpenDB(d)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if open := db.Stats().InUse; open != 0 {
			t.Errorf("%d connections still in use, want none", open)
		}
	})
	return d, db
}

// put replaces a table. Columns are separated by spaces.
func (d *database) put(table, columns string, rows ...[]driver.Value) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tables[table] = &rowsOf{strings.Fields(columns), rows}
}

func (d *database) Connect(context.Context) (driver.Conn, error) { return conn{d}, nil }
func (d *database) Driver() driver.Driver                        { return nil }

type conn struct{ d *database }

func (c conn) Prepare(query string) (driver.Stmt, error) { return stmt{c.d, query}, nil }
func (c conn) Begin() (driver.Tx, error)                 { return nil, errors.New("no transactions") }
func (c conn) Close() error                              { return nil }

type stmt struct {
	d     *database
	query string
}

func (s stmt) Close() error  { return nil }
func (s stmt) NumInput() int { return 0 }

func (s stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errors.New("read only") }

func (s stmt) Query([]driver.Value) (driver.Rows, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.asked = append(s.d.asked, s.query)
	if s.d.fails != nil {
		return nil, s.d.fails
	}
	rest, ok := strings.CutPrefix(s.query, "SELECT ")
	columns, from, ok2 := strings.Cut(rest, " FROM ")
	name, none := strings.CutSuffix(from, " WHERE 1 = 0")
	table := s.d.tables[name]
	if !ok || !ok2 || table == nil {
		return nil, fmt.Errorf("no such table: %s", name)
	}
	out := &cursor{columns: table.columns, breaks: s.d.breaks}
	if columns != "*" {
		out.columns = strings.Split(columns, ", ")
	}
	for _, c := range out.columns {
		i := slices.IndexFunc(table.columns, func(have string) bool { return strings.EqualFold(have, c) })
		if i < 0 {
			return nil, fmt.Errorf("no such column: %s", c)
		}
		out.places = append(out.places, i)
	}
	if !none {
		out.rows = table.rows
	}
	return out, nil
}

type cursor struct {
	columns []string
	places  []int
	rows    [][]driver.Value
	next    int
	breaks  error
}

func (c *cursor) Columns() []string { return c.columns }
func (c *cursor) Close() error      { return nil }

func (c *cursor) Next(dest []driver.Value) error {
	if c.next > 0 && c.breaks != nil {
		return c.breaks
	}
	if c.next == len(c.rows) {
		return io.EOF
	}
	for i, place := range c.places {
		dest[i] = c.rows[c.next][place]
	}
	c.next++
	return nil
}
