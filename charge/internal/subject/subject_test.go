package subject

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// named is everything that may name a bucket of one rule: the subject that the
// rule has, and what the request shows.
type named struct {
	subject    policy.Subject
	who        identity.Principal
	region     string
	identifier string
	parameter  string
	claim      string
}

// means writes out, in other words than the code, whose budget is meant.
func (n named) means() string {
	address := fmt.Sprintf("address %v", n.who.Prefix)
	principal := address
	if n.who.Kind != identity.Address {
		principal = fmt.Sprintf("principal %d %q %q", n.who.Kind, n.who.Project, n.who.ID)
	}
	switch {
	case n.subject == policy.SubjectIP:
		return address
	case n.subject == policy.SubjectSite && n.who.Prefix.Addr().Is6() && n.who.Prefix.Bits() > 48:
		return fmt.Sprintf("address %v", netip.PrefixFrom(n.who.Prefix.Addr(), 48).Masked())
	case n.subject == policy.SubjectPrincipalIP:
		return "both " + address + " " + principal
	case n.subject == policy.SubjectProject && n.who.Project != "":
		return fmt.Sprintf("project %q", n.who.Project)
	case n.subject == policy.SubjectRegion:
		return fmt.Sprintf("region %q", n.region)
	case n.subject == policy.SubjectEndpoint:
		return "endpoint"
	case n.subject == policy.SubjectIdentifier && n.identifier != "":
		return fmt.Sprintf("identifier %q", n.identifier)
	case n.subject == policy.SubjectIdentifierIP && n.identifier != "":
		return fmt.Sprintf("identifier %q at %s", n.identifier, address)
	case n.subject == policy.SubjectPath && len(n.parameter) > MaxNamed:
		return "a long parameter"
	case n.subject == policy.SubjectPath && n.parameter != "":
		return fmt.Sprintf("parameter %q", n.parameter)
	case n.subject == policy.SubjectClaim && n.claim != "" && len(n.claim) <= MaxNamed:
		return fmt.Sprintf("claim %q", n.claim)
	case n.subject == policy.SubjectPrincipal, n.subject == policy.SubjectClaim:
		return principal
	}
	return address
}

func (n named) bytes() []byte {
	c := Caller{
		Who:        &n.who,
		Identities: new(identity.Resolver),
		Region:     n.region,
		Identifier: n.identifier,
		Parameter:  n.parameter,
		Claim:      n.claim,
	}
	return c.Append(nil, n.subject)
}

var subjects = []policy.Subject{
	policy.SubjectPrincipal, policy.SubjectIP, policy.SubjectPrincipalIP, policy.SubjectProject,
	policy.SubjectRegion, policy.SubjectEndpoint, policy.SubjectIdentifier, policy.SubjectIdentifierIP,
	policy.SubjectSite,
	policy.SubjectPath, policy.SubjectClaim,
}

// A subject that nobody thought of would count as the principal.
func TestEverySubjectIsTried(t *testing.T) {
	n := 0
	for s := policy.Subject(0); ; s++ {
		if _, what := s.Counts(); what != policy.CountsTokens {
			break // there are no more: charge asks for the subject that it counts by
		}
		if n++; !slices.Contains(subjects, s) {
			t.Errorf("subject %v is not among those that are tried here", s)
		}
	}
	if n != len(subjects) {
		t.Errorf("there are %d subjects, and %d are tried", n, len(subjects))
	}
}

// check holds what makes keys injective: two subjects have the same bytes only
// if they mean the same, and otherwise neither begins the other, so that no
// concatenation of several can be read in two ways.
func check(t *testing.T, h *key.Hasher, a, b named) {
	t.Helper()
	inA, inB := a.bytes(), b.bytes()
	same := a.means() == b.means()
	switch {
	case bytes.Equal(inA, inB) != same:
		t.Errorf("%s and %s have the bytes %x and %x", a.means(), b.means(), inA, inB)
	case !same && (bytes.HasPrefix(inA, inB) || bytes.HasPrefix(inB, inA)):
		t.Errorf("%s and %s: %x begins as %x", a.means(), b.means(), inA, inB)
	}
	if (h.Key(7, 3, inA) == h.Key(7, 3, inB)) != same {
		t.Errorf("%s and %s: one key for two, or two for one", a.means(), b.means())
	}
}

