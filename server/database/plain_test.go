package database_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
)

// mixedRules is many plain rules with others among them, so many that every way
// of reading is gone.
func mixedRules() []policy.Rule {
	rules := manyRules(10_500)
	for i := range rules {
		switch i % 100 {
		case 3:
			rules[i].Burst, rules[i].Name = 20, fmt.Sprint("number ", i)
		case 17:
			rules[i].Project, rules[i].Tier = "", fmt.Sprint("tier ", i)
		case 51:
			rules[i].Expires, rules[i].Mode = time.Unix(4_000_000_000+int64(i), 0).UTC(), policy.Shadow
		case 52:
			rules[i].Project = fmt.Sprintf("own project of rule %d, ünïcode", i)
		}
	}
	return append(rules, policy.Rule{Endpoint: "default", Limit: 1 << 40, Per: time.Second})
}

// What Load reads by short cuts is what the slow way reads, whatever lies where
// in the table.
func TestLoadReadsWhatTheSlowWayReads(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			d := kind.make(t)
			s := d.open(t)
			must(t, s.Import(t.Context(), tester, policy.Document{Rules: mixedRules()}, true))
			for _, change := range []string{
				"",
				// they lie elsewhere now, in PostgreSQL
				"UPDATE policies SET rps_limit = rps_limit + 1 WHERE rowid % 7 = 3",
				"DELETE FROM policies WHERE rowid % 5 = 1",
				"UPDATE policies SET burst = 77 WHERE rowid % 11 = 2",
				// most of them are not plain, and say one thing or another
				"UPDATE policies SET per_seconds = 60, mode = CASE WHEN rowid % 4 = 1 THEN 'shadow' ELSE mode END",
				"UPDATE policies SET subject = 'ip', refusal = '503' WHERE rowid % 3 = 1",
				"DELETE FROM policies WHERE rowid > 200",
				"DELETE FROM policies",
			} {
				if change != "" {
					run(t, d.shell(t), change)
				}
				want, err := s.ReadSlowly(t.Context())
				must(t, err)
				for name, s := range map[string]*database.Store{"first": d.open(t), "later": s} {
					draft := policy.NewDraft(compiled(t))
					doc, _, err := s.LoadInto(t.Context(), draft)
					must(t, err)
					checkDraft(t, draft, doc)
					if !slices.Equal(doc.Rules, want) {
						t.Fatalf("after %q, the %s Load = %d rules, want the %d of the slow way%s", change, name,
							len(doc.Rules), len(want), firstDifference(doc.Rules, want))
					}
				}
			}
		})
	}
}

// What the rows before say is not taken for what a row says: words that come and go at random, or are of another type.
func TestRowsThatSayOtherThanTheOneBefore(t *testing.T) {
	words := []string{
		"subject = 'ip'", "subject = 'project'", "subject = 'principal'", "subject = 'token:alice'",
		"algorithm = 'leaky_bucket'", "algorithm = 'fixed_window'", "algorithm = 'token_bucket'",
		"mode = 'shadow'", "mode = 'enforce'", "mode = 'block'", "mode = 'allow'",
		"scope = 'strict'", "scope = 'lease'", "scope = 'local'",
		"on_store_loss = 'open'", "on_store_loss = 'share'", "on_store_loss = 'closed'",
		"count_when = '4xx'", "count_when = NULL", "penalty = '1m'", "penalty = NULL",
		"refusal = '503'", "refusal = ''", "refusal = NULL", "priority = 'high'", "priority = ''", "priority = NULL",
		"mode = 'sing'", "algorithm = x'746f6b656e5f6275636b6574'", "scope = 7", "refusal = 503",
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			d := kind.make(t)
			s := d.open(t)
			must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(3000)}, true))
			shell := d.shell(t)
			run(t, shell, "UPDATE policies SET per_seconds = 60")
			if d.kind == "SQLite" {
				unchecked(t, d, shell)
			}
			sound, wrong := 0, 0
			for range race.Fewer(30) {
				few := 1 + rng.IntN(5)
				_, _ = shell.Exec(fmt.Sprintf("UPDATE policies SET %s WHERE rowid %% %d = %d",
					words[rng.IntN(len(words))], few, rng.IntN(few))) // the checks of the schema refuse some
				want, wantErr := s.ReadSlowly(t.Context())
				doc, _, err := s.Load(t.Context())
				if fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Fatalf("Load = %v\nwant %v", err, wantErr)
				}
				if err != nil {
					wrong++
					run(t, shell, "UPDATE policies SET subject = 'principal', algorithm = 'token_bucket', "+
						"mode = 'enforce', scope = 'local', refusal = NULL, count_when = NULL, penalty = NULL, "+
						"priority = NULL WHERE rowid % 3 > 0", "UPDATE policies SET mode = 'shadow', "+
						"algorithm = 'leaky_bucket', scope = 'strict', refusal = NULL, subject = 'ip', "+
						"count_when = NULL, penalty = NULL, priority = NULL WHERE rowid % 3 = 0")
					continue
				}
				if sound++; !slices.Equal(doc.Rules, want) {
					t.Fatalf("Load = %d rules, want the %d of the slow way%s", len(doc.Rules), len(want),
						firstDifference(doc.Rules, want))
				}
			}
			t.Logf("%d loads were sound and %d were not", sound, wrong)
			if sound == 0 {
				t.Error("no load was sound, want some")
			}
		})
	}
}

