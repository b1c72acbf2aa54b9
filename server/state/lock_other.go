//go:build !unix

package state

import (
	"fmt"
	"os"
)

// lockFile is no lock here: two gateways on one file are for the operator to avoid.
func lockFile(setting, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return f, nil
}
