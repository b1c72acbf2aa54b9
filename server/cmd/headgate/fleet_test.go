package main

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/fleet"
)

// The table shows by how much the clock of each gateway is ahead of the store's, if it has one.
func TestFleetShowsClocks(t *testing.T) {
	seconds := func(s float64) *float64 { return &s }
	var out strings.Builder
	err := writeFleet(&out, fleet.Report{Replicas: []fleet.Replica{
		{Name: "none", Number: 1, State: fleet.OK},
		{Name: "near", Number: 1, State: fleet.OK, Ahead: seconds(-0.0124)},
		{Name: "far", Number: 1, State: fleet.OK, Ahead: seconds(3600.4)},
	}}, false, false)
	want := `REPLICA  RULES  BEHIND  STALE  SEEN      CLOCK    STATE  WHY
none     1      -       0.0s   0.0s ago  -        ok     -
near     1      -       0.0s   0.0s ago  -0.012s  ok     -
far      1      -       0.0s   0.0s ago  +3600s   ok     -
`
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out.String(), want)
	}
}
