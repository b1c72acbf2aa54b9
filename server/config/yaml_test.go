package config_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/config"
)

func TestToJSONKeepsValuesAndLines(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"a policy file": {
			"# rules\nrules:\n- endpoint: default\n  limit: 5\n- {endpoint: '*', limit: 1e30}\n",
			"\n{\"rules\":\n[{\"endpoint\":\"default\",\n\"limit\":5},\n{\"endpoint\":\"*\",\"limit\":1e30}]}",
		},
		"numbers as written": {"[1.50, 100000000000000000000000000000000, 0x10, -1]",
			"[1.50,100000000000000000000000000000000,16,-1]"},
		"times stay text":      {"expires: 2027-01-31T12:00:00Z", `{"expires":"2027-01-31T12:00:00Z"}`},
		"keys are text":        {"1: a\ntrue: b", "{\"1\":\"a\",\n\"true\":\"b\"}"},
		"aliases":              {"- &a {x: 1}\n- *a", "[{\"x\":1},{\"x\":1}]"},
		"nothing":              {"# nothing\n", "null"},
		"nulls and booleans":   {"[~, null, true, no]", `[null,null,true,"no"]`},
		"JSON is left alone":   {`{"a": 1 }`, `{"a": 1 }`},
		"broken JSON likewise": {`{"a": 1`, `{"a": 1`},
	} {
		got, err := config.ToJSON([]byte(c.yaml))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: ToJSON = %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestToJSONRefuses(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 'b'; i <= 'i'; i++ {
		bomb += string(i) + ": &" + string(i) + " [" +
			strings.TrimSuffix(strings.Repeat("*"+string(i-1)+",", 10), ",") + "]\n"
	}
	for name, c := range map[string]struct{ yaml, want string }{
		"no YAML":       {"a: [", "line"},
		"a bomb":        {bomb, "aliases expand"},
		"not a number":  {"x: .nan", "line 1"},
		"unknown alias": {"x: *y", "unknown anchor"},
	} {
		if got, err := config.ToJSON([]byte(c.yaml)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: ToJSON = %d bytes, %v, want an error that says %q", name, len(got), err, c.want)
		}
	}
}
