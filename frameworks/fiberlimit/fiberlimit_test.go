package fiberlimit_test

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/fiberlimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/routertest"
)

var charged = map[string][]string{
	"/items/:id": {"/items/{id}"}, "/items/new": {"/items/new"}, "/files/*": {"/files/{rest...}", "/files"},
}

func Test(t *testing.T) {
	for name, config := range map[string]fiber.Config{
		"as it comes": {}, "strict": {CaseSensitive: true, StrictRouting: true},
	} {
		t.Run(name, func(t *testing.T) {
			routertest.Run(t, routertest.Router{
				Name:        "fiber",
				Item:        "/items/:id",
				Fixed:       "/items/new",
				Rest:        "/files/*",
				InOrder:     true,
				ReadsBodies: true,
				Charged:     charged,
				Start:       start(config),
			})
		})
	}
}

func start(config fiber.Config) func(routes []string, who func(*http.Request) *identity.User) routertest.Program {
	return func(routes []string, who func(*http.Request) *identity.User) routertest.Program {
		user := func(c fiber.Ctx) *identity.User {
			return who(&http.Request{Header: http.Header{"Session": {c.Get("Session")}}})
		}
		app, limits := fiber.New(config), fiberlimit.New(fiberlimit.Options{User: user})
		app.Use(limits.Handle)
		for _, route := range routes {
			app.Get(route, func(c fiber.Ctx) error { return c.SendString(c.Route().Path) })
		}
		app.Handler() // which registers what Listen does, before anybody asks for the routes
		return routertest.Program{
			Serve: app.Server().Serve,
			Open:  func(o headgate.Options) (*headgate.Limiter, error) { return limits.Open(app, o) },
		}
	}
}

// A setting by which fiber reads targets in another way is named, and so is each route that is no template,
// or that never serves.
func TestEndpointsNamesFaults(t *testing.T) {
	ok := func(fiber.Ctx) error { return nil }
	for want, routes := range map[string][]string{
		`fiber pattern "/items/new": "/items/:id" stands before it`: {"/items/:id", "/items/new"},
		`fiber pattern "/a/b/:y": "/a/:x/c" stands before it`:       {"/a/:x/c", "/a/b/:y"},
		`fiber pattern "/items/:id": "/*" stands before it`:         {"/*", "/items/:id"},
		`fiber pattern "/Items/new": "/items/:id" stands before it`: {"/items/:id", "/Items/new"},
		`"/Items/:name": it differs from "/items/:id"`:              {"/items/:id", "/Items/:name"},
		`segment is ":id?", want :name alone`:                       {"/items/:id?"},
		`segment is ":id<int>", want :name alone`:                   {"/items/:id<int>"},
		`segment is ":from-:to", want :name alone`:                  {"/flights/:from-:to"},
		`segment is "a@b", want letters, digits`:                    {"/a@b"},
		`"*" stands before the end, want it last`:                   {"/a/*/b"},
	} {
		app := fiber.New()
		for _, route := range routes {
			app.Get(route, ok)
		}
		if _, err := fiberlimit.Endpoints(app); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", routes, err, want)
		}
	}
	app := fiber.New(fiber.Config{UnescapePath: true})
	if _, err := fiberlimit.Endpoints(app); err == nil ||
		!strings.Contains(err.Error(), "UnescapePath is true, want false") {
		t.Errorf("%v, want the setting named", err)
	}
	app = fiber.New()
	app.Use("/static", ok)
	app.Get("/a/b/:y", ok)
	app.Get("/a/:x/c", ok)
	app.Post("/items/:id", ok)
	app.Get("/items/new", ok) // another method's are no matter
	if _, err := fiberlimit.Endpoints(app); err != nil {
		t.Error(err)
	}
}

// The path that is charged is the one that middleware before has put in place.
func TestPathsThatAreReplaced(t *testing.T) {
	app, limits := fiber.New(), fiberlimit.New(fiberlimit.Options{})
	app.Use(func(c fiber.Ctx) error { c.Path("/items/7"); return c.Next() }, limits.Handle)
	app.Get("/items/:id", func(c fiber.Ctx) error { return c.SendString("item") })
	if _, err := limits.Open(app, headgate.Options{Rules: []string{"GET /items/{id} 1/h", "default 9/h"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{200, 429} {
		got, err := app.Test(httptest.NewRequest("GET", "/other", nil), fiber.TestConfig{})
		if err != nil || got.StatusCode != want ||
			!strings.HasPrefix(got.Header.Get("RateLimit"), `"GET /items/{id}"`) {
			t.Errorf("%v, %v, want %d of the item", got, err, want)
		}
	}
}

// Of any routes that have a table, and any target, the route that fiber serves is the one that was charged.
func TestAnyRoutesChargeWhatServes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	tables, served := 0, 0
	for range race.Fewer(400) {
		app, limits := fiber.New(fiber.Config{CaseSensitive: rng.IntN(2) == 0, StrictRouting: rng.IntN(2) == 0}),
			fiberlimit.New(fiberlimit.Options{})
		app.Use(limits.Handle)
		for range 1 + rng.IntN(4) {
			path := ""
			for range rng.IntN(4) {
				path += "/" + pick("a", "b", "A", "ab", ":x", ":y")
			}
			path += pick("", "", "", "/", "/*", "/+")
			app.Get(cmp.Or(path, "/"), func(c fiber.Ctx) error { return c.SendString(c.Route().Path) })
		}
		table, err := fiberlimit.Endpoints(app)
		if err != nil {
			continue
		}
		tables++
		var rules []string
		for _, e := range table.All() {
			rules = append(rules, e.String()+" 1000000/h")
		}
		if _, err := limits.Open(app, headgate.Options{Rules: append(rules, "default 1000000/h"),
			Endpoints: table}); err != nil {
			t.Fatal(rules, err)
		}
		serve := app.Handler()
		for range 40 {
			target := ""
			for range rng.IntN(5) {
				target += "/" + pick("a", "b", "A", "B", "ab", "aB", "c", "%61", "", ".", "..", "a;b", "a%2fb",
					"%2e%2e", "a%20", "%C3%A9", "\xc3")
			}
			target = cmp.Or(target, "/") + pick("", "", "", "/", "?a", "#a", "//")
			var ctx fasthttp.RequestCtx
			ctx.Request.SetRequestURI(target)
			serve(&ctx)
			if ctx.Response.StatusCode() != 200 {
				continue
			}
			served++
			route := string(ctx.Response.Body())
			charged, _, _ := strings.Cut(strings.TrimPrefix(string(ctx.Response.Header.Peek("RateLimit")), `"GET `),
				`"`)
			template := strings.NewReplacer(":x", "{x}", ":y", "{y}").Replace(strings.TrimSuffix(route, "/"))
			if bare, ok := strings.CutSuffix(template, "/*"); ok {
				template = bare + "/{rest...}"
			} else if bare, ok := strings.CutSuffix(template, "/+"); ok {
				template = bare + "/{rest...}"
			}
			unnamed := strings.NewReplacer("{x}", "{}", "{y}", "{}")
			got, want := strings.TrimSuffix(unnamed.Replace(charged), "/"), unnamed.Replace(template)
			if got != want && got != strings.TrimSuffix(want, "/{rest...}") {
				t.Fatalf("%q was charged as %q and served by %q, of %v", target, charged, route, rules)
			}
		}
	}
	if tables == 0 || served < tables {
		t.Errorf("%d tables, and %d targets that were served, want more", tables, served)
	}
}
