package database

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// allRules reads all policies in the order of their rows, and says how many. It tells
// the draft of doc, which may be nil, of rules as they come, and returns those that
// this left.
func (s *Store) allRules(ctx context.Context, tx *tx, doc policy.Document, draft *policy.Draft) (
	left []policy.Rule, n int, err error) {
	var about int64
	if err := tx.QueryRowContext(ctx, tx.dialect.about).Scan(&about); err != nil {
		return nil, 0, err
	}
	about = max(0, min(about, mostAbout))
	r := newRow(s.db.name(), "policies", tx)
	wide, all, err := s.wideRules(ctx, tx, r, max(fewWide, int(about)/mostlyPlain))
	if err != nil {
		return nil, 0, err
	}
	p := plain{
		store: s, row: r, wide: wide, about: int(about), projects: newRecent(int(about)), doc: doc, draft: draft,
	}
	r.texts = newRecent(int(about))
	if !all {
		err = p.readWide(ctx, tx)
		return p.rules, p.n, errors.Join(err, r.err())
	}
	switch done, err := p.readFast(ctx, tx); {
	case err != nil:
		return nil, 0, err
	case done:
		return p.rules, p.n, r.err()
	}
	err = p.read(ctx, tx)
	return p.rules, p.n, errors.Join(err, r.err())
}

// mostAbout bounds the room that is made for rules before they are read.
const mostAbout = 1 << 22

// fewWide is how many policies that are not plain are read one by one, and
// mostlyPlain of how many one of them is, in larger tables: a row that is looked up
// takes as long as a dozen read narrow, or as four read in full width.
const (
	fewWide     = 1 << 10
	mostlyPlain = 16
)

// wideRules reads the policies that are not plain, in the order of their rows. It
// reports false if there are more than so many.
func (s *Store) wideRules(ctx context.Context, tx *tx, r *row, most int) (wide []numbered, all bool, err error) {
	restore, err := tx.preferIndexes(ctx)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err == nil {
			err = restore()
		}
	}()
	clauses := fmt.Sprintf("WHERE NOT (%s) LIMIT %d", isPlain, most+1)
	err = s.scanRules(ctx, tx, r, ruleColumns, clauses, nil, func(id int64) {
		wide = append(wide, numbered{id, r.rule()})
	})
	if err != nil || len(wide) > most {
		r.problems, r.remedies, r.more = nil, nil, 0 // they will be found again
		return nil, false, err
	}
	// Sorted here: to have them in order, SQLite would rather read every row.
	slices.SortFunc(wide, func(a, b numbered) int { return cmp.Compare(a.id, b.id) })
	return wide, true, nil
}

type numbered struct {
	id   int64 // of the row
	rule policy.Rule
}

// plain reads the table into rules: three columns wide, unless too many have more.
type plain struct {
	store *Store
	row   *row
	about int           // as many rules
	wide  []numbered    // the rules that have more
	rules []policy.Rule // that were read and that the draft left
	n     int           // how many were read

	projects recent

	doc   policy.Document // without rules
	draft *policy.Draft   // is told of rules; may be nil
}

// begin forgets what was read.
func (p *plain) begin() {
	p.rules, p.n = p.draft.Begin(p.doc, p.about), 0
}

// add takes the next rule. Those before it are final.
func (p *plain) add(rule policy.Rule) {
	p.rules = append(p.rules, rule)
	if p.n++; p.n%lookUp == 0 {
		p.rules = p.draft.Read(p.rules)
	}
}

// rule reads a row of plainColumns. It reports false if a value is not as it
// should be.
func (p *plain) rule(r *row, id int64) (policy.Rule, bool) {
	if known := p.wider(id); known != nil {
		return *known, true
	}
	endpoint, ok := r.plainText(1, &r.texts)
	project, ok2 := r.plainText(2, &p.projects)
	limit, ok3 := r.values[3].(int64)
	return policy.Rule{Endpoint: endpoint, Project: project, Limit: limit, Per: time.Second}, ok && ok2 && ok3 &&
		limit > 0 && endpoint != ""
}

