package main

import (
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

func setClock(g *harness.Gateway, ahead time.Duration) error { return g.SetClock(ahead) }
