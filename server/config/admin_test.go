package config_test

import (
	"strings"
	"testing"
)

func TestAdminAccess(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		needs bool
		want  string // "": nothing is wrong
	}{
		"loopback":         {"", false, ""},
		"loopback by name": {"admin: localhost:8081", false, ""},
		"always":           {"admin_auth: always", true, ""},
		"with a file":      {"admin_token_file: token", true, ""},
		"everywhere": {"admin: 0.0.0.0:8081", true, "admin is \"0.0.0.0:8081\", want a loopback address, " +
			"or admin_auth: always with a token of `headgate admin token create`, or admin_token_file set"},
		"everywhere, a file": {"admin: 0.0.0.0:8081\nadmin_token_file: token", true, ""},
		"everywhere, always": {"admin: 0.0.0.0:8081\nadmin_auth: always", true, ""},
		"no such word":       {"admin_auth: never", false, `admin_auth is "never", want loopback or always`},
		"forgetful": {"admin_calls: {keep: 1h}", false,
			`admin_calls.keep is "1h0m0s", want 24h0m0s to 87600h0m0s`},
		"a negative number": {"admin_calls: {max_looks: -1}", false,
			`admin_calls.max_looks is "-1", want 0 to 1000000000`},
		"a record of changes": {"admin_calls: {max_looks: 0, keep: 24h}", false, ""},
	} {
		conf, err := read(t, whole+c.text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := conf.Complete(); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Complete = %v, want %q", name, err, c.want)
		}
		if conf.NeedsAdminToken() != c.needs {
			t.Errorf("%s: NeedsAdminToken = %v, want %v", name, conf.NeedsAdminToken(), c.needs)
		}
	}
}
