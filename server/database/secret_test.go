package database_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/database"
)

func TestLoadSecretMakesTheFileOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	var mu sync.Mutex
	var all []database.Secret
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			secret, err := database.LoadSecrets(path, nil)
			if err != nil {
				t.Errorf("LoadSecret: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, secret.Current)
		})
	}
	wg.Wait()
	for _, secret := range all {
		if len(secret) != identity.MinSecretLength || !bytes.Equal(secret, all[0]) {
			t.Fatal("not all got the same secret")
		}
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, want 0600", info.Mode().Perm())
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v, want the secret alone", entries, err)
	}
	other, err := database.LoadSecrets(filepath.Join(t.TempDir(), "secret"), nil)
	if err != nil || bytes.Equal(other.Current, all[0]) {
		t.Errorf("another file's secret is the same, %v", err)
	}
}

func TestLoadSecretRefuses(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("ab", 32)
	for name, tt := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"short": {strings.Repeat("ab", 31), 0o600, "has 31 bytes, want 32 or more in hexadecimal digits"},
		"empty": {"", 0o600, "has 0 bytes, want 32 or more"},
		"text": {"correct horse battery staple", 0o600,
			"is not an even number of hexadecimal digits, want 64 or more"},
		"odd":  {long + "a", 0o600, "is not an even number of hexadecimal digits"},
		"huge": {strings.Repeat("ab", 4096), 0o600, "is longer than 4096 bytes"},
		"writable": {long, 0o620,
			"may be written by other users (-rw--w----), want it writable by its owner alone: chmod go-w"},
	} {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(tt.text), 0o600))
		must(t, os.Chmod(path, tt.mode))
		_, err := database.LoadSecrets(path, nil)
		checkFault(t, name, "secret file "+path+": ", err, tt.want)
		if err != nil && len(tt.text) > 8 && strings.Contains(err.Error(), tt.text[:8]) {
			t.Errorf("%s: the error tells the secret: %v", name, err)
		}
	}
	_, err := database.LoadSecrets(dir, nil)
	checkFault(t, "a folder", "secret file "+dir+": ", err, "is no regular file, want one")
	_, err = database.LoadSecrets(filepath.Join(dir, "none", "secret"), nil)
	checkFault(t, "no folder", "secret file ", err, "its folder does not exist, want it made first: mkdir -p")

	closed := publicDir(t)
	must(t, os.Chmod(closed, 0o555))
	out, err := child(t, "secret", filepath.Join(closed, "secret"), true).Output()
	if err == nil {
		t.Error("nobody made a secret in a folder that may not be written")
	}
	checkFault(t, "a closed folder", "secret file ", fmt.Errorf("%s", strings.TrimSpace(string(out))),
		"cannot be made, want a folder that this user may write to")
}

func TestLoadSecretWarnsOfReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(path, []byte(strings.Repeat("AB", 40)+"\n"), 0o600))
	must(t, os.Chmod(path, 0o644))
	var log bytes.Buffer
	secret, err := database.LoadSecrets(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil || len(secret.Current) != 40 {
		t.Errorf("LoadSecret = %d bytes, %v, want 40", len(secret.Current), err)
	}
	if !strings.Contains(log.String(), "may be read by other users") || !strings.Contains(log.String(), path) {
		t.Errorf("the log says %q, want a warning that names the file", log.String())
	}
}

func TestSecretDoesNotPrintItself(t *testing.T) {
	secret := database.Secret(bytes.Repeat([]byte{0xab}, 32))
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", secret)
	all := fmt.Sprintf("%v %s %x %X %q %#v %d", secret, secret, secret, secret, secret, secret, secret) + log.String()
	if strings.Contains(strings.ToLower(all), hex.EncodeToString(secret[:2])) || strings.Contains(all, "171") {
		t.Errorf("a secret prints itself: %s", all)
	}
}