// plainText is text without a word about what is wrong.
func (r *row) plainText(i int, texts *recent) (string, bool) {
	switch v := r.values[i].(type) {
	case nil:
		return "", true
	case string:
		return texts.share(v), true
	case []byte:
		return texts.text(v), r.bytes
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

// read reads the rows in order, and reports what is wrong in them.
func (p *plain) read(ctx context.Context, tx *tx) error {
	p.begin()
	return p.store.scanRules(ctx, tx, p.row, plainColumns, "ORDER BY rowid", nil, func(id int64) {
		rule, ok := p.rule(p.row, id)
		if !ok {
			rule = p.row.rule()
		}
		p.add(rule)
	})
}

// readWide reads the rows in order and full width, and reports what is wrong in
// them.
func (p *plain) readWide(ctx context.Context, tx *tx) error {
	p.begin()
	if !tx.dialect.take {
		return p.store.scanRules(ctx, tx, p.row, ruleColumns, "ORDER BY rowid", nil,
			func(int64) { p.add(p.row.rule()) })
	}
	err := tx.take(ctx, ruleColumns, func(values []driver.Value) {
		for i, v := range values {
			p.row.values[i] = v
		}
		p.row.begin(values[0])
		p.row.label = values[1]
		p.add(p.row.rule())
	})
	clear(p.row.values[:]) // they are SQLite's, and gone
	p.row.label = nil
	return err
}

// readFast reads the rows as the database gives them fastest. It reports false
// when it met anything that is not as it should be: read, which is to follow,
// finds it again and tells of it.
func (p *plain) readFast(ctx context.Context, tx *tx) (done bool, err error) {
	switch {
	case tx.dialect.wire:
		return p.readWire(ctx, tx)
	case tx.dialect.take:
		return p.takeRules(ctx, tx)
	case len(p.wide) == 0:
		return p.readNarrow(ctx, tx)
	}
	return false, nil
}

// readNarrow reads rows that are all plain. Nothing is looked up by their
// numbers, so these are left out: a column less of four.
func (p *plain) readNarrow(ctx context.Context, tx *tx) (done bool, err error) {
	r, sound := p.row, true
	p.begin()
	err = tx.each(ctx, "SELECT endpoint, project_id, rps_limit FROM policies ORDER BY rowid", nil,
		r.cells[1:4], func() {
			rule, ok := p.rule(r, 0)
			sound = sound && ok
			p.add(rule)
		})
	return sound, err
}

// takeRules reads rows through a function that SQLite calls. Only where some rules
// are not plain it needs the numbers of rows.
func (p *plain) takeRules(ctx context.Context, tx *tx) (done bool, err error) {
	r, sound, columns := p.row, true, "endpoint, project_id, rps_limit"
	if len(p.wide) > 0 {
		columns += ", rowid"
	}
	p.begin()
	err = tx.take(ctx, columns, func(values []driver.Value) {
		r.values[1], r.values[2], r.values[3] = values[0], values[1], values[2]
		var id int64
		if len(values) > 3 {
			id, _ = values[3].(int64) // a rowid is one
		}
		rule, ok := p.rule(r, id)
		sound = sound && ok
		p.add(rule)
	})
	clear(r.values[1:4]) // they are SQLite's, and gone
	return sound, err
}

// readWire reads rows as they lie in PostgreSQL's table, and puts them in order.
func (p *plain) readWire(ctx context.Context, tx *tx) (done bool, err error) {
	p.begin()
	ids, sound, ordered := make([]int64, 0, p.about), true, true
	can, err := tx.eachWire(ctx, "SELECT "+plainColumns+" FROM policies", func(w wire) {
		ordered = ordered && (len(ids) == 0 || ids[len(ids)-1] < w.id)
		ids = append(ids, w.id)
		if known := p.wider(w.id); known != nil {
			p.add(*known)
			return
		}
		sound = sound && len(w.endpoint) > 0 && w.limit > 0
		p.add(policy.Rule{
			Endpoint: p.row.texts.text(w.endpoint), Project: p.projects.text(w.project), Limit: w.limit,
			Per: time.Second,
		})
	})
	if err != nil || !can || !sound {
		return false, err
	}
	if !ordered {
		if p.rules = p.draft.Reorder(p.rules); len(p.rules) == len(ids) {
			arrange(p.rules, sortSpots(ids))
		}
	}
	return true, nil
}

// spot is where the rule of a row was read to.
type spot struct {
	id int64 // of the row
	at int
}

// sortSpots reports where the rules of rows with these ids are, by id.
func sortSpots(ids []int64) []spot {
	places := make([]spot, len(ids))
	for i, id := range ids {
		places[i] = spot{id, i}
	}
	slices.SortFunc(places, func(a, b spot) int { return cmp.Compare(a.id, b.id) })
	return places
}

// arrange puts rules into the order of places, which it uses up.
func arrange(rules []policy.Rule, places []spot) {
	for i := range places {
		if places[i].at == i {
			continue // most rows lie in order
		}
		first, hole := rules[i], i
		for places[hole].at != i {
			from := places[hole].at
			rules[hole], places[hole].at = rules[from], hole
			hole = from
		}
		rules[hole], places[hole].at = first, hole
	}
}
