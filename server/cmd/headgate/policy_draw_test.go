package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/draw"
)

// A rule is drawn as the database has it, or as the command line does; both ways are one picture.
func TestPolicyDraw(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "5/s", "--burst", "10", "--project", "acme")
	must(t, dir, "policy", "set", "*", "block", "--subject", "ip:192.0.2.0/24")
	drawn, said := must(t, dir, "policy", "draw", "default", "--project", "acme"),
		must(t, t.TempDir(), "policy", "draw", "default", "5/s", "--burst", "10")
	if drawn != said || !strings.Contains(drawn, "10 at once after a silence, 15 in the first second") {
		t.Errorf("the database's rule is\n%s\nand the same of the command line\n%s", drawn, said)
	}
	var p draw.Picture
	if err := json.Unmarshal([]byte(must(t, dir, "policy", "draw", "default", "5", "--burst", "10", "--json")),
		&p); err != nil || p.FirstSecond != 15 || len(p.Passed) != draw.Cells {
		t.Errorf("--json is %+v, %v", p, err)
	}
	for _, wrong := range []struct{ args, want string }{
		{"default 0/s", "LIMIT is"},
		{"default 5/s --burst -1", "--burst is -1"},
		{"default 5/s --algorithm gcra", "algorithm is"},
		{"default 5/m --algorithm fixed_window --burst 9", "burst is 9"},
		{"default 5/s --temporary", "--temporary is given"},
		{"default --burst 5", "--burst is given"},
		{"* allow", "gives no limit"},
		{"default 5/s --svg --json", "want one"},
	} {
		if code, _, text := call(t, dir, append([]string{"policy", "draw"},
			strings.Fields(wrong.args)...)...); code != exitUsage || !strings.Contains(text, wrong.want) {
			t.Errorf("policy draw %s: exit %d, %q, want %q", wrong.args, code, text, wrong.want)
		}
	}
	for _, wrong := range []struct{ endpoint, subject, want string }{{"default", "ip", "policy list"},
		{"*", "ip:192.0.2.0/24", "gives no limit"}} {
		if code, _, text := call(t, dir, "policy", "draw", wrong.endpoint, "--subject",
			wrong.subject); code == exitOK || !strings.Contains(text, wrong.want) {
			t.Errorf("policy draw %s of %s: exit %d, %q, want %q", wrong.endpoint, wrong.subject, code,
				text, wrong.want)
		}
	}
}
