package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// allRules reads all policies in the order of their rows.
func (s *Store) allRules(ctx context.Context, tx *tx) ([]policy.Rule, error) {
	var count int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM policies").Scan(&count); err != nil {
		return nil, err
	}
	r := newRow(s.db.name(), "policies", tx)
	wide, err := s.wideRules(ctx, tx, r)
	if err != nil {
		return nil, err
	}
	p := plain{store: s, row: r, wide: wide, rules: make([]policy.Rule, count)}
	r.texts = newRecent(count)
	switch done, err := p.readFast(ctx, tx); {
	case err != nil:
		return nil, err
	case done:
		return p.rules, r.err()
	}
	err = p.read(ctx, tx)
	return p.rules, errors.Join(err, r.err())
}

// wideRules reads the policies that are not plain, in the order of their rows.
func (s *Store) wideRules(ctx context.Context, tx *tx, r *row) (wide []numbered, err error) {
	err = s.scanRules(ctx, tx, r, ruleColumns, "WHERE NOT ("+isPlain+")", nil, func(id int64) {
		wide = append(wide, numbered{id, r.rule()})
	})
	// Sorted here: to have them in order, SQLite would rather read every row.
	slices.SortFunc(wide, func(a, b numbered) int { return cmp.Compare(a.id, b.id) })
	return wide, err
}

type numbered struct {
	id   int64 // of the row
	rule policy.Rule
}

// plain reads the table three columns wide, into rules.
type plain struct {
	store *Store
	row   *row
	wide  []numbered    // the rules that have more
	rules []policy.Rule // as many as there are rows
}

// rule reads a row of plainColumns. It reports false if a value is not as it
// should be.
func (p *plain) rule(r *row, id int64) (policy.Rule, bool) {
	if known := p.wider(id); known != nil {
		return *known, true
	}
	endpoint, ok := r.plainText(1)
	project, ok2 := r.plainText(2)
	limit, ok3 := r.values[3].(int64)
	return policy.Rule{Endpoint: endpoint, Project: project, Limit: limit, Per: time.Second}, ok && ok2 && ok3 && limit > 0 && endpoint != ""
}

// plainText is text without a word about what is wrong.
func (r *row) plainText(i int) (string, bool) {
	switch v := r.values[i].(type) {
	case nil:
		return "", true
	case string:
		return r.texts.share(v), true
	case []byte:
		return r.texts.text(v), r.bytes
	}
	return "", false
}

// wider finds a rule that is not plain.
func (p *plain) wider(id int64) *policy.Rule {
	if len(p.wide) == 0 {
		return nil
	}
	at, found := slices.BinarySearchFunc(p.wide, id, func(n numbered, id int64) int { return cmp.Compare(n.id, id) })
	if !found {
		return nil
	}
	return &p.wide[at].rule
}

// put keeps a rule in its place. One that has none is counted in full.
func (p *plain) put(i int, rule policy.Rule) {
	if 0 <= i && i < len(p.rules) {
		p.rules[i] = rule
	}
}

// full says that a snapshot held other rows than it counted, which no database
// may do.
func (p *plain) full(n int) error {
	if n == len(p.rules) {
		return nil
	}
	return fmt.Errorf("%d policies were counted and %d read in one snapshot", len(p.rules), n)
}

// read reads the rows in order, and reports what is wrong in them.
func (p *plain) read(ctx context.Context, tx *tx) error {
	n := 0
	err := p.store.scanRules(ctx, tx, p.row, plainColumns, "ORDER BY rowid", nil, func(id int64) {
		rule, ok := p.rule(p.row, id)
		if !ok {
			rule = p.row.rule()
		}
		p.put(n, rule)
		n++
	})
	if err != nil {
		return err
	}
	return p.full(n)
}

// readFast reads the rows as the database gives them fastest. It reports false
// when it met anything that is not as it should be: read, which is to follow,
// finds it again and tells of it.
func (p *plain) readFast(ctx context.Context, tx *tx) (done bool, err error) {
	if tx.dialect.wire {
		return p.readWire(ctx, tx)
	}
	return false, nil
}

// readWire reads rows as they lie in PostgreSQL's table, and puts them in order.
func (p *plain) readWire(ctx context.Context, tx *tx) (done bool, err error) {
	places, n := make([]spot, len(p.rules)), 0
	projects, sound, ordered := newRecent(len(p.rules)), true, true
	can, err := tx.eachWire(ctx, "SELECT "+plainColumns+" FROM policies", func(w wire) {
		if n == len(places) {
			sound = false
			return
		}
		places[n] = spot{w.id, n}
		ordered = ordered && (n == 0 || places[n-1].id < w.id)
		if known := p.wider(w.id); known != nil {
			p.rules[n] = *known
		} else {
			sound = sound && len(w.endpoint) > 0 && w.limit > 0
			p.rules[n] = policy.Rule{
				Endpoint: p.row.texts.text(w.endpoint), Project: projects.text(w.project), Limit: w.limit, Per: time.Second,
			}
		}
		n++
	})
	if err != nil || !can || !sound || n < len(places) {
		return false, err
	}
	if !ordered {
		sortSpots(places)
		arrange(p.rules, places)
	}
	return true, nil
}

// spot is where the rule of a row was read to.
type spot struct {
	id int64 // of the row
	at int
}

func sortSpots(places []spot) {
	slices.SortFunc(places, func(a, b spot) int { return cmp.Compare(a.id, b.id) })
}

// arrange puts rules into the order of places, which it uses up.
func arrange(rules []policy.Rule, places []spot) {
	for i := range places {
		first, hole := rules[i], i
		for places[hole].at != i {
			from := places[hole].at
			rules[hole], places[hole].at = rules[from], hole
			hole = from
		}
		rules[hole], places[hole].at = first, hole
	}
}
