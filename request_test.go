package headgate_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/headgate-io/headgate"
)

func TestRequestPrintsNoCredential(t *testing.T) {
	r := headgate.Request{Method: "GET", Target: "/v1/items?api_key=MARK", Peer: netip.MustParseAddr("192.0.2.1"), Header: marked{}, Identifier: "MARK"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, value := range []any{r, &r, []headgate.Request{r}, struct{ R headgate.Request }{r}} {
			if text := fmt.Sprintf(verb, value); bytes.Contains([]byte(text), []byte("MARK")) || bytes.Contains([]byte(text), []byte("4d41524b")) {
				t.Errorf("%s prints %s", verb, text)
			}
		}
	}
}

type marked struct{}

func (marked) Values(string) []string { return []string{"MARK"} }
func (marked) String() string         { return "MARK" }
