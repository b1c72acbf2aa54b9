package problem

import (
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// maxUnread is how much of an unread body is discarded to keep the
	// connection, in bytes.
	maxUnread = 64 << 10

	// moment is how long a body that was already sent may take to be read: it is
	// in the buffers of this machine, or on its way through them.
	moment = 5 * time.Millisecond

	// answerWithin bounds how long a client may take to accept an answer of a few
	// hundred bytes. Over HTTP/2 it could refuse it forever, by a flow-control
	// window of 0 (RFC 9113 section 6.9).
	answerWithin = 10 * time.Second
)

// Release makes sure that neither the answer nor the connection waits for the
// client. net/http reads up to 256 KiB of an unread body before it sends an
// answer over HTTP/1, so a client that announces a body and sends none would
// hold the connection for as long as it likes. A body that has arrived is
// discarded and the connection kept; otherwise the connection is closed.
//
// A ResponseWriter that wraps the server's needs Unwrap, as
// http.ResponseController says; without, only the answer does not wait.
func Release(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout == 0 {
		_ = control.SetWriteDeadline(time.Now().Add(answerWithin)) // the server's own would be the better one
	}
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return // HTTP/2 answers at once, and then resets the stream
	}
	if Discard(control, r, r.Body) {
		return
	}
	// The server tries to read the rest before it closes, too.
	_ = control.SetReadDeadline(time.Unix(1, 0))
	w.Header().Set("Connection", "close")
}

// Discard reads the body of a request over HTTP/1 if it has arrived, and reports
// whether it had. The connection can then be used again. Otherwise there is a
// deadline on it that is over soon.
func Discard(control *http.ResponseController, r *http.Request, body io.Reader) bool {
	// To read would be to ask for the body.
	if r.ContentLength > maxUnread || strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		return false
	}
	by := time.Now().Add(moment)
	if control.SetReadDeadline(by) != nil {
		return false
	}
	if _, err := io.CopyN(io.Discard, body, maxUnread+1); err != io.EOF {
		return false
	}
	// From the end of the body on the server reads ahead. If that met the
	// deadline, it takes the client for gone: then the connection cannot be kept.
	return control.SetReadDeadline(time.Time{}) == nil && time.Now().Before(by)
}
