package config_test

import (
	"strings"
	"testing"
)

func TestStalenessIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"policy_max_stale: 1ms":                            `policy_max_stale is "1ms", want 1s to`,
		"policy_stale: open":                               `policy_stale is "open", want keep, limit or deny`,
		"policy_empty: keep":                               `policy_empty is "keep", want allow, limit or deny`,
		"policy_stale: deny\npolicy_max_stale: 0s":         `policy_stale is "deny", want keep, or policy_max_stale above 0`,
		"policy_stale: limit\nrefresh: 1h":                 `policy_max_stale is "1h0m0s", want twice refresh`,
		"policy_fallback: {limit: 0}":                      `policy_fallback.limit is "0", want 1 to`,
		"policy_fallback: {per: 1500ms}":                   `policy_fallback.per is "1.5s", want whole seconds`,
		"policy_stale: limit\npolicy_fallback: {limit: 7}": "",
		"refresh: 1h":                                      "",
	} {
		c, err := read(t, whole+text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		err = c.Complete()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