// TestSubjectsAreInjective draws pairs out of parts that are made to be
// mistaken for one another: separators, lengths, tags, and texts that begin
// others.
func TestSubjectsAreInjective(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	texts := []string{"", "a", "b", "ab", "a:b", "a\x00b", "\x00", "\x01", "\x01a", "\x02ab", "\x04", "\x10", "\x80",
		"\x81", "\x83\x01a", "\x84",
		string(bytes.Repeat([]byte("a"), 127)), string(bytes.Repeat([]byte("a"), 128)),
		string(bytes.Repeat([]byte("a"), 300)), "\x00\x04 \x0a\x00\x00\x01"}
	prefixes := []netip.Prefix{{}}
	for _, text := range []string{"10.0.0.1/32", "10.0.0.0/24", "10.0.0.0/32", "0.0.0.0/32", "::/64", "::/128",
		"2001:db8::/64", "2001:db8::/56", "::ffff:10.0.0.1/128", "a00:1::/32"} {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	text := func() string { return texts[random.IntN(len(texts))] }
	draw := func() named {
		n := named{
			subject:    subjects[random.IntN(len(subjects))],
			region:     text(),
			identifier: text(),
			parameter:  text(),
			claim:      text(),
		}
		n.who.Prefix = prefixes[random.IntN(len(prefixes))]
		if n.who.Kind = identity.Kind(random.IntN(3)); n.who.Kind != identity.Address {
			n.who.Project, n.who.ID = text(), text()
		}
		return n
	}
	h := key.NewHasher()
	for range race.Fewer(200_000) {
		a, b := draw(), draw()
		if random.IntN(2) == 0 { // differ in one part
			b = a
			switch random.IntN(5) {
			case 4:
				b.identifier, b.parameter, b.claim = a.parameter, a.claim, a.identifier
			case 0:
				b.who.ID, b.who.Project = a.who.Project, a.who.ID
				if b.who.Kind == identity.Address {
					b.who.ID, b.who.Project = "", ""
				}
			case 1:
				b.subject = subjects[random.IntN(len(subjects))]
			case 2:
				b.region, b.identifier = a.identifier, a.region
			case 3:
				b.who.Prefix = prefixes[random.IntN(len(prefixes))]
			}
		}
		check(t, h, a, b)
	}
}

// Every kind of principal stays clear of the tags.
func TestKindsStayBelowTheTags(t *testing.T) {
	for kind := range identity.Kind(firstTag) {
		who := identity.Principal{Kind: kind}
		if first := who.AppendSubject(nil)[0]; first >= firstTag {
			t.Errorf("kind %v begins with %#x, a tag", kind, first)
		}
		if kind.String() == fmt.Sprintf("Kind(%d)", kind) {
			return // there are no more
		}
	}
	t.Errorf("there are %d kinds: tags begin at %#x", firstTag, firstTag)
}

func FuzzSubjects(f *testing.F) {
	f.Add(uint8(0), uint8(1), "acme", "k_1", "10.0.0.1", uint8(32), "EU", "ann", uint8(0), uint8(1), "acmek", "_1",
		"10.0.0.1", uint8(32), "EU", "ann")
	f.Add(uint8(6), uint8(0), "", "", "2001:db8::", uint8(64), "", "\x01a", uint8(3), uint8(2), "a", "", "10.0.0.1",
		uint8(32), "", "")
	h := key.NewHasher()
	of := func(subject, kind uint8, project, id, addr string, bits uint8, region, identifier string) (named, bool) {
		n := named{
			subject:    subjects[int(subject)%len(subjects)],
			region:     region,
			identifier: identifier,
			parameter:  identifier,
			claim:      identifier,
		}
		if n.who.Kind = identity.Kind(kind % 3); n.who.Kind != identity.Address {
			n.who.Project, n.who.ID = project, id
		}
		if a, err := netip.ParseAddr(addr); err == nil {
			prefix, err := a.Unmap().WithZone("").Prefix(int(bits))
			if err != nil {
				return n, false
			}
			n.who.Prefix = prefix
		}
		return n, true
	}
	f.Fuzz(func(t *testing.T, s1, k1 uint8, p1, i1, a1 string, b1 uint8, r1, n1 string, s2, k2 uint8, p2, i2, a2 string,
		b2 uint8, r2, n2 string) {
		a, okA := of(s1, k1, p1, i1, a1, b1, r1, n1)
		b, okB := of(s2, k2, p2, i2, a2, b2, r2, n2)
		if okA && okB {
			check(t, h, a, b)
		}
	})
}
