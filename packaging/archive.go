package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// file is one of an archive, or of a layer.
type file struct {
	name string
	mode int64
	from string // a file of this machine, or
	text string // what it holds
}

// archive packs the command with what one reads before one runs it.
func (r *release) archive(b *binary) error {
	files := []file{{name: "headgate", mode: 0o755, from: b.path}}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		files = append(files, file{name: name, mode: 0o644, from: filepath.Join("..", name)})
	}
	pages, err := os.ReadDir(r.pages) // in the order of their names
	if err != nil {
		return err
	}
	for _, page := range pages {
		folder := "completions"
		if strings.HasSuffix(page.Name(), ".1") {
			folder = "man"
		}
		files = append(files, file{name: folder + "/" + page.Name(), mode: 0o644,
			from: filepath.Join(r.pages, page.Name())})
	}
	if b.os == "linux" {
		for _, unit := range []string{"headgate.service", "headgate-telemetry.service"} {
			files = append(files, file{name: unit, mode: 0o644, from: unit})
		}
	}
	folder := strings.TrimSuffix(filepath.Base(r.name(b, "")), "")
	for i := range files {
		files[i].name = folder + "/" + files[i].name
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := errors.Join(tarOf(zip, files, r.at), zip.Close()); err != nil {
		return err
	}
	return os.WriteFile(r.name(b, ".tar.gz"), packed.Bytes(), 0o644)
}

// tarOf writes files that belong to root and are of one time.
func tarOf(w io.Writer, files []file, at time.Time) error {
	out := tar.NewWriter(w)
	for _, f := range files {
		text := []byte(f.text)
		if f.from != "" {
			var err error
			if text, err = os.ReadFile(f.from); err != nil {
				return err
			}
		}
		header := &tar.Header{
			Name:     f.name,
			Mode:     f.mode,
			Size:     int64(len(text)),
			ModTime:  at,
			Format:   tar.FormatPAX,
			Typeflag: tar.TypeReg,
		}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return out.Close()
}

// sums writes the checksums of all that was made, as sha256sum reads them.
func (r *release) sums() error {
	entries, err := os.ReadDir(r.into)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(r.into, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(text), e.Name())
	}
	return os.WriteFile(filepath.Join(r.into, "SHA256SUMS"), []byte(list.String()), 0o644)
}
