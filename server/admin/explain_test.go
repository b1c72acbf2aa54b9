package admin_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/admin"
)

// A user whom a program has logged in goes with a request to be explained; a project without one would be nobody's.
func TestExplainRequestOfAUser(t *testing.T) {
	e := admin.ExplainRequest{Method: "GET", Target: "/a", User: "7", Project: "acme"}
	if err := e.Check(); err != nil {
		t.Fatal(err)
	}
	if r := e.Request(); r.User == nil || *r.User != (identity.User{ID: "7", Project: "acme"}) {
		t.Errorf("the request is that of %v", r.User)
	}
	e.User = ""
	if err := e.Check(); err == nil || !strings.Contains(err.Error(), `project is "acme", want a user beside it`) {
		t.Errorf("a project without a user: %v", err)
	}
	e.Project = ""
	if r := e.Request(); e.Check() != nil || r.User != nil {
		t.Errorf("without a user: %v", r.User)
	}
}

// What a body says of a request is explained with it, and why it would be refused.
func TestExplainReadsBodies(t *testing.T) {
	s := newSite(t, func(o *admin.Options) {
		var err error
		o.Bodies, err = httplimit.NewCalls(httplimit.CallOptions{Endpoints: o.Limiter.Endpoints(),
			Batches: []httplimit.Batch{{Endpoint: "POST /v1/login", Parts: body.Batch{MaxParts: 3}}}})
		must(t, err)
	})
	for _, c := range []struct{ request, want string }{
		{`"body": "[1, 2, 3]"`, `"cost":3,`},
		{`"body": "[1, 2, 3]"`, `"body":{"read":true,"parts":3}`},
		{`"body": "[1, 2, 3, 4]"`, `"status":413,"why":"This endpoint takes 3 requests in a body at most."`},
		{`"body": "[1, 2, 3, 4]"`, `"verdict":{"allowed":false,"reason":"refused_body"}`},
		{`"body": "[1]", "parts": 2`, `parts is \"2\", want nothing beside a body`},
	} {
		a := s.call(s.all(), "POST", "/v1/explain", `{"method": "POST", "target": "/v1/login", `+c.request+`}`)
		if !strings.Contains(a.body, c.want) {
			t.Errorf("%s is explained as %d %s, want %s", c.request, a.status, a.body, c.want)
		}
	}
}
