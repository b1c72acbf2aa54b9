package config_test

import (
	"strings"
	"testing"
)

func TestWhatPeopleAreToldOf(t *testing.T) {
	const signed = "warnings: {caller_percent: 80, secret_file: hook.secret, url: "
	for text, want := range map[string]string{
		"warnings: {caller_percent: 80}":                                                  "",
		"warnings: {denied_percent: 5, denied_for: 15m}":                                  "",
		signed + "'https://hooks.example/x?t=1'}":                                         "",
		signed + "'http://127.0.0.1:9/x'}":                                                "",
		signed + "'http://[::1]/x'}":                                                      "",
		signed + "'http://localhost:9/x'}":                                                "",
		signed + "'http://hooks.example/s3cr3t'}":                                         "warnings.url is",
		signed + "'http://169.254.169.254/s3cr3t'}":                                       "warnings.url is",
		signed + "'https://u:s3cr3t@hooks.example/'}":                                     "warnings.url is",
		signed + "'file:///etc/s3cr3t'}":                                                  "warnings.url is",
		"warnings: {caller_percent: 80, url: 'https://hooks.example/'}":                   "warnings.secret_file is",
		"warnings: {secret_file: x, url: 'https://hooks.example/'}":                       "warnings.url is",
		"warnings: {caller_percent: 80, secret_file: hook.secret}":                        "warnings.secret_file is",
		"warnings: {caller_percent: 101}":                                                 "warnings.caller_percent is",
		"warnings: {slower_percent: 100, slower_for: 3m}":                                 "",
		"warnings: {slower_percent: 100}\nlisten: none\ndecisions: {listen: 127.0.0.1:0}": `warnings.slower_percent is "100", want 0`,
		"warnings: {slower_percent: 10001}":                                               "warnings.slower_percent is",
		"warnings: {slower_percent: 100, slower_for: 5s}":                                 "warnings.slower_for is",
		"warnings: {denied_percent: 5, denied_for: 5s}":                                   "warnings.denied_for is",
		"warnings: {caller_percent: 5, caller_fill: 0s}":                                  "warnings.caller_fill is",
	} {
		c, err := read(t, whole+text+"\n")
		if err == nil {
			err = c.Complete()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), "s3cr3t"):
			t.Errorf("the error repeats what may be a secret: %v", err)
		}
	}
}
