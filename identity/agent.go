package identity

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
)

// An automated agent can sign its requests (RFC 9421) under keys that it publishes, as Web Bot Auth has it. The
// signature is a credential like others: who made it is proven, and it counts beside a token or key.

// Agent is whose signature a request carries.
type Agent struct {
	ID      string // the stable name of the agent within Project; required
	Project string // the tenant that it belongs to; may be empty
	Tier    string // empty if the policy says
}

// Signed is a request that may be signed. It prints without its header, which holds credentials.
type Signed struct {
	Method, Target string // of the request, as it was limited
	Header         Headers

	// Spent says that no signature is to be read, as too many from this address were wrong: SignatureFlood,
	// but for what is remembered.
	Spent bool

	// Look says that nobody acts on the answer: what is good once can be shown again.
	Look bool
}

// String shows nothing.
func (s *Signed) String() string { return "identity.Signed" + redacted }

// Format shows nothing, whatever the verb.
func (s *Signed) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue shows nothing.
func (s *Signed) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Signers are whose signatures a request carries. Its slices are not to be changed.
type Signers struct {
	Agents  []Agent   // whose signatures are good
	Claimed []Agent   // whom the others name
	Why     Rejection // why the first of the others is not good; AgentUnknown only if no other is worse
	Wrong   int       // how many were looked at in vain, at about the price of a check each
}

// AgentVerifier verifies the signatures of requests. It returns nothing for a request that carries none which it is
// for, and for others a Rejection of AgentUnknown, SignatureMalformed, SignatureUnfit, SignatureStale,
// SignatureReplayed, SignatureKeyUnknown, SignatureRefused, SignatureFlood or SignatureUnverified. It must be safe for
// concurrent use, and must not keep the request.
type AgentVerifier interface{ VerifyAgents(r *Signed) Signers }

// signatureField names the signatures of a request (RFC 9421 section 4.1).
const signatureField = "Signature-Input"

// addAgents adds those who have signed the request.
func (r *Resolver) addAgents(e *Evidence, p *Principal, others []Principal) []Principal {
	lines := e.Header.Values(signatureField)
	if len(lines) == 0 {
		return others
	}
	found, known := e.Proven.signers(lines)
	if !known {
		now := r.now()
		found = r.agents.VerifyAgents(&Signed{
			Method: e.Method, Target: e.Target, Header: e.Header, Look: e.Look,
			Spent: r.unsigned != nil && r.unsigned.spent(p.Prefix, now),
		})
		if r.unsigned != nil {
			for range found.Wrong {
				r.unsigned.charge(p.Prefix, false, now)
			}
		}
		e.Proven.addSigners(lines, found)
	}
	address := Principal{Client: p.Client, Prefix: p.Prefix, Hop: p.Hop}
	for _, a := range found.Agents {
		switch {
		case a.ID == "": // the verifier's mistake; it would be shared by all such agents
			found.Why = LookupFailed
		case p.Kind == Address:
			p.Kind, p.ID, p.Project, p.Tier = SignedAgent, a.ID, a.Project, a.Tier
		default:
			others = include(p, a.principal(&address), others)
		}
	}
	if len(found.Claimed) > 0 {
		elsewhere := slices.Clone(p.Elsewhere())
		for _, a := range found.Claimed {
			elsewhere = append(elsewhere, a.principal(&address))
		}
		p.elsewhere = &elsewhere
	}
	if found.Why != AgentUnknown || p.Kind == Address && p.Rejected == NotRejected {
		r.reject(p, found.Why)
	}
	return others
}

func (a *Agent) principal(at *Principal) Principal {
	who := *at
	who.Kind, who.ID, who.Project, who.Tier = SignedAgent, a.ID, a.Project, a.Tier
	return who
}