// The rules of a table so large that a cache does not keep them are in force as the
// slow way reads them, and so they are in the last good copy.
func TestLargeTableInForce(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			d := kind.make(t)
			s := d.open(t)
			must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(20_000)}, true))
			last := filepath.Join(t.TempDir(), "last-good.json")
			options := compiled(t)
			options.Now = time.Time{}
			c, err := policy.NewCache(policy.CacheOptions{Source: s, Compile: options, LastGood: last})
			must(t, err)
			for _, change := range []string{
				"",
				"UPDATE policies SET rps_limit = rps_limit + 1 WHERE rowid % 7 = 3",
				"UPDATE policies SET burst = 5000 WHERE rowid % 3 = 1", // some are below the cost of no endpoint
				"UPDATE policies SET subject = 'identifier' WHERE rowid = 12",
				"UPDATE policies SET subject = 'principal', burst = NULL",
			} {
				if change != "" {
					run(t, d.shell(t), change)
				}
				must(t, c.Reload(t.Context()))
				rules, err := s.ReadSlowly(t.Context())
				must(t, err)
				want, problems := policy.Compile(policy.Document{Rules: rules}, compiled(t))
				if want == nil || c.Set().Version() != want.Version() || c.Set().Len() != want.Len() {
					t.Fatalf("after %q, %d rules are in force, want the %d of the slow way, with %v", change,
						c.Set().Len(), len(rules), problems)
				}
				if kept, err := policy.LastGood(last); err != nil ||
					kept.Fingerprint() != (policy.Document{Rules: rules}).Fingerprint() {
					t.Fatalf("after %q, the last good copy has %d rules, %v, want the %d of the slow way", change,
						len(kept.Rules), err, len(rules))
				}
			}
		})
	}
}

// compiled is how the rules of this file are compiled: some of their endpoints are known.
func compiled(t testing.TB) policy.CompileOptions {
	t.Helper()
	var templates []endpoint.Template
	for i := range 990 {
		known, err := endpoint.ParseTemplate(fmt.Sprintf("GET /v1/r%d/{id}", i))
		must(t, err)
		templates = append(templates, known)
	}
	endpoints, err := endpoint.Compile(templates, endpoint.Profile{})
	must(t, err)
	return policy.CompileOptions{Endpoints: endpoints, Now: time.Unix(1_800_000_000, 0)}
}

// checkDraft: what was compiled while it was read is what is compiled of the whole.
func checkDraft(t *testing.T, draft *policy.Draft, doc policy.Document) {
	t.Helper()
	want, wantProblems := policy.Compile(doc, compiled(t))
	got, problems := draft.Compile(doc)
	if got == nil || want == nil || got.Version() != want.Version() || got.Len() != want.Len() ||
		!reflect.DeepEqual(problems, wantProblems) {
		t.Errorf("compiled while it was read, %d rules are %v with\n%v\nwant %v with\n%v", len(doc.Rules), got != nil,
			problems, want != nil, wantProblems)
	}
}

func firstDifference(got, want []policy.Rule) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("; rules[%d] = %+v, want %+v", i, got[i], want[i])
		}
	}
	return ""
}

