package server_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/imports"
)

// TestImportsPointOneWay holds the server module to its import table. The library is everybody's;
// of this module each package may import what stands behind it, and a library of others is linked
// by the package that wraps it. To bend it, edit this table in the same commit and say why.
func TestImportsPointOneWay(t *testing.T) {
	table := imports.Table{
		Module: "github.com/headgate-io/headgate/server",
		Free:   []string{"github.com/headgate-io/headgate"},
		Own: map[string][]string{
			"": {}, // no Go but this test

			// What stands alone.
			"activity":        {},
			"advisories":      {},
			"attack":          {},
			"balancer":        {},
			"collector":       {},
			"decisionlog":     {},
			"descriptor":      {},
			"draw":            {},
			"engine":          {},
			"envoy":           {"descriptor", "quota"},
			"quota":           {"descriptor"},
			"group":           {},
			"graphql":         {},
			"hold":            {},
			"kinds":           {},
			"openapi":         {},
			"redis":           {},
			"database/dbtest": {},
			"dsn":             {},
			"record":          {}, // no driver of a database: whoever talks to the admin API is made of it
			"page":            {},
			"kube":            {},
			"once":            {},
			"token":           {"once"},
			"agents":          {"once", "token"},
			"trace":           {},
			"usage":           {},
			"warnings":        {},

			// What is done with the rules of a database.
			"database":            {"dsn", "record"},
			"database/sqlitetest": {"database"},
			"fleet":               {"record"},
			"revert":              {"record"},
			"rules":               {"record"},

			"developers": {"page", "record", "usage"},
			"config":     {"developers", "dsn", "graphql", "kinds", "record", "token"},
			"lint":       {"config"},
			"metrics":    {"activity", "decisionlog", "hold", "quota", "revert", "trace", "warnings"},

			// The admin API and its client.
			"admin": {"activity", "developers", "draw", "fleet", "lint", "page", "record", "revert", "rules",
				"usage", "warnings"},
			"client": {"activity", "admin", "fleet", "lint", "record", "rules"},

			"telemetry": {}, // beside gateways, for the clients of APIs

			"convert":   {},
			"framework": {"convert"},
			"state":     {},
			"replay":    {},

			// The process, and commands.
			"daemon": {"activity", "admin", "advisories", "agents", "balancer", "config", "database", "decisionlog",
				"descriptor", "developers", "engine", "envoy", "fleet", "graphql", "group", "hold", "kube", "metrics",
				"once", "openapi", "quota", "record", "redis", "revert", "rules", "state", "token", "trace", "usage",
				"warnings"},
			"demo": {"config", "daemon", "database", "record"},
			"doctor": {"advisories", "agents", "config", "daemon", "database", "descriptor", "dsn", "hold", "kinds",
				"lint", "quota", "record", "redis", "token"},
			"cmd/headgate": {
				"activity", "admin", "attack", "client", "collector", "config", "convert", "daemon", "database", "demo",
				"descriptor", "developers",
				"doctor", "draw", "dsn", "fleet", "framework", "kube", "lint", "openapi", "quota", "record", "replay",
				"rules",
				"telemetry", "token", "usage",
			},
		},
		Foreign: map[string][]string{
			"agents":   {"github.com/dunglas/httpsfv"},
			"balancer": {"github.com/pires/go-proxyproto"},
			"cmd/headgate": {"github.com/mattn/go-isatty", "github.com/spf13/cobra", "github.com/spf13/cobra/doc",
				"github.com/spf13/pflag", "golang.org/x/crypto/x509roots/fallback", "golang.org/x/sys/unix"},
			"config":  {"go.yaml.in/yaml/v3"},
			"convert": {"go.yaml.in/yaml/v3"},
			"daemon": {"github.com/coreos/go-systemd/v22/daemon", "gopkg.in/natefinch/lumberjack.v2",
				"golang.org/x/text/unicode/norm"},
			"descriptor": {"go.yaml.in/yaml/v3"},
			"envoy": {"github.com/envoyproxy/go-control-plane/envoy", "golang.org/x/net/netutil",
				"google.golang.org/genproto/googleapis/rpc/status", "google.golang.org/grpc",
				"google.golang.org/protobuf/encoding/protowire", "google.golang.org/protobuf/proto",
				"google.golang.org/protobuf/types/known/durationpb", "google.golang.org/protobuf/types/known/structpb",
				"google.golang.org/protobuf/types/known/wrapperspb"},
			"graphql": {"github.com/vektah/gqlparser/v2"},
			"group":   {"github.com/hashicorp/memberlist"},
			"hold":    {"golang.org/x/sys/unix"},
			"kube":    {"go.yaml.in/yaml/v3"},
			"metrics": {"github.com/prometheus/client_golang", "github.com/prometheus/client_model/go"},
			"openapi": {"go.yaml.in/yaml/v3", "google.golang.org/protobuf"},
			"redis":   {"github.com/redis/rueidis"},
			"state":   {"golang.org/x/sys/unix"},
			"database": {"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5",
				"github.com/pressly/goose/v3", "modernc.org/sqlite"},
			"database/dbtest": {"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5/stdlib"},
			"telemetry":       {"github.com/prometheus/client_golang", "golang.org/x/net/netutil"},
			"trace":           {"go.opentelemetry.io/otel"},
			"token":           {"github.com/go-jose/go-jose/v4"},
		},
	}
	table.Check(t)
}

// TestTheClientsLinkNoDriver: what talks to the admin API has no business with
// drivers of databases.
func TestTheClientsLinkNoDriver(t *testing.T) {
	for _, client := range []string{"./client", "../clients/admin-go"} {
		list := exec.Command("go", "list", "-deps", ".")
		list.Dir = client
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, driver := range []string{"github.com/go-sql-driver/", "github.com/jackc/pgx/", "modernc.org/sqlite",
			"database/sql\n"} {
			if strings.Contains(string(out), driver) {
				t.Errorf("%s links %s, want none", client, driver)
			}
		}
	}
}
