// Package agents verifies requests that agents have signed, by the keys that they publish.
package agents

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/once"
	"github.com/headgate-io/headgate/server/token"
)

// Agents sign requests by HTTP message signatures (RFC 9421), as Web Bot Auth has it
// (draft-meunier-webbotauth-httpsig-protocol): which API it is for and which agent it is of have to be covered, and the
// agent's keys stand in a directory at a well-known place of its own. Whom a signature names it names itself, so only
// agents that the operator has named count: otherwise whoever has a domain would have a budget for each name in it, and
// could have us fetch from wherever he likes.
//
//	Signature-Agent: a="https://agent.example"                     whose: must be among Options.Agents
//	Signature-Input: a=("@authority" "signature-agent";key="a");   what of the request is covered
//	   created=1735689600;expires=1735693200;keyid="poqk…";tag="web-bot-auth"
//	Signature: a=:jdq0…:                                           over all of that, by the key with that thumbprint
//
// A signature with a nonce is good once. One without is good for as long as it lasts; it is remembered by a hash of its
// fields, with what it covers, so that it costs one check.

// Named is an agent whose signatures count.
type Named struct {
	Agent identity.Agent
	Keys  token.KeySource // of directories: see token.ParseDirectory
}

// Options configures a Verifier. Origins and Agents are required.
type Options struct {
	// Origins are under which URLs clients know this API, each a scheme and a host. What a client sends as Host is not
	// looked at: which API a signature is for is tried by these.
	Origins []string

	// Agents are by the origin of their directories, as token.Origin writes it.
	Agents map[string]Named

	// MaxAge is how old a signature may be, 1 s to 24 h, whatever end it says. Default 1 h.
	MaxAge time.Duration

	// Leeway is how far ahead one may seem to be made, at most 10 minutes. Default 0.
	Leeway time.Duration

	// Nonces has signatures without a nonce refused, which whoever sees one can show again.
	Nonces bool

	// Shown remembers the nonces that were shown, for as long as it is given to what replaces this. Default a memory
	// of RememberedNonces.
	Shown *once.Memory

	Now func() time.Time // defaults to time.Now
}

// Limits on what is read of a request.
const (
	maxFields     = 3 << 10 // bytes of the three fields, which can cost as much as three checks of signatures
	maxSignatures = 4       // of Web Bot Auth
	maxComponents = 16      // of one
	maxText       = 256     // bytes of a nonce or key ID

	rememberedSignatures = 1 << 12

	mostAge    = 24 * time.Hour
	mostLeeway = 10 * time.Minute
)

const (
	// RememberedNonces is how many nonces are remembered, in 3.4 MB. LastingNonce is longer than one may be good.
	RememberedNonces = 1 << 17
	LastingNonce     = mostAge + 2*mostLeeway
)

// Verifier verifies signatures. It may be used concurrently.
type Verifier struct {
	options Options
	origins []origin
	nonces  *once.Memory
	good    [rememberedSignatures]atomic.Pointer[verified]

	testKey bool // TestKey counts: for the vectors of the draft
}

// TestKey is the thumbprint of a key whose private part stands in RFC 9421 appendix B.1.4, so that anybody can sign
// under it. It never counts.
const TestKey = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"

var _ identity.AgentVerifier = (*Verifier)(nil)

type origin struct{ scheme, authority string }

// verified is a signature that was found good, and may be so again. It never changes.
type verified struct {
	fields  [sha256.Size]byte
	covers  []string // components of the request besides the fields
	values  [sha256.Size]byte
	signers identity.Signers
	keys    token.KeySource
	set     *token.Set // in which the key was
	life
}

// life is when a signature says that it is good.
type life struct{ made, until time.Time }

