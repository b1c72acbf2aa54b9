package daemon

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
)

// TestScoresThroughTheGateway: with both engines, answers of the API and what matches nothing make a score, the score
// brings the rules of the tier, and a reload of either changes it at once; what the gateway answers makes none.
func TestScoresThroughTheGateway(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(strings.ReplaceAll(engine, "/", "_"), func(t *testing.T) { scoresThroughTheGateway(t, engine) })
	}
}

func scoresThroughTheGateway(t *testing.T, engine string) {
	ctx := context.Background()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/gone/") {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(api.Close)
	dir := t.TempDir()
	c := config.Default()
	c.Listen, c.Admin, c.Upstream, c.Engine = "127.0.0.1:0", "127.0.0.1:0", api.URL, engine
	c.DB, c.Routes = sqlitetest.New(t, filepath.Join(dir, "headgate.db")), []string{filepath.Join(dir, "routes.txt")}
	c.DecisionLog.File = filepath.Join(dir, "decisions.log")
	c.Anomalies.Window = 24 * time.Hour
	c.Anomalies.Tiers = []config.ScoreTier{{Score: 70, Tier: "suspect", Addresses: true}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(c.Routes[0], []byte("GET /v1/gone/{id}\nGET /v1/items/{id}\n"), 0o600))
	must(c.Complete())
	db, err := database.Open(ctx, c.DB)
	must(err)
	must(db.Import(ctx, record.Author{Actor: "test"}, policy.Document{Rules: []policy.Rule{
		{Endpoint: policy.Default, Limit: 10_000},
		{Endpoint: policy.Default, Tier: "suspect", Limit: 2, Per: time.Hour},
	}}, true))
	must(db.Close())
	next := c
	d, err := Start(ctx, c, Options{Log: slog.New(slog.DiscardHandler), Version: "test",
		Read: func() (config.Config, error) { return next, nil }})
	must(err)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	local := netip.MustParseAddr("127.0.0.1")
	us := &identity.Principal{Client: local, Prefix: netip.PrefixFrom(local, 32)}
	table := d.parts.scores
	table.Asked(d.parts.rules.Now()-int64(24*time.Hour), table.Caller(us), anomaly.Request{}) // yesterday
	get := func(base, target string) (int, string) {
		t.Helper()
		answer, err := http.Get(base + target)
		must(err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		must(err)
		return answer.StatusCode, string(text)
	}
	gate, side := "http://"+d.Gateway().String(), "http://"+d.Admin().String()
	ask := func(target string, times, want int) {
		t.Helper()
		for range times {
			if got, _ := get(gate, target); got != want {
				t.Fatalf("%s is answered %d, want %d", target, got, want)
			}
		}
	}
	ask("/v1/gone/7", 40, 404)
	ask("/nowhere", 60, 404)
	ask("/v1/items/7", 2, 200)
	ask("/v1/items/7", 30, 429)

	var told admin.Anomalies
	status, text := get(side, "/v1/anomalies?reveal=true")
	if err := json.Unmarshal([]byte(text), &told); err != nil || status != 200 || len(told.Callers) != 1 {
		t.Fatalf("/v1/anomalies is answered %d %s", status, text)
	}
	one := told.Callers[0]
	if one.Address != "127.0.0.1" || one.Score < 70 || one.Tier != "suspect" ||
		one.Parts[anomaly.Errors].Points != 40 || one.Parts[anomaly.Unknown].Points < 30 {
		t.Errorf("%+v", one)
	}
	if _, text = get(side, "/metrics"); !strings.Contains(text, `headgate_anomalous_callers{at_least="70"} 1`) ||
		!strings.Contains(text, `headgate_anomaly_score_bucket{le="60"}`) || strings.Contains(text, "127.0.0.1") {
		t.Errorf("the metrics do not tell of it, or of who it is")
	}

	reload := func(change func(*config.Anomalies)) {
		t.Helper()
		change(&next.Anomalies)
		must(next.Complete())
		if _, err := d.Reload(ctx); err != nil {
			t.Fatal(err)
		}
	}
	reload(func(a *config.Anomalies) { a.Tiers = []config.ScoreTier{{Score: 99, Tier: "suspect", Addresses: true}} })
	ask("/v1/items/7", 3, 200)
	reload(func(a *config.Anomalies) { a.Tiers = []config.ScoreTier{{Score: 60, Tier: "suspect"}} })
	ask("/v1/items/7", 3, 200) // as it is an address
	reload(func(a *config.Anomalies) { a.Tiers[0].Addresses = true })
	ask("/v1/items/7", 1, 429)
	reload(func(a *config.Anomalies) { a.Window, a.Tiers = 0, nil })
	ask("/v1/items/7", 3, 200)
	if status, _ := get(side, "/v1/anomalies"); status != 404 {
		t.Errorf("where nobody is scored it is answered %d", status)
	}
	stop()
	must(<-ended)
	ended <- nil
	log, err := os.ReadFile(c.DecisionLog.File)
	must(err)
	if !strings.Contains(string(log), `"points":{"errors":40,"unknown":`) ||
		strings.Contains(string(log), "127.0.0.1") {
		t.Errorf("the decision log does not say why:\n%.2000s", log)
	}
}
