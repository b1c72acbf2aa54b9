// Command packaging makes what is installed: archives, packages of Debian and RPM, an image for containers, a
// list of what is in them, and checksums. The same commit gives the same bytes.
//
//	commit ──▶ binary for each platform ──▶ archive (tar.gz)          ┐
//	                └─ linux ──▶ .deb, .rpm, layer of the image       ├─▶ SHA256SUMS
//	                └─ its modules ──▶ bill of materials (CycloneDX)  ┘
package main

import (
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("packaging: ")
	into := flag.String("into", "../dist", "folder for what is made")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64",
		"platforms to build for, with commas between")
	flag.Parse()
	r := release{into: *into, work: filepath.Join(*into, "work")}
	if err := r.make(strings.Split(*platforms, ",")); err != nil {
		log.Fatal(err)
	}
}

// release is all that is made of one commit.
type release struct {
	into, work string
	version    string    // v0.1.0
	at         time.Time // of the commit, and of every file
	pages      string    // folder of manual pages and completions
	images     []image
}

// binary is the command for one platform.
type binary struct {
	os, arch string
	path     string
	info     *buildinfo.BuildInfo
}

func (b *binary) platform() string { return b.os + "-" + b.arch }

func (r *release) make(platforms []string) error {
	if err := errors.Join(os.RemoveAll(r.into), os.MkdirAll(r.work, 0o755)); err != nil {
		return err
	}
	if err := r.describe(); err != nil {
		return err
	}
	for i, platform := range platforms {
		log.Printf("%d of %d: %s", i+1, len(platforms), platform)
		b, err := r.build(platform)
		if err != nil {
			return err
		}
		r.version = b.info.Main.Version
		steps := []func(*binary) error{r.archive, r.materials}
		if b.os == "linux" {
			steps = append(steps, r.packages, r.layer)
		}
		for _, step := range steps {
			if err := step(b); err != nil {
				return fmt.Errorf("%s: %w", platform, err)
			}
		}
	}
	if err := errors.Join(r.image(), os.RemoveAll(r.work)); err != nil {
		return err
	}
	return r.sums()
}

// describe finds out the commit's time, and has the command write its manual.
func (r *release) describe() error {
	at, err := output("git", "log", "-1", "--format=%cI")
	if err != nil {
		return err
	}
	if r.at, err = time.Parse(time.RFC3339, at); err != nil {
		return err
	}
	r.at = r.at.UTC()
	b, err := r.build(runtime.GOOS + "/" + runtime.GOARCH)
	if err != nil {
		return err
	}
	r.pages = filepath.Join(r.work, "pages")
	if _, err := output(b.path, "manual", r.pages); err != nil {
		return err
	}
	for shell, file := range completions {
		text, err := output(b.path, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.pages, file), []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// completions are the files in which shells look for them.
var completions = map[string]string{"bash": "headgate.bash", "zsh": "_headgate", "fish": "headgate.fish"}

// build builds the command, without C and without the paths of this machine.
func (r *release) build(platform string) (*binary, error) {
	b := &binary{}
	var ok bool
	if b.os, b.arch, ok = strings.Cut(platform, "/"); !ok {
		return nil, fmt.Errorf("platform is %q, want one such as linux/amd64", platform)
	}
	b.path = filepath.Join(r.work, b.platform(), "headgate")
	path, err := filepath.Abs(b.path)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", path, "./cmd/headgate")
	cmd.Dir = "../server"
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "GOFLAGS=") || strings.HasPrefix(e, "GOWORK=")
	}),
		"CGO_ENABLED=0", "GOOS="+b.os, "GOARCH="+b.arch, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build for %s: %w\n%s", platform, err, out)
	}
	if b.info, err = buildinfo.ReadFile(b.path); err != nil {
		return nil, err
	}
	return b, nil
}

// name is what a file of this release is called.
func (r *release) name(b *binary, ending string) string {
	return filepath.Join(r.into, "headgate_"+strings.TrimPrefix(r.version, "v")+"_"+b.os+"_"+b.arch+ending)
}

func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}
