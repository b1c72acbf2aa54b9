package config

import (
	"io/fs"
	"strings"
	"testing"
)

// TestNotRead: root may read everything, so that a file without permission is no test for everybody.
func TestNotRead(t *testing.T) {
	err := notRead(&fs.PathError{Op: "open", Path: "c.yaml", Err: fs.ErrPermission})
	if !strings.HasPrefix(err.Error(), "may not be read by this user, want") {
		t.Errorf("notRead = %v", err)
	}
}
