package chilimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/chilimit"
	"github.com/headgate-io/headgate/identity"
)

func get(h http.Handler, target, user string) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", target, nil)
	r.Header.Set("Session", user) // what the program's own log-in believes, here
	h.ServeHTTP(w, r)
	limit, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=") // what follows depends on the clock
	fmt.Println(strings.TrimSpace(fmt.Sprint(target, " of ", user, ": ", w.Code, " ", limit)))
}

type userKey struct{}

func Example() {
	logIn := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get("Session"))))
		})
	}
	item := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "an item") }
	// begin: chi
	limits := chilimit.New(chilimit.Options{User: func(r *http.Request) *identity.User {
		id, _ := r.Context().Value(userKey{}).(string)
		return &identity.User{ID: id} // an empty ID is nobody: then the address counts
	}})
	r := chi.NewRouter()
	r.Use(logIn, limits.Handle)
	r.Get("/items/{id}", item)
	// Once all routes are there:
	limiter, err := limits.Open(r, headgate.Options{Rules: []string{"GET /items/{id} 1/h", "default 20/s"}})
	if err != nil {
		log.Fatal(err)
	}
	// end: chi
	_ = limiter
	get(r, "/items/7", "ann")
	get(r, "/items/8", "ann")
	get(r, "/items/8", "bob")
	get(r, "/nothing", "bob")
	// Output:
	// /items/7 of ann: 200 "GET /items/{id}";r=0
	// /items/8 of ann: 429 "GET /items/{id}";r=0
	// /items/8 of bob: 200 "GET /items/{id}";r=0
	// /nothing of bob: 404
}
