package policy

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// Names are printed in lists, logs, metrics and, for a rule's Name, in answers
// to clients. A credential that stands where a name should is known to all of
// them. What looks like one is told by what its makers made it look like:
//
//	hg_003aUlTJC7tj…      a prefix that is used for nothing else, and what follows is long
//	eyJhbGciOi….eyJz….x   three parts, the first a JSON object in base 64
//	ann@example.com       an e-mail address: no secret, and a person
//	kJ8s…(32 or more)     letters of both cases and digits in the proportions of chance
//
// Identifiers that people have for projects are none of these: UUIDs and hashes
// have one case, KSUIDs and the like are shorter.

// credentialPrefixes begin credentials of widely used services, and ours.
var credentialPrefixes = []string{
	"hg_", "sk_live_", "sk_test_", "rk_live_", "sk-", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-",
	"xoxb-", "xoxp-", "AKIA", "ASIA", "AIza", "npm_", "pypi-", "SG.", "Bearer ", "-----BEGIN",
}

// minCredential is the length of the shortest credential that is looked for, in
// bytes with its prefix.
const minCredential = 18

// maxLooked is how many bytes of a name are looked at.
const maxLooked = 512

// secretIn says what a name looks like that no name should, or "".
func secretIn(name string) string {
	name = name[:min(len(name), maxLooked)]
	for _, prefix := range credentialPrefixes {
		if rest, ok := strings.CutPrefix(name, prefix); ok && len(rest) >= 16 &&
			strings.ContainsAny(rest, "0123456789") {
			return "a credential"
		}
	}
	if strings.HasPrefix(name, "eyJ") && len(name) >= 20 && strings.Count(name, ".") >= 1 {
		return "a token"
	}
	if isMail(name) {
		return "an e-mail address"
	}
	if isRandom(name) {
		return "a credential"
	}
	return ""
}

// isMail reports whether a word of name is an e-mail address.
func isMail(name string) bool {
	if strings.IndexByte(name, '@') < 0 {
		return false
	}
	for word := range strings.FieldsFuncSeq(name,
		func(r rune) bool { return r <= ' ' || strings.ContainsRune(`<>()[],;:"`, r) }) {
		local, domain, ok := strings.Cut(word, "@")
		dot := strings.LastIndexByte(domain, '.')
		if ok && local != "" && dot > 0 && len(domain)-dot > 2 && !strings.ContainsAny(domain, "@/") {
			return true
		}
	}
	return false
}

// isRandom reports whether name is one long word with the variety of chance.
func isRandom(name string) bool {
	if len(name) < 32 {
		return false
	}
	var counts [128]int
	var upper, lower, digits int // digits counts runs: a year is one
	isDigit := func(c byte) bool { return '0' <= c && c <= '9' }
	for i := range len(name) {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			upper++
		case 'a' <= c && c <= 'z':
			lower++
		case isDigit(c):
			if i == 0 || !isDigit(name[i-1]) {
				digits++
			}
		case c == '_' || c == '-' || c == '+' || c == '/' || c == '=':
		default:
			return false
		}
		counts[c]++
	}
	if min(upper, lower) < 3 || digits < 2 {
		return false
	}
	bits := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(name))
			bits -= p * math.Log2(p)
		}
	}
	return bits >= 4.2 // of at most 6; written words of this length have 3 to 4
}

// named is a name as messages show it: what looks like a secret is not shown.
func named(name string) string {
	if secretIn(name) == "" {
		return name
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(name[:2], ""), len(name))
}

// checkNames reports names that look like secrets, each once.
func (c *review) checkNames() {
	s := c.set
	projects, tiers, titles := suspects(&s.projects), suspects(&s.tiers), suspects(&s.titles)
	if len(projects)+len(tiers)+len(titles) == 0 {
		return
	}
	report := func(rule int, endpoint, where, field, name string, of map[string]string) {
		looks, ok := of[name]
		if !ok {
			return
		}
		delete(of, name)
		p := Problem{Severity: Warning, Code: "secret_in_name", Rule: rule, Where: where, Field: field,
			Value: text(named(name)),
			Want:  "a name; this looks like " + looks + ", and names are shown"}
		if rule >= 0 {
			p.Where = fmt.Sprintf("rules[%d] (%s)", rule, describe(c.written(rule)))
		}
		c.found(p, endpoint)
	}
	for i, r := range c.all() {
		report(i, r.Endpoint, "", "project", r.Project, projects)
		report(i, r.Endpoint, "", "tier", r.Tier, tiers)
		report(i, r.Endpoint, "", "name", r.Name, titles)
	}
	for _, project := range sortedKeys(c.doc.Projects) {
		report(-1, "", "projects", "project", project, projects)
		report(-1, "", "projects", "tier", c.doc.Projects[project], tiers)
	}
}

// suspects are the names that look like secrets, and what like.
func suspects(t *names) map[string]string {
	found := map[string]string{}
	for n := uint32(1); n <= uint32(t.len()) && len(found) <= perCode; n++ {
		// Most names are short, and a million of them are not to be copied.
		if name := t.name(n); len(name) >= minCredential || bytes.IndexByte(name, '@') >= 0 {
			if looks := secretIn(string(name)); looks != "" {
				found[string(name)] = looks
			}
		}
	}
	return found
}
