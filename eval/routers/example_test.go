package routers

import (
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/endpoint/pattern"
)

// begin: servemux
// recorder is a ServeMux that remembers its patterns, since a ServeMux cannot list them.
type recorder struct {
	http.ServeMux
	routes []pattern.Route
}

func (m *recorder) Handle(p string, h http.Handler) {
	m.ServeMux.Handle(p, h)
	m.routes = append(m.routes, pattern.Route{Pattern: p})
}

func (m *recorder) HandleFunc(p string, h func(http.ResponseWriter, *http.Request)) {
	m.Handle(p, http.HandlerFunc(h))
}

func muxTable(m *recorder) (*endpoint.Table, error) {
	templates, err := pattern.ServeMux.Templates(m.routes...)
	if err != nil {
		return nil, err
	}
	return endpoint.Compile(templates, pattern.ServeMux.Profile())
}

// end: servemux

// begin: chi
func chiTable(r chi.Routes) (*endpoint.Table, error) {
	var routes []pattern.Route
	err := chi.Walk(r, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes = append(routes, pattern.Route{Method: method, Pattern: path})
		return nil
	})
	if err != nil {
		return nil, err
	}
	templates, err := pattern.Chi.Templates(routes...)
	if err != nil {
		return nil, err
	}
	return endpoint.Compile(templates, pattern.Chi.Profile())
}

// end: chi

// begin: gin
func ginTable(engine *gin.Engine) (*endpoint.Table, error) {
	var routes []pattern.Route
	for _, r := range engine.Routes() {
		routes = append(routes, pattern.Route{Method: r.Method, Pattern: r.Path})
	}
	templates, err := pattern.Gin.Templates(routes...)
	if err != nil {
		return nil, err
	}
	return endpoint.Compile(templates, pattern.Gin.Profile())
}

// end: gin

// begin: echo
func echoTable(e *echo.Echo) (*endpoint.Table, error) {
	var routes []pattern.Route
	for _, r := range e.Routes() {
		routes = append(routes, pattern.Route{Method: r.Method, Pattern: r.Path})
	}
	templates, err := pattern.Echo.Templates(routes...)
	if err != nil {
		return nil, err
	}
	return endpoint.Compile(templates, pattern.Echo.Profile())
}

// end: echo

func print(table *endpoint.Table, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range table.All() {
		fmt.Println(t)
	}
}

func Example_serveMux() {
	var m recorder
	m.HandleFunc("GET /items/{id}", func(http.ResponseWriter, *http.Request) {})
	m.Handle("GET /files/{path...}", http.NotFoundHandler())
	print(muxTable(&m))
	// Output:
	// GET /files
	// GET /files/{path...}
	// GET /items/{id}
}

func Example_chi() {
	r := chi.NewRouter()
	r.Get("/items/{id:[0-9]+}", func(http.ResponseWriter, *http.Request) {})
	r.Route("/admin", func(r chi.Router) {
		r.Post("/users/{name}", func(http.ResponseWriter, *http.Request) {})
	})
	print(chiTable(r))
	// Output:
	// POST /admin/users/{name}
	// GET /items/{id}
}

func Example_gin() {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/items/:id", func(*gin.Context) {})
	engine.Group("/v1").GET("/files/*path", func(*gin.Context) {})
	print(ginTable(engine))
	// Output:
	// GET /items/{id}
	// GET /v1/files
	// GET /v1/files/{path...}
}

func Example_echo() {
	e := echo.New()
	e.GET("/items/:id", func(echo.Context) error { return nil })
	e.GET("/users/:id", func(echo.Context) error { return nil })
	e.GET("/users/:id/posts", func(echo.Context) error { return nil })
	print(echoTable(e))
	// Output:
	// GET /items/{id...}
	// GET /users/{id}
	// GET /users/{id}/posts
}
