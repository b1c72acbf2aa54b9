package main

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/headgate-io/headgate/eval/page"
)

// The Go routers run inside this process, behind net/http's server as anywhere.

func serveGo(router func() http.Handler) func(string, int) (func(), error) {
	return func(_ string, port int) (func(), error) {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, err
		}
		s := &http.Server{Handler: router()}
		go s.Serve(l)
		return func() { s.Close() }, nil
	}
}

func goVersion(module string) func() string {
	return func() string {
		if module == "" {
			return strings.TrimPrefix(runtime.Version(), "go")
		}
		return strings.TrimPrefix(page.Version(module), "v")
	}
}

func served(route string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, user := route, ""
		switch {
		case route == "GET /rpc" && r.URL.Query().Get("action") == "login":
			name = "GET /rpc?action=login"
		case route == "POST /login":
			user = r.PostFormValue("user")
		}
		h := w.Header()
		h.Set("X-Route", name)
		h.Set("X-Id", r.Header.Get("X-Id"))
		h.Set("X-Method", r.Method)
		h.Set("X-User", url.QueryEscape(user))
		w.Write([]byte("ok"))
	}
}

// each calls add for every route, with its path in the notation that param and rest write.
func each(param, rest string, add func(method, path string, h http.HandlerFunc)) {
	for _, t := range templates {
		method, path, _ := strings.Cut(t, " ")
		if strings.Contains(path, "?") {
			continue // a query, which the route without it reads
		}
		for _, name := range []string{"id", "part"} {
			path = strings.ReplaceAll(path, "{"+name+"}", strings.ReplaceAll(param, "NAME", name))
		}
		add(method, strings.ReplaceAll(path, "{path...}", rest), served(t))
	}
}

func serveMux() http.Handler {
	mux := http.NewServeMux()
	each("{NAME}", "{path...}", func(method, path string, h http.HandlerFunc) { mux.Handle(method+" "+path, h) })
	return mux
}

func chiRouter() http.Handler {
	r := chi.NewRouter()
	each("{NAME}", "*", func(method, path string, h http.HandlerFunc) { r.Method(method, path, h) })
	return r
}

func ginRouter() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	each(":NAME", "*path", func(method, path string, h http.HandlerFunc) { e.Handle(method, path, gin.WrapF(h)) })
	return e
}

func echoRouter() http.Handler {
	e := echo.New()
	each(":NAME", "*", func(method, path string, h http.HandlerFunc) {
		e.Add(method, path, echo.WrapHandler(h))
		if strings.Contains(path[strings.LastIndexByte(path, '/'):], ":") {
			// A parameter at the end takes slashes too unless a route goes on behind it;
			// endpoint/pattern makes {id...} of it.
			e.Add(method, path+"/*", echo.NotFoundHandler)
		}
	})
	return e
}
