package database_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// A change by SQL of so many rules that to number it would keep a load waiting
// comes into force first, and gets its number meanwhile.
func TestLargeChangesAreNumberedLater(t *testing.T) { everywhere(t, testLargeChangesAreNumberedLater) }

func testLargeChangesAreNumberedLater(t *testing.T, d someDatabase) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	const rules = database.NumberedSoon/2 + 1 // each leaves two images
	must(t, s.Import(ctx, tester, policy.Document{Rules: manyRules(rules)}, true))
	load := func(limit string) (number int64, version string) {
		t.Helper()
		run(t, db, "UPDATE policies SET rps_limit = "+limit)
		doc, version, err := s.Load(ctx)
		must(t, err)
		if len(doc.Rules) != rules {
			t.Fatalf("Load has %d rules, want %d", len(doc.Rules), rules)
		}
		return doc.Number, version
	}
	number, version := load("7")
	if number != 0 {
		t.Errorf("Load's version is %d, want 0: it is too large a change to be numbered first", number)
	}
	if id, err := s.NumberOf(ctx, "another"); err != nil || id != 0 {
		t.Errorf("NumberOf what is not there = %d, %v, want 0", id, err)
	}
	await(t, func() bool {
		id, err := s.NumberOf(ctx, version)
		must(t, err)
		return id == 3
	})
	s.AwaitLater() // it may have been begun once more, and would number the next change
	if v, err := s.Current(ctx); err != nil || v.ID != 3 || v.Changed != rules || v.Added+v.Removed != 0 ||
		v.Action != record.ActionSQL {
		t.Errorf("Current = %+v, %v, want version 3, of %d changes", v, err, rules)
	}
	if number, version = load("8"); number != 0 {
		t.Errorf("Load's version is %d, want 0 again", number)
	}
	readOnly := openDSN(t, database.Options{DSN: d.dsn, ReadOnly: true, NoNotify: d.quiet})
	if id, err := readOnly.NumberOf(ctx, version); err != nil || id != 0 {
		t.Errorf("NumberOf of who may only read = %d, %v, want 0", id, err)
	}
	must(t, s.Number(ctx))
	for _, s := range []*database.Store{s, readOnly} {
		if id, err := s.NumberOf(ctx, version); err != nil || id != 4 {
			t.Errorf("NumberOf = %d, %v, want 4", id, err)
		}
	}
}

// Who reads pages of rules after such a change learns their version with the
// first of them: that is what the next change is made from.
func TestPagesOfALargeChangeHaveANumber(t *testing.T) {
	everywhere(t, func(t *testing.T, d someDatabase) {
		s, ctx, db := d.open(t), t.Context(), d.shell(t)
		must(t, s.Import(ctx, tester, policy.Document{Rules: manyRules(database.NumberedSoon/2 + 1)}, true))
		run(t, db, "UPDATE policies SET rps_limit = 7")
		if page, err := s.Page(ctx, 0, 10); err != nil || page.Number != 3 {
			t.Errorf("the first page is of version %d, %v, want 3", page.Number, err)
		}
		run(t, db, "UPDATE policies SET rps_limit = 8")
		if _, number, err := s.Projects(ctx, "", 10); err != nil || number != 4 {
			t.Errorf("the first projects are of version %d, %v, want 4", number, err)
		}
	})
}

// await waits for what another goroutine does.
func await(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing came of it within a minute")
		}
	}
}

// What others change while changes are read belongs to a version all the same.
func TestChangesWhileOthersAreNumbered(t *testing.T) {
	everywhere(t, testChangesWhileOthersAreNumbered)
}

func testChangesWhileOthersAreNumbered(t *testing.T, d someDatabase) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	must(t, s.Set(ctx, ann, items(5)))
	for _, c := range []struct {
		what    string
		between func()
		want    string // the versions that come of it
	}{
		{"nothing", func() {}, "sql +0 ~1 -0"},
		{"the shell goes on", func() {
			run(t, db, "INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /b', 1)")
		}, "sql +1 ~1 -0"},
		{"the shell takes it back", func() {
			run(t, db, "UPDATE policies SET rps_limit = rps_limit - 1 WHERE endpoint <> 'GET /b'")
		}, "sql +0 ~0 -0"},
		{"headgate changes a rule", func() { must(t, s.Set(ctx, ann, policy.Rule{Endpoint: "GET /c", Limit: 1})) },
			"sql +0 ~1 -0, set +1 ~0 -0"},
		{"another has numbered it", func() { must(t, s.Number(ctx)) }, "sql +0 ~1 -0"},
	} {
		before, err := s.Current(ctx)
		must(t, err)
		run(t, db, "UPDATE policies SET rps_limit = rps_limit + 1 WHERE endpoint = 'GET /v1/items/{id}'")
		must(t, s.NumberAmid(ctx, c.between))
		if got := versionsSince(t, s, before.ID); got != c.want {
			t.Errorf("%s: versions %q, want %q", c.what, got, c.want)
		}
	}
	checkReproducible(t, s)
}

// versionsSince lists what was done and the counts, oldest first.
func versionsSince(t *testing.T, s *database.Store, since int64) (text string) {
	t.Helper()
	list, err := s.History(context.WithoutCancel(t.Context()), 0, 100)
	must(t, err)
	for _, v := range list {
		if v.ID > since {
			text = fmt.Sprintf("%s +%d ~%d -%d, %s", v.Action, v.Added, v.Changed, v.Removed, text)
		}
	}
	return text[:max(0, len(text)-2)]
}
