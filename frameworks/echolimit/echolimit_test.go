package echolimit_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/echolimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/routertest"
)

var router = routertest.Router{
	Name: "echo",
	Item: "/items/:id", Fixed: "/items/new", Rest: "/files/*", Start: start,
	Charged: map[string][]string{
		"/items/:id": {"/items/{id...}"}, "/items/new": {"/items/new"}, "/files/*": {"/files/{rest...}", "/files"},
	},
}

func Test(t *testing.T) { routertest.Run(t, router) }

func start(routes []string, who func(*http.Request) *identity.User) routertest.Program {
	user := func(c echo.Context) *identity.User { return who(c.Request()) }
	e, limits := echo.New(), echolimit.New(echolimit.Options{User: user})
	e.Use(limits.Handle)
	for _, route := range routes {
		e.GET(route, func(c echo.Context) error { return c.String(http.StatusOK, c.Path()) })
	}
	return routertest.Program{
		Handler: e, Open: func(o headgate.Options) (*headgate.Limiter, error) { return limits.Open(e, o) },
	}
}

// A group with middleware of its own has routes that nobody registered, for what it does not find.
func TestGroupsWithMiddleware(t *testing.T) {
	e := echo.New()
	g := e.Group("/v1", func(next echo.HandlerFunc) echo.HandlerFunc { return next })
	g.GET("/a", func(echo.Context) error { return nil })
	table, err := echolimit.Endpoints(e)
	if err != nil || table.Len() != 1 {
		t.Errorf("%v, %v, want one endpoint", table.All(), err)
	}
}
