// Package engine serves the plain requests of HTTP/1.1 itself, and hands every other connection, with the bytes that
// were read of it, to a net/http server.
//
//	connection ─▶ Server: one goroutine ─▶ head.read ─┬─ plain ─▶ the http.Handler ─▶ answer, in one write
//	                 ▲                                │                                  │
//	                 └──────────────── next request ──┼──────────────────────────────────┘
//	                                                  └─ other ─▶ the connection that reads these bytes first ─▶ http.Server
//
// Both run the same handler, so what is decided, counted, logged and refused is the same. An http.Request that is
// passed to it is used again for the next request of the connection, with its header and its URL: a handler must not
// keep any of them after it returned. Texts may be kept.
//
// Plain is what every server reads in one way: a method that is known, a target in origin form, HTTP/1.1, one Host, a
// body with one Content-Length of digits or none, lines that end with CR LF, names of letters, digits and hyphens,
// values of visible ASCII, blanks and tabs. What asks for more than an answer (Upgrade, Expect, Trailer, TE,
// Transfer-Encoding), what net/http changes on its way (Pragma), and heads that are long are for net/http. A connection
// that was handed over stays there.
//
// Deadlines are coarse: a connection notes when a wait began, and twice a second one goroutine looks whose wait is too
// long. A wait lasts for as long as it may at least, and three quarters of a second more at most.
package engine
