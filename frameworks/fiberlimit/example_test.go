package fiberlimit_test

import (
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/fiberlimit"
	"github.com/headgate-io/headgate/identity"
)

func get(app *fiber.App, target, user string) {
	r := httptest.NewRequest("GET", target, nil)
	r.Header.Set("Session", user)             // what the program's own log-in believes, here
	w, err := app.Test(r, fiber.TestConfig{}) // without a timeout, which is a second otherwise
	if err != nil {
		log.Fatal(err)
	}
	limit, _, _ := strings.Cut(w.Header.Get("RateLimit"), ";t=") // what follows depends on the clock
	fmt.Println(strings.TrimSpace(fmt.Sprint(target, " of ", user, ": ", w.StatusCode, " ", limit)))
}

func Example() {
	logIn := func(c fiber.Ctx) error { c.Locals("user", c.Get("Session")); return c.Next() }
	item := func(c fiber.Ctx) error { return c.SendString("an item") }
	// begin: fiber
	limits := fiberlimit.New(fiberlimit.Options{User: func(c fiber.Ctx) *identity.User {
		id, _ := c.Locals("user").(string)
		return &identity.User{ID: id} // an empty ID is nobody: then the address counts
	}})
	app := fiber.New()
	app.Use(logIn, limits.Handle)
	app.Get("/items/:id", item)
	// Once all routes are there, the more specific ones first:
	limiter, err := limits.Open(app, headgate.Options{Rules: []string{"GET /items/{id} 1/h", "default 20/s"}})
	if err != nil {
		log.Fatal(err)
	}
	// end: fiber
	_ = limiter
	get(app, "/items/7", "ann")
	get(app, "/items/8", "ann")
	get(app, "/items/8", "bob")
	get(app, "/nothing", "bob")
	// Output:
	// /items/7 of ann: 200 "GET /items/{id}";r=0
	// /items/8 of ann: 429 "GET /items/{id}";r=0
	// /items/8 of bob: 200 "GET /items/{id}";r=0
	// /nothing of bob: 404
}
