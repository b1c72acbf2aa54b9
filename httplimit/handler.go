// Package httplimit is the net/http door: middleware that asks a Limiter
// about every request and answers the refused ones itself.
package httplimit

import (
	"context"
	"crypto/x509"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/perrule"
	"github.com/headgate-io/headgate/policy"
)

// Options configures a Handler. The zero value is a safe default.
type Options struct {
	// OmitFields leaves RateLimit and RateLimit-Policy out of responses. They
	// cost a server more than the decision does.
	OmitFields bool

	// Draft is the version of the IETF draft by which they are written. Default Draft10.
	Draft Draft

	// BindingOnly tells of the rule that decided alone: the one that denied, or that has least
	// left. Default false: RateLimit and RateLimit-Policy tell of each rule that applies.
	BindingOnly bool

	// Legacy adds X-RateLimit-* in the dialect named. Default none.
	Legacy Dialect

	// Merge says that next passes answers on whose server has limits of its own, as a proxy does:
	// of two quotas that would stand under one name the client is told of the one that has less
	// left. Default false: what next sets is sent.
	Merge bool

	// Peer tells the address of the other end of the connection. The default
	// parses Request.RemoteAddr. Never return an address from a header here:
	// identity.Options.TrustedProxies is the place that knows whom to believe.
	Peer func(*http.Request) netip.Addr

	// User tells who handlers before this one have logged in, nil for nobody. Default
	// nil: identity.Options says how callers prove who they are.
	User func(*http.Request) *identity.User

	// Identifier tells what the caller tries to be, for rules with subject
	// "identifier". Default none.
	Identifier func(*http.Request) string

	// Identifiers finds them in the bodies of the endpoints it names, in the
	// place of Identifier. Default nil: no body is touched.
	Identifiers *Identifiers

	// MaxHeld is how many bytes the bodies may hold together that Identifiers, Calls and Meters read before their
	// requests are decided, beside 8 KiB for each; those of one address half of it. A request that needs more is
	// answered with 503. Default 256 MiB.
	MaxHeld int64

	// Calls counts the requests that bodies of some endpoints hold, prices those that say what they cost, and knows
	// which tool a message of MCP calls, and which model is asked.
	// Default nil: each is one, for its own endpoint, and no body is touched.
	Calls *Calls

	// Cost tells what a request costs, or probably costs if Reserve is set, in
	// tokens; 0 is what the endpoint costs. Default 0. What it reads of the
	// request was chosen by the client: bound it.
	Cost func(*http.Request) int64

	// Meters makes requests of some endpoints pay by what their bodies and answers say, in the place of Cost.
	// Default nil: no body is touched. Where Reserve.Field is set and an answer has it, that counts.
	Meters *Meters

	// Reserve makes requests pay by what they turned out to cost. Default nil:
	// they pay before.
	Reserve *Reserve

	// CountWhen names, by the template of an endpoint, the answers that the endpoint's
	// rules count, for limits on what goes wrong: guessed IDs, refused logins. A request
	// under way counts, and is forgiven when its answer is complete and of another status.
	// One that was cut off counts, as do one that became another protocol and one to a request
	// whose body broke off before. Rules for "*" count every request (headgate.Answer.Forgiven), and
	// rules that say themselves which answers they count (policy.Rule.CountWhen) go by that. Default none: all count.
	CountWhen map[string]*policy.Statuses

	// CountTimeout and CountFailed are Reserve.Timeout and Reserve.Failed for those endpoints and rules, if
	// Reserve is nil.
	CountTimeout time.Duration
	CountFailed  func(error)

	// Methods lists the methods that the path of a raw target has, for the
	// Allow header of a 405 (RFC 9110 §15.5.6). endpoint.Table.Allowed fits.
	// Default none: the header is then empty, which that section permits.
	Methods func(target string) []string

	// Rewritten says that handlers before this one may change r.URL, as
	// http.StripPrefix does, and that those behind it read r.URL and never
	// r.RequestURI. Then r.URL is charged. By default a request is refused whose
	// r.URL is no longer that of its request line, since nobody could say which
	// of the two will be served.
	Rewritten bool

	// MaxWait is the longest that rules with algorithm leaky_bucket may hold a
	// request back before next sees it; one that would have to wait longer is
	// answered with 429 at once. A request waits no longer than its context
	// lasts, and headgate.Options.MaxWaiters bounds how many wait. Longer
	// smooths larger bursts and keeps more connections open. Default 10 s;
	// below 0 nobody waits.
	MaxWait time.Duration

	// Refuse, if set, answers the requests that are refused, in place of problem
	// details and of what rules say (policy.Rule.Refusal). Fields that belong to the refusal, such
	// as Retry-After, are set already. Default nil.
	Refuse func(w http.ResponseWriter, r *http.Request, d *headgate.Decision)

	// Decided, if set, is told of each decision before its request is answered, or
	// goes on. Default nil: nobody is told, which saves an allocation.
	Decided func(*http.Request, *headgate.Decision)

	// Now is the clock for X-RateLimit-Reset as a time. Default time.Now.
	Now func() time.Time
}

