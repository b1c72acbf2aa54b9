package database_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

func TestAuditKeepsWhatItWasTold(t *testing.T) { everywhere(t, testAuditKeepsWhatItWasTold) }

func testAuditKeepsWhatItWasTold(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	want := []record.Audit{
		{ID: 2, At: at.Add(time.Second), Actor: "token ops", Claimed: "ann", Action: record.ActionGrant, Rule: "GET /a",
			Endpoint: "GET /a",
			Subject:  "principal", Whose: "api key k_1 of project acme", Amount: 500, Expires: at.Add(time.Hour)},
		{
			ID:       1,
			At:       at,
			Actor:    "local connection",
			Action:   record.ActionReset,
			Rule:     "*",
			Endpoint: "*",
			Subject:  "ip",
			Whose:    "address 192.0.2.7",
		},
	}
	for i := range want {
		a := want[len(want)-1-i]
		if id, err := s.Append(ctx, a); err != nil || id != a.ID {
			t.Fatalf("Append = %d, %v, want %d", id, err, a.ID)
		}
	}
	got, err := s.ListAudit(ctx, 10)
	must(t, err)
	if len(got) != len(want) {
		t.Fatalf("ListAudit = %+v, want %+v", got, want)
	}
	for i := range got {
		got[i].At, got[i].Expires = got[i].At.UTC(), got[i].Expires.UTC()
		if want[i].Expires.IsZero() {
			got[i].Expires = time.Time{}
		}
		if got[i] != want[i] {
			t.Errorf("entry %d = %+v, want %+v", i, got[i], want[i])
		}
	}
	if newest, err := s.ListAudit(ctx, 1); err != nil || len(newest) != 1 || newest[0].ID != 2 {
		t.Errorf("ListAudit(1) = %+v, %v, want the newest", newest, err)
	}
}

// Neither we nor a slip of the shell changes what was written.
func TestAuditIsAppendOnly(t *testing.T) {
	s, ctx := open(t), t.Context()
	if _, err := s.Append(ctx, record.Audit{Actor: "a", Action: record.ActionReset}); err != nil {
		t.Fatal(err)
	}
	db := shell(t, s.Path())
	for _, statement := range []string{"UPDATE audit SET actor = 'b'", "DELETE FROM audit"} {
		if _, err := db.ExecContext(ctx, statement); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s = %v, want a refusal", statement, err)
		}
	}
	if list, err := s.ListAudit(ctx, 10); err != nil || len(list) != 1 || list[0].Actor != "a" {
		t.Errorf("ListAudit = %+v, %v", list, err)
	}
}

func TestAuditCutsWhatIsTooLong(t *testing.T) {
	s, ctx := open(t), t.Context()
	if _, err := s.Append(ctx, record.Audit{Actor: "a", Action: record.ActionReset,
		Whose: strings.Repeat("é", 5000)}); err != nil {
		t.Fatal(err)
	}
	list, err := s.ListAudit(ctx, 1)
	must(t, err)
	if got := list[0].Whose; len(got) > 600 || !strings.HasSuffix(got, "é…") {
		t.Errorf("whose has %d bytes and ends in %q", len(got), got[len(got)-8:])
	}
}

func TestAuditThatCannotBeWritten(t *testing.T) {
	s := open(t)
	must(t, s.Close())
	if _, err := s.Append(t.Context(), record.Audit{Actor: "a", Action: record.ActionReset}); err == nil ||
		!strings.Contains(err.Error(), "write the audit") {
		t.Errorf("Append after Close = %v", err)
	}
	if _, err := open(t).Append(t.Context(), record.Audit{Action: record.ActionReset}); err == nil {
		t.Error("Append without an actor succeeds")
	}
	readOnly, err := database.OpenReadOnly(t.Context(), "sqlite:"+s.Path())
	must(t, err)
	defer readOnly.Close()
	if _, err := readOnly.Append(t.Context(), record.Audit{Actor: "a", Action: record.ActionReset}); err == nil {
		t.Error("Append to a database that is open read-only succeeds")
	}
}

func TestConcurrentAudit(t *testing.T) {
	s := open(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				if _, err := s.Append(context.Background(),
					record.Audit{Actor: "a", Action: record.ActionReset}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	list, err := s.ListAudit(t.Context(), 100)
	must(t, err)
	for i, a := range list {
		if a.ID != int64(len(list)-i) || len(list) != 40 {
			t.Fatalf("entry %d of %d has ID %d", i, len(list), a.ID)
		}
	}
}

// A database of the first version gets the table when it is opened.
func TestAuditOfAnOldDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	script, err := os.ReadFile("testdata/schema1.sql")
	must(t, err)
	run(t, shell(t, path), string(script))
	if list, err := openAt(t, path).ListAudit(t.Context(), 1); err != nil || len(list) != 0 {
		t.Errorf("ListAudit = %v, %v, want an empty table", list, err)
	}
}
