package policy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
)

// restarted is a Predecessor as the next process reads it.
func restarted(t testing.TB, s *Set, now int64) *Predecessor {
	t.Helper()
	var file bytes.Buffer
	if err := s.Save(&file, now, now); err != nil {
		t.Fatal(err)
	}
	p, err := ReadPredecessor(&file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func pastText(p *rate.Past) (text string) {
	for ; p != nil; p = p.Before {
		text += fmt.Sprintf(" %+v", rate.Past{Shape: p.Shape, Since: p.Since, Window: p.Window, Spent: p.Spent})
	}
	return text
}

// TestPredecessorIsPrevious: Sets of processes that were stopped and started between any two changes know as much of
// what was before as those of one that never stopped.
func TestPredecessorIsPrevious(t *testing.T) {
	for seed := range race.Fewer(uint64(20)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
		var one, other *Set
		algorithms := []Algorithm{TokenBucket, TokenBucket, TokenBucket, LeakyBucket, FixedWindow,
			SlidingWindow, SlidingLog}
		for step := range 60 {
			now = now.Add(time.Duration(rng.Int64N(int64(20 * time.Second))))
			doc := Document{Projects: map[string]string{}, Rules: []Rule{{Endpoint: Default, Limit: 100}}}
			for n := range 6 {
				if rng.IntN(4) == 0 {
					continue // it is gone, or was never there
				}
				rule := Rule{
					Endpoint:  Default,
					Project:   fmt.Sprint("p", n),
					Limit:     1 + rng.Int64N(3),
					Per:       time.Duration(1+rng.IntN(20)) * time.Second,
					Algorithm: algorithms[rng.IntN(len(algorithms))],
				}
				doc.Rules = append(doc.Rules, rule)
				if tier := rng.IntN(3); tier > 0 {
					doc.Projects[rule.Project] = fmt.Sprint("t", tier)
				}
				if rng.IntN(3) == 0 {
					rule.Limit, rule.Expires = 9, now.Add(time.Duration(1+rng.IntN(30))*time.Second)
					doc.Rules = append(doc.Rules, rule)
				}
			}
			doc.Rules = append(doc.Rules, Rule{
				Endpoint: Default,
				Tier:     "t1",
				Limit:    1 + rng.Int64N(3),
				Per:      time.Minute,
			}, Rule{Endpoint: Default, Tier: "t2", Limit: 2, Per: time.Minute})
			options := CompileOptions{Now: now, Previous: one}
			next, problems := Compile(doc, options)
			if next == nil {
				t.Fatal(problems)
			}
			options.Previous = other
			if other != nil && rng.IntN(2) == 0 {
				options.Previous, options.Predecessor = nil, restarted(t, other, options.Now.UnixNano())
			}
			if other, problems = Compile(doc, options); other == nil {
				t.Fatal(problems)
			}
			one = next
			if one.Since() != other.Since() || one.Settled(one.Since()) != other.Settled(one.Since()) {
				t.Errorf("seed %d, step %d: since %d until %d, want %d until %d", seed, step, other.Since(),
					other.Settled(one.Since()), one.Since(), one.Settled(one.Since()))
			}
			for id := range RuleID(one.Len()) {
				want, got := one.Terms(id), other.Terms(id)
				if a, b := pastText(want.Before), pastText(got.Before); want.Since != got.Since ||
					want.ID != got.ID || a != b {
					t.Fatalf("seed %d, step %d, rule %d: since %d after%s, want %d after%s", seed, step, id, got.Since,
						b, want.Since, a)
				}
			}
			if want, got := movesText(one), movesText(other); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, step %d: moves %v, want %v", seed, step, got, want)
			}
			if want, got := one.former, other.former; len(want.rules) != len(got.rules) ||
				want.unknownUntil != got.unknownUntil {
				t.Fatalf("seed %d, step %d: remembers %d rules, want %d", seed, step, len(got.rules), len(want.rules))
			}
		}
	}
}

func movesText(s *Set) map[string]string {
	all := map[string]string{}
	for n, m := range s.moves {
		text := fmt.Sprint(m.first, m.since, m.until)
		for _, tier := range m.tiers {
			text += " " + string(s.tiers.name(tier))
		}
		all[string(s.projects.name(n))] = text
	}
	return all
}

// TestReadPredecessorRefuses what does not fit together.
func TestReadPredecessorRefuses(t *testing.T) {
	set, problems := Compile(Document{Rules: []Rule{{Endpoint: Default, Limit: 100}}}, CompileOptions{})
	if set == nil {
		t.Fatal(problems)
	}
	var file bytes.Buffer
	if err := set.Save(&file, 1, 1); err != nil {
		t.Fatal(err)
	}
	for n := range file.Len() {
		if _, err := ReadPredecessor(bytes.NewReader(file.Bytes()[:n])); err == nil {
			t.Errorf("%d of %d bytes were read", n, file.Len())
		}
	}
}

// FuzzReadPredecessor: whatever is read, the next Set compiles.
func FuzzReadPredecessor(f *testing.F) {
	doc := Document{
		Rules:    []Rule{{Endpoint: Default, Limit: 100}, {Endpoint: Default, Project: "p", Limit: 3}},
		Projects: map[string]string{"p": "t"},
	}
	set, _ := Compile(doc, CompileOptions{})
	var file bytes.Buffer
	if err := set.Save(&file, 1, 1); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := ReadPredecessor(bytes.NewReader(text)); err == nil {
			Compile(doc, CompileOptions{Predecessor: p})
		}
	})
}
