package main

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/server/lint"
)

func TestWorkingSaysSoAndErasesIt(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		takes time.Duration
		want  string
	}{
		"quickly": {900 * time.Millisecond, ""},
		"two seconds": {2500 * time.Millisecond,
			"\r\033[Kwriting 3 changes, for 1 s\r\033[Kwriting 3 changes, for 2 s\r\033[K"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said strings.Builder
				err := workingOn(&said, "writing "+lint.Counted(3, "change", "changes"), func() error {
					time.Sleep(c.takes)
					return failed
				})
				if err != failed || said.String() != c.want {
					t.Errorf("%v, %q, want %q", err, said.String(), c.want)
				}
			})
		})
	}
}
