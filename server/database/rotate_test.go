package database_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

func TestRotateSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	first, err := database.LoadSecrets(path, nil)
	must(t, err)
	must(t, os.Chmod(path, 0o400)) // the mode is kept, and needs no writing to the file itself

	second, err := database.RotateSecret(path)
	must(t, err)
	if !bytes.Equal(second.Previous, first.Current) || bytes.Equal(second.Current, first.Current) ||
		len(second.Current) != identity.MinSecretLength {
		t.Error("a rotation must draw a secret and keep the one before")
	}
	again, err := database.LoadSecrets(path, nil)
	must(t, err)
	if !again.Equal(second) {
		t.Error("the file does not hold what RotateSecret returned")
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o400 {
		t.Errorf("the file has mode %v, want that of the one before", info.Mode().Perm())
	}
	_, err = database.RotateSecret(path)
	checkFault(t, "a second rotation", "secret file "+path+": ", err,
		"holds a previous secret already: end that rotation first")

	third, err := database.DropPrevious(path)
	must(t, err)
	if !third.Equal(database.Secrets{Current: second.Current}) {
		t.Error("DropPrevious must keep the current secret alone")
	}
	_, err = database.DropPrevious(path)
	checkFault(t, "nothing to drop", "secret file "+path+": ", err,
		"holds no previous secret: no rotation is under way")
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v, want the secret alone", entries, err)
	}
	if !second.Follow(first) || !third.Follow(second) || third.Follow(first) || first.Follow(third) {
		t.Error("Follow must say whether a secret is in common")
	}
}

// A link that a deployment put in the file's place stays one.
func TestRotateSecretBehindALink(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	_, err := database.LoadSecrets(real, nil)
	must(t, err)
	must(t, os.Symlink("real", link))
	rotated, err := database.RotateSecret(link)
	must(t, err)
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	if got, err := database.ReadSecrets(real, nil); err != nil || !got.Equal(rotated) {
		t.Errorf("what the link leads to was not changed: %v", err)
	}
}

// Of processes that rotate at the same moment one does.
func TestRotateSecretOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	first, err := database.LoadSecrets(path, nil)
	must(t, err)
	var mu sync.Mutex
	var all sync.WaitGroup
	rotated := 0
	for range 16 {
		all.Go(func() {
			if s, err := database.RotateSecret(path); err == nil {
				mu.Lock()
				defer mu.Unlock()
				rotated++
				if !bytes.Equal(s.Previous, first.Current) {
					t.Error("a rotation lost the first secret")
				}
			}
		})
	}
	all.Wait()
	if now, err := database.ReadSecrets(path, nil); rotated != 1 || err != nil ||
		!bytes.Equal(now.Previous, first.Current) {
		t.Errorf("%d rotations of 16, %v; want one, and the first secret kept", rotated, err)
	}
}

