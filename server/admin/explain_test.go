package admin_test

import (
	"strings"
	"testing"

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
