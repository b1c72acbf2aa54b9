package database

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// image is a row of policy_changes: a rule, or the tier of a project, as it was
// before somebody changed it or as it was then.
type image struct {
	id   int64
	at   time.Time
	who  string // the user of the database; empty where none is known
	sign int    // -1: so it was; +1: so it became
	rule policy.Rule

	fault string // what no rule has; empty for nearly all
	lost  bool   // so that the row cannot be found by its key, and is in no place
}

// content is all that an image says about a row.
type content struct {
	rule  policy.Rule
	fault string
}

func (i *image) content() content { return content{i.rule, i.fault} }

// place is what at most one rule, or one tier of a project, stands in. Unlike
// RuleKey it takes endpoints as they are written in the database.
type place struct {
	endpoint, project, tier string
	subject                 policy.Subject
	only                    string
	temporary               bool
}

func placeOf(r policy.Rule) place {
	if r.Endpoint == "" {
		return place{project: r.Project}
	}
	return place{r.Endpoint, r.Project, r.Tier, r.Subject, r.Only, !r.Expires.IsZero()}
}

// String names the place for people.
func (p place) String() string {
	if p.endpoint == "" {
		return fmt.Sprintf("tier of project %q", p.project)
	}
	return record.RuleKey{
		Endpoint:  p.endpoint,
		Project:   p.project,
		Tier:      p.tier,
		Subject:   p.subject,
		Only:      p.only,
		Temporary: p.temporary,
	}.String()
}

func (p place) compare(q place) int {
	bit := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(bit(p.endpoint == ""), bit(q.endpoint == "")), strings.Compare(p.endpoint, q.endpoint),
		strings.Compare(p.project, q.project),
		strings.Compare(p.tier, q.tier), cmp.Compare(p.subject, q.subject), strings.Compare(p.only, q.only),
		cmp.Compare(bit(p.temporary), bit(q.temporary)))
}

// fold adds up the images of many changes. For one place they are the steps of
// a way: what a step leads to is what the next one begins with, and the two
// cancel out, whatever order they are read in. The beginning of the way and its
// end remain. Rows in no place have no way: what one became and another was
// cancels out if it is the same, and all else is told by itself.
type fold struct {
	places map[place][]image
	lost   map[content]int // how often it became, less how often it was
}

func (f *fold) add(i image) {
	if i.lost {
		if f.lost == nil {
			f.lost = map[content]int{}
		}
		f.lost[i.content()] += i.sign
		return
	}
	if f.places == nil {
		f.places = map[place][]image{}
	}
	at := placeOf(i.rule)
	left := f.places[at]
	for n, other := range left {
		if other.sign == -i.sign && other.rule == i.rule && other.fault == i.fault {
			f.places[at] = slices.Delete(left, n, n+1)
			return
		}
	}
	f.places[at] = append(left, i)
}

// ends are the beginning and the end of a way; whole is false if there are
// several of either, because part of the way was never recorded.
func ends(left []image) (before, after *image, whole bool) {
	whole = true
	for n := range left {
		end := &before
		if left[n].sign > 0 {
			end = &after
		}
		whole = whole && *end == nil
		*end = &left[n]
	}
	return before, after, whole
}

// changes reports what remains, in the order of the places.
func (f *fold) changes() ([]record.Change, error) {
	places := make([]place, 0, len(f.places))
	for p, left := range f.places {
		if len(left) > 0 {
			places = append(places, p)
		}
	}
	slices.SortFunc(places, place.compare)
	list := make([]record.Change, 0, len(places))
	var faults []error
	for _, p := range places {
		before, after, whole := ends(f.places[p])
		if !whole {
			faults = append(faults, unrecorded(p))
			continue
		}
		list = append(list, changeOf(p, before, after))
	}
	return append(list, f.lostChanges()...), few(faults)
}

// lostChanges are the changes of rows in no place, what went first.
func (f *fold) lostChanges() (list []record.Change) {
	for _, c := range inOrder(f.lost) {
		i := image{rule: c.rule, fault: c.fault, lost: true}
		for range max(f.lost[c], 0) {
			list = append(list, changeOf(placeOf(c.rule), nil, &i))
		}
		for range max(-f.lost[c], 0) {
			list = append(list, changeOf(placeOf(c.rule), &i, nil))
		}
	}
	return list
}

