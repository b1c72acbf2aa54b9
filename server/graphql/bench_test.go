package graphql_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/graphql"
)

// hostile are documents that take as much as may be of whoever prices them, each as long as the default bounds allow.
func hostile() map[string]string {
	spreads := &strings.Builder{}
	spreads.WriteString("{...F0}")
	for i := range 400 {
		fmt.Fprintf(spreads, " fragment F%d on Query{...F%d ...F%d}", i, i+1, i+1)
	}
	spreads.WriteString(" fragment F400 on Query{me{id}}")
	contexts := "{me{" + strings.Repeat("posts(first:2){...P} ", 400) + "}} fragment P on PostConnection{" +
		strings.Repeat("total ", 1000) + "}"
	return map[string]string{
		"fields":       "{me{" + strings.Repeat("id ", 4900) + "}}",
		"aliases":      "{" + strings.Repeat("a:me{id} ", 800) + "}",
		"fragments":    spreads.String(),
		"contexts":     contexts,
		"directives":   "{me" + strings.Repeat("@a", 2400) + "{id}}",
		"arguments":    "{users(" + strings.Repeat("first:1 ", 1600) + "){id}}",
		"comments":     strings.Repeat("#\n", 4900) + "{me{id}}",
		"block string": `{user(id:"""` + strings.Repeat("\n", 4900) + strings.Repeat("x", 1<<20-5000) + `"""){id}}`,
		"string":       `{user(id:"` + strings.Repeat(`\n`, 1<<19) + `"){id}}`,
		"spaces":       strings.Repeat(" ", 1<<20) + "{me{id}}",
		"lists":        `{nodes(ids:[` + strings.Repeat("[", 990) + strings.Repeat("]", 990) + `]){id}}`,
		"no document":  strings.Repeat("}", 1<<20),
	}
}

// TestHostileDocumentsTakeLittleMemory: a few times what they have in bytes, or 260 a token, whatever stands in them.
func TestHostileDocumentsTakeLittleMemory(t *testing.T) {
	p := newPricer(t, graphql.Options{MaxBreadth: graphql.MostBreadth})
	for name, text := range hostile() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := p.Document(text, "", nil)
		runtime.ReadMemStats(&after)
		// It is 3 MiB at most, and half as much again under the race detector.
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
			t.Errorf("%s takes %d bytes (%v), want 8 MiB at most", name, took, err)
		}
	}
}

// TestLongVariablesAreReadOnce, however many fields have them: else one request takes ten seconds before it is decided.
// 300 fields may take as long as 60 times one does; what is read for each takes 300 times as long.
func TestLongVariablesAreReadOnce(t *testing.T) {
	p := newPricer(t, graphql.Options{MaxBreadth: graphql.MostBreadth})
	for name, c := range map[string]struct{ defined, field, value string }{
		"a list":   {"[ID!]!", "nodes(ids:$v){id}", "[" + strings.Repeat("1,", 200_000) + "1]"},
		"lists":    {"[ID!]!", "nodes(ids:$v){id}", "[" + strings.Repeat("[[[1]]],", 50_000) + "1]"},
		"a number": {"Int", "users(first:$v){id}", strings.Repeat("1", 400_000)},
		"an object": {"Page", "me{groups(page:$v){title}}", `{"after":[` + strings.Repeat("1,", 200_000) +
			`1],"size":2}`},
	} {
		least := func(fields int) (least time.Duration) {
			text := "query($v:" + c.defined + "){"
			for i := range fields {
				text += fmt.Sprintf("a%d:%s ", i, c.field)
			}
			for range 3 {
				began := time.Now()
				_, _ = p.Document(text+"}", "", []byte(`{"v":`+c.value+"}"))
				if took := time.Since(began); least == 0 || took < least {
					least = took
				}
			}
			return least
		}
		if one, many := least(1), least(300); many > 60*one {
			t.Errorf("%s: %v for 300 fields and %v for one", name, many, one)
		}
	}
}

// BenchmarkHostile prices them, and one that is none.
func BenchmarkHostile(b *testing.B) {
	p := newPricer(b, graphql.Options{MaxBreadth: graphql.MostBreadth})
	documents := hostile()
	documents["usual"] = `query Page($n: Int) { me { name posts(first: $n) { edges { cursor node { id title author { name } } } total } }
		users(first: 20) { ...Card } } fragment Card on User { id name friends(first: 5) { id name } }`
	for name, text := range documents {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = p.Document(text, "", []byte(`{"n":10}`))
			}
		})
	}
}