func TestSecretsRefuse(t *testing.T) {
	dir := t.TempDir()
	a, b := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	for name, tt := range map[string]struct{ text, want string }{
		"three lines":    {a + "\nprevious " + b + "\nprevious " + b, "has 3 lines, want one secret"},
		"no word":        {a + "\n" + b, "has a second line that does not begin with the word previous"},
		"another word":   {a + "\nprevious" + b, "has a second line that does not begin with the word previous"},
		"previous first": {"previous " + a + "\n" + b, "is not an even number of hexadecimal digits"},
		"twice":          {a + "\nprevious " + strings.ToUpper(a), "has one secret twice"},
		"short":          {a + "\nprevious " + b[2:], "second line: has 31 bytes, want 32 or more"},
		"empty":          {a + "\nprevious ", "second line"},
		"blank between":  {a + "\n\nprevious " + b, "has 3 lines"},
	} {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(tt.text), 0o600))
		_, err := database.ReadSecrets(path, nil)
		if name == "empty" { // the space is trimmed with the line
			tt.want = "has a second line that does not begin with the word previous"
		}
		checkFault(t, name, "secret file "+path+": ", err, tt.want)
		if err != nil && (strings.Contains(err.Error(), a[:8]) || strings.Contains(err.Error(), b[:8])) {
			t.Errorf("%s: the error tells a secret: %v", name, err)
		}
		if _, err := database.RotateSecret(path); err == nil {
			t.Errorf("%s: a broken file was rotated", name)
		}
		if after, _ := os.ReadFile(path); string(after) != tt.text {
			t.Errorf("%s: a refused rotation changed the file", name)
		}
	}
	good := filepath.Join(dir, "good")
	must(t, os.WriteFile(good, []byte(strings.ToUpper(a)+"\r\nprevious  "+b+"\r\n"), 0o600))
	s, err := database.ReadSecrets(good, nil)
	if err != nil || hex.EncodeToString(s.Current) != a || hex.EncodeToString(s.Previous) != b {
		t.Errorf("a good file: %v", err)
	}

	must(t, os.WriteFile(filepath.Join(dir, ".good.new"), nil, 0o600))
	must(t, os.WriteFile(good, []byte(a), 0o600))
	_, err = database.RotateSecret(good)
	checkFault(t, "somebody else", "secret file "+good+": ", err,
		"is being changed by somebody else; if nobody does, remove "+filepath.Join(dir, ".good.new"))
	_, err = database.RotateSecret(filepath.Join(dir, "none"))
	checkFault(t, "no file", "secret file ", err, "no such file")
}

// FuzzSecrets: whatever is in the file, it is two secrets that differ, one, or
// an error that repeats nothing of it.
func FuzzSecrets(f *testing.F) {
	a := strings.Repeat("ab", 32)
	f.Add(a)
	f.Add(a + "\nprevious " + strings.Repeat("cd", 32))
	f.Add("previous " + a)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "secret")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		s, err := database.ReadSecrets(path, nil)
		if err == nil {
			if _, err := s.Digester(); err != nil {
				t.Errorf("secrets that were read make no Digester: %v", err)
			}
			return
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); len(line) > 20 && strings.Contains(err.Error(), line) {
				t.Errorf("the error repeats %q", line)
			}
		}
	})
}

func TestImportKey(t *testing.T) { everywhere(t, testImportKey) }

func testImportKey(t *testing.T, d someDatabase) {
	s, ctx, digester := d.open(t), t.Context(), newDigester(t)
	const text = "old-0123456789abcdef-MARK"
	key, err := s.ImportKey(ctx, digester, text, record.NewAPIKey{Project: "acme", Name: "legacy"})
	must(t, err)
	var ring identity.Keyring
	records, _, err := s.Keys().Load(ctx)
	must(t, err)
	must(t, ring.Replace(records))
	if found, err := ring.Find(ctx, digester.Digest(text)); err != nil || found.ID != key.ID {
		t.Errorf("Find = %v, %v", found, err)
	}
	if _, err = s.ImportKey(ctx, digester, text, record.NewAPIKey{}); err == nil ||
		!strings.HasSuffix(err.Error(), "the key is there already, as "+key.ID) {
		t.Errorf("importing again: %v", err)
	}
	// Also when it is there under the secret before.
	must(t, digester.Replace(bytes.Repeat([]byte{8}, 32), bytes.Repeat([]byte{7}, 32)))
	if _, err = s.ImportKey(ctx, digester, text, record.NewAPIKey{}); err == nil ||
		!strings.Contains(err.Error(), key.ID) {
		t.Errorf("importing again during a rotation: %v", err)
	}
	for _, text := range []string{"", strings.Repeat("x", identity.MaxKeyLength+1)} {
		if _, err := s.ImportKey(ctx, digester, text, record.NewAPIKey{}); err == nil {
			t.Errorf("a key of %d bytes was imported", len(text))
		}
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if data, err := os.ReadFile(s.Path() + suffix); err == nil && bytes.Contains(data, []byte("MARK")) {
			t.Errorf("the key's text is in %s", s.Path()+suffix)
		}
	}
}

func TestRehash(t *testing.T) { everywhere(t, testRehash) }