// inOrder are contents in the order of how often they are there, and of the places
// where they would be.
func inOrder(there map[content]int) []content {
	return slices.SortedFunc(maps.Keys(there), func(a, b content) int {
		return cmp.Or(cmp.Compare(there[a], there[b]), placeOf(a.rule).compare(placeOf(b.rule)),
			cmp.Compare(a.fault, b.fault), cmp.Compare(a.rule.Limit, b.rule.Limit))
	})
}

// changeOf is the way from one image of a place to another; nil: nothing there.
func changeOf(p place, before, after *image) (c record.Change) {
	if p.endpoint == "" {
		c.Project = p.project
	}
	if before != nil {
		c.Before, c.TierBefore, c.FaultBefore = before.side()
		c.Lost = before.lost
	}
	if after != nil {
		c.After, c.TierAfter, c.FaultAfter = after.side()
		c.Lost = after.lost
	}
	return c
}

// side is what an image says of one side of a change.
func (i *image) side() (rule *policy.Rule, tier, fault string) {
	if i.rule.Endpoint == "" {
		return nil, i.rule.Tier, i.fault
	}
	return &i.rule, "", i.fault
}

// walkBack undoes changes in the document that they led to, and in the rows beside
// it that are no rules.
func walkBack(doc *policy.Document, bad []image, since []record.Change) error {
	since, bad, faults := walkBackLost(bad, since)
	badTiers := map[string]string{}
	for _, i := range bad {
		if i.rule.Endpoint == "" {
			badTiers[i.rule.Project] = i.fault
		}
	}
	changed := make(map[place]record.Change, len(since))
	for _, c := range since {
		switch {
		case c.Before != nil && c.FaultBefore != "":
			faults = append(faults, unreadable(placeOf(*c.Before), c.FaultBefore))
			changed[placeOf(*c.Before)] = c
		case c.Before != nil:
			changed[placeOf(*c.Before)] = c
		case c.After != nil:
			changed[placeOf(*c.After)] = c
		default:
			if c.FaultBefore != "" {
				faults = append(faults, unreadable(place{project: c.Project}, c.FaultBefore))
			}
			if doc.Projects[c.Project] != c.TierAfter || badTiers[c.Project] != c.FaultAfter {
				faults = append(faults, unrecorded(place{project: c.Project}))
			}
			delete(badTiers, c.Project)
			if delete(doc.Projects, c.Project); c.TierBefore != "" {
				doc.Projects[c.Project] = c.TierBefore
			}
		}
	}
	rules := make([]policy.Rule, 0, len(doc.Rules))
	for _, r := range doc.Rules {
		at := placeOf(r)
		c, ok := changed[at]
		if !ok {
			rules = append(rules, r)
			continue
		}
		if c.After == nil || *c.After != r || c.FaultAfter != "" {
			faults = append(faults, unrecorded(at))
		}
		if c.Before != nil {
			rules = append(rules, *c.Before)
		}
		delete(changed, at)
	}
	for _, i := range bad {
		at := placeOf(i.rule)
		c, ok := changed[at]
		switch {
		case at.endpoint == "":
			continue
		case !ok:
			faults = append(faults, unreadable(at, i.fault))
			continue
		case c.After == nil || *c.After != i.rule || c.FaultAfter != i.fault:
			faults = append(faults, unrecorded(at))
		}
		if c.Before != nil {
			rules = append(rules, *c.Before)
		}
		delete(changed, at)
	}
	for project, fault := range badTiers { // since before all of the changes
		faults = append(faults, unreadable(place{project: project}, fault))
	}
	for _, c := range since { // those that are not there now
		if c.Before != nil {
			if _, ok := changed[placeOf(*c.Before)]; !ok {
				continue
			}
			rules = append(rules, *c.Before)
		}
		if c.After != nil {
			if _, ok := changed[placeOf(*c.After)]; ok {
				faults = append(faults, unrecorded(placeOf(*c.After)))
			}
		}
	}
	doc.Rules = rules
	return few(faults)
}

