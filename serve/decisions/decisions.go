// Package decisions is a door for those who ask whether a request may pass, and let
// it pass themselves: proxies (nginx's auth_request, Traefik's forwardAuth, Caddy's
// forward_auth, Envoy's ext_authz over HTTP), and programs, in JSON.
package decisions

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/override"
	"github.com/headgate-io/headgate/internal/perrule"
	"github.com/headgate-io/headgate/internal/problem"
)

// The paths under which proxies ask. Each kind describes a request in its own way:
//
//	path      method               target            client                          refused by
//	/forward  X-Forwarded-Method   X-Forwarded-Uri   last of X-Forwarded-For         the status itself
//	/nginx    X-Original-Method    X-Original-Uri    X-Real-Ip                       403, Headgate-Status has it
//	/envoy/…  that of the request  what follows      last of X-Forwarded-For         the status itself
//
// The client is the other end of the proxy's own connection, which may be one
// more proxy: identity.Options.TrustedProxies is the place that knows, and what
// X-Forwarded-For holds further to the left is left for it.
const (
	PathForward = "/forward"
	PathNginx   = "/nginx"
	PathEnvoy   = "/envoy"
)

// What nginx, which takes no answer but yes, no and who are you, is told besides.
const (
	fieldStatus  = "Headgate-Status"  // what the client should be answered
	fieldProblem = "Headgate-Problem" // the body of that answer, in a line
	fieldType    = "Headgate-Type"    // its media type
)

// Fault says why a question was not answered by a decision.
type Fault uint8

const (
	Untrusted  Fault = iota // who asks may not
	Incomplete              // it does not say which request it is about, or says it twice
	NoSuchPath              // it asks under none of the paths
	Panicked                // a mistake of this program
	faults
)

// String returns a word for metrics.
func (f Fault) String() string {
	if f < faults {
		return [faults]string{"untrusted", "incomplete", "no_such_path", "panic"}[f]
	}
	return "Fault(" + strconv.Itoa(int(f)) + ")"
}

// Options configures a door. Limiter and Trusted are required.
type Options struct {
	Limiter *headgate.Limiter

	// Trusted says who may ask. Whoever may can have any request counted, and so
	// use up anybody's budget.
	Trusted func(netip.Addr) bool

	// Limit configures the answers. Bodies do not come this way, so that
	// Identifiers, Meters and Reserve have no effect; and a proxy that waits for an answer
	// takes it for a failure, so that MaxWait has none and nobody waits.
	Limit httplimit.Options

	// PassOverrides names fields with which a request may ask the API for another
	// method or target than those that are charged, such as
	// X-HTTP-Method-Override. Requests with others are answered with 400, as this
	// door cannot take them out. Default none.
	PassOverrides []string

	// Answers are those of other doors, to be theirs too, in place of Limiter,
	// Limit and PassOverrides. Nil makes some of these.
	Answers *Answers

	// Admission has API servers of Kubernetes ask at PathAdmission. Nil leaves it out.
	Admission *Admission

	// Failed, if set, is told of every question that was not answered by a
	// decision. The error says what is missing, for a log.
	Failed func(Fault, error)
}

// New returns the door, or an error that names every option at fault. It answers
// with 200 what may pass, with the RateLimit fields, and the rest as
// httplimit.Handler does. It limits only what a proxy asks about, and what is
// served is up to the proxy: it has to pass on the target that it asked about.
func New(o Options) (http.Handler, error) {
	answers, err := NewAnswers(o)
	if err != nil {
		return nil, err
	}
	d := &door{options: o, peer: o.Limit.Peer, answers: answers}
	d.kept.byKey, d.kept.now = map[[sha256.Size]byte]*list.Element{}, o.Limit.Now
	if d.kept.now == nil {
		d.kept.now = time.Now
	}
	if d.peer == nil {
		d.peer = httplimit.Peer
	}
	if d.options.Failed == nil {
		d.options.Failed = func(Fault, error) {}
	}
	return d, nil
}

// Answers are what every door for proxies and programs tells them. Who may ask is the door's to say. They may be used
// concurrently.
type Answers struct {
	limiter *headgate.Limiter
	gate    httplimit.Gate
	passed  atomic.Pointer[[]string] // of the fields that ask for something else
	shown   atomic.Bool              // Options.Limit has functions of others that see requests
	titles  perrule.Values[string]
}

