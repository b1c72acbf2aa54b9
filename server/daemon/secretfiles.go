package daemon

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/headgate-io/headgate/server/config"
)

// warnOfReaders tells of files with secrets that others than their owner may
// read or write. It refuses none: what mounts a file may leave no choice. Of
// secret_file, which it may be that nobody has made yet, those tell who read it.
func warnOfReaders(c *config.Config, log *slog.Logger) {
	for _, f := range c.SecretFiles() {
		info, err := os.Stat(f.Path)
		if f.Setting == "secret_file" || err != nil || info.Mode().Perm()&0o066 == 0 {
			continue // who reads the file tells why it cannot
		}
		log.Warn("a file with a secret may be read or written by other users; want mode 0600, unless whatever "+
			"mounts it decides that",
			"setting", f.Setting, "file", f.Path, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
}
