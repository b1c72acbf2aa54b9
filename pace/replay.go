package pace

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// replay gives a request its body, as often as it is sent.
type replay struct {
	original io.ReadCloser // until it was given out or closed
	kept     []byte        // if buffered
	get      func() (io.ReadCloser, error)
	empty    bool
}

// newReplay takes over the body of a request. Only a small body of known length is
// read into memory: one of unknown length may be a stream that its sender has not
// finished.
func newReplay(r *http.Request, most int64) (*replay, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return &replay{empty: true}, nil
	case r.GetBody != nil || r.ContentLength <= 0 || r.ContentLength > most:
		return &replay{original: r.Body, get: r.GetBody}, nil
	}
	kept, err := io.ReadAll(io.LimitReader(r.Body, r.ContentLength+1))
	if closeErr := r.Body.Close(); err == nil {
		err = closeErr
	}
	return &replay{kept: kept}, err
}

func (b *replay) repeatable() bool { return b.empty || b.kept != nil || b.get != nil }

// request returns r to be sent: a copy, unless r can be sent as it is.
func (b *replay) request(r *http.Request) (*http.Request, error) {
	if b.empty {
		return r, nil
	}
	out := r.Clone(r.Context())
	switch {
	case b.original != nil:
		out.Body, b.original = b.original, nil
	case b.kept != nil:
		out.Body = io.NopCloser(bytes.NewReader(b.kept))
	default:
		body, err := b.get()
		if err != nil {
			return nil, err
		}
		out.Body = body
	}
	return out, nil
}

// close closes a body that was never sent.
func (b *replay) close() {
	if b.original != nil {
		_ = b.original.Close() // nobody reads it, so nobody misses what went wrong
	}
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// mayRepeat reports whether a request may be sent again after a refusal of this
// status. What was refused because of a limit was not processed, except perhaps
// where the server says that it is unavailable (RFC 9110 section 15.6.4).
func mayRepeat(r *http.Request, status int) bool {
	if status != http.StatusServiceUnavailable {
		return true
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true // idempotent: RFC 9110 section 9.2.2
	}
	_, safe := r.Header["Idempotency-Key"]
	return safe
}

// maxRefusal is how much of a refusal is kept for the caller, in bytes.
const maxRefusal = 64 << 10

// refusalTime is how long the body of a refusal is waited for.
const refusalTime = 2 * time.Second

// keep reads the body of a refusal and closes it, so that its connection can be used while the
// request waits. The caller gets it if the request is given up. A server that does not finish it
// in a short while loses the connection, and keeps the request no longer than that.
func (t *Transport) keep(response *http.Response) *http.Response {
	stop := t.options.Clock.AfterFunc(refusalTime, func() { _ = response.Body.Close() })
	defer stop()
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // what arrived, if not all did
	_ = response.Body.Close()
	kept := *response
	kept.Body = io.NopCloser(bytes.NewReader(body))
	if kept.ContentLength > int64(len(body)) {
		kept.ContentLength = int64(len(body))
	}
	return &kept
}
