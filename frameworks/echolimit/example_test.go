package echolimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/echolimit"
	"github.com/headgate-io/headgate/identity"
)

func get(h http.Handler, target, user string) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", target, nil)
	r.Header.Set("Session", user) // what the program's own log-in believes, here
	h.ServeHTTP(w, r)
	limit, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=") // what follows depends on the clock
	fmt.Println(strings.TrimSpace(fmt.Sprint(target, " of ", user, ": ", w.Code, " ", limit)))
}

func Example() {
	logIn := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { c.Set("user", c.Request().Header.Get("Session")); return next(c) }
	}
	item := func(c echo.Context) error { return c.String(http.StatusOK, "an item") }
	// begin: echo
	limits := echolimit.New(echolimit.Options{User: func(c echo.Context) *identity.User {
		id, _ := c.Get("user").(string)
		return &identity.User{ID: id} // an empty ID is nobody: then the address counts
	}})
	e := echo.New()
	e.Use(logIn, limits.Handle)
	e.GET("/items/:id", item)
	// Once all routes are there; a parameter at the end takes slashes too:
	limiter, err := limits.Open(e, headgate.Options{Rules: []string{"GET /items/{id...} 1/h", "default 20/s"}})
	if err != nil {
		log.Fatal(err)
	}
	// end: echo
	_ = limiter
	get(e, "/items/7", "ann")
	get(e, "/items/8", "ann")
	get(e, "/items/8", "bob")
	get(e, "/nothing", "bob")
	// Output:
	// /items/7 of ann: 200 "GET /items/{id...}";r=0
	// /items/8 of ann: 429 "GET /items/{id...}";r=0
	// /items/8 of bob: 200 "GET /items/{id...}";r=0
	// /nothing of bob: 404
}