func testRehash(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	oldSecret, newSecret := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	digester := newDigester(t)
	oldID, _ := digester.SecretIDs()
	var texts []string
	for range 3 {
		_, text, err := s.CreateKey(ctx, digester, record.NewAPIKey{Project: "acme"})
		must(t, err)
		texts = append(texts, text)
	}
	run(t, d.shell(t), "UPDATE api_keys SET secret = NULL WHERE rowid = 3") // from before secrets had names
	must(t, s.NameSecret(ctx, oldID))
	must(t, digester.Replace(newSecret, oldSecret))
	newID, previous := digester.SecretIDs()
	if previous != oldID {
		t.Errorf("the previous secret is %s, want %s", previous, oldID)
	}
	var moves []identity.Rotation
	for _, text := range append(texts[:2:2], "a key that is gone") {
		moves = append(moves, identity.Rotation{Old: digester.PreviousDigest(text), New: digester.Digest(text),
			SecretID: newID})
	}
	if moved, err := s.Rehash(ctx, moves); err != nil || moved != 2 {
		t.Errorf("Rehash = %d, %v, want 2", moved, err)
	}
	if moved, err := s.Rehash(ctx, moves); err != nil || moved != 0 { // by another process, later
		t.Errorf("Rehash again = %d, %v, want 0", moved, err)
	}
	keys, err := s.ListKeys(ctx)
	must(t, err)
	for i, want := range []string{newID, newID, oldID} {
		if keys[i].Secret != want {
			t.Errorf("key %d is under %q, want %q", i, keys[i].Secret, want)
		}
	}
	records, _, err := s.Keys().Load(ctx)
	must(t, err)
	if records[0].Digest != digester.Digest(texts[0]) || records[2].Digest != digester.PreviousDigest(texts[2]) {
		t.Error("the digests are not those of the secrets")
	}
	o := d.options()
	o.ReadOnly = true
	r, err := database.New(ctx, o)
	must(t, err)
	defer r.Close()
	if _, err := r.Rehash(ctx, moves); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Rehash of a database that is open read-only: %v", err)
	}
}

func TestKeyScopes(t *testing.T) { everywhere(t, testKeyScopes) }

func testKeyScopes(t *testing.T, d someDatabase) {
	s, ctx, digester := d.open(t), t.Context(), newDigester(t)
	scopes, err := identity.ParseScopes([]string{"GET", "POST /v1/items"})
	must(t, err)
	_, _, err = s.CreateKey(ctx, digester, record.NewAPIKey{Scopes: scopes, Expires: time.Unix(2_000_000_000, 0)})
	must(t, err)
	_, _, err = s.CreateKey(ctx, digester, record.NewAPIKey{})
	must(t, err)
	records, _, err := s.Keys().Load(ctx)
	if err != nil || records[0].Key.Scopes != scopes || records[1].Key.Scopes != "" {
		t.Errorf("Load = %+v, %v, want the scopes of the first", records, err)
	}
	// A list that cannot be read must not become a key that counts everywhere.
	db := d.shell(t)
	for _, wrong := range []string{`["get"]`, `["GET"`, `[""]`, `["GET", 1]`} {
		run(t, db, "UPDATE api_keys SET scopes = '"+wrong+"' WHERE rowid = 1")
		if records, _, err := s.Keys().Load(ctx); err == nil || !strings.Contains(err.Error(), "scopes") ||
			records != nil {
			t.Errorf("scopes %s: %v, %v, want a fault", wrong, records, err)
		}
	}
	for _, refused := range []string{`'[]'`, `''`, `'GET'`, `7`, `x'5b22'`} {
		if d.kind == "MariaDB" && refused == `x'5b22'` {
			continue // a text there, and a list's beginning
		}
		if _, err := db.ExecContext(ctx, "UPDATE api_keys SET scopes = "+refused); err == nil {
			t.Errorf("the table takes scopes %s", refused)
		}
	}
	if _, err := s.ListKeys(ctx); errors.Is(err, nil) {
		t.Error("ListKeys reads scopes that cannot be read")
	}
}
