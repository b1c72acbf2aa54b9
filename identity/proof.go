package identity

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
)

// A bearer token can be bound to a key of its holder (RFC 9449). It counts only in a request that shows a proof of
// that key as well, made for this request and this token and shown once: so whoever finds a token in a log has no
// budget by it.

// Proof is a proof of possession, and what it has to be about. It prints without what it holds, which is credentials.
type Proof struct {
	Text           string // the field DPoP
	Token          string // the bearer token that it came with
	Key            string // Claims.Key of the token
	Holder         string // whose the token is: distinct for distinct holders, and no secret
	Method, Target string // of the request
	Reading        Reading

	// Spent says that no signature is to be checked: too many from this address were wrong. What is not
	// refused for less is TokenFlood then.
	Spent bool

	// Look says that nobody acts on the answer: the proof can be shown again.
	Look bool
}

// String shows nothing.
func (p *Proof) String() string { return "identity.Proof" + redacted }

// Format shows nothing, whatever the verb.
func (p *Proof) Format(s fmt.State, _ rune) { io.WriteString(s, p.String()) }

// LogValue shows nothing.
func (p *Proof) LogValue() slog.Value { return slog.StringValue(p.String()) }

// Reading tells whether two request targets are one to the limiter. endpoint.Table is one.
type Reading interface{ Same(a, b string) bool }

// ProofVerifier verifies proofs of possession. VerifyProof returns NotRejected at most once for a proof, and else
// ProofMalformed, ProofUnfit, ProofStale, ProofReplayed, ProofRefused or TokenFlood. It must be safe for concurrent
// use, and must not keep what the proof holds.
type ProofVerifier interface{ VerifyProof(p *Proof) Rejection }

// Proven remembers what was accepted of one request and is good once, for doors that ask about a request more than
// once, as about the messages of a WebSocket. It may be used concurrently. The zero value is ready.
type Proven struct {
	mu           sync.Mutex // guards what follows
	token, proof string
	signed       []string // the lines of signatureField
	by           Signers
}

// Format shows nothing, whatever the verb.
func (p *Proven) Format(s fmt.State, _ rune) { io.WriteString(s, "identity.Proven"+redacted) }

func (p *Proven) has(token, proof string) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.token != "" && p.token == token && p.proof == proof
}

func (p *Proven) add(token, proof string) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.token, p.proof = token, proof
	}
}

// signers returns what was found out of the signatures of the request, if somebody has asked.
func (p *Proven) signers(lines []string) (by Signers, known bool) {
	if p == nil {
		return by, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.by, p.signed != nil && slices.Equal(p.signed, lines)
}

func (p *Proven) addSigners(lines []string, by Signers) {
	if p != nil && len(by.Agents) > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.signed, p.by = lines, by
	}
}

const proofField = "Dpop" // as http.Header keeps it

// NeedsProven reports whether the header of a request, with names as http.Header has them, shows what is good once.
// Doors that ask about it again give Evidence.Proven then.
func NeedsProven(header map[string][]string) bool {
	return len(header[proofField]) > 0 || len(header[signatureField]) > 0
}

// prove checks that a verified token may be used in this request.
func (r *Resolver) prove(e *Evidence, text string, claims *Claims, p *Principal) Rejection {
	if r.proofs == nil {
		return NotRejected
	}
	if claims.Key == "" {
		if r.boundOnly {
			return TokenUnbound
		}
		return NotRejected
	}
	var lines []string
	if e.Header != nil {
		lines = e.Header.Values(proofField)
	}
	switch len(lines) {
	case 0:
		return ProofMissing
	case 1:
	default:
		return ProofMalformed // RFC 9449 section 4.3
	}
	if e.Proven.has(text, lines[0]) {
		return NotRejected
	}
	now := r.now()
	why := r.proofs.VerifyProof(&Proof{
		Text: lines[0], Token: text, Key: claims.Key, Holder: claims.Project + "\x00" + claims.Subject,
		Method: e.Method, Target: e.Target, Reading: e.Reading, Look: e.Look,
		Spent: r.unproven != nil && r.unproven.spent(p.Prefix, now),
	})
	switch why {
	case NotRejected:
		e.Proven.add(text, lines[0])
	case TokenFlood:
	default:
		if r.unproven != nil {
			r.unproven.charge(p.Prefix, why != ProofRefused, now)
		}
	}
	return why
}

// Unproven reports whether a token is genuine, but whoever showed it has not proven that it is his.
func (r Rejection) Unproven() bool {
	switch r {
	case TokenUnbound, ProofMissing, ProofMalformed, ProofUnfit, ProofStale, ProofReplayed, ProofRefused:
		return true
	}
	return false
}
