package client_test

import (
	"database/sql"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite", for what a shell would do

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/record"
)

// What was no rule comes through a gateway as what it was.
func TestHistoryOfWhatIsNoRule(t *testing.T) {
	server, db := gateway(t)
	through, err := client.New(server, fileToken)
	must(t, err)
	must(t, db.Set(t.Context(), record.Author{Actor: "local:ann"},
		policy.Rule{Endpoint: policy.Default, Project: "acme", Limit: 5, Burst: 9}))
	shell, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(db.Path(), "sqlite:")+
		"?_pragma=ignore_check_constraints(1)&_pragma=busy_timeout(5000)")
	must(t, err)
	defer shell.Close()
	_, err = shell.Exec("UPDATE policies SET rps_limit = -4, mode = 'x' WHERE endpoint = 'default'")
	must(t, err)
	must(t, db.Number(t.Context()))

	now, err := db.Current(t.Context())
	must(t, err)
	want, err := db.Changes(t.Context(), now.ID)
	must(t, err)
	got, err := through.Changes(t.Context(), now.ID)
	must(t, err)
	if len(got) != 1 || got[0].Before == nil || *got[0].Before != *want[0].Before || got[0].FaultBefore != "" {
		t.Fatalf("before: %+v, want %+v", got, want)
	}
	if after := (policy.Rule{Endpoint: policy.Default, Project: "acme", Per: got[0].Before.Per,
		Burst: 9}); *got[0].After != after || got[0].FaultAfter != want[0].FaultAfter {
		t.Errorf("after: %+v (%s), want %+v (%s)", *got[0].After, got[0].FaultAfter, after, want[0].FaultAfter)
	}
}
