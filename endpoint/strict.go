package endpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Some servers take one path for two: Express serves /V1/Users where /v1/users is declared, and /a/
// where /a is; nginx tells them apart, and serves /a/ by whatever route takes what is left. Where
// it is not known which kind stands behind, a target is refused if the two would choose different
// templates. The profile alone cannot say so, so the table does.

// Strictest returns the profile that refuses every target known to be read in two ways by two servers (eval/garden).
// What is left is safe before each of them. It costs honest clients nothing as long as they write paths as documents
// have them; with the profile of the server that is really there, more spellings are understood.
func Strictest() Profile { return Profile{Refuse: refuseAll} }

// strict is what a table needs to judge by other templates than the one that matched.
type strict struct {
	// folded is the same table without letter case; nil if case is not judged, or if templates differ in nothing else:
	// no server that ignores case can serve those.
	folded *Table
	upper  bool // templates hold capital letters

	// Of templates that are written with a slash at the end.
	slashed []ends // by ID-1; nil if none is
	lenient *Table // the same table without RefuseTrailingSlash
	others  *Table // of the templates that are not written with a slash at the end alone; nil if all are
	tails   bool   // a template ends in {name...}

	// bare has the templates that end in {name...} without that: Spring serves /files by /files/{*path}, and ServeMux /
	// by /{path...}. nil if there are none, or if a slash at the end is not judged.
	bare *Table
}

// ends says whether a template was written with a slash at the end, or both ways.
type ends uint8

const (
	withoutSlash ends = 1 << iota
	withSlash
)

// EitherEnd returns t as if it were written twice, with a slash at the end and without: its
// server takes both. One that ends in {name...} takes folders then, such as /files/a/. See
// [RefuseTrailingSlash].
func (t Template) EitherEnd() Template {
	t.ends = withoutSlash | withSlash
	return t
}

func newStrict(t *Table, routes []route, written map[string]ends) (*strict, error) {
	var s strict
	p := t.profile
	p.CaseInsensitive, p.Refuse = p.CaseInsensitive || p.Refuse.has(RefuseOtherCase),
		p.Refuse&^(RefuseOtherCase|RefuseTrailingSlash)
	if t.profile.Refuse.has(RefuseOtherCase) && !t.profile.CaseInsensitive && !conflictWithoutCase(routes) {
		var err error
		if s.folded, err = compileWith(t.templates, t.aliases, p); err != nil {
			return nil, fmt.Errorf("without letter case, for refuse other_case: %w", err)
		}
	}
	for _, template := range t.templates {
		s.upper = s.upper || hasUpper(template.text[template.space:])
		s.tails = s.tails || strings.HasSuffix(template.Path(), "...}")
	}
	if t.profile.Refuse.has(RefuseTrailingSlash) && s.tails {
		var err error
		if s.bare, err = compileBare(routes, p); err != nil {
			return nil, fmt.Errorf("without what {name...} takes, for refuse trailing_slash: %w", err)
		}
	}
	if t.profile.Refuse.has(RefuseTrailingSlash) {
		s.slashed = make([]ends, len(t.templates))
		any := ends(0)
		for i, template := range t.templates {
			s.slashed[i] = written[template.text]
			any |= s.slashed[i]
		}
		if any&withSlash == 0 {
			s.slashed = nil
		} else {
			lenient := *t
			lenient.profile.Refuse &^= RefuseTrailingSlash
			lenient.classes = lenient.profile.classes()
			s.lenient = &lenient
			var err error
			if s.others, err = compileOthers(t, s.slashed, p); err != nil {
				return nil, fmt.Errorf("without what ends in a slash, for refuse trailing_slash: %w", err)
			}
		}
	}
	if s.folded == nil && s.slashed == nil && s.bare == nil {
		return nil, nil
	}
	return &s, nil
}

// conflictWithoutCase reports whether two templates differ in letter case alone.
func conflictWithoutCase(routes []route) bool {
	folded := slices.Clone(routes)
	for i, r := range folded {
		segments, err := parseSegments(foldIf(true, r.Path()))
		if err != nil {
			return false // compileWith says it
		}
		folded[i].segments = segments
	}
	return conflicts(folded) != nil
}

