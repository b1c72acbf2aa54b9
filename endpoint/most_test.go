package endpoint_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/race"
)

// Templates that one request matches equally count as one, whatever leads from one to the other;
// the rest is as Compile has it.
func TestCompileMost(t *testing.T) {
	templates := parseAll(t, "GET /a/{id}", "GET /b", "GET /a/{name}", "POST /a/{name}", "GET /{a}/x{b}",
		"GET /{c}/{d}y", "GET /b",
		"GET /q?a={a}", "GET /q?b={b}", "GET /q?a=1&c={c}", "GET /v/x;y", "GET /{e}/xy{f}", "GET /{e}/x{g}y")
	table, problems, err := endpoint.CompileMost(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, p := range problems {
		said = append(said, p.String())
	}
	if got, want := strings.Join(said, "\n"), strings.Join([]string{
		`template "GET /v/x;y": path holds ;parameters, so no target can match it`,
		`templates "GET /a/{id}" and "GET /a/{name}" both match /a/x with equal specificity: they count as one, "GET /a/{id}"`,
		`templates "GET /{a}/x{b}" and "GET /{c}/{d}y" both match /x/xxy with equal specificity: they count as one, "GET /{a}/x{b}"`,
		`templates "GET /q?a={a}" and "GET /q?b={b}" both match /q?a=x&b=x with equal specificity: they count as one, "GET /q?a={a}"`,
		`templates "GET /{e}/xy{f}" and "GET /{e}/x{g}y" both match /x/xyxy with equal specificity: they count as one, "GET /{e}/xy{f}"`,
	}, "\n"); got != want {
		t.Errorf("problems are\n%s\nwant\n%s", got, want)
	}
	for target, want := range map[string]string{
		"/a/7": "GET /a/{id}", "/b": "GET /b", "/c/xay": "GET /{e}/xy{f}", "/c/xa": "GET /{a}/x{b}",
		"/c/ay":  "GET /{a}/x{b}",
		"/q?b=2": "GET /q?a={a}", "/q?a=1&c=3": "GET /q?a=1&c={c}", "/q?a=1&b=2": "GET /q?a={a}",
	} {
		if got := describe(table, table.Match("GET", target)); got != want {
			t.Errorf("Match(GET, %s) = %s, want %s", target, got, want)
		}
	}
	for _, text := range []string{"GET /a/{other}", "GET /{x}/{y}y", "GET /q?b={z}"} {
		if id, ok := table.Lookup(parse(t, text)); !ok || table.Template(id) == (endpoint.Template{}) {
			t.Errorf("Lookup(%s) = %d, %v, want the template that it counts as", text, id, ok)
		}
	}
}

// Whatever the templates, CompileMost knows every request that any of them matches, by the template
// itself or by one that it counts as.
func TestCompileMostKnowsWhatAnyMatches(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	merged := 0
	segments := []string{"a", "{x}", "{y}", "a{x}", "{x}a", "b{x}", "{x}b", "{x}a{y}", "{x}b{y}"}
	for range race.Fewer(80) {
		var templates []endpoint.Template
		for range 8 {
			text := "GET /" + segments[random.IntN(len(segments))]
			if random.IntN(2) == 0 {
				text += "/" + segments[random.IntN(len(segments))]
			}
			templates = append(templates, parse(t, text+[]string{"", "", "?q={q}", "?r={r}"}[random.IntN(4)]))
		}
		table, problems, err := endpoint.CompileMost(templates, endpoint.Profile{})
		if err != nil {
			t.Fatal(err)
		}
		merged += len(problems)
		for range 20 {
			target := randomTarget(random)
			_, status := slowMatch(templates, endpoint.Profile{}, "GET", target)
			if m := table.Match("GET", target); m.Status != status {
				t.Fatalf("Match(GET, %s) = %s, want %v; templates %q", target, describe(table, m), status, templates)
			}
		}
	}
	if want := race.Fewer(100); merged < want {
		t.Errorf("%d templates merged, want %d or more", merged, want)
	}
}

func TestParsePath(t *testing.T) {
	for path, want := range map[string]string{
		"/secrets/:create": "GET /secrets/%3Acreate", "/a//b/./c": "GET /a/b/c", "/a b/{x}": "GET /a%20b/{x}",
		"/caf\u00e9": "GET /caf%C3%A9",
		"/%41":       "GET /A", "/x?a={b}": "GET /x?a={b}", "/:{id}:{x}": "GET /%3A{id}:{x}", "/": "GET /",
	} {
		got, err := endpoint.ParsePath("GET", path)
		if err != nil || got.String() != want {
			t.Errorf("ParsePath(GET, %s) = %s, %v, want %s", path, got, err, want)
			continue
		}
		if again, err := endpoint.ParseTemplate(got.String()); err != nil || again != got {
			t.Errorf("ParseTemplate(%s) = %s, %v", got, again, err)
		}
	}
	for _, path := range []string{"a", "/a%zz", "/{x", "/a\x00", "/a\\b"} {
		if got, err := endpoint.ParsePath("GET", path); err == nil {
			t.Errorf("ParsePath(GET, %q) = %s, want an error", path, got)
		}
	}
	if slash, _ := endpoint.ParsePath("GET", "/a/"); slash == parse(t, "GET /a") || slash != parse(t, "GET /a/") {
		t.Error("ParsePath drops the slash at the end, want it kept for RefuseTrailingSlash")
	}
}

func parseAll(t *testing.T, texts ...string) (all []endpoint.Template) {
	for _, text := range texts {
		all = append(all, parse(t, text))
	}
	return all
}
