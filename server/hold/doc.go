// Package hold bounds what clients can hold of a server.
//
// A Limiter stands in three places around one net/http server:
//
//	socket ─▶ Listen ─▶ (PROXY protocol, TLS) ─▶ http.Server ─▶ Handler ─▶ the door
//	          counts connections                  Prepare       counts requests,
//	          in total, by address                              watches bodies and streams
//
// Listen bounds connections, in total and for each address group. At a bound a
// connection that does nothing is closed for the newcomer: one of the newcomer's
// own group, or of the group that holds most. If there is none, the newcomer is
// refused. So nobody keeps others out by holding connections open.
//
// Time is bounded by progress, not in total. A client that owes bytes (the rest
// of a body, or acknowledgements of an answer) has Patience to begin with; time
// spent waiting for it is taken from that, and every byte gives back what it is
// worth at MinRate, up to Patience again. Whoever keeps to MinRate may go on for
// ever; whoever does nothing is cut off after Patience. What goes both ways
// (WebSockets, streams of HTTP/2) and answers that have paused may be silent for
// StreamIdle.
//
// net/http itself bounds what comes before a request: the TLS handshake, the
// head, and the wait for the next one.
package hold
