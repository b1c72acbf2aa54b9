package dbtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// PostgresWithClock starts a PostgreSQL, MariaDBWithClock a MariaDB, whose clock
// can be set. Stop it.
//
// The clock of a machine is everybody's, and not every container may set it. So
// the C library tells the server another time, by libfaketime: how it waits and
// what it does about it is its own.
func PostgresWithClock() (*Server, error) { return withClock(postgres) }
func MariaDBWithClock() (*Server, error)  { return withClock(mariadb) }

// clockLibrary is where Debian has libfaketime.
const clockLibrary = "/usr/lib/*/faketime/libfaketimeMT.so.1"

func withClock(k kind) (_ *Server, err error) {
	found, err := filepath.Glob(clockLibrary)
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("libfaketime is not installed (scripts/install-test-deps installs it): %s", clockLibrary)
	}
	dir, err := os.MkdirTemp("/tmp", "headgate-clock-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "offset")
	if err := errors.Join(os.Chmod(dir, 0o755), write(file, []byte(offset(0)))); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// Monotonic clocks go on evenly when a wall clock is set.
	k.env = []string{"LD_PRELOAD=" + found[0], "FAKETIME_TIMESTAMP_FILE=" + file, "FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1"}
	s, err := start(k)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.besides = dir
	return s, nil
}

func offset(d time.Duration) string { return fmt.Sprintf("%+ds\n", int64(d/time.Second)) }

// SetClock sets the server's clock to so much, in whole seconds, ahead of the
// machine's: behind it, if that is negative. It returns once the server goes by it.
func (s *Server) SetClock(ahead time.Duration) error {
	next := filepath.Join(s.besides, "next")
	if err := write(next, []byte(offset(ahead))); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(s.besides, "offset")); err != nil { // never half a line
		return err
	}
	return s.until(fmt.Sprintf("SELECT abs(%s - %d) < 120", s.kind.clock, time.Now().Add(ahead).Unix()))
}
