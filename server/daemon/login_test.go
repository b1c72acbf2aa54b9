package daemon_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// Whatever is done with an identifier, nothing that the process says or keeps
// holds it.
func TestIdentifiersLeaveNoTrace(t *testing.T) {
	const secret, tagged = "alice-secret@example.org", "Alice-Secret@example.org"
	log := new(livelog.Text)
	var conf config.Config
	p := newProcessWith(t, daemon.Options{
		Log:     slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Version: "test",
	},
		[]policy.Rule{
			{Endpoint: "POST /v1/items", Limit: 2, Per: time.Hour, Subject: policy.SubjectIdentifier},
			{Endpoint: policy.Default, Limit: 100},
		}, func(c *config.Config) {
			c.Identifiers = []config.Identifier{{Endpoint: "POST /v1/items", Field: "email", Count: "failures",
				FailureStatuses: []int{200}}}
		}, func(c *config.Config) { conf = *c })

	var said strings.Builder
	do := func(method, url, body string, want int) {
		t.Helper()
		code, text := call(t, method, url, body, "Content-Type", asJSON)
		if code != want {
			t.Errorf("%s %s = %d %s, want %d", method, url, code, text, want)
		}
		said.WriteString(text)
	}
	login := `{"email":"` + tagged + `"}`
	do("POST", p.gate+"/v1/items", login, 200)
	do("POST", p.gate+"/v1/items", login, 200)
	do("POST", p.gate+"/v1/items", login, 429)
	do("POST", p.gate+"/v1/items", `{"email":"`+tagged+`","email":"x"}`, 200)
	do("POST", p.admin+"/v1/explain", `{"method":"POST","target":"/v1/items","identifier":"`+tagged+`"}`, 200)
	if !strings.Contains(said.String(), `"reason":"over_limit"`) {
		t.Errorf("explain does not find the bucket: %s", said.String())
	}
	do("POST", p.admin+"/v1/buckets/reset", `{"endpoint":"POST /v1/items","subject":"identifier","identifier":" `+
		secret+` ","by":"tests"}`, 200)
	do("POST", p.gate+"/v1/items", login, 200)
	do("GET", p.admin+"/metrics", "", 200)
	for _, want := range []string{`headgate_identifiers_total{fault="none"} 4`,
		`headgate_identifiers_total{fault="twice"} 1`} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("metrics do not say %s", want)
		}
	}
	kept := 0
	err := filepath.WalkDir(filepath.Dir(strings.TrimPrefix(conf.DB, "sqlite:")),
		func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) { // of another name by now, as a whole
				return nil
			}
			said.Write(text)
			kept += len(text)
			return err
		})
	if err != nil || kept == 0 || log.String() == "" {
		t.Fatalf("%d bytes kept, %v, log %q, want some of each", kept, err, log.String())
	}
	said.WriteString(log.String())
	for _, part := range []string{secret, tagged, "secret@", "Secret@"} {
		if at := strings.Index(said.String(), part); at >= 0 {
			t.Errorf("the identifier stands in …%q…", said.String()[max(0, at-80):at+40])
		}
	}
}
