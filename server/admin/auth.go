package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/record"
)

// TokenFinder finds an admin token by its digest. A map will do: who measures
// how long a look-up takes learns of digests, and no token can be made of
// those.
type TokenFinder func(digest [sha256.Size]byte) (record.AdminToken, bool)

// caller is who makes a call, as far as proven.
type caller struct {
	actor string // for the audit
	token string // ID; empty without one of the database's
	may   func(record.Role) bool
}

func everything(record.Role) bool { return true }

type callerKey struct{}

// callerOf reports who makes the call that r is.
func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}

// authenticated finds out who calls, and lets nobody through who is nobody.
func (d *Door) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := d.identify(r)
		if err != nil {
			k, ctx := unauthenticated, context.WithValue(r.Context(), callerKey{}, caller{actor: "nobody"})
			if f := (fault{}); errors.As(err, &f) {
				k = f.kind
			}
			d.recordRefusal(w, r.WithContext(ctx), k, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
	})
}

// local is the caller who needs no token.
var local = caller{actor: "local connection", may: everything}

// identify reports who makes a request. An error is for the answer: it repeats
// nothing of what was sent.
func (d *Door) identify(r *http.Request) (caller, error) {
	access := d.access.Load()
	text, bears := bearer(r)
	// What looks like a token of the database must be one, even where none is
	// needed: whoever sends it believes that it counts.
	if prefix := record.AdminTokenFormat.Prefix; strings.HasPrefix(text, prefix) &&
		!strings.HasPrefix(access.Token, prefix) {
		token, ok := record.AdminToken{}, false
		if d.Tokens != nil && record.AdminTokenFormat.Match(text) {
			token, ok = d.Tokens(record.AdminTokenDigest(text))
		}
		switch now := d.Now(); {
		case !ok:
			return caller{},
				errors.New(
					"The admin token is wrong: nobody has it. `headgate admin token list` shows those there are.")
		case !token.Revoked.IsZero():
			return caller{}, fmt.Errorf("The admin token %s was revoked.", token.Name)
		case !token.Valid(now):
			return caller{}, fmt.Errorf("The admin token %s ended at %s.", token.Name,
				token.Expires.UTC().Format(time.RFC3339))
		default:
			return caller{actor: "token " + token.Name, token: token.ID, may: token.May}, nil
		}
	}
	switch {
	case access.Token != "" && bears:
		return d.identifyByFile(r, access, text)
	case access.NeedToken || access.Token != "":
		return caller{}, errors.New("The admin token is missing or wrong: send Authorization: Bearer TOKEN.")
	case !localName(r.Host):
		return caller{}, fault{strangeOrigin, errors.New("This listener answers to localhost and to addresses alone.")}
	}
	return local, nil
}

// bearer reports the token of a request.
func bearer(r *http.Request) (text string, ok bool) {
	scheme, text, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimLeft(text, " "), true
}

// identifyByFile compares with the token of the file, which people may have
// chosen: so the number of wrong guesses is bounded.
func (d *Door) identifyByFile(r *http.Request, access *Access, text string) (caller, error) {
	address := peer(r)
	if wait := d.failures.begin(address, d.Now()); wait > 0 {
		return caller{}, fault{tooManyFailures, &retry{wait}}
	}
	// Hashed first, so that the comparison takes the same time whatever the
	// lengths.
	got, want := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(access.Token))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return caller{}, errors.New("The admin token is missing or wrong: send Authorization: Bearer TOKEN.")
	}
	d.failures.succeeded(address)
	return caller{actor: "token " + access.TokenName, may: everything}, nil
}

// retry says when to come again.
type retry struct{ wait time.Duration }

func (r *retry) Error() string {
	return fmt.Sprintf("Too many wrong tokens came from this address: wait %d s. Tokens of `headgate admin token "+
		"create` are taken all the same.", r.seconds())
}

func (r *retry) seconds() int { return int(math.Ceil(r.wait.Seconds())) }