// New returns a Verifier, or an error that names every faulty option.
func New(o Options) (*Verifier, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.MaxAge = cmp.Or(o.MaxAge, time.Hour)
	v := &Verifier{options: o, nonces: o.Shown}
	if v.nonces == nil {
		v.nonces = once.New(RememberedNonces, nil)
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(o.Origins) == 0 {
		fault("Origins is empty, want the URLs of this API, such as https://api.example")
	}
	for _, text := range o.Origins {
		at, err := token.Origin(text)
		if err != nil {
			fault("Origins %w", err)
		}
		scheme, authority, _ := strings.Cut(at, "://")
		v.origins = append(v.origins, origin{scheme, authority})
	}
	if len(o.Agents) == 0 {
		fault("Agents is empty, want those whose signatures count")
	}
	for _, at := range slices.Sorted(maps.Keys(o.Agents)) {
		if one, err := token.Origin(at); err != nil || one != at {
			fault("Agents has %q, want the origin of a directory in its one spelling: https://agent.example", at)
		}
		if named := o.Agents[at]; named.Agent.ID == "" || named.Keys == nil {
			fault("Agents[%q] has no ID or Keys, want both", at)
		}
	}
	if o.MaxAge < time.Second || mostAge < o.MaxAge {
		fault("MaxAge is %v, want 1s to %v, or 0 for 1h", o.MaxAge, mostAge)
	}
	if o.Leeway < 0 || mostLeeway < o.Leeway {
		fault("Leeway is %v, want 0 to %v", o.Leeway, mostLeeway)
	}
	return v, errors.Join(faults...)
}

// fields of a request that its signatures are made of.
const (
	inputField = iota
	signatureField
	agentField
)

var fieldNames = [...]string{"Signature-Input", "Signature", "Signature-Agent"}

// tagged is how the tag of Web Bot Auth has to be written: texts have no other spelling of these characters.
const tagged = `"web-bot-auth"`

// VerifyAgents finds out who has signed a request.
func (v *Verifier) VerifyAgents(r *identity.Signed) (found identity.Signers) {
	var lines [len(fieldNames)][]string
	size, ours := 0, false
	for i, field := range fieldNames {
		lines[i] = r.Header.Values(field)
		for _, line := range lines[i] {
			size += len(line)
			ours = ours || i == inputField && strings.Contains(line, tagged)
		}
	}
	if !ours {
		return found
	}
	if size > maxFields {
		found.Why = identity.SignatureMalformed
		return found
	}
	now := v.options.Now()
	sum := sumOf(lines[:])
	if g := v.recall(r, &sum, now); g != nil {
		return g.signers
	}
	if r.Spent {
		found.Why = identity.SignatureFlood
		return found
	}
	f, ok := parse(&lines)
	if !ok {
		return identity.Signers{Why: identity.SignatureMalformed, Wrong: 1}
	}
	tried := 0
	for _, label := range f.dictionaries[inputField].Names() {
		s := signature{request: r, fields: f, label: label}
		if !s.isOurs() {
			continue
		}
		if tried++; tried > maxSignatures {
			found.Why = identity.SignatureMalformed
			break
		}
		why := v.check(&s, now)
		v.note(&found, &s, why)
		if why == identity.NotRejected && s.nonce == "" && !r.Look && f.only(label) {
			v.remember(&s, &sum, found)
		}
	}
	return found
}

// note adds what became of a signature.
func (v *Verifier) note(found *identity.Signers, s *signature, why identity.Rejection) {
	if why == identity.NotRejected {
		if !slices.Contains(found.Agents, s.named.Agent) {
			found.Agents = append(found.Agents, s.named.Agent)
		}
		return
	}
	if s.named.Keys != nil {
		found.Claimed = append(found.Claimed, s.named.Agent)
	}
	switch why {
	case identity.SignatureRefused:
		found.Wrong += len(v.origins)
	case identity.SignatureMalformed:
		found.Wrong++
	}
	if found.Why == identity.NotRejected || found.Why == identity.AgentUnknown {
		found.Why = why
	}
}

// check checks one signature: what is cheap first.
func (v *Verifier) check(s *signature, now time.Time) identity.Rejection {
	why := s.read()
	if s.agent != "" {
		if s.named = v.options.Agents[s.agent]; s.named.Keys == nil {
			return identity.AgentUnknown
		}
	}
	switch {
	case why != identity.NotRejected:
		return why
	case s.nonce == "" && v.options.Nonces:
		return identity.SignatureUnfit
	case !v.fresh(&s.life, now):
		return identity.SignatureStale
	}
	if s.set = s.named.Keys.Set(); s.set == nil {
		s.named.Keys.Missing()
		return identity.SignatureUnverified
	}
	key, ok := s.set.Published(s.keyID)
	switch {
	case !ok:
		s.named.Keys.Missing()
		return identity.SignatureKeyUnknown
	case s.keyID == TestKey && !v.testKey:
		return identity.SignatureKeyUnknown
	}
	holder, name := s.agent, s.keyID+" "+s.nonce // a key ID has no space in it
	once := s.nonce != ""
	switch {
	case once && v.nonces.Used(holder, name, s.made, now):
		return identity.SignatureReplayed
	case !v.signed(s, key):
		return identity.SignatureRefused
	case once && !s.request.Look && !v.nonces.Use(holder, name, s.made, now):
		return identity.SignatureReplayed // by another request at the same time
	}
	return identity.NotRejected
}

// fresh reports whether a signature was made just now, and is not over.
func (v *Verifier) fresh(l *life, now time.Time) bool {
	return !now.Add(v.options.Leeway).Before(l.made) && now.Before(l.until) &&
		!now.After(l.made.Add(v.options.MaxAge))
}

// signed reports whether a signature is one of this request to this API, as it is known at one of its origins.
func (v *Verifier) signed(s *signature, key ed25519.PublicKey) bool {
	for _, at := range v.origins {
		if ed25519.Verify(key, s.base(at), s.bytes) {
			return true
		}
	}
	return false
}

// recall finds a signature that was found good, and still is, for this request; nil if there is none.
func (v *Verifier) recall(r *identity.Signed, sum *[sha256.Size]byte, now time.Time) *verified {
	g := v.slot(sum).Load()
	if g == nil || g.fields != *sum || !v.fresh(&g.life, now) || g.keys.Set() != g.set ||
		len(g.covers) > 0 && valuesOf(r, g.covers) != g.values {
		return nil
	}
	return g
}

func (v *Verifier) remember(s *signature, sum *[sha256.Size]byte, found identity.Signers) {
	g := &verified{fields: *sum, covers: s.covers, signers: found, keys: s.named.Keys, set: s.set, life: s.life}
	if len(g.covers) > 0 {
		g.values = valuesOf(s.request, g.covers)
	}
	v.slot(sum).Store(g)
}

func (v *Verifier) slot(sum *[sha256.Size]byte) *atomic.Pointer[verified] {
	return &v.good[binary.LittleEndian.Uint32(sum[:])%rememberedSignatures]
}

// sumOf is one hash for one list of fields, each of some lines.
func sumOf(fields [][]string) [sha256.Size]byte {
	b := make([]byte, 0, 1<<10)
	for _, lines := range fields {
		b = binary.AppendUvarint(b, uint64(len(lines)))
		for _, line := range lines {
			b = append(binary.AppendUvarint(b, uint64(len(line))), line...)
		}
	}
	return sha256.Sum256(b)
}

// valuesOf is one hash for what components of a request are.
func valuesOf(r *identity.Signed, names []string) [sha256.Size]byte {
	values := make([][]string, len(names))
	for i, name := range names {
		if value, ok := valueOf(r, name); ok {
			values[i] = []string{value}
		}
	}
	return sumOf(values)
}
