// Package subject writes down whose budget a rule means: the bytes that a
// bucket's key is made of.
package subject

import (
	"encoding/binary"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// Tags keep subjects apart from each other and from the kinds of principals
// (identity.Kind), which begin the subjects that identity appends and stay
// below firstTag.
const firstTag = 0x80

const (
	tagProject = firstTag + iota
	tagRegion
	tagEndpoint
	tagIdentifier
	tagPrincipalIP
	tagUnparsable
	tagIdentifierIP
	tagStay
	tagUnverified
	tagPath
	tagLongPath
	tagClaim

	// Guaranteed begins what names the bucket of what a class is guaranteed: a part of another bucket, and nobody's who
	// sends requests.
	Guaranteed
)

// MaxNamed is the longest value of a path parameter or a claim that has a bucket of its own, in bytes. Programs have
// no longer IDs; whoever sends requests could make up any number of them.
const MaxNamed = 128

// Caller is what a request shows of whose it is.
type Caller struct {
	Who        *identity.Principal
	Identities *identity.Resolver // says which addresses are of one site
	Region     string
	Identifier string // what the caller tries to be, "" for nothing
	Parameter  string // the value of the parameter that the rule names, "" for none
	Claim      string // the value of the claim that the rule names, "" for none
}

// Append appends whose budget a rule by s means. What a request lacks is
// replaced by its address, never by nothing: missing identity is still
// limited. All values of a parameter that are too long share one bucket. The bytes are injective,
// and no subject begins another.
func (c *Caller) Append(dst []byte, s policy.Subject) []byte {
	switch s {
	case policy.SubjectIP:
		return c.Who.AppendAddress(dst)
	case policy.SubjectSite:
		at := identity.Principal{Prefix: c.Identities.Site(c.Who.Prefix)}
		return at.AppendAddress(dst)
	case policy.SubjectPrincipalIP:
		return c.Who.AppendSubject(c.Who.AppendAddress(append(dst, tagPrincipalIP)))
	case policy.SubjectProject:
		if c.Who.Project != "" {
			return appendText(append(dst, tagProject), c.Who.Project)
		}
	case policy.SubjectRegion:
		return appendText(append(dst, tagRegion), c.Region)
	case policy.SubjectEndpoint:
		return append(dst, tagEndpoint)
	case policy.SubjectIdentifier:
		if c.Identifier != "" {
			return appendText(append(dst, tagIdentifier), c.Identifier)
		}
	case policy.SubjectIdentifierIP:
		if c.Identifier != "" {
			return appendText(c.Who.AppendAddress(append(dst, tagIdentifierIP)), c.Identifier)
		}
	case policy.SubjectPath:
		switch n := len(c.Parameter); {
		case n > MaxNamed:
			return append(dst, tagLongPath)
		case n > 0:
			return appendText(append(dst, tagPath), c.Parameter)
		}
	case policy.SubjectClaim:
		// A caller whose token does not say, or says too much, is known all the same.
		if n := len(c.Claim); n > 0 && n <= MaxNamed {
			return appendText(append(dst, tagClaim), c.Claim)
		}
		return c.Who.AppendSubject(dst)
	default:
		return c.Who.AppendSubject(dst)
	}
	return c.Who.AppendAddress(dst)
}

// AppendUnreadable appends what stands for all requests together of which
// nobody can read what a rule by s goes by: their identifier, or a token that
// was not verified.
func AppendUnreadable(dst []byte, s policy.Subject) []byte {
	if s == policy.SubjectIdentifier {
		return append(dst, tagUnparsable)
	}
	return append(dst, tagUnverified)
}

// AppendStay appends what Append does, marked as the second bucket that a
// caller has under a rule while its project is back in the tier of that rule;
// see policy.Guard.
func (c *Caller) AppendStay(dst []byte, s policy.Subject) []byte {
	return c.Append(append(dst, tagStay), s)
}

// AppendNeighbours appends what the buckets have in common that are to be kept
// together: those of one project, key or address, so that one decision finds
// them in one place. It reports false for a rule by s whose bucket goes by what
// Append says.
func (c *Caller) AppendNeighbours(dst []byte, s policy.Subject) ([]byte, bool) {
	switch s {
	case policy.SubjectPrincipal, policy.SubjectProject, policy.SubjectPrincipalIP:
		if c.Who.Project != "" {
			return appendText(append(dst, tagProject), c.Who.Project), true
		}
		return c.Who.AppendSubject(dst), true
	}
	return dst, false
}

// appendText appends a text with its length before it, so that where one ends
// does not depend on what clients put into it.
func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}
