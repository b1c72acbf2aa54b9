package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headgate-io/headgate/gateway"
)

// late is a client that has sent a whole body, and asks whether there is more of it once half of the answer is with
// whoever asked, as net/http's may.
type late struct{ asked []error }

func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.CopyN(io.Discard, r.Body, r.ContentLength); err != nil {
		return nil, err
	}
	after := func() (int, error) {
		n, err := r.Body.Read(make([]byte, 1))
		l.asked = append(l.asked, err)
		return n, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1, Request: r,
		Body: io.NopCloser(io.MultiReader(iotest.OneByteReader(strings.NewReader("half")), reader(after))),
	}, nil
}

type reader func() (int, error)

func (f reader) Read([]byte) (int, error) { return f() }

// TestABodyStaysAtItsEnd: a server closes the body of a request when it answers; who sends it on is told of its end all
// the same, and not of a fault, by which an answer would be cut off.
func TestABodyStaysAtItsEnd(t *testing.T) {
	up, err := url.Parse("http://api.example")
	if err != nil {
		t.Fatal(err)
	}
	client := new(late)
	h, err := gateway.New(gateway.Options{Limiter: newLimiter(t), Upstream: up, Transport: client})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	response, err := http.Post(server.URL+"/v1/items", "text/plain", strings.NewReader("whole"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if string(body) != "half" || err != nil || len(client.asked) != 1 || client.asked[0] != io.EOF {
		t.Errorf("%q, %v; who asked for more was told %v, want the end", body, err, client.asked)
	}
}
