package database

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
	"strings"

	"github.com/headgate-io/headgate/identity"
)

// Secret is what the digests of API keys are computed under. It never prints
// itself.
type Secret []byte

const redacted = "[redacted]"

// String does not show the secret.
func (Secret) String() string { return "database.Secret" + redacted }

// Format does not show the secret, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue does not show the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// maxSecretFile bounds what is read of a secret file.
const maxSecretFile = 4096

// Secrets are those of one file: the one that digests are computed under and,
// during a rotation, the one before.
type Secrets struct{ Current, Previous Secret } // Previous is nil outside of a rotation

// LoadSecrets reads a secret file, and makes it if there is none. Of several
// processes that make it at the same moment one does, and all get what it
// wrote. The first line has the secret in hexadecimal digits, 32 bytes or more.
// During a rotation a second line has the word previous and the one before.
//
// Without the file no API key can be recognised any more: back it up, but not
// next to the database. With both, whoever can guess a key can tell. A file
// that other users may read is used, and log is told; one that they may write
// is refused.
func LoadSecrets(path string, log *slog.Logger) (Secrets, error) {
	secrets, err := ReadSecrets(path, log)
	if !errors.Is(err, fs.ErrNotExist) {
		return secrets, err
	}
	if err := makeSecret(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return Secrets{}, err
	}
	return ReadSecrets(path, log)
}

// ReadSecrets is LoadSecrets for a file that must be there.
func ReadSecrets(path string, log *slog.Logger) (s Secrets, err error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return s, fmt.Errorf("secret file %s: may not be read by this user, want read permission", path)
		}
		return s, fmt.Errorf("secret file %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return s, fmt.Errorf("secret file %w", err)
	case !info.Mode().IsRegular():
		return s, fmt.Errorf("secret file %s: is no regular file, want one", path)
	case info.Mode().Perm()&0o022 != 0:
		return s,
			fmt.Errorf(
				"secret file %s: may be written by other users (%v), want it writable by its owner alone: chmod "+
					"go-w", path, info.Mode().Perm())
	case info.Mode().Perm()&0o044 != 0 && log != nil:
		log.Warn("the secret file may be read by other users; want chmod go-r, unless whatever mounts it decides that",
			"file", path, "mode", info.Mode().Perm().String())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return s, fmt.Errorf("secret file %w", err)
	}
	if len(text) > maxSecretFile {
		return s, fmt.Errorf("secret file %s: is longer than %d bytes, want hexadecimal digits", path, maxSecretFile)
	}
	if s, err = parseSecrets(string(text)); err != nil {
		return s, fmt.Errorf("secret file %s: %w", path, err)
	}
	return s, nil
}

// beforePrevious begins the line of the secret before.
const beforePrevious = "previous "

// parseSecrets reads what is in a secret file. No error has a word of it.
func parseSecrets(text string) (s Secrets, err error) {
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "\r\n", "\n"), "\n")
	if len(lines) > 2 {
		return s,
			fmt.Errorf("has %d lines, want one secret, or during a rotation a second line with the word previous "+
				"and the one before", len(lines))
	}
	current, err := parseSecret(lines[0])
	if err != nil || len(lines) == 1 {
		return Secrets{Current: current}, err
	}
	digits, ok := strings.CutPrefix(lines[1], beforePrevious)
	if !ok {
		return s, errors.New("has a second line that does not begin with the word previous and a space")
	}
	previous, err := parseSecret(digits)
	switch {
	case err != nil:
		return s, fmt.Errorf("second line: %w", err)
	case bytes.Equal(current, previous):
		return s, errors.New("has one secret twice, want the one before in the second line, or no second line")
	}
	return Secrets{current, previous}, nil
}

func parseSecret(digits string) (Secret, error) {
	secret, err := hex.DecodeString(strings.TrimSpace(digits))
	switch {
	case err != nil:
		return nil,
			fmt.Errorf("is not an even number of hexadecimal digits, want %d or more, such as \"openssl rand -hex "+
				"32\" prints", 2*identity.MinSecretLength)
	case len(secret) < identity.MinSecretLength:
		return nil,
			fmt.Errorf("has %d bytes, want %d or more in hexadecimal digits, such as \"openssl rand -hex 32\" prints",
				len(secret), identity.MinSecretLength)
	}
	return secret, nil
}

// Digester returns what API keys are hashed with under the secrets.
func (s Secrets) Digester() (*identity.Digester, error) {
	d, err := identity.NewDigester(s.Current)
	if err != nil {
		return nil, err
	}
	if s.Previous != nil {
		err = d.Replace(s.Current, s.Previous)
	}
	return d, err
}

