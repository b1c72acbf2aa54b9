package database_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/dbtest"
)

// tlsDSNs are the URLs of a database whose server is asked for a certificate by
// an authority, and how the server says that a connection is encrypted.
var tlsDSNs = []struct {
	kind      string
	start     func() (*dbtest.Secured, error)
	dsn       string // of address, database, authority, certificate and key
	clients   string // a statement that asks clients for a certificate too
	plain     string // the same without TLS
	encrypted string // a query for the number of connections with headgate's user that are not
}{
	{
		"PostgreSQL", dbtest.PostgresTLS,
		"postgres://app@%[1]s/%[2]s?sslmode=verify-full&sslrootcert=%[3]s&sslcert=%[4]s&sslkey=%[5]s", "SELECT 1",
		"postgres://app@%[1]s/%[2]s?sslmode=disable",
		"SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl) FROM pg_stat_ssl JOIN " +
			"pg_stat_activity USING (pid) WHERE usename = 'app'",
	},
	{
		"MariaDB", dbtest.MariaDBTLS,
		"mysql://app@%[1]s/%[2]s?tls=true&ssl-ca=%[3]s&ssl-cert=%[4]s&ssl-key=%[5]s",
		"ALTER USER app@localhost REQUIRE X509", "mysql://app@%[1]s/%[2]s",
		// Who is not encrypted is not let in; there is no table of who is.
		"SELECT count(*), 0 FROM information_schema.processlist WHERE user = 'app'",
	},
}

// A server is used by TLS alone, and only if its certificate is by the authority
// that the URL names.
func TestTLS(t *testing.T) {
	for _, test := range tlsDSNs {
		t.Run(test.kind, func(t *testing.T) {
			t.Parallel()
			server, err := test.start()
			must(t, err)
			stopAfter(t, server.Server)
			name, _, err := server.Database(t.Context())
			must(t, err)
			must(t, server.Exec(test.clients))
			url := func(authority string) string {
				return fmt.Sprintf(test.dsn, server.Address, name, authority, server.Cert, server.Key)
			}
			s := openDSN(t, database.Options{DSN: url(server.Authority)})
			must(t, s.Import(t.Context(), tester, state(1), true))
			f := follow(t, s, whole)
			must(t, s.Import(t.Context(), tester, state(2), true))
			f.freshWith(t, "a change by TLS", 2)
			shell, err := server.Shell(name)
			must(t, err)
			defer shell.Close()
			var encrypted, not int
			must(t, shell.QueryRowContext(t.Context(), test.encrypted).Scan(&encrypted, &not))
			if encrypted == 0 || not != 0 {
				t.Errorf("%d connections are encrypted and %d are not, want all", encrypted, not)
			}
			for _, bad := range []struct{ what, dsn, want string }{
				{"another authority", url(server.Stranger), "shows a certificate that is not believed ("},
				{"another name", strings.Replace(url(server.Authority), "127.0.0.1", "localhost", 1),
					"shows a certificate that is not believed ("},
				{"no TLS", fmt.Sprintf(test.plain, server.Address, name), "refuses the user"},
			} {
				s, err := database.Open(t.Context(), bad.dsn)
				if err == nil {
					_ = s.Close()
				}
				checkFault(t, bad.what, "", err, bad.want)
			}
		})
	}
}

// What the URL says of certificates is checked before anybody is asked.
func TestMySQLFilesRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	must(t, os.WriteFile(empty, nil, 0o600))
	for query, want := range map[string]string{
		"ssl-ca=/none/ca.pem": "ssl-ca: open /none/ca.pem: no such file",
		"ssl-ca=" + empty: "ssl-ca: " + empty +
			" holds no certificate, want one or more in PEM",
		"tls=skip-verify&ssl-ca=" +
			empty: `tls is "skip-verify" beside ssl-ca, ssl-cert or ssl-key, want true or none`,
		"tls=preferred&ssl-ca=" + empty:                `tls is "preferred" beside`,
		"tls=false&ssl-ca=" + empty:                    `tls is "false" beside`,
		"tls=true&ssl-cert=" + empty:                   "of ssl-cert and ssl-key there is one, want both or none",
		"tls=true&ssl-cert=" + empty + "&ssl-key=none": "ssl-cert and ssl-key: open none",
	} {
		_, err := database.Open(t.Context(), "mysql://u:secret@host/db?"+query)
		checkFault(t, query, `database is "mysql://u:xxxxx@host/db": `, err, want)
	}
}
