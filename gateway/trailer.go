package gateway

import "net/http/httputil"

// passTrailer passes the trailer on, but for fields that mean something in the
// header, and above all those that this gateway reads or writes there. Some
// servers take trailers for headers (as Apache's httpd did, CVE-2013-5704), and
// would find there what the client was kept from saying; RFC 9110 section 6.5.1
// allows none of them in a trailer.
func (g *gateway) passTrailer(p *httputil.ProxyRequest) {
	// The same map, not a copy: its values arrive in it after the body, while
	// Out is being sent, and with them fields that nobody announced.
	p.Out.Trailer = p.In.Trailer
	if p.Out.Trailer == nil {
		return
	}
	g.fields.cleanTrailer(p.Out.Trailer)
	if body, ok := p.Out.Body.(*incoming); ok {
		body.ended = func() { g.fields.cleanTrailer(p.Out.Trailer) }
	}
}
