package admin_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
)

// TestAnomalies: the highest scores come first, with what they are made of and what follows; names are for those who
// may know them, and who has no score is not there.
func TestAnomalies(t *testing.T) {
	s := newSite(t)
	ask := func(target string) (told admin.Anomalies) {
		t.Helper()
		got := s.call(s.all(), http.MethodGet, target, "")
		if got.status != http.StatusOK {
			t.Fatalf("%s is answered %d %s", target, got.status, got.body)
		}
		must(t, json.Unmarshal([]byte(got.body), &told))
		return told
	}
	told := ask("/v1/anomalies?reveal=true")
	if len(told.Callers) != 2 || told.Total != 2 || told.Counted != 3 || told.Room != anomaly.DefaultCallers ||
		told.WindowSeconds != time.Hour.Seconds() {
		t.Fatalf("%+v", told)
	}
	first, second := told.Callers[0], told.Callers[1]
	if first.ID != "scanner" || first.Score != 80 || first.Tier != "suspect" || first.From != 40 ||
		len(first.Parts) != anomaly.Parts || first.Parts[anomaly.Unknown].Points != 40 ||
		first.Parts[anomaly.Unknown].Why == "" {
		t.Errorf("the first is %+v", first)
	}
	if second.Address != "192.0.2.99" || second.Score != 40 || second.Tier != "" { // which is for verified callers
		t.Errorf("the second is %+v", second)
	}
	if told = ask("/v1/anomalies?limit=1"); len(told.Callers) != 1 || told.Total != 2 || told.Callers[0].ID != "" ||
		told.Callers[0].Hash == "" {
		t.Errorf("without names, one at most: %+v", told)
	}
	off := newSite(t, func(o *admin.Options) { o.Scored = nil })
	if got := off.call(off.all(), http.MethodGet, "/v1/anomalies", ""); got.status != http.StatusNotFound {
		t.Errorf("where nobody is scored it is answered %d", got.status)
	}
	readers := s.token(record.RoleRead)
	if got := s.call(readers, http.MethodGet, "/v1/anomalies?reveal=true", ""); got.status != http.StatusForbidden {
		t.Errorf("to a reader names are answered with %d", got.status)
	}
}