// New returns next behind a Limiter that has these rules (headgate.Options.Rules),
// keeps its buckets in memory and tells callers apart by address. What else there
// is to choose, headgate.New and Handler take.
func New(next http.Handler, rules ...string) (http.Handler, error) {
	lim, err := headgate.New(headgate.Options{Rules: rules})
	if next == nil {
		// What http.ListenAndServe takes for DefaultServeMux would be a panic at the first request here.
		err = errors.Join(errors.New("next is nil, want the handler to limit, such as http.DefaultServeMux"), err)
	}
	if err != nil {
		return nil, err
	}
	return Handler(lim, next, Options{}), nil
}

// Handler returns next behind lim. Requests that may pass reach next with the
// RateLimit fields set on their response; the others are answered with
// problem details. Under a rule with algorithm leaky_bucket they reach it when
// it is their turn.
//
//	429  over a limit, with Retry-After       400  no safe reading of the target
//	404  no such endpoint                     403  no rule, under DenyWithoutRule
//	405  not with this method                 503  the limiter's state is unavailable,
//	401  a bad credential, under                   503  a credential cannot be verified, there
//	     headgate.Options.RefuseBadCredentials
//	400  more credentials than are looked at
//	400  Options.Cost is below zero                or too many requests are unsettled
//	400  a body without an identifier, where       408  a body that does not arrive in
//	     Login.Reject is set                            Login.ReadTimeout
//	400  a body whose parts cannot be counted,     413  too many parts, or too long a body, there
//	     under Options.Calls                       415  another kind of body than JSON, there;
//	                                                    compressed, there and under Options.Meters
//	503  Options.MaxHeld leaves no room for a body 411  a long body of unannounced length, under
//	                                                    Options.Meters
func Handler(lim *headgate.Limiter, next http.Handler, o Options) http.Handler {
	return HandlerOfTargets(lim, func(w http.ResponseWriter, r *http.Request, _ Charged) { next.ServeHTTP(w, r) }, o)
}

// Charged is what a request was charged as.
type Charged struct {
	// Target is in origin form. It has to be sent on, and no other reading of the request.
	Target string

	// Exchange is to be told when that happens, and when it is answered; see headgate.Options.Adaptive.
	Exchange headgate.Exchange
}

// HandlerOfTargets is Handler for a next that sends requests on.
func HandlerOfTargets(lim *headgate.Limiter, next func(w http.ResponseWriter, r *http.Request, as Charged),
	o Options) http.Handler {
	return newHandler(lim, next, o)
}

