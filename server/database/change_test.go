package database_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

func TestVersionMovesWithEveryChange(t *testing.T) { everywhere(t, testVersionMovesWithEveryChange) }

func testVersionMovesWithEveryChange(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	other := d.open(t)
	db := d.shell(t)
	digester := newDigester(t)
	var id string
	type change struct {
		name string
		do   func() error
	}
	changes := []change{
		{"Set", func() error { return s.Set(ctx, tester, full) }},
		{"SetTier", func() error { return s.SetTier(ctx, tester, "p", "t") }},
		{"CreateKey", func() error {
			key, _, err := s.CreateKey(ctx, digester, record.NewAPIKey{})
			id = key.ID
			return err
		}},
		{"RevokeKey", func() error { return s.RevokeKey(ctx, id) }},
		{"Import", func() error { return s.Import(ctx, tester, policy.Document{Rules: []policy.Rule{full}}, true) }},
		{"Delete", func() error { return s.Delete(ctx, tester, record.KeyOf(full)) }},
		{"another Store", func() error { return other.Set(ctx, tester, full) }},
		{"the shell", func() error {
			_, err := db.ExecContext(ctx, `UPDATE policies SET rps_limit = 9`)
			return err
		}},
		{"SetTier", func() error { return s.SetTier(ctx, tester, "p", "t") }},
		{"the shell's deletion", func() error {
			_, err := db.ExecContext(ctx, `DELETE FROM projects`)
			return err
		}},
		{"SetTier", func() error { return s.SetTier(ctx, tester, "p", "t") }},
	}
	before, err := s.Version(ctx)
	must(t, err)
	if d.kind == "SQLite" {
		changes = append(changes, change{"the shell's schema change", func() error {
			_, err := db.ExecContext(ctx, `CREATE VIEW v AS SELECT * FROM policies`)
			return err
		}})
	}
	for _, c := range changes {
		if again, err := s.Version(ctx); err != nil || again != before {
			t.Errorf("before %s, with no change: Version = %q, %v, want %q", c.name, again, err, before)
		}
		must(t, c.do())
		after, err := s.Version(ctx)
		if err != nil || after == before {
			t.Errorf("after %s: Version = %q, %v, want another one than before", c.name, after, err)
		}
		before = after
	}
	if _, version, err := s.Load(ctx); err != nil || version != before {
		t.Errorf("Load's version = %q, %v, want %q", version, err, before)
	}
	if version, err := other.Version(ctx); err != nil || version != before {
		t.Errorf("another Store's Version = %q, %v, want %q: replicas are compared by it", version, err, before)
	}
}

// What gateways do not read wakes none of them: they would load a million rules
// for every line of the audit.
func TestVersionStaysWhenNoRuleChanges(t *testing.T) {
	everywhere(t, testVersionStaysWhenNoRuleChanges)
}

func testVersionStaysWhenNoRuleChanges(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Set(ctx, tester, full))
	before, err := s.Version(ctx)
	must(t, err)
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"the audit", func() error {
			_, err := s.Append(ctx, record.Audit{Actor: "local", Action: record.ActionReset})
			return err
		}},
		{"a replica's word", func() error { return s.Report(ctx, record.Replica{Name: "a", Process: "1"}, false) }},
		{"a replica's next", func() error { return s.Report(ctx, record.Replica{Name: "a", Process: "1"}, true) }},
		{"a replica's last", func() error { return s.Leave(ctx, "a", "1") }},
	} {
		must(t, c.do())
		if after, err := s.Version(ctx); err != nil || after != before {
			t.Errorf("after %s: Version = %q, %v, want %q", c.name, after, err, before)
		}
	}
}

// The connection that watches a file dies, and what was changed meanwhile is
// seen by the next one.
func TestWatchDies(t *testing.T) {
	s, ctx := open(t), t.Context()
	before, err := s.Version(ctx)
	must(t, err)
	s.BreakWatch()
	if after, err := s.Version(ctx); err != nil || after != before {
		t.Errorf("Version = %q, %v, want %q: nothing has changed", after, err, before)
	}
	must(t, s.Set(ctx, tester, full))
	s.BreakWatch()
	if after, err := s.Version(ctx); err != nil || after == before {
		t.Errorf("Version after a change = %q, %v, want another one", after, err)
	}
}

// A change in two tables is seen whole or not at all.
func TestLoadSeesWholeTransactions(t *testing.T) { everywhere(t, testLoadSeesWholeTransactions) }

func testLoadSeesWholeTransactions(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	db := d.shell(t)
	run(t, db, `INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /a', 1), ('GET /b', 1)`,
		`INSERT INTO projects (project_id, tier) VALUES ('p', 't1')`)
	ctx, stop := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 2; ctx.Err() == nil; n++ {
			run(t, db,
				fmt.Sprintf(`BEGIN; UPDATE policies SET rps_limit = %[1]d; UPDATE projects SET tier = 't%[1]d'; COMMIT`, n))
		}
	})
	defer writer.Wait()
	defer stop()
	changes := 0
	for last := int64(0); changes < 20; {
		doc, _, err := s.Load(ctx)
		must(t, err)
		a, b, tier := doc.Rules[0].Limit, doc.Rules[1].Limit, doc.Projects["p"]
		if a != b || tier != fmt.Sprint("t", a) {
			t.Fatalf("Load saw limits %d and %d with tier %s", a, b, tier)
		}
		if a != last {
			last = a
			changes++
		}
	}
}

