package store

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/identity"
)

// Secret is what the digests of API keys are computed under. It never prints
// itself.
type Secret []byte

const redacted = "[redacted]"

// String does not show the secret.
func (Secret) String() string { return "store.Secret" + redacted }

// Format does not show the secret, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue does not show the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// maxSecretFile bounds what is read of a secret file.
const maxSecretFile = 4096

// LoadSecret reads the secret in a file of hexadecimal digits, 32 bytes or
// more, and makes the file if there is none. Of several processes that make it
// at the same moment one does, and all get what it wrote.
//
// Without the file no API key can be recognised any more: back it up, but not
// next to the database. With both, whoever can guess a key can tell. A file
// that other users may read is used, and log is told; one that they may write
// is refused.
func LoadSecret(path string, log *slog.Logger) (Secret, error) {
	secret, err := readSecret(path, log)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if err := makeSecret(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readSecret(path, log)
}

func readSecret(path string, log *slog.Logger) (Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("secret file %s: may not be read by this user, want read permission", path)
		}
		return nil, fmt.Errorf("secret file %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("secret file %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("secret file %s: is no regular file, want one", path)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("secret file %s: may be written by other users (%v), want it writable by its owner alone: chmod go-w", path, info.Mode().Perm())
	case info.Mode().Perm()&0o044 != 0 && log != nil:
		log.Warn("the secret file may be read by other users; want chmod go-r, unless whatever mounts it decides that",
			"file", path, "mode", info.Mode().Perm().String())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return nil, fmt.Errorf("secret file %w", err)
	}
	secret, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	switch { // and never a word of what is in it
	case len(text) > maxSecretFile:
		return nil, fmt.Errorf("secret file %s: is longer than %d bytes, want hexadecimal digits", path, maxSecretFile)
	case err != nil:
		return nil, fmt.Errorf("secret file %s: is not an even number of hexadecimal digits, want %d or more, such as \"openssl rand -hex 32\" prints", path, 2*identity.MinSecretLength)
	case len(secret) < identity.MinSecretLength:
		return nil, fmt.Errorf("secret file %s: has %d bytes, want %d or more in hexadecimal digits, such as \"openssl rand -hex 32\" prints", path, len(secret), identity.MinSecretLength)
	}
	return secret, nil
}

// makeSecret writes a new secret, whole, under a name of its own, and only then
// gives it the name that others look for. A link, unlike a renaming, never
// replaces what somebody else has put there.
func makeSecret(path string) error {
	dir := filepath.Dir(path)
	temp, err := os.OpenFile(filepath.Join(dir, "."+filepath.Base(path)+"."+newID("")), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("secret file %s: its folder does not exist, want it made first: mkdir -p %s", path, dir)
	case errors.Is(err, fs.ErrPermission), isReadOnlyFS(err):
		return fmt.Errorf("secret file %s: cannot be made, want a folder that this user may write to, or the file put there", path)
	case err != nil:
		return fmt.Errorf("secret file %w", err)
	}
	defer os.Remove(temp.Name())
	var secret [identity.MinSecretLength]byte
	_, _ = rand.Read(secret[:]) // never fails
	_, err = io.WriteString(temp, hex.EncodeToString(secret[:])+"\n")
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("secret file %w", err)
	}
	switch err := os.Link(temp.Name(), path); {
	case errors.Is(err, fs.ErrExist):
		return err
	case err != nil: // not every file system has links
		return fmt.Errorf("secret file %s: cannot be made here, want it put there: openssl rand -hex %d (%w)", path, identity.MinSecretLength, err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("secret file %w", err)
	}
	_ = d.Sync() // some systems cannot sync a folder
	return d.Close()
}
