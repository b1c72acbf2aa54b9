package operations

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/eval/harness"
)

// fileSize bounds what a process may write to files: from "0" on every write
// fails, as on a disk that is full, and nobody has to be allowed to mount one.
func fileSize(t *testing.T, g *harness.Gateway, most string) {
	t.Helper()
	if out, err := exec.Command("prlimit", "--pid", fmt.Sprint(g.PID()),
		"--fsize="+most+":").CombinedOutput(); err != nil {
		t.Fatalf("prlimit: %v\n%s", err, out)
	}
}

// put changes the limit by the admin API.
func put(t *testing.T, g *harness.Gateway, limit int) int {
	t.Helper()
	body := strings.NewReader(fmt.Sprintf(`{"endpoint": %q, "limit": %d}`, rule, limit))
	request, _ := http.NewRequest(http.MethodPut, g.Admin+"/v1/policies", body)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// TestFullDisk fills the disk of a running gateway: requests go on, what it
// cannot write down is refused or said, and the last good copy stays whole.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	setLimit(t, dir, "1000")
	g, _ := start(t, dir)
	expectLimit(t, g, "1000")
	copied := filepath.Join(dir, "headgate.db.last-good.json")
	before, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}

	fileSize(t, g, "0")
	if status := put(t, g, 3000); status < 500 {
		t.Errorf("a change on a full disk is answered %d, want 5xx", status)
	}
	if limit := limitInForce(t, g); limit != "1000" {
		t.Errorf("after a change that was refused, the limit is %s, want 1000", limit)
	}
	setLimit(t, dir, "2000") // by a process that may write
	expectLimit(t, g, "2000")
	if !harness.Eventually(patience, func() bool { return g.Metric(t, "headgate_policy_copy_ok ") == "0" }) {
		t.Errorf("headgate_policy_copy_ok = %s, want 0", g.Metric(t, "headgate_policy_copy_ok "))
	}
	if !g.Says("the last good copy is not kept") {
		t.Errorf("the log does not say that the copy is not kept:\n%s", g.Log())
	}
	if after, err := os.ReadFile(copied); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the last good copy has changed on a full disk: %v\n%s", err, after)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".headgate*")); len(left) != 0 {
		t.Errorf("%v are left behind", left)
	}

	fileSize(t, g, "unlimited")
	if status := put(t, g, 4000); status != http.StatusOK {
		t.Errorf("a change with room again is answered %d, want 200", status)
	}
	expectLimit(t, g, "4000")
	if !harness.Eventually(patience, func() bool { return g.Metric(t, "headgate_policy_copy_ok ") == "1" }) {
		t.Errorf("headgate_policy_copy_ok = %s with room again, want 1", g.Metric(t, "headgate_policy_copy_ok "))
	}
	if after, err := os.ReadFile(copied); err != nil || !bytes.Contains(after, []byte("4000")) {
		t.Errorf("the last good copy is %s, %v, want the 4000", after, err)
	}
}

// TestCommandOnAFullDisk changes a rule where nothing can be written.
func TestCommandOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	setLimit(t, dir, "1000")
	cmd := exec.Command("prlimit", "--fsize=0", harness.Binary(t), "policy", "set", rule, "2000", "--db",
		"sqlite:headgate.db")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if text := string(out); err == nil || cmd.ProcessState.ExitCode() != 1 || strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, "headgate.db: cannot be read or written, want its disk looked after") {
		t.Errorf("policy set = %v\n%swant exit status 1 and one line that says why", err, text)
	}
	if text := harness.Run(t, dir, "policy", "get", rule, "--db",
		"sqlite:headgate.db"); !strings.Contains(text, "1000") {
		t.Errorf("the rule is\n%s\nwant the 1000 from before", text)
	}
}
