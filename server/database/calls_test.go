package database_test

import (
	"context"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

var call = record.Call{
	At:        time.Unix(1_800_000_000, 0).UTC(),
	Actor:     "token ci",
	Token:     "t_1",
	Peer:      "192.0.2.7",
	Operation: "setPolicy",
	Changes:   true,
}

func TestCalls(t *testing.T) { everywhere(t, testCalls) }

func testCalls(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	id, err := s.BeginCall(ctx, call)
	must(t, err)
	begun, err := s.ListCalls(ctx, 0, 10)
	must(t, err)
	want := call
	want.ID = id
	if !reflect.DeepEqual(begun, []record.Call{want}) {
		t.Errorf("begun: %+v, want %+v", begun, want)
	}
	want.About, want.Status, want.Took = "GET /v1/items/{id}", 200, 1500*time.Microsecond
	must(t, s.EndCall(ctx, id, want))
	look := record.Call{
		At:        call.At.Add(time.Second),
		Actor:     "local connection",
		Peer:      "127.0.0.1",
		Operation: "listPolicies",
		Status:    200,
		Took:      time.Microsecond,
	}
	must(t, s.AppendCalls(ctx, []record.Call{look, look}))
	list, err := s.ListCalls(ctx, 0, 2)
	must(t, err)
	if len(list) != 2 || list[0].ID <= list[1].ID || list[0].Operation != "listPolicies" {
		t.Fatalf("ListCalls = %+v, want the two newest", list)
	}
	before, err := s.ListCalls(ctx, list[1].ID, 10)
	must(t, err)
	if !reflect.DeepEqual(before, []record.Call{want}) {
		t.Errorf("before them: %+v, want %+v", before, want)
	}
}

// Whatever a caller names, the call is written down: with names that no database
// keeps, and without what would change a terminal.
func TestCallsAboutHostileNames(t *testing.T) { everywhere(t, testCallsAboutHostileNames) }

func testCallsAboutHostileNames(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	for about, want := range map[string]string{
		"a\xffb":                    "a\ufffdb",
		"a\x00b":                    "a\ufffdb",
		"a\x1b[2J\nb":               "a\ufffd[2J\ufffdb",
		"\u202ea":                   "\ufffda",
		"größer 漢字 🙂":               "größer 漢字 🙂",
		strings.Repeat("\x00", 600): strings.Repeat("\ufffd", 170) + "…",
	} {
		id, err := s.BeginCall(ctx, call)
		must(t, err)
		ended := call
		ended.About, ended.Status = about, 200
		must(t, s.EndCall(ctx, id, ended))
		must(t, s.AppendCalls(ctx, []record.Call{ended}))
		_, err = s.Append(ctx, record.Audit{Actor: "a", Claimed: about, Action: record.ActionReset, Whose: about})
		must(t, err)
		list, err := s.ListCalls(ctx, 0, 2)
		must(t, err)
		audit, err := s.ListAudit(ctx, 1)
		must(t, err)
		if list[0].About != want || list[1].About != want || list[1].Status != 200 || audit[0].Claimed != want ||
			audit[0].Whose != want {
			t.Errorf("about %q: %+v and %+v, want %q", about, list, audit, want)
		}
	}
}

// What was written stays as it is; how a call ended is said once.
func TestCallsAreAppendOnly(t *testing.T) { everywhere(t, testCallsAreAppendOnly) }

func testCallsAreAppendOnly(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	id, err := s.BeginCall(ctx, call)
	must(t, err)
	db := d.shell(t)
	refused := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(ctx, statement); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s = %v, want a refusal", statement, err)
		}
	}
	for _, set := range []string{"actor = 'token other'", "at = 7", "peer = '::1'", "operation = 'list'", "changes = 0",
		"token_id = NULL", "about = 'nothing'"} {
		refused("UPDATE api_calls SET " + set)
	}
	for _, set := range []string{"actor = 'token other'", "token_id = NULL"} {
		refused("UPDATE api_calls SET status = 200, micros = 1, " + set)
	}
	must(t, s.EndCall(ctx, id, record.Call{Status: 200}))
	if err := s.EndCall(ctx, id, record.Call{Status: 500}); err == nil ||
		!strings.Contains(err.Error(), "append-only") {
		t.Errorf("a second end = %v, want a refusal", err)
	}
	refused("UPDATE api_calls SET status = 403")
}

