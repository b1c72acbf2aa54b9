//go:build unix

package database

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// mayUse reports whether this user may read a file, or read and write it. It
// opens nothing: with any descriptor of a file that a process closes, it loses
// all the locks on that file that SQLite has taken in it.
func mayUse(path string, write bool) error {
	const readable, writable = 4, 2 // R_OK and W_OK
	mode := uint32(readable)
	if write {
		mode |= writable
	}
	return syscall.Access(path, mode)
}

// sameOwner gives f the owner of another file, so that who could read the one
// can read the other.
func sameOwner(f *os.File, info fs.FileInfo) error {
	want, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if has, ok := mine.Sys().(*syscall.Stat_t); ok && has.Uid == want.Uid && has.Gid == want.Gid {
		return nil
	}
	if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
		return fmt.Errorf("belongs to user %d and group %d, want it changed by that user: %w", want.Uid, want.Gid, err)
	}
	return nil
}
