package gateway

import (
	"io"
	"net/http"
	"sync/atomic"
)

// incoming is the body of a request. It knows whose fault it is when a request
// could not be sent: a client that writes bad chunks, or leaves in the middle,
// does not make a failure of the API.
type incoming struct {
	io.ReadCloser
	ended  func() // called at the end, before the reader knows of it; may be nil
	read   bool   // to its end
	broken atomic.Bool
	over   atomic.Bool // nobody reads it any more
}

// watch puts an incoming around the body of r, if it has one.
func watch(r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &incoming{ReadCloser: r.Body}
	}
}

func (b *incoming) Read(p []byte) (int, error) {
	// net/http's client asks once more, whether the body is longer than its length. By then the API may have answered,
	// and the server have closed the body, which would break the connection in the middle of the answer.
	if b.read {
		return 0, io.EOF
	}
	if b.over.Load() {
		return 0, http.ErrBodyReadAfterClose // which net/http forbids once the handler has returned
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		if b.read = true; b.ended != nil {
			b.ended()
		}
	case err != nil:
		b.broken.Store(true)
	}
	return n, err
}

// brokenBody reports whether the client's body of r could not be read.
func brokenBody(r *http.Request) bool {
	body := r.Body
	if sent, counts := body.(*sending); counts {
		body = sent.ReadCloser
	}
	b, ok := body.(*incoming)
	return ok && b.broken.Load()
}
