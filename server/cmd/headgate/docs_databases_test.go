package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/database/dbtest"
)

// exampleURL is how pages write a database on a server.
var exampleURL = regexp.MustCompile(`\b(postgres|mysql)://headgate@db\.internal/[a-z]+\b`)

// exampleDatabases makes the databases that a page names, on servers that run
// as long as the test, and reports what to replace by what: in commands the
// URL, and in what they print the name that headgate gives it.
func exampleDatabases(t *testing.T, page string) (there, back []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]*dbtest.Server{}
	done := map[string]bool{}
	for _, url := range exampleURL.FindAllString(string(text), -1) {
		if done[url] {
			continue
		}
		done[url] = true
		kind, _, _ := strings.Cut(url, ":")
		if servers[kind] == nil {
			start := map[string]func() (*dbtest.Server, error){"postgres": dbtest.Postgres,
				"mysql": dbtest.MariaDB}[kind]
			if servers[kind], err = start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := servers[kind].Stop(); err != nil {
					t.Error(err)
				}
			})
		}
		name, dsn, err := servers[kind].Database(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		port := map[string]string{"postgres": ":5432", "mysql": ":3306"}[kind]
		shown := strings.Replace(url, "db.internal", "db.internal"+port, 1)
		socket := dsn[strings.IndexByte(dsn, '=')+1:]
		there, back = append(there, url, dsn), append(back, kind+"://app@"+socket+" ("+name+")", shown)
	}
	return there, back
}