func newHandler(lim *headgate.Limiter, next func(w http.ResponseWriter, r *http.Request, as Charged),
	o Options) *handler {
	if o.Peer == nil {
		o.Peer = Peer
	}
	if o.User == nil {
		o.User = func(*http.Request) *identity.User { return nil }
	}
	if o.Identifier == nil {
		o.Identifier = func(*http.Request) string { return "" }
	}
	if o.Cost == nil {
		o.Cost = func(*http.Request) int64 { return 0 }
	}
	if o.Methods == nil {
		o.Methods = func(string) []string { return nil }
	}
	if o.MaxWait == 0 {
		o.MaxWait = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxHeld == 0 {
		o.MaxHeld = DefaultHeld
	}
	names := o.names()
	return &handler{
		names: names, exposed: exposed(names), render: o.Draft.renders(lim.ReservesSlots()),
		lim: lim, next: next, options: o, counted: Reserve{Timeout: o.CountTimeout, Failed: o.CountFailed},
		room: newRoom(o.MaxHeld),
	}
}

type handler struct {
	lim     *headgate.Limiter
	next    func(http.ResponseWriter, *http.Request, Charged)
	options Options
	rules   perrule.Values[rendered]
	counted Reserve // for endpoints and rules that count only some answers
	room    *room   // for bodies that are read first

	names   []string // of the fields that are written, in the canonical form of http.Header
	exposed string   // to scripts of browsers
	render  func(policy.Rule) *rendered
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := h.request(r)
	if identity.NeedsProven(r.Header) {
		request.Proven = new(identity.Proven)
		r = r.WithContext(context.WithValue(r.Context(), provenKey{}, request.Proven))
	}
	target := request.Target // a message is for another endpoint, and is sent to this one
	metered := h.options.Meters.at(&request)
	seen, ok := h.look(w, r, &request)
	defer release(r.Body)
	if !ok {
		return
	}
	var exchange Exchange
	if metered != nil {
		var ok bool
		if exchange, ok = metered.ask(w, r, &request, h.room); !ok {
			release(r.Body)
			return
		}
		defer release(r.Body)
	}
	then, pays := h.afterwards(&request, seen)
	if exchange != nil {
		then.always, then.exchange, then.metered, pays = true, exchange, metered, true
		if then.reserve == nil {
			then.reserve = &h.counted
		}
	}
	if pays {
		h.serveReserved(w, r, target, request, then)
		return
	}
	// An error says that the client left while it waited; d is denied then.
	if d, _ := h.lim.Wait(r.Context(), request); h.answer(w, r, request.Target, &d) {
		h.serve(w, r, Charged{target, h.lim.Exchange(&d)}, &d)
	}
}

// serve has a request served that may be, and counts what it is answered for the scores of its callers.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, charged Charged, d *headgate.Decision) {
	if !h.lim.CountsScores() {
		h.pass(w, r, charged)
		return
	}
	m := h.meter()
	m.ResponseWriter, m.cost = w, -1
	h.pass(m, r, charged)
	h.score(d, m, m.whole())
	h.free(m)
}

// meter is an empty one. Where answers are passed on, it is one after the other's, as nobody has it for longer.
func (h *handler) meter() *meter {
	if h.options.Merge {
		return meters.Get().(*meter)
	}
	return new(meter)
}

// free is told that a request was served. After a panic, or where the connection was taken over, somebody may hold its
// meter still.
func (h *handler) free(m *meter) {
	if h.options.Merge && !m.hijacked {
		*m = meter{}
		meters.Put(m)
	}
}

var meters = sync.Pool{New: func() any { return new(meter) }}

// score counts an answer for the scores of its callers, if it is the API's.
func (h *handler) score(d *headgate.Decision, m *meter, whole bool) {
	if whole {
		h.lim.Answered(d, m.answered())
	}
}

// looked is what was seen of a request before it is decided.
type looked struct {
	login  *login // that it is, or nil
	many   bool   // its answer speaks for several
	priced bool   // it says itself what it costs
}

// look reads what a request's body says of it: whose it is, how many it holds, or what it costs. It reports false when
// r is answered already.
func (h *handler) look(w http.ResponseWriter, r *http.Request, request *headgate.Request) (seen looked, ok bool) {
	l := h.options.Identifiers.at(request)
	if seen.login = l; l != nil && !l.identify(w, r, request, h.room) {
		return seen, false
	}
	if c := h.options.Calls.at(request); c != nil {
		seen.many, ok = c.count(w, r, request, h.room)
		seen.priced = c.priced != nil
		return seen, ok
	}
	return seen, true
}