// compileOthers makes a table of the templates that are not written with a slash at the end alone; nil if
// there are none.
func compileOthers(t *Table, written []ends, p Profile) (*Table, error) {
	var left []Template
	for i, template := range t.templates {
		if written[i] != withSlash {
			left = append(left, template)
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	aliases := slices.DeleteFunc(slices.Clone(t.aliases), func(a alias) bool {
		return !slices.ContainsFunc(left, func(t Template) bool { return t.text == a.of.text })
	})
	return compileWith(left, aliases, p)
}

// compileBare makes a table of the templates that end in {name...}, without that. All have one ID,
// as nobody asks which it is.
func compileBare(routes []route, p Profile) (*Table, error) {
	var bare []alias
	for _, r := range routes {
		path := r.Path()
		at := strings.LastIndexByte(path, '/')
		if !strings.HasSuffix(path, "...}") {
			continue
		}
		t, err := ParseTemplate(r.Method() + " " + cmp.Or(path[:at], "/"))
		if err != nil {
			return nil, err
		}
		bare = append(bare, alias{t, t})
	}
	for i := range bare {
		bare[i].of = bare[0].template
	}
	return compileWith([]Template{bare[0].template}, bare[1:], p)
}

// hasUpper reports whether there is an ASCII capital in s. Every target is asked, so it reads eight bytes at once; the
// last ones may overlap (3 against 15 ns for 20 bytes: BenchmarkHasUpper).
func hasUpper(s string) bool {
	n := len(s)
	if n < 8 {
		return strings.ContainsFunc(s, func(r rune) bool { return 'A' <= r && r <= 'Z' })
	}
	found := capitals(load64(s[n-8:]))
	for ; len(s) > 8; s = s[8:] {
		found |= capitals(load64(s))
	}
	return found != 0
}

// capitals has the high bit set of every byte of word that is an ASCII capital, and no other.
func capitals(word uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	low := word &^ highs // so that no sum reaches the next byte
	return (low + (0x80-'A')*ones) &^ (low + (0x80-'Z'-1)*ones) &^ word & highs
}

func (s *strict) allowsSlash() bool { return s != nil && s.slashed != nil }

// judge returns m, which t found for a request, or why it is refused after all.
func (s *strict) judge(t *Table, m Match, method, target string) Match {
	switch {
	case s.slashed == nil:
	case m.Fault == TrailingSlash:
		if m = s.lenient.matchAlone(method, target); m.Status != Known || s.slashed[m.ID-1]&withSlash == 0 {
			return Match{Status: Invalid, Fault: TrailingSlash}
		}
		// Of /b/{y...} beside /{x...}, the one takes /b/ and the other /b, which have one canonical path.
		if s.bare != nil && strings.HasSuffix(t.Template(m.ID).Path(), "...}") &&
			s.bare.matchAlone(method, target).Status == Known {
			return Match{Status: Invalid, Fault: EmptyTail}
		}
	case m.Status == Known && s.slashed[m.ID-1] == withSlash &&
		(s.tails || s.others != nil && s.others.matchAlone(method, target).Status == Known):
		// A server that has the endpoint with the slash alone may serve it by a route that takes what is left, or by
		// /{x} where the endpoint is /a/.
		return Match{Status: Invalid, Fault: MissingSlash}
	}
	if s.bare != nil && (m.Status == UnknownPath || m.Status == UnknownMethod) && s.bare.matchAlone(method,
		target).Status == Known {
		return Match{Status: Invalid, Fault: EmptyTail}
	}
	if s.folded == nil || m.Status == Invalid || !s.upper && !hasUpper(target) {
		return m
	}
	// It is invalid where only the other endpoint reads the query: Express serves /Rpc?]action by /rpc.
	if folded := s.folded.matchAlone(method, target); folded.ID != m.ID || folded.Status == Invalid {
		return Match{Status: Invalid, Fault: OtherCase}
	}
	return m
}
