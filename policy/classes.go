package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/headgate-io/headgate/endpoint"
)

// ClassesBy says of which class requests are, whatever rules apply to them. Where several things say something of one,
// rules among them, it is of the lowest class that they say.
type ClassesBy struct {
	Endpoints map[endpoint.ID]Class // endpoint.Unknown is for requests that no template matches

	// Tiers are those of callers; of ones that have none, their project's.
	Tiers map[string]Class

	// Claim is the claim of verified tokens whose value is a class, as Class.String writes it; any other value
	// says nothing. Empty is none.
	Claim string
}

// said reports whether b says anything.
func (b *ClassesBy) said() bool { return len(b.Endpoints)+len(b.Tiers) > 0 || b.Claim != "" }

// ParseClass reads what Class.String writes of all but Unclassed.
func ParseClass(text string) (c Class, ok bool) {
	i := slices.Index(classTexts, text)
	return Class(max(0, i)), i > 0
}

// ClassOfEndpoint is what CompileOptions.ClassesBy says of requests to an endpoint; Unclassed if nothing.
func (s *Set) ClassOfEndpoint(id endpoint.ID) Class {
	if int(id) < len(s.endpointClass) {
		return s.endpointClass[id]
	}
	return Unclassed
}

// ClassOfTier is what CompileOptions.ClassesBy says of callers in a tier; Unclassed if nothing. An empty tier stands
// for the one that the document gives the project.
func (s *Set) ClassOfTier(project, tier string) Class {
	switch {
	case len(s.classesBy.Tiers) == 0:
		return Unclassed
	case tier == "":
		return s.tierClass[s.byProject[s.projects.find(project)].tier]
	}
	return s.classesBy.Tiers[tier]
}

// ClassClaim is ClassesBy.Claim.
func (s *Set) ClassClaim() string { return s.classesBy.Claim }

// readClasses checks what is said of classes besides what rules say, and keeps it.
func (c *review) readClasses() {
	by, known := &c.o.ClassesBy, 0
	if !by.said() {
		return
	}
	if c.o.Endpoints != nil {
		known = c.o.Endpoints.Len()
	}
	wrong := func(field, value, want string) {
		c.problems.add(Problem{Code: "priority", Rule: -1, Source: c.o.Settings, Where: "priority", Field: field,
			Value: value, Want: want})
	}
	occur := c.set.classed
	note := func(field string, class Class) {
		if class == Unclassed || class >= classes {
			wrong(field, number(int64(class)), "a class, 1 for critical to 4 for low")
			return
		}
		occur[class] = true
	}
	if len(by.Endpoints) > 0 {
		c.set.endpointClass = make([]Class, 1+known)
	}
	for _, id := range slices.Sorted(maps.Keys(by.Endpoints)) {
		if uint64(id) > uint64(known) {
			wrong("endpoints", number(int64(id)), fmt.Sprintf("an endpoint of the table, 0 to %d", known))
			continue
		}
		c.set.endpointClass[id] = by.Endpoints[id]
		note("endpoints["+c.set.endpointText(uint32(id))+"]", by.Endpoints[id])
	}
	for _, tier := range slices.Sorted(maps.Keys(by.Tiers)) {
		if tier == "" {
			wrong("tiers", text(""), "the name of a tier")
			continue
		}
		note("tiers["+tier+"]", by.Tiers[tier])
	}
	for class := Critical; class < classes && by.Claim != ""; class++ {
		occur[class] = true
	}
	c.set.classesBy = ClassesBy{Tiers: maps.Clone(by.Tiers), Claim: by.Claim}
	c.set.prioritises, c.set.classed, c.set.places = true, occur, placesOf(occur)
	c.set.tierClass = make([]Class, c.set.tiers.len()+1)
	for n := 1; n < len(c.set.tierClass); n++ {
		c.set.tierClass[n] = by.Tiers[string(c.set.tiers.name(uint32(n)))]
	}
}

// noteClasses reports what surprises about what is said of classes besides what rules say.
func (c *advice) noteClasses() {
	by := &c.o.ClassesBy
	if !by.said() {
		return
	}
	if !c.sharesBudgets() {
		c.found(Problem{Severity: Note, Code: "priority_unused", Rule: -1, Source: c.o.Settings, Where: "priority",
			Field: "priority", Value: "set", Want: wantShares}, "")
	}
	for _, tier := range slices.Sorted(maps.Keys(by.Tiers)) {
		if c.set.tiers.find(tier) != 0 {
			continue
		}
		want := "a tier of a rule or a project, unless keys or tokens name it"
		if near := closest(tier, c.tierNames(slices.Repeat([]bool{true}, c.set.tiers.len()+1))); near != "" {
			want += "; the closest is " + text(named(near))
		}
		c.found(Problem{Severity: Note, Code: "tier_unused", Rule: -1, Source: c.o.Settings, Where: "priority",
			Field: "tiers", Value: text(named(tier)), Want: want}, "")
	}
}
