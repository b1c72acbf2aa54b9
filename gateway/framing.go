package gateway

import "net/http"

// Framed closes the connection after every request of HTTP/1 whose end others
// may see elsewhere, so that nothing behind it is taken for a request: those
// with Transfer-Encoding, and those of HTTP/1.0.
//
// RFC 9112 section 6.1 demands it of a request with both Transfer-Encoding and
// Content-Length, and of one of HTTP/1.0 with Transfer-Encoding. net/http removes
// what tells those from their harmless kin before any handler sees the request,
// and no connection that wraps another can speak HTTP/2 over TLS; so it is
// done for the kin too. New's handler does it itself; others on the same
// listener need it.
func Framed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0) {
			w.Header().Set("Connection", "close")
			delete(r.Header, "Upgrade") // an offer to go on, on a connection that ends
		}
		next.ServeHTTP(w, r)
	})
}
