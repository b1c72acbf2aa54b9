package agents

import (
	"strings"

	"github.com/headgate-io/headgate/identity"
)

// AcceptTestKey has signatures under TestKey count.
func (v *Verifier) AcceptTestKey() { v.testKey = true }

// Forget has v remember no signature.
func (v *Verifier) Forget() { clear(v.good[:]) }

// CheckAddress is checkAddress.
func CheckAddress(address string) error { return checkAddress(address) }

// Base is what was signed under a label, at an origin, whoever it is of.
func Base(r *identity.Signed, label, at string) (base string, made []byte) {
	var lines [len(fieldNames)][]string
	for i, field := range fieldNames {
		lines[i] = r.Header.Values(field)
	}
	f, ok := parse(&lines)
	if !ok {
		return "", nil
	}
	s := &signature{request: r, fields: f, label: label}
	s.isOurs()
	s.read()
	scheme, authority, _ := strings.Cut(at, "://")
	return string(s.base(origin{scheme, authority})), s.bytes
}
