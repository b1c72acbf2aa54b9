package operations

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// atLeast is how many parallel tests run at once: they wait for processes, and
// seldom need a processor.
const atLeast = 8

func TestMain(m *testing.M) {
	flag.Parse()
	if n, ok := flag.Lookup("test.parallel").Value.(flag.Getter).Get().(int); ok && n < atLeast {
		if err := flag.Set("test.parallel", fmt.Sprint(atLeast)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}
