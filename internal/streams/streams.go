// Package streams makes up what clients may send to a server of HTTP/1.1: requests, and the beginnings of attacks that
// count on two servers reading them in two ways. It has connections in memory, on which a server reads them.
package streams

import (
	"bytes"
	"math/rand/v2"
)

// Seeds are requests, and the beginnings of attacks.
var Seeds = []string{
	"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /v1/books/12?q=a%20b&x=1 HTTP/1.1\r\nHost: api.example.com:8080\r\nUser-Agent: curl/8.5.0\r\n" +
		"Accept: */*\r\n\r\n",
	"POST /v1/books HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello",
	"HEAD /a HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
	"PUT /a/b%2Fc HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: a\r\nCookie: a=b; c=d\r\nCookie: e=f\r\nX-Api-Key: k1\r\nCache-Control: no-cache\r\n" +
		"If-None-Match: \"x\"\r\nAccept-Encoding: gzip, deflate, br\r\n\r\n",
	"DELETE /a?%zz HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer abc.def-ghi\r\nX-Forwarded-For: 1.2.3.4, ::1\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: b\r\n\r\n",
	"POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"OPTIONS /a;b=c/(d)!*'~,@:$&+= HTTP/1.1\r\nHost: a\r\nOrigin: https://example.com\r\nPragma: no-cache\r\n\r\n",
}

// tokens are what makes requests that are read in two ways.
var tokens = []string{
	"\r\n", "\n", "\r", "\r\n\r\n", "\n\n", " ", "\t", "\x00", "\x0b", "\x0c", "\x7f", "\x80", "\xff", "\xc2\xa0", ":",
	": ", " :", ";", ",", "_", "-", "%", "%0", "%00", "%2f", "%2F", "%zz", "#", "?", "/", "//", "/../", "\\", "..", "*",
	"\"", "<", ">", "^", "`", "{", "|", "}", "[", "]", "@", "!", "Host: b\r\n", "Host:\r\n", "Host: a b\r\n",
	"host: a\r\n", "hOST: a/b\r\n", "Host : a\r\n", " Host: a\r\n", "Content-Length: 5\r\n", "Content-Length: 05\r\n",
	"Content-Length: +5\r\n", "Content-Length: -1\r\n", "Content-Length: 5,5\r\n", "Content-Length: 0x5\r\n",
	"Content-Length: 5 \r\n", "Content-Length : 5\r\n", "Content_Length: 5\r\n", "Content-Length:\r\n",
	"Content-Length: 99999999999999999999\r\n", "Content-Length: 4\r\n", "content-length: 0\r\n",
	"Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n", "Transfer-Encoding: x, chunked\r\n",
	"Transfer-Encoding : chunked\r\n", "Transfer_Encoding: chunked\r\n", "Transfer-Encoding:\x0bchunked\r\n",
	"Connection: close\r\n", "Connection: keep-alive\r\n", "Connection: close, x\r\n", "Connection: X-Api-Key\r\n",
	"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", "Connection:\r\n",
	"Upgrade: websocket\r\n", "Expect: 100-continue\r\n", "Expect: x\r\n", "Pragma: no-cache\r\n", "pragma: x\r\n",
	"Pragma: no-cache\r\nCache-Control: x\r\n",
	"Trailer: X\r\n", "TE: trailers\r\n", "Keep-Alive: 5\r\n", "Proxy-Connection: close\r\n", "X: y\r\n z\r\n", "X\r\n",
	": x\r\n", "X: \x01\r\n", "X:y\r\n", "X-Y: \xe9\r\n", "(X): y\r\n", "X\x00Y: z\r\n",
	" HTTP/1.0", " HTTP/1.1", " HTTP/1.2", " HTTP/2.0", " http/1.1", " HTTP/01.1", "HTTP/1.1",
	"  HTTP/1.1", "\tHTTP/1.1",
	"GET ", "POST ", "CONNECT ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "get ", "http://b/", "//b/", "0\r\n\r\n",
	"GET /c HTTP/1.1\r\nHost: c\r\n\r\n",
}

// Mutated returns a stream made of a seed by inserting, replacing, removing and repeating.
func Mutated(r *rand.Rand, to []byte) []byte {
	to = append(to[:0], Seeds[r.IntN(len(Seeds))]...)
	for range 1 + r.IntN(3) {
		if len(to) == 0 {
			return to
		}
		at := r.IntN(len(to))
		// A line's beginning is where most faults begin.
		if r.IntN(2) == 0 {
			if n := bytes.IndexByte(to[at:], '\n'); n >= 0 && at+n+1 < len(to) {
				at += n + 1
			}
		}
		token := tokens[r.IntN(len(tokens))]
		switch r.IntN(8) {
		case 0, 1, 2, 3:
			to = append(to[:at], append([]byte(token), to[at:]...)...)
		case 4:
			to = append(to[:at], append([]byte(token), to[min(len(to), at+len(token)):]...)...)
		case 5:
			to[at] = byte(r.Uint32())
		case 6:
			to = append(to[:at], to[min(len(to), at+1+r.IntN(4)):]...)
		default:
			end := min(len(to), at+r.IntN(40))
			to = append(to[:end], append(bytes.Clone(to[at:end]), to[end:]...)...)
		}
	}
	return to
}
