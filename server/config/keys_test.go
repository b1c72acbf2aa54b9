package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/config"
)

func readKeys(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(path, []byte("upstream: http://127.0.0.1\nunknown: limit\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Read(path)
	if err == nil {
		err = c.Complete()
	}
	return c, err
}

func TestKeysAreRead(t *testing.T) {
	c, err := readKeys(t, `api_keys:
  header: ""
  query: api_key
  prefixes: [acme_live_, hg_]
  imported: [{prefix: old-, min_length: 20, max_length: 40}, {min_length: 36, max_length: 36}]
  max_stale: 5m
`)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Keys{
		Bearer: true, Query: "api_key", Prefixes: []string{"acme_live_", "hg_"}, MaxStale: 5 * time.Minute,
		Imported: []config.KeyShape{{Prefix: "old-", MinLength: 20, MaxLength: 40}, {MinLength: 36, MaxLength: 36}},
	}
	if !reflect.DeepEqual(c.Keys, want) {
		t.Errorf("api_keys are %+v, want %+v", c.Keys, want)
	}
	who := identity.Options{Keys: &identity.Keyring{}, KeySources: c.Keys.Sources(), KeyFormats: c.Keys.Formats()}
	if who.Digester, err = identity.NewDigester(make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.New(who); err != nil {
		t.Errorf("what is configured is refused by identity: %v", err)
	}
}

// Every fault that identity finds is found here first, and named as the file
// names it.
func TestKeysRefuse(t *testing.T) {
	for text, want := range map[string]string{
		`{header: "", bearer: false}`:                    `api_keys.header is "", want the name of a header, or api_keys.bearer or api_keys.query set`,
		`{header: X Key}`:                                `api_keys.header is "X Key", want the name of a header`,
		`{header: authorization}`:                        `api_keys.header is "authorization", want a header of its own`,
		`{query: "a b"}`:                                 `api_keys.query is "a b", want the name of a parameter`,
		`{query: "a%62"}`:                                `api_keys.query is "a%62", want the name of a parameter`,
		`{prefixes: []}`:                                 `api_keys.prefixes is "", want at least one`,
		`{prefixes: [""]}`:                               `api_keys.prefixes[0] is "", want 1 to 32 letters`,
		`{prefixes: [a.b]}`:                              `api_keys.prefixes[0] is "a.b", want 1 to 32 letters`,
		`{prefixes: [a, b, c, d, e, f, g, h, i]}`:        `api_keys.prefixes and api_keys.imported is "9", want at most 8 together`,
		`{imported: [{prefix: a.b, min_length: 36}]}`:    `api_keys.imported[0].prefix is "a.b", want at most 32 letters`,
		`{imported: [{min_length: 15, max_length: 20}]}`: `api_keys.imported[0].min_length is "15", want 16 to 256`,
		`{imported: [{prefix: long_prefix_, min_length: 16, max_length: 30}]}`: `api_keys.imported[0].min_length is "16", want 20 to 256`,
		`{imported: [{min_length: 20, max_length: 19}]}`:                       `api_keys.imported[0].max_length is "19", want 20 to 256`,
		`{imported: [{min_length: 20, max_length: 257}]}`:                      `api_keys.imported[0].max_length is "257", want 20 to 256`,
		`{imported: [{length: 20}]}`:                                           `api_keys.imported[0].length is no setting`,
		`{max_stale: 1ms}`:                                                     `api_keys.max_stale is "1ms", want 1s to 720h0m0s`,
	} {
		if _, err := readKeys(t, "api_keys: "+text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	const tokens = "tokens: {key_files: [a.pem], algorithms: [RS256], issuer: a, audiences: [a]}\n"
	for text, want := range map[string]string{
		`{imported: [{min_length: 36, max_length: 36}]}`:                `api_keys.imported[0].prefix is "", want one, or api_keys.bearer: false`,
		`{bearer: false, imported: [{min_length: 36, max_length: 36}]}`: "",
	} {
		if _, err := readKeys(t, tokens+"api_keys: "+text); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s beside tokens: %v, want %s", text, err, want)
		}
	}
	if _, err := readKeys(t, "key_header: X-Key\n"); err == nil ||
		!strings.Contains(err.Error(), "line 3: key_header is now api_keys.header") {
		t.Errorf("key_header: %v, want its new name", err)
	}
}