// afterwards says what happens to a request's tokens once it is answered; false if nothing.
func (h *handler) afterwards(r *headgate.Request, seen looked) (then afterwards, pays bool) {
	l := seen.login
	then = afterwards{reserve: h.options.Reserve, always: true, looked: seen, counts: h.countsWhen(r)}
	failures := l != nil && l.CountFailures
	if failures {
		then.counts = nil // the login says which
	}
	switch {
	case then.reserve != nil:
	case failures:
		then.reserve = l.reserve
	case then.counts != nil:
		then.reserve = &h.counted
	case h.lim.CountsAnswers(), h.lim.LimitsConcurrency():
		then.reserve, then.always = &h.counted, false
	default:
		return then, false
	}
	return then, true
}

// admit reports whether a request may be served. One that may not is answered.
func (h *handler) admit(w http.ResponseWriter, r *http.Request, request headgate.Request) (x headgate.Exchange,
	ok bool) {
	// An error says that the client left while it waited; d is denied then.
	d, _ := h.lim.Wait(r.Context(), request)
	return h.lim.Exchange(&d), h.answer(w, r, request.Target, &d)
}

// answer tells the client what was decided, and reports whether its request may be served.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, target string, d *headgate.Decision) bool {
	h.tell(r, d)
	h.setFields(w, r, d)
	if !d.Allowed {
		h.refuse(w, r, target, d)
	}
	return d.Allowed
}

// tell tells who wants to know of a decision. What it is given is a copy, so that
// nobody else's decisions are allocated.
func (h *handler) tell(r *http.Request, d *headgate.Decision) {
	if h.options.Decided != nil {
		told := *d
		h.options.Decided(r, &told)
	}
}

// request translates r.
func (h *handler) request(r *http.Request) headgate.Request {
	return headgate.Request{
		Method:      r.Method,
		Target:      target(r, h.options.Rewritten),
		Peer:        h.options.Peer(r),
		Header:      r.Header,
		Certificate: certificate(r),
		User:        h.options.User(r),
		Identifier:  h.options.Identifier(r),
		Cost:        h.options.Cost(r),
		MaxWait:     h.options.MaxWait,
	}
}

// provenKey is under which the context of a request has the memory of what it showed that is good once: who asks
// again, about its messages or for more cost, has the same.
type provenKey struct{}

func proven(r *http.Request) *identity.Proven {
	if !identity.NeedsProven(r.Header) {
		return nil
	}
	p, _ := r.Context().Value(provenKey{}).(*identity.Proven)
	return p
}

// certificate returns the client's certificate, if the handshake verified it.
// PeerCertificates would be what the client sent, whoever signed it.
func certificate(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}

// Peer returns the address of the other end of r's connection, or the zero
// Addr when RemoteAddr holds none, as behind some Unix sockets.
func Peer(r *http.Request) netip.Addr {
	if peer, ok := plainPeer(r.RemoteAddr); ok {
		return peer
	}
	colon := strings.LastIndexByte(r.RemoteAddr, ':')
	if colon < 0 || r.RemoteAddr[0] != '[' && strings.IndexByte(r.RemoteAddr, ':') < colon { // it has no port
		addr, _ := netip.ParseAddr(r.RemoteAddr)
		return addr
	}
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr()
}

// plainPeer reads an IPv4 address in four numbers and a port, as most peers have it, in a third of the time that
// package netip takes. It is false for everything else.
func plainPeer(s string) (peer netip.Addr, ok bool) {
	var octets [4]byte
	place, digits, value := 0, 0, uint(0)
	for i := range len(s) {
		c := s[i]
		if d := c - '0'; d <= 9 {
			if value = 10*value + uint(d); value > math.MaxUint16 || digits > 0 && value < 10 { // 01 is octal to some
				return peer, false
			}
			digits++
			continue
		}
		if digits == 0 || value > math.MaxUint8 || place == len(octets) || c != ".:"[place/3] {
			return peer, false
		}
		octets[place] = byte(value)
		place, digits, value = place+1, 0, 0
	}
	return netip.AddrFrom4(octets), place == len(octets) && digits > 0
}