// Values that no rule has are reported by the short cuts in the same words.
func TestLoadReportsWhatTheSlowWayReports(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			d := kind.make(t)
			s := d.open(t)
			must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(10_500)}, true))
			shell := d.shell(t)
			unchecked(t, d, shell, "rps_limit", "mode")
			if d.kind == "SQLite" {
				run(t, shell, "UPDATE policies SET endpoint = x'00ff' WHERE rowid = 10000",
					"UPDATE policies SET project_id = x'00ff' WHERE rowid = 3")
			}
			run(t, shell, "UPDATE policies SET rps_limit = -7 WHERE rowid IN (5, 7000, 10499)")
			for _, change := range []string{"", "UPDATE policies SET burst = 9 WHERE rowid % 5 > 0",
				"UPDATE policies SET mode = 'sing' WHERE rowid IN (7, 8, 9000)"} {
				if change != "" {
					run(t, shell, change)
				}
				_, want := s.ReadSlowly(t.Context())
				for name, s := range map[string]*database.Store{"first": d.open(t), "later": s} {
					_, _, err := s.LoadInto(t.Context(), policy.NewDraft(compiled(t)))
					if err == nil || want == nil || err.Error() != want.Error() {
						t.Errorf("after %q, the %s Load = %v\nwant %v", change, name, err, want)
					}
				}
			}
		})
	}
}

// A column of another type is read the slow way too.
func TestLoadOfAnAlteredColumn(t *testing.T) {
	d := kinds[1].make(t)
	s := d.open(t)
	must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(10)}, true))
	run(t, d.shell(t), "ALTER TABLE policies ALTER COLUMN rps_limit TYPE integer")
	doc, _, err := d.open(t).Load(t.Context()) // connections that know the old type complain once
	must(t, err)
	if !reflect.DeepEqual(doc.Rules, manyRules(10)) {
		t.Errorf("Load = %v, want the rules that were written", doc.Rules)
	}
}

// Every load sees all of a transaction or none of it, however it reads.
func TestLoadUnderChangesSeesOneState(t *testing.T) {
	d := kinds[0].make(t)
	s := d.open(t)
	must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(12_000)}, true))
	shell := d.shell(t)
	for range race.Fewer(10) {
		first := d.open(t)
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for {
				if _, err := shell.Exec("UPDATE policies SET rps_limit = rps_limit + 1"); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		doc, _, err := first.Load(t.Context())
		close(stop)
		writer.Wait()
		must(t, err)
		for _, r := range doc.Rules {
			if r.Limit != doc.Rules[0].Limit {
				t.Fatalf("one Load = limits %d and %d, want one state", doc.Rules[0].Limit, r.Limit)
			}
		}
		must(t, first.Close())
	}
}

// SQLite does not count rules whose numbers have no gaps, and counts the others.
func TestAboutHowManyRules(t *testing.T) {
	d := kinds[0].make(t)
	s, shell := d.open(t), d.shell(t)
	check := func(what string, want int64) {
		t.Helper()
		got, err := s.About(t.Context())
		must(t, err)
		if got != want {
			t.Errorf("%s: about %d rules, want %d", what, got, want)
		}
	}
	check("none", 0)
	must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(1)}, true))
	check("one", 1)
	must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(1000)}, true))
	check("without a gap", 1000)
	run(t, shell, "DELETE FROM policies WHERE rowid BETWEEN 300 AND 400")
	check("with a long gap", 899)
	run(t, shell, "DELETE FROM policies WHERE rowid % 2 = 0")
	check("every other one", 450)
	run(t, shell, "UPDATE policies SET rowid = CASE rowid WHEN 1 THEN -9223372036854775807 ELSE "+
		"9223372036854775807 END WHERE rowid IN (1, 999)")
	check("as far apart as can be", 450)
}

func TestArrange(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 50 {
		ids := make([]int64, n)
		rules := make([]policy.Rule, n)
		for i, p := range random.Perm(n) {
			ids[i] = int64(p * 3)
			rules[i].Limit = ids[i]
		}
		database.Arrange(rules, ids)
		if !slices.IsSortedFunc(rules, func(a, b policy.Rule) int { return int(a.Limit - b.Limit) }) {
			t.Fatalf("Arrange of ids %v = %v, want them ascending", ids, rules)
		}
	}
}

// However many texts are read, so many are kept.
func TestRecentIsBounded(t *testing.T) {
	for rows, want := range map[int]int{0: 64, 100: 256, 1_000_000_000: 16384} {
		if got := database.RecentSlots(rows); got != want {
			t.Errorf("after %d rows %d texts are kept, want %d", rows, got, want)
		}
	}
}
