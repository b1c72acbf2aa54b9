package main

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/admin"
)

// TestActivityTellsWhoLeftWaiting: in a column of its own, where somebody did.
func TestActivityTellsWhoLeftWaiting(t *testing.T) {
	for _, c := range []struct {
		left uint64
		want string
	}{
		{0, `RULE     ADMITTED  DENIED  SHADOW  LAST HOUR  DENIED  SHADOW
GET /a   2.0/s     -       -       7200       3       0
default  -         -       -       5          0       0
`},
		{12, `RULE     ADMITTED  DENIED  SHADOW  LAST HOUR  DENIED  SHADOW  LEFT WAITING
GET /a   2.0/s     -       -       7200       3       0       12
default  -         -       -       5          0       0       0
`},
	} {
		var out strings.Builder
		now := admin.Activity{Rules: []activity.Rate{
			{Rule: "GET /a", Admitted: 2, Hour: activity.HourCount{Admitted: 7200, Denied: 3, Abandoned: c.left}},
			{Rule: "default", Hour: activity.HourCount{Admitted: 5}},
		}}
		if err := writeActivity(&out, &now, activity.Series{}, false); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := strings.Cut(out.String(), "\nnobody"); got != c.want {
			t.Errorf("%d left:\n%s\nwant\n%s", c.left, got, c.want)
		}
	}
}
