package policy

import (
	"fmt"
	"sort"
)

// hash is FNV-1a (Fowler, Noll, Vo) over 64 bits with numbers folded in whole,
// and a finaliser, because FNV alone leaves its high bits poor. Texts go in
// after their length, so that ("ab", "c") and ("a", "bc") differ. It has no
// key: all processes must agree on it.
type hash uint64

const fnvPrime = 0x00000100000001b3

func newHash() hash { return 0xcbf29ce484222325 }

func (h hash) number(n uint64) hash {
	h = (h ^ hash(n)) * 0x9fb21c651e98df25
	return h ^ h>>32
}

func (h hash) text(s string) hash {
	h = h.number(uint64(len(s)))
	for i := 0; i < len(s); i++ {
		h = (h ^ hash(s[i])) * fnvPrime
	}
	return h
}

func (h hash) bytes(s []byte) hash {
	h = h.number(uint64(len(s)))
	for _, b := range s {
		h = (h ^ hash(b)) * fnvPrime
	}
	return h
}

// sum finishes with the mixer of MurmurHash3.
func (h hash) sum() uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return uint64(h ^ h>>33)
}

// Fingerprint names the content of a document in 16 hexadecimal digits. It does
// not depend on the order of the rules or on Source, and is the same in every
// process. It tells documents apart by accident, not against an attacker.
func (d Document) Fingerprint() string {
	var c content
	for i := range d.Rules {
		c.rule(&d.Rules[i])
	}
	c.projects(d.Projects)
	return c.String()
}

// content is what a fingerprint is made of: each rule and project is hashed by
// itself, and the sum knows no order.
type content struct{ sum, rules uint64 }

func (c *content) rule(r *Rule) { c.ruleAt(ruleContent(r.Endpoint), r) }

// ruleContent is what the hash of a rule begins with. Many rules begin alike.
func ruleContent(endpoint string) hash { return newHash().number(1).text(endpoint) }

// ruleAt is rule for an endpoint whose ruleContent is known.
func (c *content) ruleAt(h hash, r *Rule) {
	h = h.text(r.Project).text(r.Tier).text(r.Name)
	h = h.number(uint64(r.Limit)).number(uint64(r.Per)).number(uint64(r.Burst))
	h = h.number(uint64(r.Subject) | uint64(min(r.Algorithm, Calendar))<<8 | uint64(r.Mode)<<16 |
		uint64(r.Scope)<<24 | uint64(r.OnStoreLoss)<<32 | uint64(r.EnforcePercent)<<40)
	if r.Only != "" {
		h = h.text(r.Only)
	}
	if r.Algorithm > Calendar && r.Algorithm != Concurrency { // its number is this process's
		h = h.text(r.Algorithm.Zone())
	}
	if r.CountWhen != "" {
		h = h.number(3).text(string(r.CountWhen))
	}
	if r.Penalty != "" {
		h = h.number(4).text(string(r.Penalty))
	}
	if r.Refusal != "" {
		h = h.number(5).text(string(r.Refusal))
	}
	if r.Priority != "" {
		h = h.number(6).text(string(r.Priority))
	}
	c.sum += h.number(uint64(expiry(r.Expires))).sum()
	c.rules++
}

func (c *content) projects(tiers map[string]string) {
	for project, tier := range tiers {
		c.sum += newHash().number(2).text(project).text(tier).sum()
	}
}

// String is the fingerprint.
func (c *content) String() string {
	return fmt.Sprintf("%016x", newHash().number(c.sum).number(c.rules).sum())
}

// sortedKeys returns the keys of m in order.
func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
