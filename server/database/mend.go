package database

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// A row that got past the checks of its table keeps the rules from being loaded.
// What mends it must not need them loaded: here the sound rows are read apart
// from the others. What is written is held against all that is sound.

// readSound reads what readDocument does, and the rows that are no rules or tiers
// apart from it.
func (s *Store) readSound(ctx context.Context, tx *tx) (doc policy.Document, bad []image, err error) {
	doc = policy.Document{Projects: map[string]string{}, Source: s.Path()}
	r := newRow(s.db.name(), "policies", tx)
	err = s.scanRules(ctx, tx, r, ruleColumns, "ORDER BY rowid", nil, func(int64) {
		i := image{rule: r.rule()}
		if r.judge(&i); i.fault == "" {
			doc.Rules = append(doc.Rules, i.rule)
			return
		}
		if i.rule.Endpoint == "" {
			i.rule.Endpoint = r.show(r.values[1])
		}
		bad = append(bad, i)
	})
	if err != nil {
		return policy.Document{}, nil, err
	}
	tiers := newRow(s.db.name(), "projects", tx)
	err = tx.each(ctx, "SELECT rowid, project_id, tier FROM projects", nil, tiers.cells[:3], func() {
		tiers.begin(tiers.values[0])
		i := image{rule: tiers.tierRow(1, 2)}
		if tiers.judge(&i); i.fault == "" {
			doc.Projects[i.rule.Project] = i.rule.Tier
			return
		}
		bad = append(bad, i)
	})
	if err != nil {
		return policy.Document{}, nil, err
	}
	doc.Number, err = s.versionOf(ctx, tx)
	return doc, bad, err
}

// judge puts what is wrong with the row into its image, and forgets it.
func (r *row) judge(i *image) {
	if i.fault = r.fields(); i.fault == "" {
		return
	}
	for _, problem := range r.problems {
		if p, ok := problem.(policy.Problem); ok && r.isKey(p.Field) {
			i.lost = true
		}
	}
	r.problems, r.more, r.remedies = nil, 0, nil
}

// isKey reports whether a rule or the tier of a project is found by a column.
func (r *row) isKey(column string) bool {
	keys := []string{"endpoint", "project_id", "tier", "subject", "expires_at"}
	if r.name == "projects" || r.name == "policy_changes" && r.values[1] == nil {
		keys = keys[1:2]
	}
	return slices.Contains(keys, column)
}

// mends reports whether an edit may be made beside bad rows: because it is about
// nothing else, or because it leaves none of them.
func mends(e *record.Edit, bad []image) bool {
	about := map[place]bool{}
	for _, r := range e.Set {
		about[placeOf(r)] = true
	}
	for _, k := range e.Delete {
		about[placeOfKey(k)] = true
	}
	for project := range e.Tiers {
		about[place{project: project}] = true
	}
	mended := map[place]bool{}
	left := 0
	for _, i := range bad {
		if at := placeOf(i.rule); about[at] && !i.lost {
			mended[at] = true
		} else {
			left++
		}
	}
	return left == 0 || len(mended) == len(about)
}

// remedy says how the row is mended; empty for tables that keep no rules.
func (r *row) remedy(column string) string {
	if r.name != "policies" && r.name != "projects" {
		return ""
	}
	bySQL := fmt.Sprintf("; `DELETE FROM %s WHERE rowid = %v` removes the row", r.name, r.id)
	switch {
	case r.isKey(column):
	case r.name == "policies":
		flags, ok := r.flags()
		if !ok {
			break
		}
		return fmt.Sprintf("; `headgate policy set %[1]s LIMIT%[2]s` puts a good rule in its place, and `headgate "+
			"policy delete %[1]s%[2]s%[3]s` removes it",
			flags.endpoint, flags.which, flags.temporary)
	case r.name == "projects":
		if project, ok := quoted(r.words(r.values[1])); ok {
			return fmt.Sprintf("; `headgate project set %s --tier TIER` puts a good one in its place", project)
		}
	}
	return bySQL
}

// ruleFlags are what a rule is named by on a command line.
type ruleFlags struct{ endpoint, which, temporary string }

// flags reports false if the row has no such name.
func (r *row) flags() (f ruleFlags, ok bool) {
	for _, c := range []struct {
		i          int
		flag, left string // left out
	}{{1, "", ""}, {2, " --project ", ""}, {9, " --tier ", ""}, {6, " --subject ", "principal"}} {
		text := r.words(r.values[c.i])
		if text == "" || text == c.left {
			continue
		}
		word, safe := quoted(text)
		switch {
		case !safe:
			return ruleFlags{}, false
		case c.i == 1:
			f.endpoint = word
		default:
			f.which += c.flag + word
		}
	}
	if r.values[12] != nil {
		f.temporary = " --temporary"
	}
	return f, f.endpoint != ""
}

var bareWord = regexp.MustCompile(`^[A-Za-z0-9_./:@-]+$`)

// quoted writes a word for a shell. It reports false for one that is not for
// people to copy.
func quoted(word string) (string, bool) {
	switch {
	case bareWord.MatchString(word):
		return word, true
	case word == "", len(word) > record.MaxText, strings.ContainsRune(word, '\''),
		strings.ContainsFunc(word, record.Unprintable):
		return "", false
	}
	return "'" + word + "'", true
}

// words is a text of the row; empty for what is none.
func (r *row) words(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		if r.bytes {
			return string(v)
		}
	}
	return ""
}
