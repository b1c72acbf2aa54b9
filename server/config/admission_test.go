package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/config"
)

func TestAdmissionSettings(t *testing.T) {
	const tls = "  tls: {cert_file: a, key_file: b}\n"
	for _, c := range []struct{ text, want string }{
		{"listen: none\ndecisions:\n  listen: 0.0.0.0:8443\n" + tls +
			"  admission: {enabled: true, groups: [a, b]}\n", ""},
		{"listen: none\ndecisions:\n  listen: 127.0.0.1:8443\n  admission: {enabled: true}\n", ""},
		{"listen: none\ndecisions:\n  listen: 0.0.0.0:8443\n  admission: {enabled: true}\n",
			"decisions.admission.enabled is \"true\", want decisions.tls.cert_file and key_file beside it"},
		{"upstream: http://h\nroutes: [r]\ndecisions:\n  listen: 127.0.0.1:1\n  admission: {enabled: true}\n",
			"want listen none beside it"},
		{"listen: none\ndecisions:\n  grpc: 127.0.0.1:1\n  admission: {enabled: true}\n",
			"want decisions.listen beside it"},
		{"listen: none\ndecisions:\n  listen: 127.0.0.1:1\n  admission: {groups: [a]}\nunknown: limit\n",
			"decisions.admission.groups is \"a\", want decisions.admission.enabled beside it"},
		{"listen: none\ndecisions:\n  listen: 127.0.0.1:1\n  admission: {enabled: true, groups: [a, a, \"\"]}\n",
			"decisions.admission.groups[1] is \"a\""},
		{"listen: none\ndecisions:\n  listen: 127.0.0.1:1\n  admission: {enabled: true, timeout: 30s}\n",
			"decisions.admission.timeout is \"30s\", want 10ms to 29s"},
		{"upstream: http://h\nroutes: [r]\ndb: kubernetes:a\n", ""},
		{"upstream: http://h\nroutes: [r]\ndb: kubernetes:a\ndb_table: t\n", "db_table is \"t\", want none"},
		{"upstream: http://h\nroutes: [r]\ndb: kubernetes:a\ndb_keys: postgres://h/d\n", "db_keys is"},
		{"upstream: http://h\nroutes: [r]\ndb: kubernetes:a\nauto_revert: {share: 50%}\n", "auto_revert.share is"},
	} {
		path := filepath.Join(t.TempDir(), "headgate.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		conf, err := config.Read(path)
		if err == nil {
			err = conf.Complete()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}
