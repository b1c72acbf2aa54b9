// Command proxy writes modules of this repository, as a commit has them, into a folder that the go command takes for a
// module proxy: to try an installation by version before anything is published.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("proxy: ")
	repository := flag.String("repository", "..", "folder of the repository")
	into := flag.String("into", "", "folder of the proxy")
	version := flag.String("version", "", "version of all modules, and the tag that has them")
	flag.Parse()
	for _, folder := range append([]string{""}, flag.Args()...) {
		if err := publish(*repository, *into, folder, *version); err != nil {
			log.Fatal(err)
		}
	}
}

// publish writes one module: its versions, its go.mod and its files (https://go.dev/ref/mod#goproxy-protocol).
func publish(repository, into, folder, version string) error {
	m := module.Version{
		Path:    filepath.ToSlash(filepath.Join("github.com/headgate-io/headgate", folder)),
		Version: version,
	}
	at := filepath.Join(into, filepath.FromSlash(m.Path), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	show := exec.Command("git", "show", version+":"+filepath.ToSlash(filepath.Join(folder, "go.mod")))
	show.Dir = repository
	mod, err := show.Output()
	if err != nil {
		return fmt.Errorf("go.mod of %s: %w", m, err)
	}
	out, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(
		zip.CreateFromVCS(out, m, repository, version, folder), out.Close(),
		os.WriteFile(filepath.Join(at, "list"), []byte(version+"\n"), 0o644),
		os.WriteFile(filepath.Join(at, version+".mod"), mod, 0o644),
		os.WriteFile(filepath.Join(at, version+".info"), fmt.Appendf(nil, `{"Version":%q}`, version), 0o644))
}
