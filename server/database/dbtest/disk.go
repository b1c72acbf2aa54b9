package dbtest

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed testdata/diskfull.c
var diskFull []byte

// PostgresOnDisk starts a PostgreSQL, MariaDBOnDisk a MariaDB, whose disk can be
// filled. Stop it.
//
// A small file system would take rights that not every container has. So the
// server is told by the C library that there is no space left: what it makes of
// that is its own.
func PostgresOnDisk() (*Server, error) { return onDisk(postgres) }
func MariaDBOnDisk() (*Server, error)  { return onDisk(mariadb) }

func onDisk(k kind) (_ *Server, err error) {
	dir, err := os.MkdirTemp("/tmp", "headgate-disk-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	source, library := filepath.Join(dir, "diskfull.c"), filepath.Join(dir, "diskfull.so")
	if err := write(source, diskFull); err != nil {
		return nil, err
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-o", library, source,
		"-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile diskfull.c: %w\n%s", err, out)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(library, 0o755)); err != nil {
		return nil, err
	}
	k.env = []string{"LD_PRELOAD=" + library, "HEADGATE_DISK_FULL=" + filepath.Join(dir, "full")}
	s, err := start(k)
	if err != nil {
		return nil, err
	}
	s.besides = dir
	return s, nil
}

// FillDisk leaves no space on the server's disk. FreeDisk makes room.
func (s *Server) FillDisk() error {
	return write(filepath.Join(s.besides, "full"), nil)
}

func (s *Server) FreeDisk() error {
	if err := os.Remove(filepath.Join(s.besides, "full")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
