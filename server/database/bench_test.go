package database_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
)

// BenchmarkLoad reads all rules of a warm database of 1,000 endpoints.
func BenchmarkLoad(b *testing.B) {
	for _, kind := range kinds {
		for _, rules := range []int{1_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, rules), func(b *testing.B) {
				s := kind.make(b).open(b)
				must(b, s.Import(b.Context(), tester, policy.Document{Rules: manyRules(rules)}, true))
				b.ReportAllocs()
				for b.Loop() {
					doc, _, err := s.Load(b.Context())
					if err != nil || len(doc.Rules) != rules {
						b.Fatal(len(doc.Rules), err)
					}
				}
			})
		}
	}
}

// BenchmarkFirstLoad is what a start waits for: a database opened, and all rules
// of it read.
func BenchmarkFirstLoad(b *testing.B) {
	for _, kind := range kinds {
		for _, rules := range []int{1_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, rules), func(b *testing.B) {
				d := kind.make(b)
				must(b, d.open(b).Import(b.Context(), tester, policy.Document{Rules: manyRules(rules)}, true))
				b.ReportAllocs()
				for b.Loop() {
					s, err := database.Open(b.Context(), d.dsn)
					must(b, err)
					doc, _, err := s.Load(b.Context())
					if err != nil || len(doc.Rules) != rules {
						b.Fatal(len(doc.Rules), err)
					}
					must(b, s.Close())
				}
			})
		}
	}
}

// BenchmarkImport writes a document in place of all rules: into an empty
// database, when nothing is different, when one rule in a hundred is, and when
// all are.
func BenchmarkImport(b *testing.B) {
	for _, kind := range kinds {
		for _, rules := range []int{100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, rules), func(b *testing.B) { benchmarkImport(b, kind.make, rules) })
		}
	}
}

func benchmarkImport(b *testing.B, someDatabase func(testing.TB) someDatabase, n int) {
	doc := policy.Document{Rules: manyRules(n)}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s := someDatabase(b).open(b)
			b.StartTimer()
			must(b, s.Import(b.Context(), tester, doc, true))
		}
	})
	s := someDatabase(b).open(b)
	must(b, s.Import(b.Context(), tester, doc, true))
	for _, c := range []struct {
		name  string
		every int
	}{{"same", 0}, {"hundredth", 100}, {"all", 1}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				for i := range doc.Rules {
					if c.every > 0 && i%c.every == 0 {
						doc.Rules[i].Limit++
					}
				}
				must(b, s.Import(b.Context(), tester, doc, true))
			}
		})
	}
}

// BenchmarkSet is one change, on the disk before it returns.
func BenchmarkSet(b *testing.B) {
	s := open(b)
	must(b, s.Import(b.Context(), tester, policy.Document{Rules: manyRules(100_000)}, true))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		must(b, s.Set(b.Context(), tester, policy.Rule{Endpoint: "GET /v1/r7/{id}", Project: "p50",
			Limit: int64(i + 1)}))
	}
}

// BenchmarkVersion is one look for changes.
func BenchmarkVersion(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			s := kind.make(b).open(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Version(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTold is the time from a change to the notification of it, on
// PostgreSQL.
func BenchmarkTold(b *testing.B) {
	s := kinds[1].make(b).open(b)
	told := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(b.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() { s.Watch(ctx, func() { told <- struct{}{} }) })
	<-told
	for i := 0; b.Loop(); i++ {
		must(b, s.Set(b.Context(), tester, policy.Rule{Endpoint: "GET /a", Limit: int64(i + 1)}))
		<-told
	}
	stop()
	watcher.Wait()
}
