package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-empty" { // as the empty service
		if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// Every way to ask is answered by the real process, and has a row with a figure.
func TestEveryWay(t *testing.T) {
	var out, progress bytes.Buffer
	if err := run([]string{"-dry", "-rounds", "1", "-sample", "300ms", "-others=false"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, row := range []string{
		emptyRow, tunedRow, peerRow, rlsRow, pingRow, "ext_authz", "spoe", "/forward", "in JSON", "100 in a batch",
		incrRow, readRow, "CL.THROTTLE", "HG.CHECK", pipeRow, "CL.THROTTLE, 32", "HG.CHECK, 32", bareRow, "httplimit",
		"Behind nginx",
	} {
		line := ""
		for l := range strings.Lines(out.String()) {
			if strings.Contains(l, row) {
				line = l
				break
			}
		}
		// The kernel counts in hundredths of a second: Redis may have done nothing.
		if line == "" || strings.Contains(line, "| 0.00 |") && row != incrRow {
			t.Errorf("%s: %q, want a figure", row, line)
		}
	}
}

func TestNonsense(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-sample", "1ms"}, {"-nothing"}} {
		if err := run(args, new(bytes.Buffer), new(bytes.Buffer)); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, all := range map[float64][]float64{3: {9, 3, 1}, 2: {3, 1}} {
		if got := median(all); got != want {
			t.Errorf("median of %v is %v, want %v", all, got, want)
		}
	}
}
