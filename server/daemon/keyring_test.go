package daemon

import (
	"bytes"
	"database/sql"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/record"
)

// ringOf is a keyring on the database of another one, as a process has it that
// starts now.
func ringOf(t *testing.T, from *apiKeys, c config.Config, log io.Writer) *keyring {
	t.Helper()
	ring, err := newKeyring(from.rehash.db, c, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ring
}

// A table of keys that is empty all at once is an accident, also if it was
// emptied while no process ran. Keys that go one by one are revoked, and keys
// that come back are in force by themselves.
func TestKeysThatAreGoneAtOnceStay(t *testing.T) {
	k, db, path, _ := keysOf(t)
	c := config.Default()
	c.DB, c.SecretFile, c.LastGood = "sqlite:"+db.Path(), path, strings.TrimSuffix(path, ".secret")+".last-good.json"
	shell := func(statement string, args ...any) {
		t.Helper()
		raw, err := sql.Open("sqlite", db.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		if _, err := raw.ExecContext(t.Context(), "PRAGMA busy_timeout = 5000; "+statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	create := func(n record.NewAPIKey) record.APIKey {
		t.Helper()
		key, _, err := db.CreateKey(t.Context(), k.digester, n)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	var log bytes.Buffer
	ring := ringOf(t, k, c, &log)
	active := func(what string, want int, emptied bool) {
		t.Helper()
		err := ring.reload(t.Context())
		got, s := ring.value.Get().Active(time.Now()), ring.status()
		if got != want || s.Emptied != emptied || (err != nil) != emptied {
			t.Errorf("%s: %d active keys, %+v, %v, want %d, and Emptied %v", what, got, s, err, want, emptied)
		}
	}
	a, b := create(record.NewAPIKey{Name: "a"}), create(record.NewAPIKey{Name: "b"})
	gone := create(record.NewAPIKey{Name: "expired", Expires: time.Unix(1000, 0)})
	active("three, one of them expired", 2, false)
	copied, err := os.ReadFile(ring.copy)
	if err != nil {
		t.Fatal(err)
	}

	shell("CREATE TEMP TABLE kept AS SELECT * FROM api_keys; CREATE TABLE saved AS SELECT * FROM kept; DELETE FROM " +
		"api_keys")
	active("all gone", 2, true)
	ring = ringOf(t, k, c, &log)
	active("and started anew", 2, true)
	if now, err := os.ReadFile(ring.copy); err != nil || !bytes.Equal(now, copied) {
		t.Errorf("the last good copy was written anew: %v", err)
	}
	if want := "the table api_keys is empty now, which is taken for an accident: want the keys back"; !strings.Contains(
		log.String(), want) || !strings.Contains(log.String(), ring.copy+" removed and a new start") {
		t.Errorf("the log lacks %q or the file:\n%s", want, &log)
	}
	shell("INSERT INTO api_keys SELECT * FROM saved; DROP TABLE saved")
	active("back", 2, false)

	shell("DELETE FROM api_keys WHERE id = ?", gone.ID)
	active("the expired one gone", 2, false)
	shell("DELETE FROM api_keys WHERE id = ?", a.ID)
	active("a gone", 1, false)
	ring = ringOf(t, k, c, &log)
	active("and started anew", 1, false)
	shell("DELETE FROM api_keys WHERE id = ?", b.ID)
	active("the last one gone", 0, false)
	ring = ringOf(t, k, c, &log)
	active("and started anew", 0, false)

	create(record.NewAPIKey{})
	create(record.NewAPIKey{})
	active("two new ones", 2, false)
	shell("DELETE FROM api_keys")
	active("all gone again", 2, true)
	create(record.NewAPIKey{Expires: time.Unix(1000, 0)})
	active("but for one that counts nowhere", 0, false)

	create(record.NewAPIKey{})
	create(record.NewAPIKey{})
	active("two more", 2, false)
	shell("UPDATE api_keys SET revoked_at = 1; DELETE FROM api_keys")
	c.Keys.MaxStale = time.Nanosecond
	ring = ringOf(t, k, c, &log)
	active("revoked, and gone before anybody looked", 2, true)
	if _, err := ring.Find(t.Context(), identity.Digest{1}); err == nil || !strings.Contains(err.Error(), "max_stale") {
		t.Errorf("with max_stale: %v, want no key to count", err)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := newAPIKeys(c, k.rehash.db, ring, nil); err == nil || !strings.Contains(err.Error(), "put it back") ||
		!strings.Contains(err.Error(), "remove their last good copy "+ring.copy) {
		t.Errorf("without the secret: %v, want what to remove", err)
	}
	if err := os.Remove(ring.copy); err != nil {
		t.Fatal(err)
	}
	ring = ringOf(t, k, c, &log)
	active("begun anew", 0, false)
}
