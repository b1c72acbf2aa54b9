package headgate

import (
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// Request is what a door saw, translated from its protocol and not yet
// believed: every field may have been chosen by an attacker.
type Request struct {
	// Method is the request method as sent; methods are case-sensitive
	// (RFC 9110 §9.1).
	Method string

	// Message says that no request is asked about but a message on a WebSocket: then
	// Method is endpoint.Send or endpoint.Receive, and the rest is that of the request
	// which opened it; or the message that is a request's body (endpoint.OfBodies). Without
	// it those methods are refused as UnknownMethod, since a
	// client may write any method in its request line.
	Message bool

	// UnderWay says that the request is served already, and asks for more than it has paid: it takes no
	// other place among the requests under way (policy.Concurrency), and counts as no other one where
	// requests are counted (policy.CountsRequests). One that is denied is no denial for penalties, and
	// has no time of its own to come again.
	UnderWay bool

	// Target is the raw request target in origin form, path and query, as it
	// stood on the wire: "/v1/items/a%20b?x=1". A door that has only a parsed
	// or cleaned path gives up the guarantee that the limiter and the server
	// behind it mean the same endpoint.
	Target string

	// Peer is the address of the other end of the connection.
	Peer netip.Addr

	// Line is the request line that the request came with, where Method and Target are
	// those of the message that it carries (endpoint.MCP, endpoint.Model); zero where they are its own.
	Line Line

	// Proven is memory for doors that ask about a request again; see identity.NeedsProven.
	Proven *identity.Proven

	// Header holds the request's headers; nil means none. http.Header fits.
	Header identity.Headers

	// Certificate is the verified client certificate of the connection, nil if
	// there is none; see identity.Evidence.
	Certificate *x509.Certificate

	// User is who the program has logged in before it asks, by a session or by
	// means of its own; nil if it logs nobody in. See identity.Evidence.
	User *identity.User

	// Identifier is what the caller tries to be (a user name in a login
	// body), for rules with subject "identifier". It comes from the request,
	// so it narrows budgets and never widens them: without one the client's
	// address stands in. Its bytes are its spelling: package body joins those
	// that mean the same account. Options.Observe does not see it.
	Identifier string

	// Unparsable says that the request should have named an identifier and that
	// none could be read, so that nobody knows whose account it tries. Rules
	// with subject "identifier" then ask two budgets, both of which must have
	// room: the address's, and one that all such requests share. Identifier is
	// ignored.
	Unparsable bool

	// Cost is how many tokens this request takes, where that is known only of
	// the request itself: rows asked for, bytes sent, tokens of a prompt. 0 is
	// what Options.Costs says of the endpoint. A cost above a rule's burst is
	// denied as CostAboveBurst and one below zero as InvalidCost; neither by
	// waiting.
	Cost int64

	// Parts is how many requests this one holds, for a batch; 0 is one. It costs so
	// many times what Cost or Options.Costs says, and is so many where requests are
	// counted (policy.CountsRequests); under way it is one. Below zero it is denied as
	// InvalidCost.
	Parts int64

	// Class is how urgent the program holds the request to be, where rules tell
	// classes apart (policy.Priority); policy.Unclassed leaves it to them. If they, or
	// anything else, say a lower class, that counts. It must not come from what a
	// client sends unless that was verified.
	Class policy.Class

	// MaxWait is the longest that rules with algorithm leaky_bucket may tell
	// the request to wait; a longer wait is denied. 0 leaves it to
	// Options.MaxWait, and if that is 0 to ctx's deadline and to the bursts of the
	// rules; below 0 means not at all.
	MaxWait time.Duration
}

// Line is the method and the raw target of a request, as sent.
type Line struct{ Method, Target string }

// canonicalFields are header fields that are asked for by canonical names alone,
// as identity does: http.Header makes every name canonical at every request.
type canonicalFields http.Header

func (f canonicalFields) Values(name string) []string { return f[name] }

// direct makes the fields of h quick to read, if that is possible.
func direct(h identity.Headers) identity.Headers {
	if fields, ok := h.(http.Header); ok {
		return canonicalFields(fields)
	}
	return h
}

// A Request holds credentials: in its header, in its query, and often in its
// identifier. It prints without them, so that a log line about a request is no
// leak.

// String shows the method, the path and the peer.
func (r Request) String() string {
	path, _, query := strings.Cut(r.Target, "?")
	if query {
		path += "?[redacted]"
	}
	return fmt.Sprintf("{%s %s from %s}", r.Method, path, r.Peer)
}

// Format shows the method, the path and the peer, whatever the verb.
func (r Request) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, r.String()) }

// LogValue shows the method, the path and the peer.
func (r Request) LogValue() slog.Value { return slog.StringValue(r.String()) }
