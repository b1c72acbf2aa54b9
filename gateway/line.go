package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/problem"
)

// The request line that goes to the API is made of the target that was charged,
// not of what net/http read in the client's request line, and is compared with
// it before it is sent. Otherwise whoever finds a line that the two read
// differently has another endpoint served than the one that pays.

// serve sends on a request that was charged as target. httputil.ReverseProxy has
// no argument for it, so it stands where nobody else writes: in RequestURI.
func (g *gateway) serve(w http.ResponseWriter, r *http.Request, as httplimit.Charged) {
	target := as.Target
	if g.base != "" && climbs(target) {
		problem.Write(w, r, problem.Details{
			Status: http.StatusBadRequest,
			Title:  "Invalid request target",
			Detail: "The request target leads above its root.",
		})
		return
	}
	dropUpgrades(r.Header)
	r = g.counted(r, target)
	if r = g.streamed(w, r, target); r == nil {
		return
	}
	r.RequestURI = target
	// Calls by gRPC need HTTP/2, and messages in them are counted on that way alone.
	if g.options.Pool == nil || len(r.Header["Upgrade"]) > 0 || callsGRPC(r) || !g.pass(w, r, &as.Exchange) {
		if !as.Exchange.Zero() {
			x := as.Exchange
			r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, &x))
		}
		g.proxy.ServeHTTP(keeping(w), r)
	}
}

// exchangeKey is of the *headgate.Exchange of a request, in its context.
type exchangeKey struct{}

// direct makes p.Out the request for the target that was charged. What may
// differ are credentials, which Options.Outgoing takes out of the query.
func (g *gateway) direct(p *httputil.ProxyRequest) {
	path := g.outgoing(p, new(url.URL))
	line := g.base + encoded(path)
	decoded, err := url.PathUnescape(line)
	if err != nil {
		decoded = "" // which faithful refuses
	}
	up := g.options.Upstream
	p.Out.Method = p.In.Method
	p.Out.URL = &url.URL{
		Scheme:     up.Scheme,
		Host:       up.Host,
		Path:       decoded,
		RawPath:    line,
		RawQuery:   p.Out.URL.RawQuery,
		ForceQuery: p.Out.URL.ForceQuery,
	}
	if p.Out.URL.RawQuery != "" || p.Out.URL.ForceQuery {
		line += "?" + p.Out.URL.RawQuery
	}
	p.Out.RequestURI = line
}

// outgoing returns the path that was charged, and leaves what is to be sent of the query in p.Out.URL, which is u.
func (g *gateway) outgoing(p *httputil.ProxyRequest, u *url.URL) (path string) {
	path, query, asked := strings.Cut(p.In.RequestURI, "?")
	*u = url.URL{Path: p.In.URL.Path, RawPath: p.In.URL.RawPath, RawQuery: query, ForceQuery: asked && query == ""}
	p.Out.URL = u
	if g.options.Outgoing != nil {
		g.options.Outgoing(p.Out)
	}
	return path
}

// errUnfaithful says that a request would ask the API for another target than
// the one that was charged. It is a fault of this program.
var errUnfaithful = errors.New("the request line is not that of the request that was charged, so nothing is sent")

// faithful is the Transport, which it asks to send only what direct made.
type faithful struct {
	http.RoundTripper
	calls   http.RoundTripper // those by gRPC
	gateway *gateway
}

func (f faithful) RoundTrip(r *http.Request) (*http.Response, error) {
	up := f.gateway.options.Upstream
	sent := r.URL.RequestURI()
	if sent != r.RequestURI || r.URL.Opaque != "" || r.URL.Scheme != up.Scheme || r.URL.Host != up.Host ||
		!strings.HasPrefix(sent, f.gateway.base+"/") || r.Method == http.MethodConnect {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		sent, _, _ = strings.Cut(sent, "?") // credentials may stand behind it
		charged, _, _ := strings.Cut(r.RequestURI, "?")
		return nil, fmt.Errorf("%w: it would have had the path %.100q for %.100q", errUnfaithful, sent, charged)
	}
	via := f.RoundTripper
	if callsGRPC(r) {
		via = f.calls
	}
	begin, timed := f.gateway.clock(), (r.Body == nil || r.Body == http.NoBody) && len(r.Header["Upgrade"]) == 0
	x, _ := r.Context().Value(exchangeKey{}).(*headgate.Exchange)
	if timed && x != nil {
		x.Sent()
	}
	answer, err := via.RoundTrip(r)
	if timed {
		f.gateway.took(r.Context(), r.Method, r.RequestURI[len(f.gateway.base):], begin)
		if x != nil {
			tell(r.Context(), x, err != nil || answer.StatusCode >= http.StatusInternalServerError)
		}
	}
	if err == nil {
		f.gateway.switched(r, answer)
		countReceived(r, answer)
	}
	return answer, err
}

// encoded writes bytes that no path may hold (RFC 3986 section 3.3) as escapes,
// and keeps everything else as it is: signatures over the path still verify. Were
// one of those bytes left, net/url would take the whole path for decoded text
// and encode it anew, in which an escaped slash becomes a slash.
func encoded(path string) string {
	const impossible = "\"<>^`{|}"
	if !strings.ContainsAny(path, impossible) {
		return path
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; strings.IndexByte(impossible, c) >= 0 {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// climbs reports whether a target has a .. with nothing before it that it could
// remove. Behind a base path it would remove a part of that, and the API be asked
// for what lies beside. What else separates segments to some servers does here.
func climbs(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	path = slashes.Replace(path)
	depth := 0
	for segment := range strings.SplitSeq(path, "/") {
		segment, _, _ = strings.Cut(segment, ";")
		switch dots.Replace(segment) {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

var (
	slashes = strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/", "\\", "/", "%3b", ";", "%3B", ";")
	dots    = strings.NewReplacer("%2e", ".", "%2E", ".")
)
