package policy_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// bigEndpoints is the number of endpoints in the documents of bigDocument.
const bigEndpoints = 1000

func bigTemplate(i int) string { return fmt.Sprintf("GET /v1/service%d/items/{id}", i%bigEndpoints) }

func bigProject(i int) string { return fmt.Sprintf("project-%d", i) }

// bigDocument is n rules: three for everybody, and the rest for one endpoint
// and one project each, three subjects a pair.
func bigDocument(n int) policy.Document {
	every := []policy.Subject{policy.SubjectPrincipal, policy.SubjectIP, policy.SubjectProject}
	doc := policy.Document{Projects: map[string]string{}}
	for _, s := range every {
		doc.Rules = append(doc.Rules, policy.Rule{Endpoint: policy.Default, Limit: 10, Subject: s})
	}
	doc.Rules = append(doc.Rules, policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 1})
	templates, projects := make([]string, bigEndpoints), make([]string, (n+3)/3/bigEndpoints+11)
	for i := range templates {
		templates[i] = bigTemplate(i)
	}
	for i := range projects {
		projects[i] = bigProject(i)
	}
	for i := 0; len(doc.Rules) < n; i++ {
		doc.Rules = append(doc.Rules, policy.Rule{
			Endpoint: templates[i/3%bigEndpoints], Project: projects[i/3/bigEndpoints],
			Subject: every[i%3], Limit: int64(100 + i%50),
		})
	}
	return doc
}

// flatDocument is n rules, each for a project of its own.
func flatDocument(n int) policy.Document {
	doc := policy.Document{}
	for i := range n {
		doc.Rules = append(doc.Rules, policy.Rule{Endpoint: bigTemplate(i), Project: bigProject(i), Limit: 100})
	}
	return doc
}

func bigTable(t testing.TB) *endpoint.Table {
	t.Helper()
	texts := make([]string, bigEndpoints)
	for i := range texts {
		texts[i] = bigTemplate(i)
	}
	return table(t, texts...)
}

var sizes = []struct {
	name  string
	rules int
}{{"1k", 1_000}, {"1M", 1_000_000}}

// BenchmarkResolve finds three subjects' rules at one level, with few and with
// many rules.
func BenchmarkResolve(b *testing.B) {
	for _, size := range sizes {
		endpoints := bigTable(b)
		set := compile(b, bigDocument(size.rules), policy.CompileOptions{Endpoints: endpoints})
		last := set.Rule(policy.RuleID(set.Len() - 1))
		cases := []struct {
			name, endpoint, project, tier string
			status                        endpoint.Status
		}{
			{name: "exact", endpoint: last.Endpoint, project: last.Project},
			{name: "default", endpoint: bigTemplate(7), project: "nobody"},
			{name: "anonymous", endpoint: bigTemplate(7)},
			{name: "unknown", status: endpoint.UnknownPath},
		}
		for _, c := range cases {
			b.Run(c.name+"/"+size.name, func(b *testing.B) {
				m := endpoint.Match{Status: c.status}
				if c.endpoint != "" {
					m.Status, m.ID = endpoint.Known, lookup(b, endpoints, c.endpoint)
				}
				dst := make([]policy.Applied, 0, policy.MaxApplied)
				b.ReportAllocs()
				for b.Loop() {
					dst = set.Resolve(dst[:0], 1, m, c.project, c.tier)
				}
			})
		}
	}
}

// BenchmarkResolveSpread asks for another rule of the million each time, so
// that memory, not the processor's cache, answers.
func BenchmarkResolveSpread(b *testing.B) {
	endpoints := bigTable(b)
	set := compile(b, flatDocument(1_000_000), policy.CompileOptions{Endpoints: endpoints})
	projects, ids := make([]string, 1<<16), make([]endpoint.ID, 1<<16)
	for i := range projects {
		n := i * 7919 % 1_000_000
		projects[i], ids[i] = bigProject(n), lookup(b, endpoints, bigTemplate(n))
	}
	dst := make([]policy.Applied, 0, policy.MaxApplied)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 1) & (1<<16 - 1)
		dst = set.Resolve(dst[:0], 1, endpoint.Match{Status: endpoint.Known, ID: ids[i]}, projects[i], "")
	}
}

// BenchmarkCompile also reports how many bytes a rule takes in the Set.
func BenchmarkCompile(b *testing.B) {
	cases := []struct {
		name string
		doc  func(int) policy.Document
		n    int
	}{
		{"100k", bigDocument, 100_000},
		{"1M", bigDocument, 1_000_000},
		{"1M_projects", flatDocument, 1_000_000},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			o := policy.CompileOptions{Endpoints: bigTable(b), Now: time.Unix(1_800_000_000, 0)}
			doc := c.doc(c.n)
			var set *policy.Set
			before := heap()
			set, _ = policy.Compile(doc, o)
			bytes := heap() - before
			o.Previous = set
			b.ReportAllocs()
			for b.Loop() {
				set, _ = policy.Compile(doc, o)
			}
			b.ReportMetric(float64(bytes)/float64(set.Len()), "bytes/rule")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
