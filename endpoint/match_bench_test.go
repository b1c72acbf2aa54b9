package endpoint_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

type request struct{ method, target string }

// requests are one for each template, with parameters of 11 bytes, then with a suffix.
func requests(table *endpoint.Table, suffix string) (all []request) {
	for _, template := range table.All() {
		all = append(all, request{template.Method(), fill(template, "cus_1234567") + suffix})
	}
	return all
}

// benchmarkMatch cycles over requests, so that no branch predictor learns one path by heart.
func benchmarkMatch(b *testing.B, table *endpoint.Table, all []request, wanted endpoint.Status) {
	bytes := 0
	for _, r := range all {
		bytes += len(r.target)
		if m := table.Match(r.method, r.target); m.Status != wanted {
			b.Fatalf("Match(%q, %q) = %v, want %v", r.method, r.target, m.Status, wanted)
		}
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		table.Match(all[i].method, all[i].target)
		if i++; i == len(all) {
			i = 0
		}
	}
	b.ReportMetric(float64(bytes)/float64(len(all)), "bytes/target")
}

func documents(b *testing.B) map[string]*endpoint.Table {
	return map[string]*endpoint.Table{
		"templates=594":  compile(b, endpoint.Profile{}, operations(b, "stripe")...),
		"templates=1272": compile(b, endpoint.Profile{}, operations(b, "petstore", "stripe", "digitalocean")...),
	}
}

func BenchmarkMatchHit(b *testing.B) {
	for name, table := range documents(b) {
		b.Run(name, func(b *testing.B) { benchmarkMatch(b, table, requests(table, ""), endpoint.Known) })
	}
}

func BenchmarkMatchDirty(b *testing.B) {
	for name, table := range documents(b) {
		b.Run(name, func(b *testing.B) {
			all := requests(table, "//")
			for i := range all {
				all[i].target = "//%2E" + all[i].target
			}
			benchmarkMatch(b, table, all, endpoint.Known)
		})
	}
}

func BenchmarkMatchMiss(b *testing.B) {
	for name, table := range documents(b) {
		b.Run(name, func(b *testing.B) {
			// As many scanners as templates: 40 bytes that resemble something at every depth.
			var all []request
			for i, r := range requests(table, "") {
				segments := strings.Split(r.target, "/")
				segments[1+i%(len(segments)-1)] = "nothing"
				if target := strings.Join(segments, "/"); table.Match("GET", target).Status == endpoint.UnknownPath {
					all = append(all, request{"GET", target})
				}
			}
			benchmarkMatch(b, table, all, endpoint.UnknownPath)
		})
	}
}

func BenchmarkMatchMissDeep(b *testing.B) {
	table, path := deep(b)
	benchmarkMatch(b, table, []request{{"GET", path}}, endpoint.UnknownPath)
}

func BenchmarkMatchParallel(b *testing.B) {
	table := documents(b)["templates=1272"]
	all := requests(table, "")
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			table.Match(all[i%len(all)].method, all[i%len(all)].target)
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	templates := operations(b, "petstore", "stripe", "digitalocean")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := endpoint.Compile(templates, endpoint.Profile{}); err != nil {
			b.Fatal(err)
		}
	}
}
