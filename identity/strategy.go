package identity

import (
	"fmt"
	"net/netip"
	"strconv"
)

// Strategy says how the client's address is found among what the peer and its
// headers say. Which one is right depends on the proxies in front, and each is
// wrong in a way of its own.
type Strategy uint8

const (
	// TrustedRanges walks from the peer to the left of ForwardedHeader while
	// the hop just found is in TrustedProxies. It is right wherever the
	// proxies' addresses are known, and only what they wrote is believed.
	// Attacked when the ranges hold an address that a client can have: a
	// network of your cloud provider's is also that of its other customers.
	TrustedRanges Strategy = iota

	// TrustedCount takes the ProxyCount-th hop from the right of
	// ForwardedHeader. It is right where the number of proxies never changes
	// and their addresses do. Attacked by any way in that has fewer proxies:
	// whoever reaches this server past one of them chooses what is believed.
	// With TrustedProxies, the last proxy at least must be one of those.
	TrustedCount

	// SingleHeader takes the one address in ClientHeader, such as
	// CF-Connecting-IP, from a peer in TrustedProxies, which are required. It
	// is right where the outermost proxy replaces that header whatever the
	// client sent. Attacked when a proxy passes on the client's own, and by
	// other customers of a shared proxy who can set it.
	SingleHeader

	strategies // how many there are
)

var strategyNames = [strategies]string{
	TrustedRanges: "trusted_ranges",
	TrustedCount:  "trusted_count",
	SingleHeader:  "single_header",
}

// String returns the name as configurations write it.
func (s Strategy) String() string {
	if s < strategies {
		return strategyNames[s]
	}
	return "Strategy(" + strconv.Itoa(int(s)) + ")"
}

// ParseStrategy returns the Strategy that has a name.
func ParseStrategy(name string) (Strategy, error) {
	for s, known := range strategyNames {
		if name == known {
			return Strategy(s), nil
		}
	}
	return 0, fmt.Errorf("strategy is %q, want trusted_ranges, trusted_count or single_header", name)
}

// client finds the client's address, and says how.
func (r *Resolver) client(e *Evidence) (netip.Addr, Hop) {
	peer := plain(e.Peer)
	switch {
	case !peer.IsValid():
		return peer, Hop{Stop: StopNoPeer}
	case !r.Trusts(peer):
		return peer, Hop{Stop: StopPeerUntrusted}
	case e.Header == nil:
		return peer, Hop{Stop: StopNoHeader}
	}
	lines := e.Header.Values(r.addressHeader)
	if len(lines) == 0 {
		return peer, Hop{Stop: StopNoHeader}
	}
	switch r.strategy {
	case TrustedCount:
		return r.counted(peer, lines)
	case SingleHeader:
		return r.named(peer, lines)
	}
	return r.walk(peer, lines)
}

// Trusts reports whether headers of a peer are read: it is in TrustedProxies,
// or there are none and the strategy is TrustedCount.
func (r *Resolver) Trusts(peer netip.Addr) bool {
	peer = plain(peer)
	return peer.IsValid() && (r.trustAll || r.trusted.contains(peer))
}

// counted takes the hop that the outermost of our proxies was connected from.
// Where the header is shorter than that, or the hop is no address, a proxy was
// gone round or does not do its part. The client is the peer then: what stands
// in a shorter header may be the client's own choice.
func (r *Resolver) counted(peer netip.Addr, lines []string) (netip.Addr, Hop) {
	hop := Hop{Header: r.addressHeader}
	hops := hopList{lines: lines, quotes: r.rfc7239, bytes: maxListBytes}
	for range r.proxyCount - 1 {
		// What the proxies between wrote is theirs; that it is there counts.
		if _, hop.Stop = hops.pop(); hop.Stop != stopNot {
			break
		}
	}
	var client netip.Addr
	if hop.Stop == stopNot {
		client, hop.Stop = r.next(&hops, 0)
	}
	switch hop.Stop {
	case stopNot:
		hop.Index, hop.Stop = r.proxyCount, StopCounted
		return client, hop
	case StopAllTrusted:
		hop.Stop = StopTooFew
	}
	return peer, hop
}

// named takes the one address of the one line there is. Two lines mean that
// some proxy added its own to the client's, and nobody knows which is which.
func (r *Resolver) named(peer netip.Addr, lines []string) (netip.Addr, Hop) {
	hop := Hop{Header: r.addressHeader}
	if len(lines) > 1 {
		hop.Stop = StopRepeated
		return peer, hop
	}
	if len(lines[0]) > maxNamedBytes {
		hop.Stop = StopMalformed
		return peer, hop
	}
	client, stop := parseNode(trim(lines[0]), true)
	if hop.Stop = stop; stop != stopNot {
		return peer, hop
	}
	hop.Index, hop.Stop = 1, StopNamed
	return client, hop
}

// maxNamedBytes is more than an address with zone, port and white space has.
const maxNamedBytes = 256

// headersTaken are those that SingleHeader cannot mean: lists, credentials, and
// what belongs to the connection (RFC 9110 §7.6.1).
var headersTaken = []string{
	xForwardedFor, forwarded, authorization, "Connection", "Cookie", "Host", "Keep-Alive", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Via",
}

// checkStrategy reports what does not go together.
func (r *Resolver) checkStrategy(o Options) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.Strategy >= strategies {
		fault("Strategy is %v, want TrustedRanges, TrustedCount or SingleHeader", o.Strategy)
	}
	switch {
	case o.Strategy != TrustedCount && o.ProxyCount != 0:
		fault("ProxyCount is %d, want 0: the strategy is %v", o.ProxyCount, o.Strategy)
	case o.Strategy == TrustedCount && (o.ProxyCount < 1 || maxHops < o.ProxyCount):
		fault("ProxyCount is %d, want 1 to %d: the proxies in front, this server not counted", o.ProxyCount, maxHops)
	}
	switch {
	case o.Strategy != SingleHeader && o.ClientHeader != "":
		fault("ClientHeader is %q, want none: the strategy is %v", o.ClientHeader, o.Strategy)
	case o.Strategy == SingleHeader:
		if err := CheckClientHeader(o.ClientHeader); err != nil {
			fault("ClientHeader is %q, want %w", o.ClientHeader, err)
		}
		if o.KeySources.withDefaults().Header == r.addressHeader {
			fault("ClientHeader is %q, want another one than KeySources.Header", o.ClientHeader)
		}
		if len(o.TrustedProxies) == 0 {
			fault("TrustedProxies is empty, want the addresses that set %s: from anybody else it is the client's "+
				"own choice", r.addressHeader)
		}
	}
	return faults
}

// CheckClientHeader says what Options.ClientHeader would have to be, or nil if
// name can be it.
func CheckClientHeader(name string) error {
	token, rest := cutToken(name)
	if token == "" || rest != "" {
		return fmt.Errorf("the name of a header such as CF-Connecting-IP")
	}
	for i := range len(name) {
		if name[i] == '_' {
			return fmt.Errorf(
				"a name without underscores: servers drop such headers, or take them for the one with hyphens")
		}
	}
	for _, taken := range headersTaken {
		if canonical(name, "") == taken {
			return fmt.Errorf("a header that holds one address and nothing else")
		}
	}
	return nil
}
