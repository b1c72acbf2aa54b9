package main

import (
	"strings"
	"testing"
	"unicode"
)

// Names may hold what moves a cursor or turns the direction of text: whoever typed them says nothing to the terminal of
// who reads them.
func TestNamesSayNothingToTheTerminal(t *testing.T) {
	dir := t.TempDir()
	name := "ev\x1b[31mil\u202e\a\u009b2J"
	must(t, dir, "policy", "set", "default", "20", "--tier", name)
	must(t, dir, "project", "set", "acme", "--tier", name)
	write(t, dir, "routes.txt", "GET /v1/items/{id}\n")
	write(t, dir, "api.yaml", "openapi: \"3.0.3\"\npaths:\n  \"/a/{\\e[31m}\": {get: {}}\n")
	write(t, dir, "conf.yaml", "upstream: http://127.0.0.1:9\nopenapi: [\"\\e[31m.yaml\"]\n")
	write(t, dir, "nginx.conf", "http { limit_req_zone \"\x1b[31m\" zone=\"\x1b[31m\":10m rate=\x1b[31mr/s; }\n")
	for _, args := range [][]string{
		{"policy", "set", "default", "20", "--project", name},
		{"policy", "set", "default", "30", "--project", name, "--expires", "2h"},
		{"policy", "set", "default", "40", "--project", name},
		{"policy", "list"}, {"policy", "list", "--project", "acme"}, {"policy", "diff", "1"}, {"policy", "history"},
		{"policy", "lint"}, {"policy", "draw", "default", "--project", name},
		{"explain", "GET", "/v1/items/1", "--project", name, "--routes", "routes.txt"},
		{"explain", "GET", "/v1/items/1", "--tier", name, "--routes", "routes.txt"},
		{"project", "list"}, {"project", "set", name, "--tier", name}, {"project", "delete", name},
		{"key", "create", "--project", name, "--name", "ci"}, {"key", "list"},
		{"policy", "delete", "default", "--project", name}, {"policy", "delete", "default", "--tier", name},
		{"doctor", "--config", "conf.yaml"}, {"doctor", "--config", name},
		{"serve", "--config", "conf.yaml"}, {"serve", "--config", name}, {"policy", "lint", name}, {name},
		{"routes", "--openapi", "api.yaml"}, {"convert", "nginx", "nginx.conf"},
	} {
		_, out, errs := call(t, dir, args...)
		if i := strings.IndexFunc(out+errs, func(r rune) bool {
			return !unicode.IsPrint(r) && r != '\n' && r != '\t'
		}); i >= 0 || out+errs == "" {
			t.Errorf("headgate %q prints %q", args, out+errs)
		}
	}
}
