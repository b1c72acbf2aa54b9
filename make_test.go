package headgate_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestMakeAloneChangesNothing: who types make in a fresh clone is told what there is, and nothing is installed or run.
func TestMakeAloneChangesNothing(t *testing.T) {
	out, err := exec.Command("make", "--no-print-directory", "--dry-run").CombinedOutput()
	if err != nil {
		t.Fatalf("make --dry-run: %v\n%s", err, out)
	}
	if steps := strings.Split(strings.TrimSpace(string(out)), "\n"); len(steps) != 1 || !strings.HasPrefix(steps[0], "awk ") {
		t.Errorf("make alone would run\n%s\nwant the list of targets alone", out)
	}
	out, err = exec.Command("make", "--no-print-directory").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "quick ") || !strings.Contains(string(out), "test ") {
		t.Errorf("make prints\n%s\n%v, want its targets", out, err)
	}
	out, err = exec.Command("make", "--no-print-directory", "--dry-run", "quick").CombinedOutput()
	if err != nil || strings.Contains(string(out), "install") {
		t.Errorf("make quick would run\n%s\n%v, want nothing installed", out, err)
	}
}
