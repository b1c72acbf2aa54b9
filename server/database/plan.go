package database

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// plan is what an edit comes to: only what is different from what is there is
// written, so that only that is in the history.
type plan struct {
	add, change []policy.Rule
	remove      []place
	empty       bool // before anything else is done, whatever cannot be read

	tiers        map[string]string // an empty one goes
	tiersBefore  map[string]string
	unread       int // rules that empty removes
	unreadTiers  int
	nothingStays bool
}

func (p *plan) count() (added, changed, removed int) {
	added, changed, removed = len(p.add), len(p.change), len(p.remove)+p.unread+p.unreadTiers
	for project, tier := range p.tiers {
		switch {
		case p.tiersBefore[project] == "":
			added++
		case tier == "":
			removed++
		default:
			changed++
		}
	}
	return added, changed, removed
}

// setTier plans a tier, if it is another one than before.
func (p *plan) setTier(project, before, tier string) {
	if before == tier {
		return
	}
	if p.tiers == nil {
		p.tiers, p.tiersBefore = map[string]string{}, map[string]string{}
	}
	p.tiers[project], p.tiersBefore[project] = tier, before
}

// planAll compares an edit with all that is there.
func (s *Store) planAll(ctx context.Context, tx *tx, e record.Edit) (plan, error) {
	before, err := s.readDocument(ctx, tx)
	if isProblem(err) && e.Replace {
		return s.planAnew(ctx, tx, e)
	}
	var bad []image
	if isProblem(err) {
		sound, apart, errSound := s.readSound(ctx, tx)
		if errSound != nil || !mends(&e, apart) {
			return plan{}, errors.Join(err, errSound)
		}
		before, bad, err = sound, apart, nil
	}
	if err != nil {
		return plan{}, err
	}
	p, after, err := compare(before, bad, e)
	if err != nil {
		return plan{}, err
	}
	if !e.Replace && len(e.Set)+len(e.Tiers) > 0 { // together with what was there
		if err := lint(after); err != nil {
			return plan{}, err
		}
	}
	return p, ask(&e, before, after)
}

// compare plans an edit, and reports what it leads to. The bad rows are beside
// those of before.
func compare(before policy.Document, bad []image, e record.Edit) (p plan, after policy.Document, err error) {
	set := make(map[place]int, len(e.Set))
	for i, r := range e.Set {
		set[placeOf(r)] = i
	}
	gone := make(map[place]bool, len(e.Delete))
	for _, k := range e.Delete {
		gone[placeOfKey(k)] = true
	}
	after = before
	after.Rules = make([]policy.Rule, 0, max(len(before.Rules), len(e.Set)))
	for _, r := range before.Rules {
		at := placeOf(r)
		i, ok := set[at]
		switch {
		case ok:
			delete(set, at)
			if e.Set[i] != r {
				p.change = append(p.change, e.Set[i])
			}
			after.Rules = append(after.Rules, e.Set[i])
		case e.Replace, gone[at]:
			delete(gone, at)
			p.remove = append(p.remove, at)
		default:
			after.Rules = append(after.Rules, r)
		}
	}
	badTiers := map[string]string{}
	for _, b := range bad {
		at := placeOf(b.rule)
		i, ok := set[at]
		switch {
		case b.lost:
		case at.endpoint == "":
			badTiers[at.project] = b.fault
		case ok:
			delete(set, at)
			p.change = append(p.change, e.Set[i])
			after.Rules = append(after.Rules, e.Set[i])
		case gone[at]:
			delete(gone, at)
			p.remove = append(p.remove, at)
		}
	}
	for i, r := range e.Set {
		if n, ok := set[placeOf(r)]; ok && n == i {
			p.add = append(p.add, r)
		}
	}
	after.Rules = append(after.Rules, p.add...)
	p.nothingStays = len(bad) == 0 && len(p.remove) == len(before.Rules)

	after.Projects = maps.Clone(before.Projects)
	for project, tier := range e.Tiers {
		p.setTier(project, before.Projects[project]+badTiers[project], tier)
		if after.Projects[project] = tier; tier == "" {
			delete(after.Projects, project)
		}
	}
	if e.Replace {
		for project, tier := range before.Projects {
			if _, stays := e.Tiers[project]; !stays {
				p.setTier(project, tier, "")
				delete(after.Projects, project)
			}
		}
		return p, after, nil
	}
	return p, after, missing(e.Delete, gone)
}

// Compare reports what is different in one document from another.
func Compare(before, after policy.Document) []record.Change {
	var f fold
	for _, side := range []struct {
		sign int
		doc  policy.Document
	}{{-1, before}, {+1, after}} {
		for _, r := range side.doc.Rules {
			f.add(image{sign: side.sign, rule: normal(r)})
		}
		for project, tier := range side.doc.Projects {
			f.add(image{sign: side.sign, rule: policy.Rule{Project: project, Tier: tier}})
		}
	}
	list, _ := f.changes() // documents that lint refuses may have a rule twice: then it is left out
	return list
}

