package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is the image for one platform. It holds the command and what the command needs of a system: a user
// that is nobody, and folders to write to. Certificates of public authorities are in the command.
type image struct {
	arch string
	v1.Image
}

// nobody is the user that the image runs as.
const nobody = "65532"

func (r *release) layer(b *binary) error {
	var files bytes.Buffer
	err := tarOf(&files, []file{
		{name: "etc/", mode: 0o755},
		{
			name: "etc/passwd",
			mode: 0o644,
			text: "headgate:x:" + nobody + ":" + nobody + ":headgate:/var/lib/headgate:/sbin/nologin\n",
		},
		{name: "etc/group", mode: 0o644, text: "headgate:x:" + nobody + ":\n"},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755}, {name: "usr/bin/", mode: 0o755},
		{name: "usr/bin/headgate", mode: 0o755, from: b.path},
		// whoever it runs as
		{name: "var/", mode: 0o755}, {name: "var/lib/", mode: 0o755}, {name: "var/lib/headgate/", mode: 0o777},
	}, r.at)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser,
		error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	},
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	made, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: r.at}, CreatedBy: "headgate " + r.version},
	})
	if err != nil {
		return err
	}
	c, err := made.ConfigFile()
	if err != nil {
		return err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", b.arch, v1.Time{Time: r.at}
	c.Config = v1.Config{
		User: nobody + ":" + nobody, WorkingDir: "/var/lib/headgate", Entrypoint: []string{"/usr/bin/headgate"},
		Cmd:          []string{"serve", "--config", "/etc/headgate/headgate.yaml"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}},
		Volumes:      map[string]struct{}{"/var/lib/headgate": {}}, StopSignal: "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title": "headgate", "org.opencontainers.image.description": "API rate limiter",
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.version": r.version,
			"org.opencontainers.image.source": "https://github.com/headgate-io/headgate",
		},
	}
	if made, err = mutate.ConfigFile(made, c); err != nil {
		return err
	}
	r.images = append(r.images, image{b.arch, made})
	return nil
}

// image writes one for all platforms (OCI), and one for each that `docker load` reads.
func (r *release) image() error {
	if len(r.images) == 0 {
		return nil
	}
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range r.images {
		all = mutate.AppendManifests(all, mutate.IndexAddendum{
			Add:        i.Image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: i.arch}},
		})
		tag, err := name.NewTag("headgate:" + r.version)
		if err != nil {
			return err
		}
		if err := tarball.WriteToFile(filepath.Join(r.into, "headgate-image_"+i.arch+".tar"), tag,
			i.Image); err != nil {
			return err
		}
	}
	folder := filepath.Join(r.work, "image")
	if _, err := layout.Write(folder, all); err != nil {
		return err
	}
	var files []file
	err := filepath.WalkDir(folder, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		inside, err := filepath.Rel(folder, path)
		files = append(files, file{name: filepath.ToSlash(inside), mode: 0o644, from: path})
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.into, "headgate-image_oci.tar"))
	if err != nil {
		return err
	}
	return errors.Join(tarOf(out, files, r.at), out.Close())
}
