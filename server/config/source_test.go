package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/config"
)

// What could not be read hides nothing of what could: all faults are told at once, each with its line. What
// may be wrong only because something could not be read is not told.
func TestFaultsOfTypeHideNoFaultsOfValue(t *testing.T) {
	for text, want := range map[string]string{
		`listen: [8080]
unknown: maybe
store: {redis: ["a:1"], lease_free: 91, database: zero}
routes: [routes.txt]
ipv6_prefix: 200
`: `config c.yaml: line 1: listen is a list, want a text
config c.yaml: line 3: store.database is "zero", want a whole number
upstream is "", want the URL of the API to protect, such as http://127.0.0.1:9000
config c.yaml: line 2: unknown is "maybe", want reject or limit
config c.yaml: line 3: store.lease_free is "91", want 0 to 90
config c.yaml: line 5: ipv6_prefix is "200", want 1 to 128`,
		// upstream and openapi are missed only because of what is said of lines 1 and 2.
		`upstraem: http://127.0.0.1:9000
routes: {a: b}
no_rule: perhaps
`: `config c.yaml: line 1: upstraem is no setting, did you mean upstream?
config c.yaml: line 2: routes is a mapping, want a list
config c.yaml: line 3: no_rule is "perhaps", want allow or deny`,
		// 1s is above a lease_ttl that is not known.
		`upstream: http://127.0.0.1:9000
routes: [routes.txt]
store:
  redis: ["a:1"]
  lease_ttl: 5
  deadline: 1s
  replays: never
`: `config c.yaml: line 5: store.lease_ttl is "5", want a duration such as 250ms, 10s or 1h30m
config c.yaml: line 7: store.replays is "never", want shared or replica`,
		// A setting that is not there has the line of its group.
		`upstream: http://127.0.0.1:9000
routes: [routes.txt]
store:
  redis: ["a:1"]
  username: me
`: `config c.yaml: line 3: store.password_file is "", want the file with the password of store.username`,
		`upstream: http://127.0.0.1:9000
routes: [routes.txt]
graphql:
  - endpoints: [POST /graphql]
    schema: api.graphql
    persisted: never
  - endpoints: [POST /v2/graphql]
    depth: deep
`: `config c.yaml: line 8: graphql[1].depth is no setting, did you mean graphql[1].max_depth?
config c.yaml: line 6: graphql[0].persisted is "never", want refuse or count
config c.yaml: line 7: graphql[1].schema is "", want the file of the schema, such as schema.graphql`,
	} {
		t.Chdir(t.TempDir())
		if err := os.WriteFile("c.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, from, _ := config.Open("c.yaml")
		if err := from.Complete(&c); err == nil || err.Error() != want {
			t.Errorf("%s\n%v\nwant\n%v", text, err, want)
		}
	}
}

// A flag takes the place of what the file says, and its faults are none of the file.
func TestWhatAFlagSaysHasNoLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(whole+"unknown: maybe\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, from, err := config.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	c.Unknown = "perhaps"
	from.Given("unknown")
	err = from.Complete(&c)
	if err == nil || !strings.HasPrefix(err.Error(), `unknown is "perhaps"`) {
		t.Errorf("Complete = %v, want no line", err)
	}
}

// TestWhatIsNoFileOfSettings: a gigabyte named by mistake is not read to its end, nor is a folder.
func TestWhatIsNoFileOfSettings(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, "long.yaml")
	if err := os.WriteFile(long, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(long, 1<<40); err != nil { // takes no room
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		long:                            "is longer than 16 MiB, want a file of settings",
		dir:                             "is a folder, want a file",
		filepath.Join(dir, "none.yaml"): "no such file",
	} {
		if _, _, err := config.Open(path); err == nil || !strings.HasPrefix(err.Error(), "config "+path+": "+want) {
			t.Errorf("Open(%s) = %v, want %q", path, err, want)
		}
	}
}
