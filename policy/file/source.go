package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// MaxBytes is the size of the largest file that is read.
const MaxBytes = 1 << 30

// Source is a policy.Source over one file. It is safe for concurrent use.
type Source struct {
	path string
	now  func() time.Time

	mu   sync.Mutex // guards last
	last seen
}

// seen is what the file was when it was read last.
type seen struct {
	modified time.Time
	size     int64
	version  string
	settled  bool // a later write could not have the same modification time
}

// settling is how long after its modification time a file may still change
// without a new one: the coarsest clock of a file system in use (FAT's) ticks
// every two seconds.
const settling = 2 * time.Second

// NewSource returns a Source over the file at path, which need not exist yet.
func NewSource(path string) (*Source, error) {
	if path == "" {
		return nil, errors.New("policy file: path is empty, want one")
	}
	return &Source{path: path, now: time.Now}, nil
}

// Version reports a hash of the file's content. It reads the file only when its
// modification time or size changed, or when it was modified so recently that
// another change might not show in them.
func (s *Source) Version(ctx context.Context) (string, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last.settled && info.ModTime().Equal(last.modified) && info.Size() == last.size {
		return last.version, nil
	}
	_, version, err := s.read(ctx)
	return version, err
}

// Load reads the file.
func (s *Source) Load(ctx context.Context) (policy.Document, string, error) {
	data, version, err := s.read(ctx)
	if err != nil {
		return policy.Document{}, "", err
	}
	doc, err := Decode(data, s.path)
	return doc, version, err
}

func (s *Source) read(ctx context.Context) (data []byte, version string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	now := s.now()
	f, err := os.Open(s.path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	data, err = io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, "", err
	}
	if len(data) > MaxBytes {
		return nil, "", fmt.Errorf("%s is larger than %d bytes", s.path, MaxBytes)
	}
	sum := sha256.Sum256(data)
	version = hex.EncodeToString(sum[:16])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = seen{
		modified: info.ModTime(), size: info.Size(), version: version,
		settled: now.Sub(info.ModTime()) > settling && info.Size() == int64(len(data)),
	}
	return data, version, nil
}
