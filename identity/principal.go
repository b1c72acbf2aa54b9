package identity

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// Kind says what a Principal is known by.
type Kind uint8

const (
	Address     Kind = iota // the client's address: nothing better was proven
	APIKey                  // an active API key
	Token                   // a verified bearer token
	Certificate             // a verified client certificate
	LoggedIn                // a User of the program that asks
	SignedAgent             // an agent, by its signature of the request
	Kinds                   // how many there are
)

// String returns "address", "api_key", "token", "certificate", "user" or "signed_agent".
func (k Kind) String() string {
	switch k {
	case Address:
		return "address"
	case APIKey:
		return "api_key"
	case Token:
		return "token"
	case Certificate:
		return "certificate"
	case LoggedIn:
		return "user"
	case SignedAgent:
		return "signed_agent"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// Principal is whose budget a request spends. Two requests with the same
// subject (see AppendSubject) spend the same budget.
type Principal struct {
	Kind Kind

	// ID is the stable name of the API key, of the token's subject, of the
	// certificate, of the user or of the agent within Project, never the credential itself. Empty for an
	// Address.
	ID      string
	Project string // the tenant; empty for an Address
	Tier    string // the tenant's tier, if the key or token names one, or the agent's

	// Scopes are those of the API key; see Resolver.AnyScope.
	Scopes Scopes

	// claims are Claims.Other of a token; nil if there are none. A pointer, so that
	// principals stay comparable and small.
	claims *[]Claim

	// elsewhere are the holders of credentials that are genuine and do not count here; nil if there are none.
	elsewhere *[]Principal

	// Client is the client's address, IPv4-mapped addresses unmapped and
	// zones removed. It is invalid only if no peer was given.
	Client netip.Addr

	// Prefix is the group of addresses that share an address-keyed budget: an
	// IPv4 address alone (NAT64 included), an IPv6 address with its neighbours
	// of the same Options.IPv6Bits.
	Prefix netip.Prefix

	// Hop says how Client was found.
	Hop Hop

	// Rejected says why a credential that was presented is not used: of several, why the
	// first is not, or that one could not be verified (LookupFailed before TokenFlood before SignatureFlood before
	// SignatureUnverified). See InDoubt.
	Rejected Rejection

	// behind has a bit for each doubt about other credentials that Rejected does not say.
	behind uint8
}

// Claim is the value of a claim of the principal's token, one of Claims.Other. It is
// false if there is none.
func (p *Principal) Claim(name string) (value string, ok bool) {
	if p.claims == nil {
		return "", false
	}
	for i := range *p.claims {
		if c := &(*p.claims)[i]; c.Name == name {
			return c.Value, true
		}
	}
	return "", false
}

// Elsewhere are the holders of valid API keys that were sent to an endpoint which their scopes do not name, of
// tokens without the proof that they need (Options.Proofs), and the agents whom signatures name that are not good. The
// first principal of a request has those of all its credentials. They spend no budget here.
func (p *Principal) Elsewhere() []Principal {
	if p.elsewhere == nil {
		return nil
	}
	return *p.elsewhere
}

// User is who sent a request, as the program that asks has found out by means of
// its own: a session, or a token that it verified itself. It is believed.
type User struct {
	ID      string // the stable name of an account, never a credential; empty is nobody
	Project string // the tenant that the account belongs to; may be empty
}

// String says in one line who the principal is and how that was found. It is
// meant for people (explain, debug logs) and may change.
func (p Principal) String() string {
	var b strings.Builder
	b.WriteString(p.Kind.String())
	if p.Kind != Address {
		b.WriteString(" " + strconv.Quote(p.ID))
		if p.Project != "" {
			b.WriteString(" of project " + strconv.Quote(p.Project))
		}
		if p.Tier != "" {
			b.WriteString(" in tier " + strconv.Quote(p.Tier))
		}
		b.WriteString(", client")
	}
	if p.Client.IsValid() {
		b.WriteString(" " + p.Client.String() + " in " + p.Prefix.String())
	} else {
		b.WriteString(" none")
	}
	b.WriteString(": " + p.Hop.String())
	if p.Rejected != NotRejected {
		b.WriteString("; credential ignored: " + p.Rejected.String())
	}
	return b.String()
}

// AppendSubject appends the bytes that name the principal's budget. They are
// injective: different (Kind, Project, ID), or for an Address different
// Prefix, give different bytes. No subject is the beginning of another, so
// subjects may be concatenated. They are the same in every process.
func (p *Principal) AppendSubject(dst []byte) []byte {
	if p.Kind == Address {
		return p.AppendAddress(dst)
	}
	dst = append(dst, byte(p.Kind))
	dst = appendText(dst, p.Project)
	return appendText(dst, p.ID)
}

// AppendAddress appends the bytes that name the budget of the principal's
// address group, whatever the principal's Kind. They are what AppendSubject
// appends for a principal known by its address, with the same guarantees.
func (p *Principal) AppendAddress(dst []byte) []byte {
	dst = append(dst, byte(Address))
	addr := p.Prefix.Addr()
	switch {
	case addr.Is4():
		a := addr.As4()
		dst = append(dst, 4, byte(p.Prefix.Bits()))
		return append(dst, a[:]...)
	case addr.Is6():
		a := addr.As16()
		dst = append(dst, 16, byte(p.Prefix.Bits()))
		return append(dst, a[:]...)
	}
	return append(dst, 0)
}

func appendText(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// Rejection says why a presented credential was ignored. The zero value,
// NotRejected, means that none was.
type Rejection uint8

const (
	NotRejected         Rejection = iota
	TooManyCredentials            // more than MaxCredentials different ones: none was used
	KeyMalformed                  // not the text of an API key: no look-up was made
	KeyUnknown                    // no such key
	KeyRevoked                    // the key was revoked
	KeyExpired                    // the key's time is over
	KeyOutOfScope                 // the key's scopes do not name this endpoint
	TokenUnchecked                // a bearer token, but Options.Tokens is nil
	TokenTooLong                  // a bearer token above MaxTokenLength
	TokenMalformed                // not the text of a bearer token: it was not verified
	TokenRefused                  // the verifier refused the token
	TokenUnfit                    // the verifier refused it with ErrTokenUnfit
	TokenExpired                  // the verifier refused it with ErrTokenExpired
	TokenFlood                    // too many tokens of this address group failed: it was not verified
	TokenUnbound                  // the token is bound to no key, under Options.BoundOnly
	ProofMissing                  // the token is bound to a key, and no proof came with it
	ProofMalformed                // the proof is not the text of one, or there are several
	ProofUnfit                    // the proof is of another key, or for another token or request
	ProofStale                    // the proof was not made just now
	ProofReplayed                 // the proof was shown before
	ProofRefused                  // the signature of the proof is wrong
	AgentUnknown                  // the signature is of an agent that Options.Agents does not know
	SignatureMalformed            // the fields of a signature cannot be read, or hold too many
	SignatureUnfit                // the signature covers too little, or what cannot be checked
	SignatureStale                // the signature was not made just now, or its time is over
	SignatureReplayed             // the signature is good once, and was shown before
	SignatureKeyUnknown           // the signature is by a key that the agent does not publish
	SignatureRefused              // the signature is wrong, or for another request
	SignatureFlood                // too many signatures from this address group were wrong: it was not checked
	SignatureUnverified           // the agent's keys are not known at present
	CertificateExpired            // the time of the connection's client certificate is over
	CertificateUnnamed            // it has none, or several, of the name that was asked for
	LookupFailed                  // the finder or verifier could not answer
	rejections                    // how many there are
)

var rejectionNames = [rejections]string{
	NotRejected:         "not rejected",
	TooManyCredentials:  "too many different credentials were presented",
	KeyMalformed:        "the API key is malformed",
	KeyUnknown:          "the API key is unknown",
	KeyRevoked:          "the API key is revoked",
	KeyExpired:          "the API key has expired",
	KeyOutOfScope:       "the API key's scopes do not name this endpoint",
	TokenUnchecked:      "bearer tokens are not accepted here",
	TokenTooLong:        "the bearer token is too long",
	TokenMalformed:      "the bearer token is malformed",
	TokenRefused:        "the bearer token was refused",
	TokenUnfit:          "the bearer token is not for here",
	TokenExpired:        "the bearer token has expired",
	TokenFlood:          "the bearer token was not verified: too many from this address failed",
	TokenUnbound:        "the bearer token is bound to no key",
	ProofMissing:        "the bearer token is bound to a key, and came without a proof of it",
	ProofMalformed:      "the proof with the bearer token is malformed, or there are several",
	ProofUnfit:          "the proof with the bearer token is of another key, or for another token or request",
	ProofStale:          "the proof with the bearer token was not made just now",
	ProofReplayed:       "the proof with the bearer token was shown before",
	ProofRefused:        "the proof with the bearer token has a wrong signature",
	AgentUnknown:        "the signature is of an agent that is not named here",
	SignatureMalformed:  "the signature's fields are malformed, or hold too many",
	SignatureUnfit:      "the signature covers too little, or what cannot be checked",
	SignatureStale:      "the signature was not made just now, or its time is over",
	SignatureReplayed:   "the signature is good once, and was shown before",
	SignatureKeyUnknown: "the signature is by a key that the agent does not publish",
	SignatureRefused:    "the signature is wrong, or for another request",
	SignatureFlood:      "the signature was not checked: too many from this address were wrong",
	SignatureUnverified: "the signature could not be checked: the agent's keys are not known at present",
	CertificateExpired:  "the client certificate has expired",
	CertificateUnnamed:  "the client certificate does not have the one name that is asked for",
	LookupFailed:        "the credential could not be looked up",
}

var rejectionCodes = [rejections]string{
	NotRejected:         "not_rejected",
	TooManyCredentials:  "too_many_credentials",
	KeyMalformed:        "key_malformed",
	KeyUnknown:          "key_unknown",
	KeyRevoked:          "key_revoked",
	KeyExpired:          "key_expired",
	KeyOutOfScope:       "key_out_of_scope",
	TokenUnchecked:      "token_unchecked",
	TokenTooLong:        "token_too_long",
	TokenMalformed:      "token_malformed",
	TokenRefused:        "token_refused",
	TokenUnfit:          "token_unfit",
	TokenExpired:        "token_expired",
	TokenFlood:          "token_flood",
	TokenUnbound:        "token_unbound",
	ProofMissing:        "proof_missing",
	ProofMalformed:      "proof_malformed",
	ProofUnfit:          "proof_unfit",
	ProofStale:          "proof_stale",
	ProofReplayed:       "proof_replayed",
	ProofRefused:        "proof_refused",
	AgentUnknown:        "agent_unknown",
	SignatureMalformed:  "signature_malformed",
	SignatureUnfit:      "signature_unfit",
	SignatureStale:      "signature_stale",
	SignatureReplayed:   "signature_replayed",
	SignatureKeyUnknown: "signature_key_unknown",
	SignatureRefused:    "signature_refused",
	SignatureFlood:      "signature_flood",
	SignatureUnverified: "signature_unverified",
	CertificateExpired:  "certificate_expired",
	CertificateUnnamed:  "certificate_unnamed",
	LookupFailed:        "lookup_failed",
}

// Bad reports whether a credential was presented that is not good: made up,
// expired, revoked, or good elsewhere. One that is none of what is accepted here
// (TokenUnchecked, AgentUnknown, CertificateUnnamed) may be good for the application, and of one
// that could not be verified (Unverified) nothing is known.
func (r Rejection) Bad() bool {
	switch r {
	case NotRejected, TooManyCredentials, TokenUnchecked, AgentUnknown, CertificateUnnamed:
		return false
	}
	return !r.Unverified()
}

// Signature reports whether a signature of the request is meant.
func (r Rejection) Signature() bool { return AgentUnknown <= r && r <= SignatureUnverified }

// Unverified reports whether a credential could not be verified, so that it may be good.
func (r Rejection) Unverified() bool { return r.doubt() > 0 }

// InDoubt reports whether a credential of the request could not be verified for a reason that is Unverified, which of
// several Rejected may not say.
func (p *Principal) InDoubt(why Rejection) bool {
	return p.Rejected == why || p.behind>>why.doubt()&1 == 1
}

// Flooded reports whether a credential was not verified because too many from its address group were bad.
func (p *Principal) Flooded() bool { return p.InDoubt(TokenFlood) || p.InDoubt(SignatureFlood) }

// doubt orders what is said of a request with several credentials that could not be verified.
func (r Rejection) doubt() int {
	switch r {
	case SignatureUnverified:
		return 1
	case SignatureFlood:
		return 2
	case TokenFlood:
		return 3
	case LookupFailed:
		return 4
	}
	return 0
}

// Code returns a word for programs: a metric's label.
func (r Rejection) Code() string {
	if r < rejections {
		return rejectionCodes[r]
	}
	return "unknown"
}

// String returns a sentence fragment for people.
func (r Rejection) String() string {
	if r < rejections {
		return rejectionNames[r]
	}
	return "Rejection(" + strconv.Itoa(int(r)) + ")"
}
