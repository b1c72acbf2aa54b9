package routers

import (
	"fmt"
	"net/http"

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
	return pattern.ServeMux.Table(m.routes...)
}

// end: servemux

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