// NewAnswers returns those of o, or an error that names every option at fault.
func NewAnswers(o Options) (*Answers, error) {
	var errs []error
	if o.Limiter == nil && o.Answers == nil {
		errs = append(errs, errors.New("Limiter is nil, want one"))
	}
	if o.Trusted == nil {
		errs = append(errs, errors.New("Trusted is nil, want a function that says who may ask"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("decisions options: %w", err)
	}
	if o.Answers != nil {
		return o.Answers, nil
	}
	a := &Answers{limiter: o.Limiter}
	if err := a.Reload(o.Limit, o.PassOverrides); err != nil {
		return nil, fmt.Errorf("decisions options: %w", err)
	}
	return a, nil
}

// Reload changes Options.Limit and Options.PassOverrides for questions to come.
func (a *Answers) Reload(limit httplimit.Options, passOverrides []string) error {
	limit.Peer, limit.MaxWait = httplimit.Peer, -1
	limit.Identifiers, limit.Meters, limit.Reserve = nil, nil, nil
	if err := a.gate.Open(a.limiter, limit); err != nil {
		return fmt.Errorf("Limit: %w", err)
	}
	a.passed.Store(&passOverrides)
	a.shown.Store(limit.User != nil || limit.Identifier != nil || limit.Cost != nil || limit.Refuse != nil ||
		limit.Decided != nil)
	return nil
}

// ServeHTTP answers a request that a proxy has described by whatever protocol, as if it had come here itself: with
// 200, or what the client is to be told. RemoteAddr is that of the proxy's client.
func (a *Answers) ServeHTTP(w http.ResponseWriter, described *http.Request) {
	if !a.refused(w, described) && a.gate.Admit(w, described, nil) {
		w.WriteHeader(http.StatusOK)
	}
}

// refused answers a request that asks for another one than it seems to be.
func (a *Answers) refused(w http.ResponseWriter, described *http.Request) bool {
	if !a.overridden(described.Header) {
		return false
	}
	problem.Write(w, described, problem.Details{
		Status: http.StatusBadRequest, Title: "Request asks for something else",
		Detail: "A header field such as X-HTTP-Method-Override asks the API for another method or target than " +
			"those of the request line.",
	})
	return true
}

// overridden reports whether a field asks for another method or target.
func (a *Answers) overridden(h http.Header) bool {
	passed := *a.passed.Load()
	for name := range h {
		if override.Of(name) == override.Overriding &&
			!slices.ContainsFunc(passed, func(passed string) bool { return strings.EqualFold(passed, name) }) {
			return true
		}
	}
	return false
}

type door struct {
	options Options
	peer    func(*http.Request) netip.Addr
	answers *Answers
	kept    kept // of programs, what was asked under a key
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if peer := d.peer(r); !d.options.Trusted(peer) {
		d.options.Failed(Untrusted, fmt.Errorf("%v may not ask", peer))
		problem.Write(w, r, problem.Details{Status: http.StatusForbidden,
			Detail: "This address may not ask for decisions."})
		return
	}
	switch path, _, _ := strings.Cut(r.RequestURI, "?"); {
	case path == PathCheck:
		d.check(w, r)
	case path == PathSettle:
		d.settle(w, r)
	case path == PathOpenAPI:
		describe(w, r)
	case path == PathAdmission && d.options.Admission != nil:
		d.admit(w, r)
	case path == PathForward:
		d.ask(w, r, forward)
	case path == PathNginx:
		answer := &told{header: w.Header()}
		d.ask(answer, r, nginx)
		answer.toNginx(w)
	case strings.HasPrefix(path, PathEnvoy+"/"):
		d.ask(w, r, envoy)
	default:
		const all = PathForward + ", " + PathNginx + ", " + PathEnvoy + "/…, " + PathCheck + " and " + PathSettle
		d.options.Failed(NoSuchPath, fmt.Errorf("%.100q is none of %s", path, all))
		problem.Write(w, r, problem.Details{
			Status: http.StatusNotFound, Detail: "This is asked at " + all + "; " + PathOpenAPI +
				" describes the last two.",
		})
	}
}

// ask answers a proxy.
func (d *door) ask(w http.ResponseWriter, r *http.Request, s style) {
	described, err := s.describe(r)
	if err != nil {
		d.options.Failed(Incomplete, err)
		problem.Write(w, r, problem.Details{
			Status: http.StatusInternalServerError,
			Title:  "Incomplete question",
			Detail: "The proxy does not say what it asks about: " + err.Error() + ".",
		})
		return
	}
	if described.Method == http.MethodHead && r.Method != http.MethodHead {
		w = withoutBody{w}
	}
	d.answers.ServeHTTP(w, described)
}

// style is how a kind of proxy describes a request: the names of fields, each of
// which stands there once. Without a name, the question itself has it.
type style struct {
	method, target, client string
}

var (
	forward = style{"X-Forwarded-Method", "X-Forwarded-Uri", xForwardedFor}
	nginx   = style{"X-Original-Method", "X-Original-Uri", "X-Real-Ip"}
	envoy   = style{"", "", xForwardedFor}
)

const xForwardedFor = "X-Forwarded-For"

// describe returns the request that a proxy asks about. It has no body, and the
// TLS connection is not the client's.
func (s style) describe(r *http.Request) (*http.Request, error) {
	var errs [3]error
	out := r.WithContext(r.Context())
	out.Header = r.Header.Clone()
	out.Body, out.ContentLength, out.TransferEncoding, out.Trailer, out.TLS = http.NoBody, 0, nil, nil, nil
	if s.method != "" {
		out.Method, errs[0] = single(out.Header, s.method)
	}
	if s.target != "" {
		out.RequestURI, errs[1] = single(out.Header, s.target)
	} else {
		out.RequestURI = strings.TrimPrefix(r.RequestURI, PathEnvoy)
	}
	out.RemoteAddr, errs[2] = s.peer(out.Header)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", ", "))
	}
	// A target that net/url cannot read has no safe reading, which is httplimit's to say.
	out.URL, _ = url.ParseRequestURI(out.RequestURI)
	return out, nil
}

// single removes a field that stands there once, and returns it.
func single(h http.Header, name string) (string, error) {
	lines := h[name]
	if len(lines) != 1 || lines[0] == "" {
		return "", fmt.Errorf("%s stands there %d times, want once", name, len(lines))
	}
	delete(h, name)
	return lines[0], nil
}

// peer removes the address that the proxy itself has added, and returns it.
func (s style) peer(h http.Header) (string, error) {
	text, rest := "", ""
	if s.client == xForwardedFor {
		lines := h[xForwardedFor] // one list, whatever its lines
		if len(lines) == 0 {
			return "", fmt.Errorf("%s is missing", xForwardedFor)
		}
		list := strings.Join(lines, ",")
		comma := strings.LastIndexByte(list, ',')
		text, rest = strings.TrimSpace(list[comma+1:]), list[:max(comma, 0)]
		if delete(h, xForwardedFor); comma >= 0 {
			h[xForwardedFor] = []string{rest}
		}
	} else {
		var err error
		if text, err = single(h, s.client); err != nil {
			return "", err
		}
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return text, nil
	}
	if _, err := netip.ParseAddrPort(text); err == nil {
		return text, nil
	}
	return "", fmt.Errorf("%s has no address where the proxy writes it", s.client)
}

// told is an answer that is kept until it is known. It is a yes only if that was said.
type told struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (t *told) Header() http.Header         { return t.header }
func (t *told) WriteHeader(status int)      { t.status = status }
func (t *told) Write(p []byte) (int, error) { return t.body.Write(p) }

// toNginx says what it is in a way that auth_request understands.
func (t *told) toNginx(w http.ResponseWriter) {
	if t.status == http.StatusOK {
		w.WriteHeader(http.StatusOK)
		return
	}
	h := w.Header()
	h.Set(fieldStatus, strconv.Itoa(t.status))
	if line := bytes.TrimSpace(t.body.Bytes()); len(line) > 0 {
		h.Set(fieldProblem, strings.ReplaceAll(string(line), "\n", " "))
		h.Set(fieldType, h.Get("Content-Type"))
	}
	h.Set("Content-Length", "0")
	h.Del("Content-Type")
	w.WriteHeader(http.StatusForbidden)
}

// withoutBody is for answers to HEAD that another method carries: they have the
// fields, and no body that a Content-Length could announce.
type withoutBody struct{ http.ResponseWriter }

func (w withoutBody) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w withoutBody) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}