// recordRefusal answers somebody who is nobody.
func (d *Door) recordRefusal(w http.ResponseWriter, r *http.Request, k kind, err error) {
	if k == unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="headgate admin"`)
	}
	if late := (*retry)(nil); errors.As(err, &late) {
		w.Header().Set("Retry-After", strconv.Itoa(late.seconds()))
	}
	began := d.Now()
	refuse(w, r, k, err)
	d.Observe("none", k.status)
	d.record.refused(record.Call{
		At:        began,
		Actor:     "nobody",
		Peer:      peer(r).String(),
		Operation: "none",
		Status:    k.status,
		Took:      d.Now().Sub(began),
	})
}

// peer is the address that a request comes from.
func peer(r *http.Request) netip.Addr {
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	return at.Addr().Unmap()
}

// localName reports whether a Host header names this machine without asking
// the DNS, which an attacker may answer: it is localhost, an IPv4 address, or an
// IPv6 address in brackets, with or without a port. An address with a zone, such
// as fe80::1%25evil.com, is none: some resolvers look its end up as a name.
func localName(host string) bool {
	if literal, ok := strings.CutPrefix(host, "["); ok {
		literal, port, closed := strings.Cut(literal, "]")
		address, err := netip.ParseAddr(literal)
		return closed && err == nil && address.Is6() && address.Zone() == "" && (port == "" || isPort(port))
	}
	if colon := strings.IndexByte(host, ':'); colon >= 0 {
		if !isPort(host[colon:]) {
			return false
		}
		host = host[:colon]
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Is4() || strings.EqualFold(host, "localhost")
}

// isPort reports whether text is a colon and the number of a port.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text[1:], 10, 16)
	return err == nil && text[0] == ':' && text[1] != '+'
}

// guesses is how many wrong tokens an address may send: ten at once, and one
// more every six seconds. At that pace the shortest token that people may
// choose, 16 characters, is safe from guessing.
var guesses, _ = rate.Compile(rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10})

// failures counts wrong tokens by address, in a table that never grows:
// addresses may share a place. Whoever has many addresses must not fill it, or
// the token of the file would be taken from nobody. So a site has few places to
// fall in, and those of its provider are not many more:
//
//	                  IPv6 and IPv4   places
//	a client          /64      /32         1
//	a site            /48      /24         8
//	a provider        /32      /16        64
//	all                                 4096
type failures struct {
	seed maphash.Seed

	mu     sync.Mutex
	places [allPlaces]bucket.State // guarded by mu
}

const (
	allPlaces      = 4096
	providerPlaces = 64
	sitePlaces     = 8
)

func newFailures() *failures { return &failures{seed: maphash.MakeSeed()} }

func (f *failures) place(address netip.Addr) *bucket.State {
	bits := [...]int{16, 24, 32}
	if address.Is6() {
		bits = [...]int{32, 48, 64}
	}
	// maphash.Comparable of prefixes that differ in their length alone is not
	// independent enough: a dozen times too many addresses shared a place.
	var level [17]byte
	at := uint64(0)
	for i, among := range [...]uint64{allPlaces / providerPlaces, providerPlaces / sitePlaces, sitePlaces} {
		part, _ := address.WithZone("").Prefix(bits[i])
		*(*[16]byte)(level[:]) = part.Addr().As16()
		level[16] = byte(i)
		at = at*among + maphash.Bytes(f.seed, level[:])%among
	}
	return &f.places[at]
}

// begin counts a token as wrong, before it is looked at, and reports how long to
// wait if too many were.
func (f *failures) begin(address netip.Addr, now time.Time) (wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.place(address)
	after, outcome := at.Take(now.UnixNano(), guesses, 1)
	*at = after
	if outcome.Allowed {
		return 0
	}
	return max(outcome.RetryAfter, time.Second)
}

// succeeded forgets the wrong tokens of an address.
func (f *failures) succeeded(address netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*f.place(address) = bucket.State{}
}
