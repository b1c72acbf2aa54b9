package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
)

// TestLookReadsBodiesAsAHandlerDoes, counts nothing, and says of what is refused how it would be answered.
func TestLookReadsBodiesAsAHandlerDoes(t *testing.T) {
	lim, err := headgate.New(headgate.Options{Rules: []string{
		"POST /p 20/h", "POST /b 20/h", "MCP /m/tools/call/{tool} 5/h", "POST /m 5/h", "default 1000/s",
	}})
	if err != nil {
		t.Fatal(err)
	}
	halves := func(*http.Request, string, []byte) []httplimit.Portion {
		return []httplimit.Portion{{What: "half", Cost: 2.5}}
	}
	calls, err := httplimit.NewCalls(httplimit.CallOptions{
		Endpoints: lim.Endpoints(),
		Batches:   []httplimit.Batch{{Endpoint: "POST /b", Parts: body.Batch{MaxParts: 3}}},
		MCP:       []httplimit.MCP{{Endpoint: "POST /m"}},
		Priced:    []httplimit.Priced{{Endpoint: "POST /p", Price: byBody, Portions: halves}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target, text string
		reads        bool
		want         headgate.Request
		status       int
		why          string
		portions     int
	}{
		{"/p", "5", true, headgate.Request{Method: "POST", Target: "/p", Cost: 5, Parts: 1}, 0, "", 1},
		{"/p", "x", true, headgate.Request{Method: "POST", Target: "/p"}, 400,
			"What the request costs cannot be told", 1},
		{"/b", "[1,2]", true, headgate.Request{Method: "POST", Target: "/b", Parts: 2}, 0, "", 0},
		{"/b", "[1,2,3,4]", true, headgate.Request{Method: "POST", Target: "/b"}, 413,
			"3 requests in a body at most", 0},
		{"/m", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add"}}`, true,
			headgate.Request{Method: "MCP", Target: "/m/tools/call/add", Parts: 1}, 0, "", 0},
		{"/other", "[1,2]", false, headgate.Request{Method: "POST", Target: "/other"}, 0, "", 0},
	} {
		r := httptest.NewRequest("POST", c.target, strings.NewReader(c.text))
		r.Header.Set("Content-Type", "application/json")
		request := headgate.Request{Method: "POST", Target: c.target}
		l, reads, err := calls.Look(r, &request)
		if err != nil || reads != c.reads || l.Status != c.status || !strings.Contains(l.Why, c.why) ||
			len(l.Portions) != c.portions || request.Method != c.want.Method || request.Target != c.want.Target ||
			request.Cost != c.want.Cost || request.Parts != c.want.Parts {
			t.Errorf("%s %s: %+v, %t, %v, %+v", c.target, c.text, l, reads, err, request)
		}
	}
	counted := slices.ContainsFunc([]body.Fault{body.None, body.Many, body.Costly}, func(f body.Fault) bool {
		return calls.Faults(f) > 0
	})
	if counted {
		t.Error("a look was counted")
	}
	var none *httplimit.Calls
	_, reads, err := none.Look(httptest.NewRequest("POST", "/b", nil), &headgate.Request{})
	if reads || err != nil {
		t.Errorf("none read bodies: %t, %v", reads, err)
	}
}
