package database_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

func TestFleet(t *testing.T) { everywhere(t, testFleet) }

func testFleet(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Set(ctx, tester, full))
	version, err := s.Version(ctx)
	must(t, err)
	began := time.Now().Add(-time.Minute).Truncate(time.Millisecond).UTC()
	behind := -1500 * time.Millisecond
	b := record.Replica{Name: "b", Ahead: &behind, Process: "p1", Program: "v1", Started: began, Every: 5 * time.Second,
		Stale: 70 * time.Millisecond,
		Rules: version, Number: 17, Loaded: began.Add(time.Second), Error: "the disk\nis full"}
	must(t, s.Report(ctx, b, false))
	must(t, s.Report(ctx, record.Replica{Name: "a", Process: "p2"}, false))

	f, err := s.Fleet(ctx)
	must(t, err)
	if f.Rules != version || len(f.Replicas) != 2 || f.Replicas[0].Name != "a" {
		t.Fatalf("Fleet = %+v, want version %s and replicas a and b", f, version)
	}
	seen := f.Replicas[1].Seen
	if age := f.At.Sub(seen); age < 0 || age > time.Minute {
		t.Errorf("b was seen %v before now, want a moment: both by the database's clock", age)
	}
	if off := time.Since(f.At); off < -time.Minute || off > time.Minute {
		t.Errorf("the database's clock is %v off ours, want the same time", off)
	}
	if b.Seen = seen; !reflect.DeepEqual(f.Replicas[1], b) {
		t.Errorf("b = %+v, want %+v", f.Replicas[1], b)
	}

	if a := f.Replicas[0]; a.Ahead != nil {
		t.Errorf("the clock of a is %v ahead, want that nobody knows", *a.Ahead)
	}

	steps := []struct {
		name    string
		process string
		told    bool
		want    error
		has     string // the process that has the name then
	}{
		{"goes on", "p1", true, nil, "p1"},
		{"starts again", "p3", false, nil, "p3"},
		{"the one before goes on", "p1", true, record.ErrNameTaken, "p3"},
		{"the new one goes on", "p3", true, nil, "p3"},
	}
	for _, step := range steps {
		b.Process = step.process
		if err := s.Report(ctx, b, step.told); !errors.Is(err, step.want) {
			t.Errorf("%s: Tell = %v, want %v", step.name, err, step.want)
		}
		if f, err := s.Fleet(ctx); err != nil || f.Replicas[1].Process != step.has {
			t.Errorf("%s: Fleet = %+v, %v, want b to be process %s", step.name, f, err, step.has)
		}
	}

	for name, want := range map[string]int{"a": 1, "b": 1, "c": 2} {
		if n, err := s.Others(ctx, name); err != nil || n != want {
			t.Errorf("Others of %s = %d, %v, want %d", name, n, err, want)
		}
	}
	must(t, s.Leave(ctx, "b", "p1")) // not its name any more
	if f, err := s.Fleet(ctx); err != nil || len(f.Replicas) != 2 {
		t.Errorf("after another process left: %+v, %v, want both replicas", f, err)
	}
	must(t, s.Leave(ctx, "b", "p3"))
	must(t, s.Report(ctx, b, true)) // forgotten, and alive
	b.Process = "p3"
	run(t, d.shell(t), "UPDATE replicas SET seen_at = seen_at - 86400001 WHERE name = 'b'")
	if f, err := s.Fleet(ctx); err != nil || len(f.Replicas) != 1 {
		t.Errorf("a day later: %+v, %v, want a alone", f, err)
	}
	must(t, s.Report(ctx, record.Replica{Name: "c", Process: "p4"}, false))
	var rows int
	must(t, d.shell(t).QueryRowContext(ctx, "SELECT count(*) FROM replicas").Scan(&rows))
	if rows != 2 {
		t.Errorf("%d rows, want 2: who starts removes what is a day old", rows)
	}
}

// What a replica tells is bounded, whatever it tells.
func TestReplicaIsBounded(t *testing.T) { everywhere(t, testReplicaIsBounded) }

// What a replica says of times beyond those that JSON can write hides no other
// replica.
func TestReplicasFromAfterAllTime(t *testing.T) { everywhere(t, testReplicasFromAfterAllTime) }

