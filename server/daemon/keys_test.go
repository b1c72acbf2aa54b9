package daemon

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
)

// keysOf is what a gateway does around keys, with a database and a secret file
// in a folder of its own.
func keysOf(t *testing.T) (k *apiKeys, db *database.Store, path string, log *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	c := config.Default()
	c.DB = sqlitetest.New(t, filepath.Join(dir, "headgate.db"))
	c.FillPaths()
	d := newDatabase(c, OpenDatabase)
	t.Cleanup(d.close)
	db, err := d.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log = &bytes.Buffer{}
	to := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ring, err := newKeyring(d, c, to)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k, err = newAPIKeys(c, d, ring, to); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	return k, db, c.SecretFile, log
}

func TestSecretFileIsWatched(t *testing.T) {
	k, _, path, log := keysOf(t)
	text := func(secrets ...string) string { return strings.Join(secrets, "\nprevious ") + "\n" }
	first := hex.EncodeToString(k.secrets.Current)
	second, third := strings.Repeat("5e", 32), strings.Repeat("7d", 32)
	for i, step := range []struct {
		content           string
		current, previous string // in force afterwards
		said              string // in the log, "" nothing
	}{
		{text(first), first, "", ""},
		{text(second, first), second, first, "is in force"},
		{text(second, first), second, first, ""},
		{"nonsense " + second, second, first, "is not an even number of hexadecimal digits"},
		{"nonsense " + second, second, first, ""}, // said once
		{text(third), second, first, "has no secret in common with those in force"},
		{text(third, second), third, second, "is in force"},
		{text(third), third, "", "is in force"},
		{"", third, "", "has 0 bytes"},
		{text(third), third, "", ""},
	} {
		log.Reset()
		if err := os.WriteFile(path, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		k.watch(t.Context())
		var want database.Secrets
		want.Current, _ = hex.DecodeString(step.current)
		if step.previous != "" {
			want.Previous, _ = hex.DecodeString(step.previous)
		}
		digester, err := want.Digester()
		if err != nil {
			t.Fatal(err)
		}
		if k.digester.Digest("x") != digester.Digest("x") ||
			k.digester.PreviousDigest("x") != digester.PreviousDigest("x") {
			t.Errorf("step %d: other secrets are in force", i)
		}
		if got := log.String(); !strings.Contains(got, step.said) || (step.said == "") != (got == "") {
			t.Errorf("step %d: the log says %q, want %q", i, got, step.said)
		}
		for _, secret := range []string{first, second, third} {
			if strings.Contains(log.String(), secret[:12]) {
				t.Errorf("step %d: the log has a secret: %s", i, log)
			}
		}
	}
	log.Reset()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	k.watch(t.Context())
	if !strings.Contains(log.String(), "no such file") {
		t.Errorf("without the file the log says %q", log)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a lost secret file was replaced")
	}
}

func TestKeysMoveToTheNewSecret(t *testing.T) {
	k, db, path, log := keysOf(t)
	key, text, err := db.CreateKey(t.Context(), k.digester, record.NewAPIKey{Project: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	secretOf := func() string {
		t.Helper()
		keys, err := db.ListKeys(t.Context())
		if err != nil || len(keys) != 1 || keys[0].ID != key.ID {
			t.Fatal(keys, err)
		}
		return keys[0].Secret
	}
	if _, err := database.RotateSecret(path); err != nil {
		t.Fatal(err)
	}
	k.watch(t.Context())
	current, previous := k.digester.SecretIDs()
	move := identity.Rotation{Old: k.digester.PreviousDigest(text), New: k.digester.Digest(text), SecretID: current}

	k.rehash.note(move)
	k.rehash.flush(t.Context())
	if got := secretOf(); got != previous {
		t.Errorf("right after the change the key is under %s, want %s still: other processes have not read the file",
			got, previous)
	}
	k.rehash.notBefore = time.Time{}
	k.rehash.flush(t.Context())
	if got := secretOf(); got != current {
		t.Errorf("the key is under %s, want %s", got, current)
	}
	if !strings.Contains(log.String(), "moved API keys") || strings.Contains(log.String(), text) {
		t.Errorf("the log says %s", log)
	}
}

// The secret before may be dropped as soon as the last key was moved, whether or
// not the gateway has read the keys since.
func TestMovedKeysAreKnownWhenTheSecretGoes(t *testing.T) {
	k, db, path, log := keysOf(t)
	_, text, err := db.CreateKey(t.Context(), k.digester, record.NewAPIKey{Project: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.keys.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := database.RotateSecret(path); err != nil {
		t.Fatal(err)
	}
	k.watch(t.Context())
	current, _ := k.digester.SecretIDs()
	k.rehash.notBefore = time.Time{}
	k.rehash.note(identity.Rotation{
		Old:      k.digester.PreviousDigest(text),
		New:      k.digester.Digest(text),
		SecretID: current,
	})
	k.rehash.flush(t.Context())
	if _, err := database.DropPrevious(path); err != nil {
		t.Fatal(err)
	}
	k.watch(t.Context())
	if key, err := k.keys.Find(t.Context(), k.digester.Digest(text)); err != nil || key.Project != "acme" {
		t.Errorf("%+v, %v, want the key of acme", key, err)
	}

	// Without the keys, the secret stays.
	if _, err := database.RotateSecret(path); err != nil {
		t.Fatal(err)
	}
	k.watch(t.Context())
	_, before := k.digester.SecretIDs()
	db.Close()
	if _, err := database.DropPrevious(path); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	k.watch(t.Context())
	if _, previous := k.digester.SecretIDs(); previous != before ||
		!strings.Contains(log.String(), "a secret is gone from it") {
		t.Errorf("the secret before is %q, want %q; the log says %s", previous, before, log)
	}
}

// A database that cannot be written to costs a line, and nobody their key.
func TestKeysStayWhereTheDatabaseIsReadOnly(t *testing.T) {
	k, db, _, log := keysOf(t)
	r, err := database.OpenReadOnly(t.Context(), "sqlite:"+db.Path())
	if err != nil {
		t.Fatal(err)
	}
	k.rehash.db = &policyDatabase{store: r}
	t.Cleanup(k.rehash.db.close)
	for range 3 {
		k.rehash.note(identity.Rotation{Old: identity.Digest{1}, New: identity.Digest{2}, SecretID: "01234567"})
		k.rehash.notBefore = time.Time{}
		k.rehash.flush(t.Context())
	}
	if n := strings.Count(log.String(), "stay under the previous secret"); n != 1 ||
		!strings.Contains(log.String(), "read-only") {
		t.Errorf("the log says %d times that keys stay:\n%s", n, log)
	}
}

func TestPendingMovesAreBounded(t *testing.T) {
	k, _, _, _ := keysOf(t)
	for i := range 2 * maxPending {
		k.rehash.note(identity.Rotation{Old: identity.Digest{byte(i), byte(i >> 8)}})
	}
	if n := len(k.rehash.pending); n != maxPending {
		t.Errorf("%d keys wait, want %d", n, maxPending)
	}
}

func TestKeysThatAreTooOld(t *testing.T) {
	k, db, _, _ := keysOf(t)
	if _, _, err := db.CreateKey(t.Context(), k.digester, record.NewAPIKey{}); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	for _, max := range []time.Duration{0, time.Nanosecond, time.Hour} {
		c.Keys.MaxStale = max
		ring, err := newKeyring(k.rehash.db, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for ring.status().Stale == 0 { // the clock's grain
		}
		_, err = ring.Find(context.Background(), identity.Digest{1})
		if old := strings.Contains(err.Error(), "max_stale"); old != (max == time.Nanosecond) {
			t.Errorf("max_stale %v: %v", max, err)
		}
	}
}

func TestOutgoing(t *testing.T) {
	k, _, _, _ := keysOf(t)
	c := config.Default().Keys
	c.Query, c.Prefixes = "api_key", []string{"acme_live_"}
	who, err := identity.New(identity.Options{
		Keys:       &identity.Keyring{},
		Digester:   k.digester,
		KeySources: c.Sources(),
		KeyFormats: c.Formats(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if outgoing(who, c) != nil {
		t.Error("without strip something is done to requests")
	}
	c.Strip = true
	for _, tt := range []struct {
		target, authorization string
		wantQuery, wantAuth   string
	}{
		{"/a", "", "", ""},
		{"/a?api_key=K&x=%2f", "Bearer acme_live_x", "x=%2f", ""},
		{"/a?x=1&%61pi_key=K", "Bearer eyJ.a.b", "x=1", "Bearer eyJ.a.b"},
		{"/a?api_key=K", "Basic YTpi", "", "Basic YTpi"},
	} {
		r := httptest.NewRequest(http.MethodGet, tt.target, nil)
		r.Header.Set("X-Api-Key", "K")
		r.Header.Set("X-Other", "kept")
		if tt.authorization != "" {
			r.Header.Set("Authorization", tt.authorization)
		}
		outgoing(who, c)(r)
		if r.URL.RawQuery != tt.wantQuery || r.Header.Get("Authorization") != tt.wantAuth ||
			r.Header.Get("X-Api-Key") != "" || r.Header.Get("X-Other") != "kept" {
			t.Errorf("%s, %s: query %q and %v", tt.target, tt.authorization, r.URL.RawQuery, r.Header)
		}
	}
}
