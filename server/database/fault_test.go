package database_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// checkFault makes sure that an error is one line, names the file and says what
// is wanted.
func checkFault(t *testing.T, what, path string, err error, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %q", what, want)
		return
	}
	if text := err.Error(); strings.Contains(text, "\n") || !strings.HasPrefix(text, path) ||
		!strings.Contains(text, want) {
		t.Errorf("%s:\n got %s\nwant %s: … %s …, on one line", what, text, path, want)
	}
}

func TestOpenRefusesDSN(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                              `database is "", want sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE`,
		"headgate.db":                   `database is "headgate.db", want sqlite:PATH`,
		"postgresq://u:secret@host/db":  `database is "postgresq://u:xxxxx@host/db", want sqlite:PATH`,
		"postgres://u:se/cret@host/db":  `database is "…@host/db", which is no URL, want one; in a password, write`,
		"postgres://u:secret@host:x/db": `database is "…@host:x/db", which is no URL`,
		"postgres://u:secret@h/db?sslmode=secret":                      `database is "postgres://u:xxxxx@h/db": `,
		"postgres://u@h/db?password=secret&sslmode=x":                  `database is "postgres://u@h/db": `,
		"postgres://u@h/db?sslmode=verify-full&sslrootcert=/none/file": `database is "postgres://u@h/db": `,
		"mysql://u:secret@host":                                        `database is "mysql://u:xxxxx@host", want the name of a database`,
		"mysql://u:sec%zzret@host/db":                                  `database is "…@host/db", which is no URL`,
		"mysql://u:secret@host/db?tls=no":                              `database is "mysql://u:xxxxx@host/db", want`,
		"mysql:u:secret@tcp(host":                                      `database is "…@tcp(host", want mysql://`,
		"mysql:u:secret@tcp(host)/":                                    `database is "…@tcp(host)/", want the name of a database`,
		"u:secret@tcp(host)/db":                                        `database is "…@tcp(host)/db", want sqlite:PATH`,
		"sqlite:":                                                      `database is "sqlite:" without a path, want sqlite:PATH`,
		"sqlite::memory:":                                              `database is "sqlite::memory:", want a file: what is in memory is gone at the next start`,
		"sqlite://headgate.db":                                         `database is "sqlite://headgate.db", want "sqlite:headgate.db"`,
		"sqlite:" + "a\x00b":                                           `want a path without a zero byte`,
		"SQLITE:/var/lib/headgate/rules":                               `want sqlite:PATH`,
		"sqlite3:/var/lib/headgate/rules":                              `want sqlite:PATH`,
	} {
		_, err := database.Open(t.Context(), dsn)
		checkFault(t, dsn, "database is ", err, strings.TrimPrefix(want, "database is "))
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "se/")) {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestOpenFaults(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	text := file("notes.txt", strings.Repeat("this is no database\n", 100))
	stranger := filepath.Join(dir, "stranger.db")
	run(t, shell(t, stranger), `CREATE TABLE policies (endpoint TEXT, project_id TEXT, rps_limit INTEGER)`)
	marked := filepath.Join(dir, "marked.db")
	run(t, shell(t, marked), `PRAGMA application_id = 7`)
	cut := filepath.Join(dir, "cut.db")
	copyPart(t, largeDatabase(t), cut, 6000)
	newer := filepath.Join(dir, "newer.db")
	must(t, openAndClose(newer, database.Open))
	run(t, shell(t, newer), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`)

	for _, tt := range []struct{ what, path, want string }{
		{"a folder", dir, "is a folder, want a file"},
		{"no parent folder", filepath.Join(dir, "no", "such", "a.db"),
			"its folder does not exist, want it made first: mkdir -p " + filepath.Join(dir, "no", "such")},
		{"a file as parent folder", filepath.Join(text, "a.db"), "not a directory"},
		{"a device", "/dev/null", "is no regular file, want one"},
		{"a text", text, "is no SQLite database, want one, or a path where no file is yet"},
		{"a file cut short", cut, "is damaged"},
		{"the database of another program", stranger,
			`is the database of another program (it has a table "policies"), want a file for headgate alone`},
		{"another program's mark", marked, "is the database of another program (application_id 7), want"},
		{"the database of a newer headgate", newer,
			"was written by a newer headgate (schema 99, this one knows 21), want that headgate or a newer one"},
	} {
		before, _ := os.ReadFile(tt.path)
		for name, open := range map[string]func(context.Context, string) (*database.Store, error){
			"Open":         database.Open,
			"OpenReadOnly": database.OpenReadOnly,
		} {
			if tt.what == "no parent folder" && name == "OpenReadOnly" {
				continue // said the same way
			}
			_, err := open(t.Context(), "sqlite:"+tt.path)
			checkFault(t, name+" of "+tt.what, tt.path, err, tt.want)
		}
		if after, _ := os.ReadFile(tt.path); string(after) != string(before) {
			t.Errorf("opening %s changed it", tt.what)
		}
	}
	_, err := database.OpenReadOnly(t.Context(), "sqlite:"+filepath.Join(dir, "none.db"))
	checkFault(t, "OpenReadOnly of no file", filepath.Join(dir, "none.db"), err,
		"does not exist, want a database that headgate has made")
}

// largeDatabase makes a database of many pages and closes it.
func largeDatabase(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "large.db")
	s, err := database.Open(t.Context(), "sqlite:"+path)
	must(t, err)
	must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(2000)}, true))
	must(t, s.Close())
	return path
}

func manyRules(n int) []policy.Rule {
	rules := make([]policy.Rule, n)
	for i := range rules {
		rules[i] = policy.Rule{
			Endpoint: fmt.Sprintf("GET /v1/r%d/{id}", i%1000),
			Project:  fmt.Sprint("p", i/1000),
			Limit:    10,
			Per:      time.Second,
		}
	}
	return rules
}

func copyPart(t *testing.T, from, to string, n int) {
	t.Helper()
	data, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, data[:n], 0o600))
}

// Damage in the middle of the file shows when the page is read: an error, never
// half of the rules.
func TestDamagedFile(t *testing.T) {
	path := largeDatabase(t)
	data, err := os.ReadFile(path)
	must(t, err)
	for i := len(data) / 2; i < len(data)*3/4; i++ { // behind the schema
		data[i] = 0xa5
	}
	must(t, os.WriteFile(path, data, 0o600))
	s := openAt(t, path)
	_, _, err = s.Load(t.Context())
	checkFault(t, "Load", path, err, `want a backup restored, or what "sqlite3 FILE .recover" saves of it`)
	checkFault(t, "Check", path, s.Check(t.Context()), "is damaged")
	must(t, openAt(t, largeDatabase(t)).Check(t.Context()))
}

func TestLockedFile(t *testing.T) {
	s := open(t)
	path, ctx := s.Path(), t.Context()
	must(t, s.Set(ctx, tester, full))
	db := shell(t, path)
	run(t, db, `BEGIN IMMEDIATE`, `UPDATE policies SET rps_limit = 7`)

	impatient, err := database.OpenWithin(ctx, "sqlite:"+path, 20*time.Millisecond)
	if err == nil {
		defer impatient.Close()
		err = impatient.Set(ctx, tester, full)
	}
	checkFault(t, "Set", path, err, "has been locked by another process for more than 20ms, want its transaction ended")
	// Readers do not wait for writers.
	if rules, err := s.List(ctx); err != nil || len(rules) != 1 || rules[0].Limit != full.Limit {
		t.Errorf("List during another's transaction = %+v, %v, want the state before it", rules, err)
	}
	// Whoever is told to stop does so, lock or no lock.
	stopped, stop := context.WithCancel(ctx)
	stop()
	if err := s.Set(stopped, tester, full); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("Set with a cancelled context = %v, want it to say so", err)
	}
	run(t, db, `COMMIT`)
	must(t, s.Set(ctx, tester, full))
}

// A new file that another process has locked altogether.
func TestOpenLockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	db := shell(t, path)
	run(t, db, `BEGIN EXCLUSIVE`)
	_, err := database.OpenWithin(t.Context(), "sqlite:"+path, 20*time.Millisecond)
	checkFault(t, "Open", path, err, "has been locked by another process for more than 20ms")
	run(t, db, `ROLLBACK`)
}

func TestReadOnly(t *testing.T) {
	w := open(t)
	ctx := t.Context()
	must(t, w.Set(ctx, tester, full))
	r, err := database.OpenReadOnly(ctx, "sqlite:"+w.Path())
	must(t, err)
	defer r.Close()
	if _, err := r.Get(ctx, record.KeyOf(full)); err != nil {
		t.Errorf("Get: %v", err)
	}
	before, err := r.Version(ctx)
	must(t, err)
	must(t, w.SetTier(ctx, tester, "p", "t"))
	if after, err := r.Version(ctx); err != nil || after == before {
		t.Errorf("Version after another's change = %q, %v, want another one", after, err)
	}
	_, _, keyErr := r.CreateKey(ctx, newDigester(t), record.NewAPIKey{})
	for what, err := range map[string]error{
		"Set": r.Set(ctx, tester, full), "Delete": r.Delete(ctx, tester, record.KeyOf(full)), "CreateKey": keyErr,
		"Import": r.Import(ctx, tester, policy.Document{Rules: []policy.Rule{full}}, true),
	} {
		checkFault(t, what, r.Path(), err, "is open read-only, want it opened for writing")
	}
}

// What other users may do is decided by the system; root's process becomes
// nobody's to see it.
func TestPermissions(t *testing.T) {
	make := func(mode os.FileMode) string {
		dir := publicDir(t)
		path := filepath.Join(dir, "headgate.db")
		must(t, openAndClose(path, database.Open))
		must(t, os.Chmod(path, mode))
		must(t, os.Chmod(dir, 0o555))
		return path
	}
	closed := publicDir(t)
	must(t, os.Chmod(closed, 0o555))
	for _, tt := range []struct{ what, task, path, want string }{
		{"a file that may only be read", "open", make(0o444),
			"may not be written by this user, want write permission, or the database opened read-only"},
		{"a file that may not be read", "open read-only", make(0),
			"may not be read by this user, want read permission"},
		{"a file in a folder that may not be written", "open read-only", make(0o444),
			"cannot be opened, want permission for this user to write to its folder"},
		{"a new file in a folder that may not be written", "open", filepath.Join(closed, "a.db"),
			"cannot be made, want a folder that this user may write to"},
	} {
		out, err := child(t, tt.task, tt.path, true).Output()
		if err == nil {
			t.Errorf("%s: %s succeeded, want %q", tt.task, tt.what, tt.want)
			continue
		}
		checkFault(t, tt.what, tt.path, fmt.Errorf("%s", strings.TrimSpace(string(out))), tt.want)
	}
}
