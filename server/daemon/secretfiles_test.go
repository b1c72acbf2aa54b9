package daemon_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// A start tells of every file with a secret that others may read, once, and of
// none that they may not.
func TestStartWarnsOfReaders(t *testing.T) {
	for _, c := range []struct {
		name string
		mode os.FileMode
		want int // warnings for each file
	}{
		{"for the owner alone", 0o600, 0},
		{"for the group", 0o640, 1},
		{"for everybody", 0o644, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := func(name, text string) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, c.mode); err != nil { // whatever the umask
					t.Fatal(err)
				}
				return path
			}
			var log livelog.Text
			newProcessWith(t, daemon.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Version: "test"}, fewAnHour,
				func(conf *config.Config) {
					conf.SecretFile = file("keys.secret", strings.Repeat("ab", 32)+"\n")
					conf.AdminTokenFile = file("admin.token", strings.Repeat("cd", 32)+"\n")
					conf.Tokens.SecretFiles = []string{file("first.secret", strings.Repeat("e", 64)),
						file("second.secret", strings.Repeat("f", 64))}
					conf.Tokens.Algorithms, conf.Tokens.Issuer, conf.Tokens.Audiences = []string{"HS256"},
						"https://issuer.example", []string{"api"}
					conf.Store.Redis, conf.Store.SecretFile = []string{"127.0.0.1:1"},
						file("names.secret", strings.Repeat("ab", 32)+"\n")
					conf.Store.PasswordFile = file("store.password", "open sesame\n")
				})
			for _, name := range []string{"keys.secret", "admin.token", "first.secret", "second.secret", "names.secret",
				"store.password"} {
				got := 0
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, "level=WARN") && strings.Contains(line, filepath.Join(dir, name)) &&
						strings.Contains(line, "mode") {
						got++
					}
				}
				if got != c.want {
					t.Errorf("%s of mode %04o: %d warnings, want %d in\n%s", name, c.mode, got, c.want, log.String())
				}
			}
			if strings.Contains(log.String(), "sesame") {
				t.Error("the log has a password")
			}
		})
	}
}
