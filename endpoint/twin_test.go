package endpoint_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/race"
)

// randomTemplates returns templates that overlap a lot, and do not conflict.
func randomTemplates(t testing.TB, random *rand.Rand, p endpoint.Profile) (templates []endpoint.Template) {
	segments := []string{"a", "b", "ab", "aba", "{x}", "{x}", "a{x}", "b{x}", "ab{x}", "{x}a", "{x}ba", "a{x}a",
		"{x}%3F", "{x}3F", "{x}F", "%3F{x}", "A", "a%3F",
		"{x}b{y}", "{x}ab{y}", "a{x}b{y}", "{x}a{y}a{z}", "{x}3F{y}", "{x}%3F{y}", "{x}{y}", "{x}F{y}b",
		"%3Aa", "%3A{x}"}
	for range 1 + random.IntN(20) {
		var text strings.Builder
		text.WriteString([]string{"GET ", "GET ", "POST ", "HEAD "}[random.IntN(4)])
		for range random.IntN(5) {
			text.WriteString("/" + segments[random.IntN(len(segments))])
		}
		if random.IntN(6) == 0 || strings.HasSuffix(text.String(), " ") {
			text.WriteString([]string{"/", "/{r...}"}[random.IntN(2)])
		}
		if random.IntN(3) == 0 {
			text.WriteString([]string{"?q=1", "?q={q}", "?q=2&r={r}", "?q={x}&r=", "?q[=%20a", "?Q=1",
				"?q[a]=x"}[random.IntN(7)])
		}
		more := append(templates, parse(t, text.String()))
		if _, err := endpoint.Compile(more, p); err == nil {
			templates = more
		}
	}
	return templates
}

func randomTarget(random *rand.Rand) string {
	segments := []string{"a", "b", "ab", "aba", "abba", "aa", "ba", "c", "aca", "%3F", "a%3F", "3F", "a3F", "%3FF",
		"%3F3F", "A", "%61", "..", "aF", "%3Fa",
		"abab", "aabaa", "a%3Fb", "%3F3Fa", "a3F3Fb", "aFbb", ":a", "%3aa", ":ab"}
	var target strings.Builder
	for range 1 + random.IntN(5) {
		target.WriteString("/" + segments[random.IntN(len(segments))])
	}
	if random.IntN(2) == 0 {
		parts := []string{"q=1", "q=2", "%71=%31", "q", "r", "r=", "r=x", "q[]=1", "+q=1", "q=1;r=2", "x;q=1",
			"q%5b=+a", "q%5B=%20a", "Q=1", "q[a]=x",
			"q=%zz", "%zz=q", "q=%2531", "%00=1", "qq=1", "x=%zz", "x;y"}
		for i := range 1 + random.IntN(3) {
			target.WriteString(string("?&&"[i]) + parts[random.IntN(len(parts))])
		}
	}
	return target.String()
}

// TestMatchEqualsItsTwin compares with the one that tries every template, under every order of templates.
func TestMatchEqualsItsTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	known := 0
	for range 120 {
		p := endpoint.Profile{CaseInsensitive: random.IntN(4) == 0}
		templates := randomTemplates(t, random, p)
		inOrder := compile(t, p, templates...)
		random.Shuffle(len(templates), func(i, j int) { templates[i], templates[j] = templates[j], templates[i] })
		shuffled := compile(t, p, templates...)
		for range race.Fewer(100) {
			method, target := []string{"GET", "POST", "HEAD", "PUT"}[random.IntN(4)], randomTarget(random)
			checkMatch(t, inOrder, p, templates, method, target)
			if got, again := inOrder.Match(method, target), shuffled.Match(method, target); got != again {
				t.Fatalf("Match(%q, %q) = %v, but %v with the templates in another order", method, target, got, again)
			} else if got.Status == endpoint.Known {
				known++
			}
		}
	}
	if want := race.Fewer(1500); known < want {
		t.Errorf("only %d requests matched, want %d or more", known, want)
	}
}

