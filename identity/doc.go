// Package identity reports whose budget a request spends.
//
// Evidence goes in (the peer's address, the request's headers and target), a
// [Principal] comes out: the user that the program has logged in, else the subject
// of a verified bearer token, else the holder
// of an active API key, else the holder of a verified client certificate, else
// the client's address. A request with several of these is several principals'
// ([Resolver.ResolveAll]).
//
//	digester, err := identity.NewDigester(secret)
//	…
//	who, err := identity.New(identity.Options{
//		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
//		Keys:           keyring,
//		Digester:       digester,
//	})
//	…
//	p := who.Resolve(ctx, identity.Evidence{Peer: peer, Header: r.Header})
//	subject = p.AppendSubject(subject[:0])
//
// # Guarantees
//
// What a request presents but cannot prove changes nothing: an unknown,
// revoked, expired or malformed credential takes nothing away from a valid one,
// and without one leaves the request to its address; [Principal.Rejected] says
// why. So nobody gains a budget by inventing credentials.
//
// Forwarding headers are read only when the peer is a trusted proxy, only the
// one header that was configured, and from the right, so that what a client
// wrote stays left of what the proxies wrote about it. A request without a
// usable address still has a subject, which all such requests share.
//
// Work per request is bounded: [MaxCredentials] different credentials, 64 hops
// and 8 KiB of the forwarding header,
// an API key of at most [MaxKeyLength] bytes and of a known [KeyFormat], a
// token of at most [MaxTokenLength] bytes. A [Keyring] is in memory; before a
// finder that is not, put [CachedKeys], which bounds the look-ups too.
//
// A verified token is remembered for [Options.TokenTTL] at most, by a keyed hash
// in a table of fixed size. Tokens that fail are not, but counted by address
// group: who fails too often has other tokens not verified for a while, so that
// forging them costs no more than sending requests ([Options.TokenFailures]).
//
// Nothing here prints a credential: [Digester] and [Evidence] redact
// themselves in fmt, log/slog and encoding/json.
//
// A [Resolver] and a [Keyring] may be used by any number of goroutines. The
// address path does not allocate, nor does the API-key path with a Keyring, nor
// a token that is remembered. A key in steady use takes about 190 ns; one among
// more than the 4,096 whose digests are remembered, about 390.
package identity
