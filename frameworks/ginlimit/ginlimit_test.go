package ginlimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/ginlimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/routertest"
)

var router = routertest.Router{
	Name: "gin",
	Item: "/items/:id", Fixed: "/items/new", Rest: "/files/*path", Start: start,
	Charged: map[string][]string{
		"/items/:id": {"/items/{id}"}, "/items/new": {"/items/new"}, "/files/*path": {"/files/{path...}", "/files"},
	},
}

func Test(t *testing.T) { routertest.Run(t, router) }

func start(routes []string, who func(*http.Request) *identity.User) routertest.Program {
	gin.SetMode(gin.ReleaseMode)
	user := func(c *gin.Context) *identity.User { return who(c.Request) }
	engine, limits := gin.New(), ginlimit.New(ginlimit.Options{User: user})
	engine.HandleMethodNotAllowed = true
	engine.Use(limits.Handle)
	for _, route := range routes {
		engine.GET(route, func(c *gin.Context) { c.String(http.StatusOK, c.FullPath()) })
	}
	return routertest.Program{
		Handler: engine, Open: func(o headgate.Options) (*headgate.Limiter, error) { return limits.Open(engine, o) },
	}
}

// A setting by which gin reads targets in another way is named, and so is every route that is no template.
func TestEndpointsNamesFaults(t *testing.T) {
	engine := gin.New()
	engine.UseRawPath = true
	engine.GET("/a/\\:b", func(*gin.Context) {})
	_, err := ginlimit.Endpoints(engine)
	if err == nil || !strings.Contains(err.Error(), "UseRawPath") || !strings.Contains(err.Error(), `"/a/\\:b"`) {
		t.Errorf("%v, want both faults", err)
	}
}