// Those who only look cannot crowd out what was changed.
func TestPruneCalls(t *testing.T) { everywhere(t, testPruneCalls) }

func testPruneCalls(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	at := time.Unix(1_800_000_000, 0).UTC()
	var calls []record.Call
	for i := range 10 {
		c := call
		c.At, c.Status, c.Changes = at.Add(time.Duration(i)*time.Hour), 200, i%3 == 0 // 0, 3, 6, 9
		calls = append(calls, c)
	}
	must(t, s.AppendCalls(ctx, calls))
	for _, step := range []struct {
		name   string
		before time.Time
		most   [2]int64 // looks, changes
		gone   int64
		left   string // their hours, newest first
	}{
		{"nothing is old", at, [2]int64{10, 10}, 0, "9876543210"},
		{"three looks are enough", at, [2]int64{3, 10}, 3, "9876530"},
		{"what is old", at.Add(4 * time.Hour), [2]int64{10, 2}, 2, "98765"},
		{"no looks at all", at, [2]int64{0, 2}, 3, "96"},
		{"one change is enough", at, [2]int64{10, 1}, 1, "9"},
		{"everything", at.Add(24 * time.Hour), [2]int64{0, 10}, 1, ""},
	} {
		gone, err := s.PruneCalls(ctx, step.before, step.most[0], step.most[1])
		must(t, err)
		list, err := s.ListCalls(ctx, 0, 100)
		must(t, err)
		left := ""
		for _, c := range list {
			left += string('0' + rune(c.At.Sub(at)/time.Hour))
		}
		if gone != step.gone || left != step.left {
			t.Errorf("%s: %d gone, left %q; want %d, %q", step.name, gone, left, step.gone, step.left)
		}
	}
}

func TestCallsAreCut(t *testing.T) {
	s, ctx := open(t), t.Context()
	long := call
	long.Actor, long.About, long.Status = strings.Repeat("a", 5000), strings.Repeat("é", 5000), 200
	must(t, s.AppendCalls(ctx, []record.Call{long}))
	list, err := s.ListCalls(ctx, 0, 1)
	must(t, err)
	if len(list[0].Actor) > 600 || len(list[0].About) > 600 {
		t.Errorf("actor of %d bytes, about of %d, want them cut", len(list[0].Actor), len(list[0].About))
	}
}

func TestCallsThatCannotBeWritten(t *testing.T) {
	s := open(t)
	must(t, s.Close())
	ctx := context.Background()
	_, errBegin := s.BeginCall(ctx, call)
	for name, err := range map[string]error{
		"BeginCall":   errBegin,
		"EndCall":     s.EndCall(ctx, 1, record.Call{Status: 200}),
		"AppendCalls": s.AppendCalls(ctx, []record.Call{call}),
	} {
		if err == nil || !strings.Contains(err.Error(), "write the record of calls") {
			t.Errorf("%s after Close = %v", name, err)
		}
	}
}

// To find that no call is old takes long when there are many, and keeps nobody
// from writing.
func TestPruneCallsBesideAWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "headgate.db")
	s := openAt(t, path)
	must(t, s.AppendCalls(t.Context(), []record.Call{call}))
	run(t, shell(t, path), "BEGIN IMMEDIATE")
	if gone, err := s.PruneCalls(t.Context(), call.At, 10, 10); gone != 0 || err != nil {
		t.Errorf("beside another writer: %d gone, %v; want nothing to be gone", gone, err)
	}
}
