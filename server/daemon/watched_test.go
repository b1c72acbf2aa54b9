package daemon_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/warnings"
)

// TestWarningsAreSent: a caller that uses up its limit is told of to whoever the configuration
// names, signed by a secret that may change meanwhile, and to the log and the metrics; a receiver
// that hangs holds up no request.
func TestWarningsAreSent(t *testing.T) {
	type event struct{ signature, body string }
	events, release := make(chan event, 10), make(chan struct{})
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		events <- event{r.Header.Get(warnings.SignatureField), string(body)}
		<-release
	}))
	t.Cleanup(hook.Close)
	t.Cleanup(func() { close(release) })
	var key, secretFile string
	var log livelog.Text
	p := newProcessWith(t, daemon.Options{Log: slog.New(slog.NewTextHandler(&log, nil))},
		[]policy.Rule{{Endpoint: policy.All, Limit: 5, Per: time.Hour, Name: "quota"}}, func(c *config.Config) {
			secretFile = filepath.Join(filepath.Dir(c.Routes[0]), "hook.secret")
			if err := os.WriteFile(secretFile, []byte("the first secret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c.Warn.CallerPercent, c.Warn.URL, c.Warn.SecretFile = 80, hook.URL+"/s3cr3t", secretFile
			if err := c.Complete(); err != nil {
				t.Fatal(err)
			}
			db, err := database.Open(context.Background(), c.DB)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			digester, err := daemon.Digester(c.SecretFile, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, key, err = db.CreateKey(context.Background(), digester,
				record.NewAPIKey{Project: "acme", Name: "ci"}); err != nil {
				t.Fatal(err)
			}
		})
	if err := os.WriteFile(secretFile, []byte("the second secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		want := http.StatusOK
		if i >= 5 {
			want = http.StatusTooManyRequests
		}
		if code, _ := call(t, "GET", p.gate+"/v1/items/1", "", "X-Api-Key", key); code != want {
			t.Errorf("request %d is answered %d, want %d", i, code, want)
		}
	}
	select {
	case got := <-events:
		at, _, _ := strings.Cut(strings.TrimPrefix(got.signature, "t="), ",")
		seconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil || got.signature != warnings.Sign([]byte("the second secret"), time.Unix(seconds, 0),
			[]byte(got.body)) {
			t.Errorf("signature %q of %s, %v", got.signature, got.body, err)
		}
		var e warnings.Event
		if err := json.Unmarshal([]byte(got.body), &e); err != nil || e.Kind != warnings.NearLimit ||
			e.State != "begun" || e.Percent != 80 || e.Rule != "quota" || e.Project != "acme" {
			t.Errorf("%s, %v", got.body, err)
		}
	case <-time.After(time.Minute):
		t.Fatal("no warning is sent")
	}
	_, page := call(t, "GET", p.admin+"/metrics", "")
	for _, want := range []string{`headgate_warnings{kind="caller_near_limit"} 1`,
		`headgate_warnings_total{kind="caller_near_limit"} 1`, `headgate_warning_events_total{outcome="delivered"} 0`} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if said := log.String(); !strings.Contains(said, "kind=caller_near_limit") || strings.Contains(said, "s3cr3t") ||
		strings.Contains(said, "second secret") || strings.Contains(said, key) {
		t.Errorf("the log says %s", said)
	}
}
