package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/gateway"
)

// TestTrailersSayNothingForTheHeader: what the gateway keeps out of the header
// does not reach the API in the trailer, announced or not.
func TestTrailersSayNothingForTheHeader(t *testing.T) {
	var got http.Header
	api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got = r.Trailer
	})
	base := newGateway(t, api, func(o *gateway.Options) { o.ClientHeader = "CF-Connecting-IP" }).URL
	for _, announced := range []string{"X-Sum", "X-Sum, X-Forwarded-For, CF-Connecting-IP, Authorization"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn,
			"POST /v1/items HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\nTrailer: %s\r\n\r\n1\r\nx\r\n"+
				"0\r\n", announced)
		fmt.Fprint(conn, "X-Forwarded-For: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\n"+
			"X-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\n"+
			"CF-Connecting-IP: 6.6.6.6\r\nAuthorization: Basic eDp5\r\nContent-Type: text/html\r\nCookie: a=b\r\n"+
			"X-Sum: 1\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		conn.Close()
		if want := (http.Header{"X-Sum": {"1"}}); !reflect.DeepEqual(got, want) {
			t.Errorf("of a trailer announced as %q the API sees %v, want %v", announced, got, want)
		}
	}
}
