//go:build !unix

package database

import (
	"io/fs"
	"os"
)

func mayUse(path string, write bool) error {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func sameOwner(*os.File, fs.FileInfo) error { return nil }
