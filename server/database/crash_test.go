package database_test

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/headgate-io/headgate/server/record"
)

// A process that is killed in the middle of its writes loses none of those
// that it said were done.
func TestKilledWriterLosesNothing(t *testing.T) {
	for round, after := range []int{1, 10, 40} {
		path := filepath.Join(t.TempDir(), "headgate.db")
		writer := child(t, "write", path, false)
		out, err := writer.StdoutPipe()
		must(t, err)
		must(t, writer.Start())
		acknowledged := -1
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Errorf("the writer says %q", lines.Text())
				break
			}
			acknowledged = n
			if n == after {
				must(t, writer.Process.Kill()) // and read on what it had still said
			}
		}
		if err := writer.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("the writer ended with %v, want it killed", err)
		}

		s := openAt(t, path)
		must(t, s.Check(t.Context()))
		rules, err := s.List(t.Context())
		must(t, err)
		if len(rules) != acknowledged+1 && len(rules) != acknowledged+2 { // the last may be done and not said
			t.Errorf("round %d: %d rules are there, want the %d acknowledged ones", round, len(rules), acknowledged+1)
		}
		for i := range acknowledged + 1 {
			if _, err := s.Get(t.Context(), record.RuleKey{Endpoint: fmt.Sprintf("GET /%d", i)}); err != nil {
				t.Errorf("round %d: rule %d was acknowledged: %v", round, i, err)
			}
		}
	}
}
