package kube

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/headgate-io/headgate/policy"
)

// merged is one document made of objects. Where two say something of the same, a rule for the same endpoint, project,
// tier and subject or the tier of a project, the older object wins, then the one whose name comes first: the order by
// which Gateway API settles conflicts between policies. What lost is left out, and its object is told.
type merged struct {
	doc     policy.Document
	version string // differs after every change of a spec
	err     error  // why there is no document: an object that cannot be read

	objects []*object         // in that order
	owner   []place           // of doc.Rules
	faults  map[*object]error // what cannot be read
	lost    map[*object][]string
	rules   map[*object]int // how many of its are in doc
}

// place is a rule of an object.
type place struct {
	of   *object
	rule int
}

// slot is what only one rule can be for, as policy.Compile has it.
type slot struct {
	endpoint, project, tier, subject string
	expires, access                  bool
}

// parameter is one of a template, whose name tells no two of them apart.
var parameter = regexp.MustCompile(`\{[^{}.]*`)

func slotOf(r *policy.Rule) slot {
	s := slot{parameter.ReplaceAllString(r.Endpoint, "{"), r.Project, r.Tier, r.Subject.String(), !r.Expires.IsZero(),
		!r.Mode.Limits()}
	if s.access { // for one caller or network of many
		s.subject = r.SubjectText()
	}
	return s
}

func merge(source string, objects []*object) *merged {
	m := &merged{
		objects: slices.Clone(objects), faults: map[*object]error{}, lost: map[*object][]string{},
		rules: map[*object]int{},
	}
	slices.SortFunc(m.objects, func(a, b *object) int {
		return cmp.Or(a.Metadata.CreationTimestamp.Compare(b.Metadata.CreationTimestamp),
			cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	m.doc = policy.Document{Source: source, Projects: map[string]string{}}
	taken, tiers, sum := map[slot]*object{}, map[string]*object{}, sha256.New()
	for _, o := range m.objects {
		fmt.Fprintf(sum, "%q %q %d %q\n", o.Metadata.Name, o.Metadata.UID, o.Metadata.Generation, o.Spec)
		doc, err := o.document()
		if err != nil {
			m.faults[o] = err
			continue
		}
		for _, project := range slices.Sorted(maps.Keys(doc.Projects)) {
			if first := tiers[project]; first != nil {
				if m.doc.Projects[project] != doc.Projects[project] {
					m.lose(o, first, fmt.Sprintf("spec.projects[%q]", project))
				}
				continue
			}
			tiers[project], m.doc.Projects[project] = o, doc.Projects[project]
		}
		for i, r := range doc.Rules {
			s := slotOf(&r)
			// Twice in one object is for the compiler to refuse.
			if first := taken[s]; first != nil && first != o {
				m.lose(o, first, fmt.Sprintf("spec.rules[%d] (%s)", i, r.Title()))
				continue
			}
			taken[s] = o
			m.doc.Rules = append(m.doc.Rules, r)
			m.owner = append(m.owner, place{o, i})
			m.rules[o]++
		}
		m.doc.Ignore = append(m.doc.Ignore, doc.Ignore...)
	}
	if len(m.doc.Rules) == 0 && len(m.objects) > len(m.faults) {
		m.doc.Cleared = 1 // by who left an object without rules: one that is gone may be a mistake
	}
	m.version = hex.EncodeToString(sum.Sum(nil)[:16])
	var errs []error
	for _, o := range m.objects {
		if err := m.faults[o]; err != nil && len(errs) < maxLost {
			errs = append(errs, err)
		}
	}
	m.err = errors.Join(errs...)
	return m
}

// maxLost is how many conflicts an object is told of.
const maxLost = 20

func (m *merged) lose(o, to *object, what string) {
	if len(m.lost[o]) < maxLost {
		m.lost[o] = append(m.lost[o], fmt.Sprintf("%s is that of %s, which is older", what, to.Metadata.Name))
	}
}
