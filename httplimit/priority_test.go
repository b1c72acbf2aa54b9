package httplimit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/policy"
)

// TestFieldsTellWhatTheClassHas of a budget that classes share, and when that is more: of twenty tokens, one a minute,
// low has seven, and then two that it is guaranteed.
func TestFieldsTellWhatTheClassHas(t *testing.T) {
	d := newDoor(t, []policy.Rule{
		{Endpoint: policy.All, Limit: 1, Per: time.Minute, Burst: 20, Subject: policy.SubjectEndpoint, Name: "all",
			Priority: "high:20,low:10"},
		{Endpoint: "GET /v1/items/{id}", Limit: 1000, Per: time.Hour, Name: "own", Priority: "low"},
	}, httplimit.Options{})
	for i, want := range []string{"r=6;t=60", "r=5;t=60", "r=4;t=60", "r=3;t=60", "r=2;t=60", "r=1;t=60", "r=0;t=60",
		"r=1;t=180", "r=0;t=180"} {
		w := d.do("GET", "/v1/items/1")
		if got := w.Header().Get("RateLimit"); w.Code != 200 || !strings.Contains(got, `"all";`+want) {
			t.Errorf("request %d: %d, RateLimit %s, want %s", i, w.Code, got, want)
		}
	}
	w := d.do("GET", "/v1/items/1")
	if got := fmt.Sprint(w.Code, w.Header()["Retry-After"]); got != "429 [180]" {
		t.Errorf("the tenth is answered %s, want 429 [180]", got)
	}
}
