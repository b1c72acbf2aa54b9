// Package upstream sends requests to the servers of an API over HTTP/1.1, on connections that it keeps.
//
// It knows nothing of net/http: a request is the bytes of a head and perhaps a body, an answer is where
// the fields stand in the bytes of its head, and a body to read. Whoever reads requests of clients, by
// net/http or otherwise, sends them on by the same Pool.
//
//	head, body ─▶ Pool.Do ─▶ a server with few requests under way ─▶ a connection, looked at before use
//	                                                                        │
//	Answer.Close: kept for the next request, or closed ◀── Answer.Read ◀── status, fields
//
// An answer is read strictly (RFC 9112): lines end with CR LF; a name is a token with the colon right behind it;
// no line is folded; there is one Content-Length, of digits alone, or one Transfer-Encoding that is "chunked", or
// neither. Everything else is an error, since where the answer ends would be a guess, and what is
// behind it might be taken for the answer to somebody else's request.
//
// A connection is used again only after an answer that was read to its end, that did not ask to
// close it, and behind which nothing came; and only if the peer has neither closed it nor said
// anything since. A request is sent a second time only if the caller allows it, no byte of its
// answer came, and its connection had been used before: then the server has closed it in the same
// moment.
//
// Bounded are heads and trailers (bytes and fields), answers that announce another (1xx), connections, those that
// are idle, and the waits for a connection, for its opening, and for the head of an answer.
package upstream
