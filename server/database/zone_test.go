package database_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Times come back in UTC, wherever the process runs: so the commands print the same of a database as through a gateway.
func TestTimesComeBackInUTC(t *testing.T) { everywhere(t, testTimesComeBackInUTC) }

func testTimesComeBackInUTC(t *testing.T, d someDatabase) {
	s, db, ctx := d.open(t), d.shell(t), t.Context()
	kathmandu := time.FixedZone("", 20700)
	made, err := s.Apply(ctx, tester, record.Edit{Set: []policy.Rule{
		{Endpoint: policy.Default, Limit: 5, Expires: time.Now().Add(time.Hour).In(kathmandu)},
	}})
	must(t, err)
	run(t, db, "INSERT INTO policies (endpoint, rps_limit, expires_at) VALUES ('GET /sql', 1, 1893456000)")
	must(t, s.Number(ctx))
	now, err := s.Export(ctx)
	must(t, err)
	then, err := s.At(ctx, now.Number)
	must(t, err)
	versions, err := s.History(ctx, 0, 10)
	must(t, err)
	if len(now.Rules) != 2 || len(then.Rules) != 2 || len(versions) != 3 {
		t.Fatalf("%d rules now, %d then, and %d versions, want 2, 2, and 3 with the first, empty one", len(now.Rules),
			len(then.Rules), len(versions))
	}
	times := map[string]time.Time{"what was made": made.At}
	for i := range 2 {
		times["a rule now: "+now.Rules[i].Endpoint] = now.Rules[i].Expires
		times["a rule of a version: "+then.Rules[i].Endpoint] = then.Rules[i].Expires
	}
	for _, v := range versions {
		times[fmt.Sprint("version ", v.ID)] = v.At
	}
	for of, at := range times {
		if at.IsZero() || at.Location() != time.UTC {
			t.Errorf("the time of %s is %v, want one in UTC", of, at)
		}
	}
}
