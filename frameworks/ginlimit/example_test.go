package ginlimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/ginlimit"
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
	gin.SetMode(gin.ReleaseMode)
	logIn := func(c *gin.Context) { c.Set("user", c.GetHeader("Session")) }
	item := func(c *gin.Context) { c.String(http.StatusOK, "an item") }
	// begin: gin
	limits := ginlimit.New(ginlimit.Options{User: func(c *gin.Context) *identity.User {
		return &identity.User{ID: c.GetString("user")} // an empty ID is nobody: then the address counts
	}})
	engine := gin.New()
	engine.Use(logIn, limits.Handle)
	engine.GET("/items/:id", item)
	// Once all routes are there:
	limiter, err := limits.Open(engine, headgate.Options{Rules: []string{"GET /items/{id} 1/h", "default 20/s"}})
	if err != nil {
		log.Fatal(err)
	}
	// end: gin
	_ = limiter
	get(engine, "/items/7", "ann")
	get(engine, "/items/8", "ann")
	get(engine, "/items/8", "bob")
	get(engine, "/nothing", "bob")
	// Output:
	// /items/7 of ann: 200 "GET /items/{id}";r=0
	// /items/8 of ann: 429 "GET /items/{id}";r=0
	// /items/8 of bob: 200 "GET /items/{id}";r=0
	// /nothing of bob: 404
}
