//go:build unix

package approutes

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/framework"
)

var record = flag.Bool("record", false, "write what the applications print to the tests of server/framework")

// application is one of a web framework, whose routes are taken as its users take them.
type application struct {
	name, framework string
	report          func(t *testing.T) string               // what its command prints
	ask             func(t *testing.T, lines string) string // a line for each "METHOD /target": who serves it, or -

	shared [][]string // routes that have one template, as notes say
	left   []string   // that are not carried over, as notes say
	idle   []string   // paths, or their beginnings, that nobody asks for here: files, and other hosts
	slash  bool       // a slash at the end tells routes apart
}

// program runs a program of apps/ on stdin, and returns what it prints.
func program(t *testing.T, stdin, dir string, command ...string) string {
	t.Helper()
	garden, err := filepath.Abs("../../bin/garden")
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(command[0], "venv/") {
		command[0] = filepath.Join(garden, command[0])
	}
	var out, log bytes.Buffer
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(stdin), &out, &log
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=0")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v, want what scripts/install-garden-deps installs\n%s", strings.Join(command, " "), err,
			log.String())
	}
	return out.String()
}

// express is a folder in which an application finds a version of Express, and nothing else.
func express(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	modules, err := filepath.Abs("../../bin/garden/node_modules/" + version)
	text, err2 := os.ReadFile("apps/express_app.cjs")
	err = errors.Join(err, err2, os.Mkdir(filepath.Join(dir, "node_modules"), 0o755),
		os.Symlink(modules, filepath.Join(dir, "node_modules", "express")),
		os.WriteFile(filepath.Join(dir, "app.cjs"), text, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func expressApplication(name, version string) application {
	return application{
		name: name, framework: "express",
		report: func(t *testing.T) string {
			return program(t, framework.Script("express"), express(t, version), "node", "-", "./app.cjs")
		},
		ask: func(t *testing.T, lines string) string {
			return program(t, lines, express(t, version), "node", "app.cjs")
		},
		idle: []string{"/assets"},
	}
}

var applications = []application{
	{
		name: "fastapi", framework: "fastapi", slash: true,
		report: func(t *testing.T) string {
			return program(t, framework.Script("fastapi"), "apps", "venv/bin/python", "-", "starlette_app:app")
		},
		ask: func(t *testing.T, lines string) string {
			return program(t, lines, "apps", "venv/bin/python", "starlette_app.py")
		},
		shared: [][]string{{"GET /v1/items/{id:int}", "GET /v1/items/{slug}"}},
	},
	{
		name: "django", framework: "django", slash: true,
		report: func(t *testing.T) string {
			return program(t, framework.Script("django"), "apps", "venv/bin/python", "-", "django_app")
		},
		ask: func(t *testing.T, lines string) string {
			return program(t, lines, "apps", "venv/bin/python", "django_app.py")
		},
		shared: [][]string{{"v1/items/<int:id>", "v1/items/<slug:slug>/"}, {"archive/year", "archive/name"},
			{"v1/items/new", "v1/items/<slug:slug>/"}, {"v1/items/7", "v1/items/<slug:slug>/"}},
		left: []string{"loose"},
	},
	{
		name: "flask", framework: "flask", slash: true,
		report: func(t *testing.T) string {
			return program(t, "", "apps", "venv/bin/flask", "--app", "flask_app", "routes")
		},
		ask: func(t *testing.T, lines string) string {
			return program(t, lines, "apps", "venv/bin/python", "flask_app.py")
		},
		shared: [][]string{{"/v1/items/<int:id>", "/v1/items/<slug>"}},
		left:   []string{"/files/<path:path>/edit"},
		idle:   []string{"/static"},
	},
	expressApplication("express", "express"),
	expressApplication("express4", "express4"),
}

var words = []string{
	"v1", "v1", "items", "items", "7", "12", "new", "search", "parts", "x", "old", "a", "b", "a-b", "x-1.2", "7.json",
	"files", "things", "archive", "2026", "static", "begins", "loose", "opt", "about", "en", "de", "inner", "raw",
	"1.5",
	"hidden", "y", "z", "ab", "folder", "edit", "a-1.b", "assets", "health", "any", "flights", "LAX-SFO", "re", "admin",
	"users", "deep", "o", "n", "users.json", "edit.json", "blog", "posts", "rack", "two", "two.xml", "books", "photos",
	"1.jpg", "files2", "sub", "d", "q", "v2", "w", "rpc", "9fb2a1b4-7a4e-4bd6-8e3c-0d5b4f1f2a3b",
}

var named = map[string]string{"locale": "de", "language": "en", "price": "1.5", "x": "1.5", "which": "old"}

// requests are lines for applications: paths of their routes with words in the place of parameters, and any others.
func requests(templates []string, slash bool) string {
	random := rand.New(rand.NewPCG(16, 16))
	var b strings.Builder
	for n := range 1600 {
		method, path := []string{"GET", "GET", "GET", "POST", "PUT", "DELETE"}[random.IntN(6)], ""
		if n%2 == 0 {
			method, path, _ = strings.Cut(templates[random.IntN(len(templates))], " ")
			path, _, _ = strings.Cut(path, "?")
			for strings.Contains(path, "{") {
				before, behind, _ := strings.Cut(path, "{")
				name, rest, _ := strings.Cut(behind, "}")
				word := words[random.IntN(len(words))]
				if random.IntN(2) == 0 { // which their expressions take
					word = cmp.Or(named[name], []string{"7", "12", "2026"}[random.IntN(3)])
				}
				path = before + word + rest
				if strings.HasSuffix(name, "...") && random.IntN(2) == 0 {
					path += "/" + words[random.IntN(len(words))]
				}
			}
			if path == "/rpc" && random.IntN(2) == 0 {
				path += "?action=login"
			}
		} else {
			for range 1 + random.IntN(4) {
				path += "/" + words[random.IntN(len(words))]
			}
		}
		if random.IntN(4) == 0 && !strings.HasSuffix(path, "/") && !strings.Contains(path, "?") {
			path += "/"
		}
		b.WriteString(method + " " + path + "\n")
	}
	return b.String()
}

// TestFrameworksAgree takes the routes of real applications as users do, and sends them requests: each that is served
// must be known, by a template that no other route is served under, but for what the notes say.
func TestFrameworksAgree(t *testing.T) {
	for _, a := range applications {
		t.Run(a.name, func(t *testing.T) { a.agrees(t) })
	}
}

func (a application) agrees(t *testing.T) {
	report := a.report(t)
	if *record {
		if err := os.WriteFile("../../server/framework/testdata/"+a.name+".txt", []byte(report), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, err := framework.Read(a.framework, a.name, report)
	if err != nil {
		t.Fatal(err)
	}
	var templates []endpoint.Template
	for _, text := range found.Templates {
		one, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, one)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(requests(found.Templates, a.slash)), "\n")
	answers := strings.Split(strings.TrimSpace(a.ask(t, strings.Join(lines, "\n")+"\n")), "\n")
	if len(answers) != len(lines) {
		t.Fatalf("%d requests have %d answers", len(lines), len(answers))
	}
	served := 0
	servedBy := map[endpoint.ID][]string{}
	for n, line := range lines {
		if answers[n] == "-" {
			continue
		}
		served++
		method, target, _ := strings.Cut(line, " ")
		m := table.Match(method, target)
		if m.Status != endpoint.Known {
			if !slices.Contains(a.left, answers[n]) {
				t.Errorf("%s is served by %q, want it known, not %v", line, answers[n], m.Status)
			}
			continue
		}
		if slices.Contains(servedBy[m.ID], answers[n]) {
			continue
		}
		for _, other := range servedBy[m.ID] {
			if !share(a.shared, other, answers[n]) {
				t.Errorf("%s is served by %q on the budget of %q, which serves %q", line, answers[n],
					table.Template(m.ID), other)
			}
		}
		servedBy[m.ID] = append(servedBy[m.ID], answers[n])
	}
	if served < 200 {
		t.Errorf("%d requests served, want 200 or more", served)
	}
	reached := map[string]bool{}
	for id, one := range table.All() {
		reached[one.Path()] = reached[one.Path()] || servedBy[id] != nil
	}
	for path, ok := range reached {
		if !ok && !slices.ContainsFunc(a.idle, func(p string) bool { return strings.HasPrefix(path, p) }) {
			t.Errorf("no request was served under %q", path)
		}
	}
}

func share(groups [][]string, a, b string) bool {
	return slices.ContainsFunc(groups, func(g []string) bool { return slices.Contains(g, a) && slices.Contains(g, b) })
}
