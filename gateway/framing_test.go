package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/gateway"
)

// TestDoubtfulFramingEndsTheConnection: what stands behind a request whose end
// a proxy before the gateway may see elsewhere is not another request.
func TestDoubtfulFramingEndsTheConnection(t *testing.T) {
	next := "GET /v1/items/2 HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\r\n"
	for _, c := range []struct {
		name, request string
		kept          bool
		codes         []int // of the answers on the connection
	}{
		{"both",
			"POST /v1/items HTTP/1.1\r\nHost: api\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" +
				"\r\n", false, []int{200}},
		{"both, the other way round", "POST /v1/items HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n" +
			"Content-Length: 3\r\n\r\n1\r\nx\r\n0\r\n\r\n", false, []int{200}},
		{"both, refused",
			"POST /nothing HTTP/1.1\r\nHost: api\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" +
				"\r\n", false, []int{404}},
		{"both, and no target", "POST x:/v1/items HTTP/1.1\r\nHost: api\r\nContent-Length: 6\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n0\r\n\r\n", false, []int{400}},
		{"both, with an offer", "POST /v1/items HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: " +
			"websocket\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false, []int{200}},
		{"chunked", "POST /v1/items HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			false, []int{200}},
		{"HTTP/1.0 with Transfer-Encoding",
			"POST /v1/items HTTP/1.0\r\nHost: api\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n",
			false, []int{200}},
		{"HTTP/1.0 with both", "POST /v1/items HTTP/1.0\r\nHost: api\r\nConnection: keep-alive\r\nContent-Length: " +
			"0\r\nTransfer-Encoding: chunked\r\n\r\n", false, []int{200}},
		{"a length", "POST /v1/items HTTP/1.1\r\nHost: api\r\nContent-Length: 1\r\n\r\nx", true, []int{200, 200}},
		{"no body", "GET /v1/items/1 HTTP/1.1\r\nHost: api\r\n\r\n", true, []int{200, 200}},
	} {
		var served []string
		api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				t.Errorf("%s: the API sees the offer of %s", c.name, r.Header.Get("Upgrade"))
			}
			_, _ = io.Copy(io.Discard, r.Body)
			served = append(served, r.Method)
		})
		base := newH2Gateway(t, api, func(o *gateway.Options) { o.Limiter = newLimiter(t) })
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, c.request+next)
		var codes []int
		for in := bufio.NewReader(conn); ; {
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				break
			}
			_, _ = io.Copy(io.Discard, response.Body)
			codes = append(codes, response.StatusCode)
			if len(codes) == 1 && response.Close == c.kept {
				t.Errorf("%s: the answer says that the connection ends: %v, want %v", c.name, response.Close, !c.kept)
			}
		}
		if !slices.Equal(codes, c.codes) {
			t.Errorf("%s: the answers are %v, and the API served %v; want %v", c.name, codes, served, c.codes)
		}
	}
}