func TestConcurrentWriters(t *testing.T) { everywhere(t, testConcurrentWriters) }

func testConcurrentWriters(t *testing.T, d someDatabase) {
	first, ctx := d.open(t), t.Context()
	second := d.open(t)
	const writers, each = 4, 25
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			s := first
			if w%2 == 1 {
				s = second
			}
			for i := range each {
				if err := s.Set(ctx, tester, policy.Rule{Endpoint: fmt.Sprintf("GET /w%d/%d", w, i),
					Limit: 1}); err != nil {
					t.Errorf("Set: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for _, s := range []*database.Store{first, second} {
		if rules, err := s.List(ctx); err != nil || len(rules) != writers*each {
			t.Errorf("List = %d rules, %v, want %d", len(rules), err, writers*each)
		}
	}
}

// Processes that start together on a new file get one schema.
func TestConcurrentOpen(t *testing.T) {
	everywhere(t, testConcurrentOpen)
	for range 2 { // where processes meet in a file, once is not often
		testConcurrentOpen(t, kinds[0].make(t))
	}
}

func testConcurrentOpen(t *testing.T, d someDatabase) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := database.New(t.Context(), d.options())
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	wg.Wait()
	s := d.open(t)
	must(t, s.Check(t.Context()))
	must(t, s.Set(t.Context(), tester, full))
}

func TestOpenTwiceChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s, err := database.Open(t.Context(), "sqlite:"+path)
	must(t, err)
	must(t, s.Set(t.Context(), tester, full))
	must(t, s.Close())
	must(t, s.Close())
	if err := s.Set(t.Context(), tester, full); err == nil || !strings.Contains(err.Error(), "is closed") {
		t.Errorf("Set after Close = %v, want a refusal", err)
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, want 0600", info.Mode().Perm())
	}
	before, err := os.ReadFile(path)
	must(t, err)
	s, err = database.Open(t.Context(), "sqlite:"+path)
	must(t, err)
	must(t, s.Close())
	after, err := os.ReadFile(path)
	must(t, err)
	if string(before) != string(after) {
		t.Error("opening an up-to-date database changed the file")
	}
}

// A path is a path, whatever is in it.
func TestOpenOddPaths(t *testing.T) {
	for _, name := range []string{"with space.db", "q?mode=ro.db", "100%.db", "a#b.db", "ä;&+.db", "file:x.db"} {
		path := filepath.Join(t.TempDir(), name)
		s := openAt(t, path)
		must(t, s.Set(t.Context(), tester, full))
		if _, err := os.Stat(path); err != nil {
			t.Errorf("Open(%q): %v", path, err)
		}
	}
}

// A file that is gone for a while is used again when it is back.
func TestMovedFileIsOpenedAgain(t *testing.T) {
	s, ctx := open(t), t.Context()
	must(t, s.Set(ctx, tester, full))
	must(t, os.Rename(s.Path(), s.Path()+".away"))
	if _, err := s.List(ctx); err == nil {
		t.Error("List without the file succeeded")
	}
	must(t, os.Rename(s.Path()+".away", s.Path()))
	if rules, err := s.List(ctx); err != nil || len(rules) != 1 {
		t.Errorf("List = %d rules, %v, want the 1 from before", len(rules), err)
	}
}

// A backup that is moved into place is read, and nothing else: what the old
// file's -wal held must not come up in it.
func TestReplacedFileIsOpenedAnew(t *testing.T) {
	s, ctx := open(t), t.Context()
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: "GET /old", Limit: 1}))
	backup := filepath.Join(t.TempDir(), "backup.db")
	b, err := database.Open(ctx, "sqlite:"+backup)
	must(t, err)
	must(t, b.Set(ctx, tester, policy.Rule{Endpoint: "GET /new", Limit: 1}))
	must(t, b.Close())
	before, err := s.Version(ctx)
	must(t, err)

	must(t, os.Rename(s.Path(), s.Path()+".away"))
	for range 2 {
		if _, err := s.Version(ctx); err == nil || !strings.Contains(err.Error(), s.Path()+": is gone, want it back") {
			t.Errorf("Version without the file = %v, want it to say so", err)
		}
	}
	if err := s.Set(ctx, tester, full); err == nil {
		t.Error("Set without the file succeeded")
	}
	must(t, os.Rename(backup, s.Path()))
	if after, err := s.Version(ctx); err != nil || after == before {
		t.Errorf("Version of the backup = %q, %v, want another one than before", after, err)
	}
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: "GET /newer", Limit: 1}))
	rules, err := s.List(ctx)
	if err != nil || len(rules) != 2 || rules[0].Endpoint != "GET /new" || rules[1].Endpoint != "GET /newer" {
		t.Errorf("List = %+v, %v, want the backup's rule and the newer one", rules, err)
	}
	must(t, s.Check(ctx))
}