func testReplicasFromAfterAllTime(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Report(ctx, record.Replica{Name: "a", Process: "p"}, false))
	if _, err := d.shell(t).ExecContext(ctx, "UPDATE replicas SET started_at = 9223372036854775807, loaded_at = "+
		"9223372036854775807, stale_ms = 9223372036854775807, every_ms = 9223372036854775807, seen_at = "+
		"9223372036854775807"); err != nil {
		t.Fatal(err)
	}
	f, err := s.Fleet(ctx)
	must(t, err)
	if r := f.Replicas[0]; r.Stale != 366*24*time.Hour || r.Every != 366*24*time.Hour {
		t.Errorf("%+v, want spans that can be added up", r)
	}
	if text, err := json.Marshal(f); err != nil || !strings.Contains(string(text), "9999-12-31T23:59:59.999Z") {
		t.Errorf("as JSON: %s, %v, want the end of the year 9999", text, err)
	}
}

func testReplicaIsBounded(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	long := strings.Repeat("ä", 1000)
	r := record.Replica{Name: strings.Repeat("ä", 63), Process: "p", Program: long, Rules: long, Error: long}
	for _, told := range []bool{false, true} {
		must(t, s.Report(ctx, r, told))
		f, err := s.Fleet(ctx)
		must(t, err)
		got := f.Replicas[0]
		for _, text := range []string{got.Program, got.Rules, got.Error} {
			if len(text) > 520 || !strings.HasSuffix(text, "ä…") {
				t.Errorf("%d bytes %q, want at most 520 that end in …", len(text), text)
			}
		}
	}
}

// A replica that is frozen while it tells of itself has no lock that those who
// change rules wait for; and one that waits for them does not wait for long.
func TestTellDoesNotWaitForChanges(t *testing.T) {
	everywhereButSQLite(t, testTellDoesNotWaitForChanges)
}

func testTellDoesNotWaitForChanges(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Report(ctx, record.Replica{Name: "a", Process: "p"}, false))
	changing, err := d.shell(t).BeginTx(ctx, nil)
	must(t, err)
	defer changing.Rollback()
	_, err = changing.ExecContext(ctx, "INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /a', 1)")
	must(t, err)
	must(t, s.Report(ctx, record.Replica{Name: "a", Process: "p"}, true))

	telling, err := d.shell(t).BeginTx(ctx, nil)
	must(t, err)
	defer telling.Rollback()
	_, err = telling.ExecContext(ctx, "UPDATE replicas SET seen_at = seen_at + 1")
	must(t, err)
	must(t, changing.Rollback())
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: "GET /b", Limit: 1}))
}

// In SQLite what replicas tell does not make the -wal grow for ever.
func TestTellKeepsTheLogShort(t *testing.T) {
	d := kinds[0].make(t)
	s, ctx := d.open(t), t.Context()
	for i := range 2000 {
		must(t, s.Report(ctx, record.Replica{Name: "a", Process: "p", Stale: time.Duration(i) * time.Second}, i > 0))
	}
	info, err := os.Stat(s.Path() + "-wal")
	must(t, err)
	if size := info.Size(); size > 8<<20 {
		t.Errorf("the -wal has %d bytes after 2000 words, want 8 MiB at most", size)
	}
}

func TestNoFleet(t *testing.T) {
	d := kinds[0].make(t)
	must(t, d.open(t).Set(t.Context(), tester, full))
	theirs := openDSN(t, database.Options{
		DSN:   d.dsn,
		Table: database.Table{Name: "policies"},
		Local: "sqlite:" + filepath.Join(t.TempDir(), "keys.db"),
	})
	readOnly := openDSN(t, database.Options{DSN: d.dsn, ReadOnly: true, NoNotify: d.quiet})
	for _, c := range []struct {
		name string
		s    *database.Store
		want string
	}{{"a table of somebody else's", theirs, record.ErrNoFleet.Error()}, {"read-only", readOnly, "is open read-only"}} {
		err := c.s.Report(t.Context(), record.Replica{Name: "a", Process: "p"}, false)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Tell = %v, want %q", c.name, err, c.want)
		}
	}
}

// What the triggers cost an import of many rules into SQLite.
func BenchmarkImportSQLite(b *testing.B) {
	doc := policy.Document{Rules: make([]policy.Rule, 100_000)}
	for i := range doc.Rules {
		doc.Rules[i] = policy.Rule{Endpoint: fmt.Sprintf("GET /%d", i), Limit: 5}
	}
	s := kinds[0].make(b).open(b)
	for b.Loop() {
		if err := s.Import(b.Context(), tester, doc, true); err != nil {
			b.Fatal(err)
		}
	}
}
