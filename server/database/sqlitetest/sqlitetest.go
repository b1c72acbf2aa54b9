// Package sqlitetest makes empty databases for tests. It is apart from dbtest, which those start that have no use for
// the database itself.
package sqlitetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/server/database"
)

// New makes an empty database in a file that there is none of yet, as
// database.Open does, and returns its DSN. Open goes through every migration, which
// takes a third of a second under the race detector, and tests want hundreds:
// it does so once, and they are given copies.
func New(t testing.TB, path string) (dsn string) {
	t.Helper()
	empty, err := newest()
	if err != nil {
		t.Fatalf("make an empty database: %v", err)
	}
	var own [16]byte
	_, _ = rand.Read(own[:]) // never fails
	text := bytes.Replace(empty.file, []byte(empty.version), []byte(hex.EncodeToString(own[:])), 1)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}

// emptyFile is a database that nothing was written to. Its version is random, so
// that no two databases have the same: each copy has another in its place.
type emptyFile struct {
	file    []byte
	version string
}

var newest = sync.OnceValues(func() (_ emptyFile, err error) {
	dir, err := os.MkdirTemp("", "headgate-empty-")
	if err != nil {
		return emptyFile{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, path := context.Background(), filepath.Join(dir, "headgate.db")
	s, err := database.Open(ctx, "sqlite:"+path)
	if err != nil {
		return emptyFile{}, err
	}
	version, err := s.Version(ctx)
	if err := errors.Join(err, s.Close()); err != nil {
		return emptyFile{}, err
	}
	version, _, _ = strings.Cut(version, ".") // what follows is the schema's
	file, err := os.ReadFile(path)
	if err == nil && bytes.Count(file, []byte(version)) != 1 {
		err = fmt.Errorf("the version %s stands %d times in the file, want once", version,
			bytes.Count(file, []byte(version)))
	}
	return emptyFile{file, version}, err
})