// checkMatch checks what must hold for every request.
func checkMatch(t *testing.T, table *endpoint.Table, p endpoint.Profile, templates []endpoint.Template,
	method, target string) {
	t.Helper()
	m := table.Match(method, target)
	want, status := slowMatch(templates, p, method, target)
	if table.Template(m.ID).String() != want.String() || m.Status != status {
		t.Fatalf("Match(%q, %q) = %s, want %q (%v); templates %q", method, target, describe(table, m), want,
			status, templates)
	}
	if allowed := slices.Contains(table.Allowed(target), method); allowed != (status == endpoint.Known) {
		t.Fatalf("Allowed(%q) = %q, but Match(%q, …) says %v; templates %q", target, table.Allowed(target), method,
			status, templates)
	}
	path, fault := table.Canonical(target)
	if fault != endpoint.NoFault {
		return
	}
	segments, looks := table.Work(path)
	if segments > strings.Count(path, "/") || looks > segments*(1+endpoint.MaxProbes) {
		t.Fatalf("%q takes %d segments and %d looks; templates %q", path, segments, looks, templates)
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("GET /a/{x}\nGET /a/b\nPOST /{r...}", "GET", "/a/b", false)
	f.Add("GET /{x}.json\nGET /v{x}\nGET /v1.json", "HEAD", "/v1.json", true)
	f.Add("GET /{x}%3F/{y}3F\nGET /{x}/a%3F", "GET", "/%3f%3F/a%3F", false)
	f.Add("GET /rpc?action=login\nGET /rpc\nPOST /{x}?a={a}&b=", "GET", "/rpc?x=1&%61ction=log%69n", false)
	f.Add("GET /b?acl={acl}\nGET /b?Acl[]=x", "HEAD", "/b?acl[]=y&acl;x", true)
	f.Add("GET /{a}/{b}{c}\nGET /{a}/x{b}-{c}y", "GET", "/8/0", false)
	f.Add("GET /b?acl={acl}\nGET /b", "GET", "/b?]", false)
	f.Add("GET /b?acl={acl}\nGET /b", "GET", "/b?[][", false)
	f.Add("GET /b?acl={acl}\nGET /b", "GET", "/b?x?acl=y", false)
	f.Add("", " ", "/", false)
	f.Add("X /b?ACl[]=", "X", "/b?acl=y", false)
	f.Add("X /b?ACl[]=", "X", "/b?ACl[x]=y", false)
	f.Add("X /b?ACl[]=", "X", "/b?ACl[]=&a[b]c", true)
	f.Fuzz(func(t *testing.T, texts, method, target string, fold bool) {
		p := endpoint.Profile{CaseInsensitive: fold}
		var templates []endpoint.Template
		for text := range strings.SplitSeq(texts, "\n") {
			if template, err := endpoint.ParseTemplate(text); err == nil && len(templates) < 10 {
				templates = append(templates, template)
			}
		}
		table, err := endpoint.Compile(templates, p)
		if err != nil {
			return
		}
		checkMatch(t, table, p, templates, method, target)
	})
}

// TestNamesAsTheTwinReadsThem: the names that some server takes for one that matters, made of what
// such names are made of.
func TestNamesAsTheTwinReadsThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		for range r.IntN(7) {
			b.WriteString([]string{"a", "A", "b", "[", "]", "[]", "[b]", ".", "+", "_", "?", ";", "=",
				"%5b"}[r.IntN(14)])
		}
		return b.String()
	}
	for range race.Fewer(30_000) {
		template, err := endpoint.ParseTemplate("GET /x?a" + text() + "=")
		if err != nil {
			continue
		}
		templates := []endpoint.Template{template}
		checkMatch(t, compile(t, endpoint.Profile{}, templates...), endpoint.Profile{}, templates, "GET",
			"/x?"+text()+"&"+text())
	}
}