// Equal reports whether s and other are the same.
func (s Secrets) Equal(other Secrets) bool {
	return bytes.Equal(s.Current, other.Current) && bytes.Equal(s.Previous, other.Previous)
}

// Follow reports whether s and other have a secret in common: whether the keys
// of one of them can be recognised by the other.
func (s Secrets) Follow(other Secrets) bool {
	for _, a := range []Secret{s.Current, s.Previous} {
		for _, b := range []Secret{other.Current, other.Previous} {
			if a != nil && bytes.Equal(a, b) {
				return true
			}
		}
	}
	return false
}

// Drops reports whether other has a secret that s lacks, so that keys under it
// are unknown with s.
func (s Secrets) Drops(other Secrets) bool {
	has := func(secret Secret) bool { return bytes.Equal(secret, s.Current) || bytes.Equal(secret, s.Previous) }
	return !has(other.Current) || other.Previous != nil && !has(other.Previous)
}

// RotateSecret draws a new secret, and keeps the one that the file has as the
// previous one. A file that has a previous one already is refused: its keys
// would be lost.
func RotateSecret(path string) (Secrets, error) {
	return changeSecrets(path, func(s Secrets) (Secrets, error) {
		if s.Previous != nil {
			return s,
				errors.New("holds a previous secret already: end that rotation first with `headgate secret rotate " +
					"--drop-old`")
		}
		next := make(Secret, identity.MinSecretLength)
		_, _ = rand.Read(next) // never fails
		return Secrets{next, s.Current}, nil
	})
}

// DropPrevious takes the previous secret out of the file.
func DropPrevious(path string) (Secrets, error) {
	return changeSecrets(path, func(s Secrets) (Secrets, error) {
		if s.Previous == nil {
			return s, errors.New("holds no previous secret: no rotation is under way")
		}
		return Secrets{Current: s.Current}, nil
	})
}

// changeSecrets replaces a secret file as a whole, under its owner and mode.
// The new content stands in a file whose name only one process can take, and is
// on the disk before it gets the name that others look for.
func changeSecrets(path string, change func(Secrets) (Secrets, error)) (next Secrets, err error) {
	// Not the link that a deployment may have put there, but what it leads to.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return next, fmt.Errorf("secret file %w", err)
	}
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return next, fmt.Errorf("secret file %s: is being changed by somebody else; if nobody does, remove %s", path,
			temp)
	case errors.Is(err, fs.ErrPermission), isReadOnlyFS(err):
		return next,
			fmt.Errorf("secret file %s: its folder may not be written to, want that, or the file changed by "+
				"whatever puts it there: a new secret in the first line, the word previous and the present one in "+
				"the second", path)
	case err != nil:
		return next, fmt.Errorf("secret file %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(temp)
		}
	}()
	present, err := ReadSecrets(path, nil)
	if err != nil {
		return next, err
	}
	if next, err = change(present); err != nil {
		return next, fmt.Errorf("secret file %s: %w", path, err)
	}
	text := hex.EncodeToString(next.Current) + "\n"
	if next.Previous != nil {
		text += beforePrevious + hex.EncodeToString(next.Previous) + "\n"
	}
	info, err := os.Stat(path)
	if err == nil {
		err = errors.Join(sameOwner(f, info), f.Chmod(info.Mode().Perm()))
	}
	if err == nil {
		_, err = io.WriteString(f, text)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return next, fmt.Errorf("secret file %s: %w", path, err)
	}
	if err = os.Rename(temp, path); err != nil {
		return next, fmt.Errorf("secret file %w", err)
	}
	return next, syncFolder(filepath.Dir(path))
}

// makeSecret writes a new secret, whole, under a name of its own, and only then
// gives it the name that others look for. A link, unlike a renaming, never
// replaces what somebody else has put there.
func makeSecret(path string) error {
	dir := filepath.Dir(path)
	temp, err := os.OpenFile(filepath.Join(dir, "."+filepath.Base(path)+"."+newID("")),
		os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("secret file %s: its folder does not exist, want it made first: mkdir -p %s", path, dir)
	case errors.Is(err, fs.ErrPermission), isReadOnlyFS(err):
		return fmt.Errorf(
			"secret file %s: cannot be made, want a folder that this user may write to, or the file put there", path)
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
		return fmt.Errorf("secret file %s: cannot be made here, want it put there: openssl rand -hex %d (%w)", path,
			identity.MinSecretLength, err)
	}
	return syncFolder(dir)
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("secret file %w", err)
	}
	_ = d.Sync() // some systems cannot sync a folder
	return d.Close()
}
