//go:build !(linux && amd64)

package main

import (
	"errors"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

func setClock(*harness.Gateway, time.Duration) error {
	return errors.New("clocks of processes are only set on Linux and amd64")
}
