package echo5limit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/echo5limit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/routertest"
)

var router = routertest.Router{
	Name: "echo 5",
	Item: "/items/:id", Fixed: "/items/new", Rest: "/files/*", Start: start,
	Charged: map[string][]string{
		"/items/:id": {"/items/{id...}"}, "/items/new": {"/items/new"}, "/files/*": {"/files/{rest...}", "/files"},
	},
}

func Test(t *testing.T) { routertest.Run(t, router) }

func start(routes []string, who func(*http.Request) *identity.User) routertest.Program {
	user := func(c *echo.Context) *identity.User { return who(c.Request()) }
	e, limits := echo.New(), echo5limit.New(echo5limit.Options{User: user})
	e.Use(limits.Handle)
	for _, route := range routes {
		e.GET(route, func(c *echo.Context) error { return c.String(http.StatusOK, c.Path()) })
	}
	return routertest.Program{
		Handler: e, Open: func(o headgate.Options) (*headgate.Limiter, error) { return limits.Open(e, o) },
	}
}

// A group with middleware of its own has routes that nobody registered, for what it does not find.
func TestGroupsWithMiddleware(t *testing.T) {
	e := echo.New()
	g := e.Group("/v1", func(next echo.HandlerFunc) echo.HandlerFunc { return next })
	g.GET("/a", func(*echo.Context) error { return nil })
	table, err := echo5limit.Endpoints(e)
	if err != nil || table.Len() != 1 {
		t.Errorf("%v, %v, want one endpoint", table.All(), err)
	}
}

// A router that compares decoded paths is refused, as one of its routes may serve what another is charged for.
func TestEndpointsNamesASetting(t *testing.T) {
	for _, path := range []string{"/items/:id", "/files/*", "/*", "/", "/items/new", "/a/:b/c"} {
		for _, decoded := range []bool{false, true} {
			e := echo.NewWithConfig(
				echo.Config{Router: echo.NewRouter(echo.RouterConfig{UseEscapedPathForMatching: decoded})})
			e.GET(path, func(*echo.Context) error { return nil })
			_, err := echo5limit.Endpoints(e)
			if (err != nil) != decoded || decoded && !strings.Contains(err.Error(),
				"UseEscapedPathForMatching is true, want false") {
				t.Errorf("%s, decoded %v: %v", path, decoded, err)
			}
		}
	}
	if table, err := echo5limit.Endpoints(echo.New()); err != nil || table.Len() != 0 {
		t.Errorf("no routes: %v", err)
	}
}

// A verb behind a parameter, which is new in echo 5, has no template.
func TestInlineVerbsAreRefused(t *testing.T) {
	e := echo.New()
	e.GET(`/items/:id\:cancel`, func(*echo.Context) error { return nil })
	if _, err := echo5limit.Endpoints(e); err == nil || !strings.Contains(err.Error(), `want no \`) {
		t.Errorf("%v, want the route named", err)
	}
}
