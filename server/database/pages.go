package database

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-io/headgate/server/record"
)

// Page reports at most most rules, from the beginning or after the Last of
// another page.
func (s *Store) Page(ctx context.Context, after int64, most int) (p record.Page, err error) {
	if s.table != nil {
		doc, _, err := s.table.load(ctx)
		if err != nil {
			return record.Page{}, err
		}
		first := min(int(after), len(doc.Rules))
		p.Rules = doc.Rules[first:min(first+most, len(doc.Rules))]
		if first+most < len(doc.Rules) {
			p.Last = int64(first + most)
		}
		return p, nil
	}
	s.numberForPages(ctx, after == 0)
	err = s.read(ctx, func(tx *tx) (err error) {
		p = record.Page{}
		if p.Number, err = s.versionOf(ctx, tx); err != nil {
			return err
		}
		r := newRow(s.db.name(), "policies", tx)
		more := false
		var last int64
		err = s.scanRules(ctx, tx, r, ruleColumns, "WHERE rowid > ? ORDER BY rowid LIMIT "+number(int64(most)+1),
			[]any{after}, func(id int64) {
				if more = len(p.Rules) == most; !more {
					p.Rules, last = append(p.Rules, r.rule()), id
				}
			})
		if more {
			p.Last = last
		}
		return errors.Join(err, r.err())
	})
	return p, err
}

// numberForPages makes versions of what was changed by SQL before the first page
// of several is read, however long it takes: pages belong together by their
// version, and whoever changes what was read names it.
func (s *Store) numberForPages(ctx context.Context, first bool) {
	if first && !s.readOnly {
		_ = s.Number(ctx) // without a number, the pages are of an unknown version
		return
	}
	s.numberSoon(ctx)
}

// Projects reports at most most projects that are in a tier, in the order of
// their names, from the first or after one, and the version that they are of; 0
// is unknown.
func (s *Store) Projects(ctx context.Context, after string, most int) (list []record.ProjectTier,
	version int64, err error) {
	if s.table != nil {
		return nil, 0, nil // it has no tiers
	}
	s.numberForPages(ctx, after == "")
	err = s.read(ctx, func(tx *tx) (err error) {
		list = nil
		if version, err = s.versionOf(ctx, tx); err != nil {
			return err
		}
		list, err = s.pageOfProjects(ctx, tx, "WHERE project_id > ? ORDER BY project_id LIMIT "+
			number(int64(most)), after)
		return err
	})
	return list, version, err
}

// Tier reports the tier of a project, or ErrNotFound if it is in none.
func (s *Store) Tier(ctx context.Context, project string) (tier string, version int64, err error) {
	if s.table != nil {
		return "", 0, fmt.Errorf("tier of project %q: %w", project, record.ErrNotFound)
	}
	s.numberSoon(ctx)
	err = s.read(ctx, func(tx *tx) (err error) {
		if version, err = s.versionOf(ctx, tx); err != nil {
			return err
		}
		list, err := s.pageOfProjects(ctx, tx, "WHERE "+tx.dialect.sameProject, project)
		if err != nil || len(list) == 0 {
			return errors.Join(err, fmt.Errorf("tier of project %q: %w", project, record.ErrNotFound))
		}
		tier = list[0].Tier
		return nil
	})
	return tier, version, err
}

func (s *Store) pageOfProjects(ctx context.Context, tx *tx, clauses string,
	args ...any) (list []record.ProjectTier, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT rowid, project_id, tier FROM projects "+clauses, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	r := newRow(s.db.name(), "projects", tx)
	for rows.Next() {
		if err := rows.Scan(r.cells[:3]...); err != nil {
			return nil, err
		}
		r.begin(r.values[0])
		list = append(list, record.ProjectTier{Project: r.text(1, "project_id"), Tier: r.text(2, "tier")})
	}
	return list, errors.Join(rows.Err(), r.err())
}