// missing reports the rules that cannot be deleted because they are not there.
func missing(wanted []record.RuleKey, left map[place]bool) error {
	var faults []error
	for _, k := range wanted {
		if left[placeOfKey(k)] {
			faults = append(faults, fmt.Errorf("%v: %w", k, record.ErrNotFound))
		}
	}
	return few(faults)
}

// planAnew replaces all there is by an edit, where what is there cannot be
// read: a row with a bad value must not keep good ones out.
func (s *Store) planAnew(ctx context.Context, tx *tx, e record.Edit) (plan, error) {
	p := plan{empty: true, add: e.Set}
	for _, c := range []struct {
		table string
		into  *int
	}{{"policies", &p.unread}, {"projects", &p.unreadTiers}} {
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+c.table).Scan(c.into); err != nil {
			return plan{}, err
		}
	}
	for project, tier := range e.Tiers {
		p.setTier(project, "", tier)
	}
	return p, ask(&e, policy.Document{}, policy.Document{Rules: e.Set, Projects: e.Tiers, Source: s.Path()})
}

// planFew looks up the few rules and projects that an edit is about.
func (s *Store) planFew(ctx context.Context, tx *tx, e record.Edit) (p plan, err error) {
	for _, r := range e.Set {
		if err := s.checkTwin(ctx, tx, r); err != nil {
			return plan{}, err
		}
		found, err := s.queryRules(ctx, tx, "WHERE "+tx.dialect.sameRule, placeOf(r).args()...)
		switch {
		case isProblem(err): // it cannot be read, and a good one takes its place
			p.change = append(p.change, r)
		case err != nil:
			return plan{}, err
		case len(found) == 0:
			p.add = append(p.add, r)
		case found[0] != r:
			p.change = append(p.change, r)
		}
	}
	var faults []error
	for _, k := range e.Delete {
		var there int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM policies WHERE "+tx.dialect.sameRule,
			placeOfKey(k).args()...).Scan(&there); err != nil {
			return plan{}, err
		}
		if there == 0 {
			faults = append(faults, fmt.Errorf("%v: %w", k, record.ErrNotFound))
		}
		p.remove = append(p.remove, placeOfKey(k))
	}
	for project, tier := range e.Tiers {
		before, err := s.tierOf(ctx, tx, project)
		if err != nil {
			return plan{}, err
		}
		p.setTier(project, before, tier)
	}
	return p, errors.Join(faults...)
}

// tierOf reports the tier of a project, "" if it is in none.
func (s *Store) tierOf(ctx context.Context, tx *tx, project string) (tier string, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT tier FROM projects WHERE "+tx.dialect.sameProject, project)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&tier); err != nil {
			return "", err
		}
	}
	return tier, rows.Err()
}

// write makes the changes: what goes first, because what comes may be for the
// same endpoint in other parameter names.
func (p *plan) write(ctx context.Context, tx *tx) error {
	if p.empty || p.nothingStays && len(p.remove) > 0 {
		if _, err := tx.ExecContext(ctx, "DELETE FROM policies"); err != nil {
			return err
		}
	} else if err := removeRules(ctx, tx, p.remove); err != nil {
		return err
	}
	if p.empty {
		if _, err := tx.ExecContext(ctx, "DELETE FROM projects"); err != nil {
			return err
		}
	}
	if err := writeRules(ctx, tx, tx.dialect.newRule, p.change); err != nil {
		return err
	}
	if err := writeRules(ctx, tx, "", p.add); err != nil { // where no rule can be in the way, an eighth of the time
		return err
	}
	stay := map[string]string{}
	for _, project := range slices.Sorted(maps.Keys(p.tiers)) {
		if tier := p.tiers[project]; tier != "" {
			stay[project] = tier
		} else if _, err := tx.ExecContext(ctx, "DELETE FROM projects WHERE "+tx.dialect.sameProject,
			project); err != nil {
			return err
		}
	}
	return upsertProjects(ctx, tx, stay)
}

// removeRules takes as many rules with a statement as writeRules writes. The
// triggers write the one row of the version once a statement, and the writes of
// one transaction to one row cost PostgreSQL their number squared.
func removeRules(ctx context.Context, tx *tx, places []place) error {
	if len(places) == 0 {
		return nil
	}
	most := min(tx.dialect.rows, len(places))
	remove, err := tx.PrepareContext(ctx, "DELETE FROM policies WHERE "+strings.Repeat(tx.dialect.sameRule+" OR ",
		most-1)+tx.dialect.sameRule)
	if err != nil {
		return err
	}
	defer remove.Close()
	args := make([]any, 0, 5*most)
	for len(places) >= most {
		args = args[:0]
		for _, p := range places[:most] {
			args = append(args, p.args()...)
		}
		if _, err := remove.ExecContext(ctx, args...); err != nil {
			return err
		}
		places = places[most:]
	}
	return removeRules(ctx, tx, places)
}
