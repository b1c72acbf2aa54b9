package edge_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestModulesAreOfTheirSource compiles the modules again. By the compiler that wasm/COMPILER names
// they are the same bytes. Another compiler writes others, which decide the same.
func TestModulesAreOfTheirSource(t *testing.T) {
	into := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "make", "-s", "-C", "../../wasm/core", "INTO="+into).CombinedOutput()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	read := func(elements ...string) []byte {
		b, err := os.ReadFile(filepath.Join(elements...))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	kept, here := read("../../wasm/COMPILER"), read(into, "COMPILER")
	if !bytes.Equal(kept, here) {
		t.Logf("the modules were made by %s, and here is %s: what they decide is compared, and not their bytes",
			bytes.TrimSpace(kept), bytes.TrimSpace(here))
		steps, want := schedule(rand.New(rand.NewPCG(1, 1)), 20_000)
		compare(t, steps, want, inWazero(t, read(into, "core.wasm"), steps, len(want)))
		return
	}
	for _, name := range []string{"core.wasm", "plain.wasm", "filter.wasm"} {
		if !bytes.Equal(read("../../wasm", name), read(into, name)) {
			t.Errorf("wasm/%s is not what its source makes by %s: run `make wasm`", name, bytes.TrimSpace(here))
		}
	}
	for name, most := range map[string]int{"core.wasm": 1200, "plain.wasm": 13_500, "filter.wasm": 17_000} {
		if n := len(read("../../wasm", name)); n > most {
			t.Errorf("%s has %d bytes, want at most %d", name, n, most)
		}
	}
}
