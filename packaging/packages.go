package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	_ "github.com/goreleaser/nfpm/v2/rpm" // the same
)

// packages makes those of Debian and of RPM, as nfpm.yaml says.
func (r *release) packages(b *binary) error {
	config, err := nfpm.ParseFileWithEnvMapping("nfpm.yaml", func(name string) string {
		return map[string]string{"ARCH": b.arch, "VERSION": r.version, "BINARY": b.path, "PAGES": r.pages}[name]
	})
	if err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		info, err := config.Get(format)
		if err != nil {
			return err
		}
		info.MTime = r.at
		info.RPM.BuildHost = "headgate" // and not this machine's
		made, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info = nfpm.WithDefaults(info)
		name := strings.NewReplacer("~", "-").Replace(made.ConventionalFileName(info))
		out, err := os.Create(filepath.Join(r.into, name))
		if err != nil {
			return err
		}
		info.Target = out.Name()
		if err := made.Package(info, out); err != nil {
			return err
		}
		if err := out.Close(); err != nil {
			return err
		}
	}
	return nil
}