// walkBackLost undoes the changes of rows that are in no place, and reports the
// other rows and changes. Those rows that were there before the changes were no
// rules then.
func walkBackLost(bad []image, since []record.Change) (left []record.Change, others []image, faults []error) {
	there := map[content]int{}
	for _, i := range bad {
		if i.lost {
			there[i.content()]++
		} else {
			others = append(others, i)
		}
	}
	for _, c := range since {
		if !c.Lost {
			left = append(left, c)
			continue
		}
		if c.After != nil || c.FaultAfter != "" {
			there[contentOf(c, c.After, c.TierAfter, c.FaultAfter)]--
		} else {
			there[contentOf(c, c.Before, c.TierBefore, c.FaultBefore)]++
		}
	}
	for _, c := range inOrder(there) {
		switch n := there[c]; {
		case n > 0:
			faults = append(faults, unreadable(placeOf(c.rule), c.fault))
		case n < 0:
			faults = append(faults, unrecorded(placeOf(c.rule)))
		}
	}
	return left, others, faults
}

// contentOf is one side of a change.
func contentOf(c record.Change, rule *policy.Rule, tier, fault string) content {
	if rule == nil {
		return content{policy.Rule{Project: c.Project, Tier: tier}, fault}
	}
	return content{*rule, fault}
}

// unrecorded is the fault of a place that is not as the history left it.
func unrecorded(p place) error {
	return policy.Problem{Code: "history", Rule: -1, Where: "history", Field: p.String(),
		Value: "not what the history says",
		Want: "no change past the triggers of table policies (TRUNCATE in MySQL, triggers switched off or " +
			"dropped, a table put in its place)"}
}

// unreadable is the fault of a place where no rule stood.
func unreadable(p place, fault string) error {
	return policy.Problem{Code: "history", Rule: -1, Where: "history", Field: p.String(),
		Value: "no rule (" + fault + ")", Want: "another version: this one was in force nowhere"}
}

// few keeps an error readable.
func few(faults []error) error {
	if more := len(faults) - maxProblems; more > 0 {
		faults = append(faults[:maxProblems:maxProblems], fmt.Errorf("and %d more", more))
	}
	return errors.Join(faults...)
}

// changes adds up the changes after one and through another.
func (s *Store) changes(ctx context.Context, tx *tx, after, through int64) ([]record.Change, error) {
	var f fold
	if err := s.scanChanges(ctx, tx, after, through, f.add); err != nil {
		return nil, err
	}
	return f.changes()
}

// scanChanges reads the images after one and through another. What is wrong
// with their values is their fault, and no error: the row is part of the history.
func (s *Store) scanChanges(ctx context.Context, tx *tx, after, through int64, each func(image)) error {
	r := newRow(s.db.name(), "policy_changes", tx)
	query := fmt.Sprintf("SELECT id, "+imageColumns+
		", at, who, side FROM policy_changes WHERE id > %d AND id <= %d ORDER BY id", after, through)
	return tx.each(ctx, query, nil, r.cells[:imageWidth+4], func() {
		i := r.image()
		r.judge(&i)
		each(i)
	})
}

// tierRow reads the tier of a project.
func (r *row) tierRow(project, tier int) policy.Rule {
	rule := policy.Rule{Project: r.text(project, "project_id"), Tier: r.text(tier, "tier")}
	if _, blob := r.values[project].([]byte); blob && rule.Project == "" {
		rule.Project = r.show(r.values[project])
	}
	return rule
}

// imageColumns are ruleColumns without the rowid.
var (
	imageColumns = strings.TrimPrefix(ruleColumns, "rowid, ")
	imageWidth   = strings.Count(imageColumns, ",") + 1
)

func (r *row) image() image {
	r.begin(r.values[0])
	r.label = r.values[1]
	i := image{
		id:   r.whole(0, "id", math.MaxInt64),
		at:   r.time(imageWidth+1, "at"),
		who:  r.text(imageWidth+2, "who"),
		sign: +1,
	}
	if r.text(imageWidth+3, "side") == "-" {
		i.sign = -1
	}
	if r.values[1] == nil {
		i.rule = r.tierRow(2, 9)
		return i
	}
	if i.rule = r.rule(); i.rule.Endpoint == "" {
		i.rule.Endpoint = r.show(r.values[1]) // of bytes that are no text
	}
	return i
}
