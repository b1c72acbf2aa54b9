package operations_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// ours is a password that no output may hold.
const ours = "wrong-password-of-ours"

// misfit is a server and the settings that do not go with it.
type misfit struct {
	server   []string
	tls      []string // of a server that speaks it; nil for one that does not
	settings []string
	want     string
}

// TestStoresThatKeepAGatewayFromStarting starts it on servers that no waiting
// mends. It says what to change, and nothing secret; so does doctor.
func TestStoresThatKeepAGatewayFromStarting(t *testing.T) {
	t.Parallel()
	authority, stranger := redistest.NewAuthority(t), redistest.NewAuthority(t)
	cert, key := authority.Issue("gateway.test")
	strangeCert, strangeKey := stranger.Issue("gateway.test")
	with := func(more ...string) []string {
		return []string{"tls: {" + strings.Join(append(more, "enabled: true"), ", ") + "}"}
	}
	clients := []string{"--tls-auth-clients", "yes"}
	user := func(rights string) []string {
		return append([]string{"--user", "gate", "on", ">" + ours}, strings.Fields(rights)...)
	}
	asUser := []string{"username: gate", "password_file: password"}
	for name, c := range map[string]misfit{
		"wrong password": {
			server:   []string{"--requirepass", "open sesame"},
			settings: asPassword,
			want:     "want the user and the password that the server has",
		},
		"no password": {
			server: []string{"--requirepass", "open sesame"},
			want:   "the server wants a password, and none is configured",
		},
		"no such user": {settings: asUser, want: "want the user and the password that the server has"},
		"evicts": {
			server: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"},
			want: "maxmemory-policy is allkeys-lru: it throws away the buckets of those who are over their " +
				"limit, which fills them; want noeviction",
		},
		"no scripts": {
			server: []string{"--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""},
			want:   "the server needs the commands INFO, EVAL and EVALSHA",
		},
		"may run no scripts": {
			server:   user("~* +@all -@scripting"),
			settings: asUser,
			want:     "the user needs the commands INFO, EVAL, EVALSHA",
		},
		"may only read": {
			server:   user("~* +@read +@connection +info +eval +evalsha +time"),
			settings: asUser,
			want:     "the user needs the commands INFO, EVAL, EVALSHA",
		},
		"other keys": {server: user("~cache:* +@all"), settings: asUser,
			want: "all keys that begin with the prefix"},
		"a replica": {
			server: []string{"--replicaof", "127.0.0.1 1"},
			want:   "it is a replica, which takes no writes: want the address of the primary",
		},
		"in a cluster": {
			server: []string{"--cluster-enabled", "yes"},
			want: "it is a member of a cluster, where one script reaches the buckets of one tag only: want " +
				"store.cluster: true",
		},
		"in no cluster": {
			settings: []string{"cluster: true"},
			want:     "it is no member of a cluster: want store.cluster: false",
		},
		"a new cluster": {
			server:   []string{"--cluster-enabled", "yes"},
			settings: []string{"cluster: true"},
			want:     "want one that is set up",
		},
		"no sentinel": {settings: []string{"sentinel: main"}, want: "it is no sentinel"},
		"no such number": {
			server:   []string{"--databases", "2"},
			settings: []string{"database: 7"},
			want:     "want store.database below its setting databases",
		},
		"no secret": {
			settings: []string{"secret_file: nothing"},
			want:     `store.secret_file is "nothing", which does not exist, want a file that is the same for all gateways`,
		},
		"TLS to a plain port": {settings: with(),
			want: "the server speaks no TLS there: want store.tls.enabled: false"},
		"another authority": {
			tls:      []string{},
			settings: with("ca_file: " + stranger.CA),
			want:     "want store.tls.ca_file, the certificate of whoever signed the server's",
		},
		"the system's": {
			tls:      []string{},
			settings: with(),
			want:     "want store.tls.ca_file, the certificate of whoever signed the server's",
		},
		"another name": {
			tls:      []string{},
			settings: with("ca_file: "+authority.CA, "server_name: redis.test"),
			want:     "want store.tls.server_name",
		},
		"no client's": {
			tls:      clients,
			settings: with("ca_file: " + authority.CA),
			want:     "want store.tls.cert_file and store.tls.key_file",
		},
		"a stranger's": {
			tls:      clients,
			settings: with("ca_file: "+authority.CA, "cert_file: "+strangeCert, "key_file: "+strangeKey),
			want:     "want one in store.tls.cert_file that the server's authority has signed",
		},
		"no authority's file": {
			tls:      []string{},
			settings: with("ca_file: nothing"),
			want:     "store.tls.ca_file: open nothing: no such file",
		},
		"a key as authority": {tls: []string{}, settings: with("ca_file: " + key),
			want: "has no certificate, want some in PEM"},
		"another key": {
			tls:      clients,
			settings: with("ca_file: "+authority.CA, "cert_file: "+cert, "key_file: "+strangeKey),
			want:     "store.tls.cert_file: tls: private key does not match",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var server *redistest.Server
			if c.tls != nil {
				server = redistest.StartTLS(t, authority, c.tls...)
			} else {
				server = redistest.StartOnPort(t, c.server...)
			}
			settings := c.settings
			if !strings.Contains(fmt.Sprint(settings), "secret_file") {
				settings = append(settings[:len(settings):len(settings)], "secret_file: one.secret")
			}
			dir := storeDir(t, append([]string{"redis: [\"" + server.Address() + "\"]"}, settings...)...)
			set(t, dir, "upstream: http://127.0.0.1:1\nroutes: [routes.txt]\n")
			for _, command := range [][]string{{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"},
				{"doctor"}} {
				out, err := runFor(t, dir, append(command, "--config", "headgate.yaml")...)
				if err == nil || !strings.Contains(out, c.want) {
					t.Errorf("%s: %v\n%s\nwant that it fails with %q", command[0], err, out, c.want)
				}
				if strings.Contains(out, ours) {
					t.Errorf("the password is in %s", out)
				}
				t.Logf("%s: %s", command[0], out)
			}
		})
	}
}

// set adds settings to a folder's configuration.
func set(t *testing.T, dir, settings string) {
	t.Helper()
	path := filepath.Join(dir, "headgate.yaml")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, settings...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var asPassword = []string{"password_file: password"}

// runFor runs the command for a minute at most.
func runFor(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), args...)
	cmd.Dir = dir
	ended := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer ended.Stop()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestStoresThatAreOddButAway starts gateways where waiting may help. They
// serve, and say why the store is away and what it may be.
func TestStoresThatAreOddButAway(t *testing.T) {
	t.Parallel()
	authority := redistest.NewAuthority(t)
	speaksTLS := redistest.StartTLS(t, authority)
	full := redistest.StartOnPort(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	for address, want := range map[string]string{
		speaksTLS.Address(): "if it speaks TLS there, want store.tls.enabled: true",
		full.Address():      "out of memory",
		"127.0.0.1:1":       "nobody listens there: want the address of a server that runs",
		"nobody.invalid:1":  "nobody knows this host",
	} {
		dir := storeDir(t, fmt.Sprintf("redis: [%q]", address), "secret_file: one.secret")
		g := harness.Serve(t, dir, "--config", "headgate.yaml", "--routes", "routes.txt", "--upstream",
			"http://127.0.0.1:1")
		if !g.Says(want) {
			t.Errorf("%s: the log lacks %q:\n%s", address, want, g.Log())
		}
		expectMetric(t, g, "store_up", "0")
		if address == full.Address() {
			full.Do("CONFIG", "SET", "maxmemory", "0")
			expectMetric(t, g, "store_up", "1")
		}
	}
}

// TestAStoreThatSpeaksTLS has gateways show a certificate and a password to a
// server that wants both, lose it and find it again. Nothing secret is said.
func TestAStoreThatSpeaksTLS(t *testing.T) {
	t.Parallel()
	authority := redistest.NewAuthority(t)
	cert, key := authority.Issue("gateway.test")
	server := redistest.StartTLS(t, authority, "--tls-auth-clients", "yes", "--user", "gate", "on", ">"+ours, "~hg*",
		"+@all", "-@dangerous", "+info")
	g := underRules(t, harness.NewUpstream(t), rate.Limit{Tokens: 10, Per: time.Hour, Burst: 10},
		append(patient, "redis: [\""+server.Address()+"\"]", "username: gate", "password_file: password",
			fmt.Sprintf("tls: {enabled: true, ca_file: %s, cert_file: %s, key_file: %s}", authority.CA, cert, key))...)
	expectMetric(t, g, "store_up", "1")
	denied := 0
	for range 40 {
		if get(t, g, "/closed") == http.StatusTooManyRequests {
			denied++
		}
	}
	if denied == 0 {
		t.Error("nothing was denied of four bursts")
	}
	server.Kill()
	expectStatus(t, g, "/closed", http.StatusServiceUnavailable)
	server.Start()
	expectMetric(t, g, "store_lost", "0")
	expectStatus(t, g, "/closed", http.StatusOK)
	private, err := os.ReadFile(filepath.Clean(key))
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"log": g.Log(), "metrics": harness.Get(t, g.Admin+"/metrics")} {
		if strings.Contains(text, ours) || strings.Contains(text, string(private)) {
			t.Errorf("the password or the key is in the %s", what)
		}
	}
}
