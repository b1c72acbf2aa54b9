package chilimit_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/chilimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/routertest"
)

var router = routertest.Router{
	Name: "chi",
	Item: "/items/{id}", Fixed: "/items/new", Rest: "/files/*", Start: start,
	Charged: map[string][]string{
		"/items/{id}": {"/items/{id}"}, "/items/new": {"/items/new"}, "/files/*": {"/files/{rest...}", "/files"},
	},
}

func Test(t *testing.T) { routertest.Run(t, router) }

func start(routes []string, who func(*http.Request) *identity.User) routertest.Program {
	r, limits := chi.NewRouter(), chilimit.New(chilimit.Options{User: who})
	r.Use(limits.Handle)
	for _, route := range routes {
		r.Get(route, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, chi.RouteContext(r.Context()).RoutePattern())
		})
	}
	return routertest.Program{
		Handler: r, Open: func(o headgate.Options) (*headgate.Limiter, error) { return limits.Open(r, o) },
	}
}

// Routers that are mounted are read too.
func TestMountedRouters(t *testing.T) {
	r, admin := chi.NewRouter(), chi.NewRouter()
	admin.Post("/users/{name}", func(http.ResponseWriter, *http.Request) {})
	r.Mount("/admin", admin)
	table, err := chilimit.Endpoints(r)
	if err != nil || table.Len() != 1 || fmt.Sprint(table.Template(1)) != "POST /admin/users/{name}" {
		t.Errorf("%v, %v", table, err)
	}
}
