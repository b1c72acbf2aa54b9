package main

import (
	"os"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// materials lists the modules that a binary was built from, as it says itself.
func (r *release) materials(b *binary) error {
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.at.Format("2006-01-02T15:04:05Z"),
		Component: &cyclonedx.Component{
			Type: cyclonedx.ComponentTypeApplication, Name: "headgate", Version: r.version,
			BOMRef: "pkg:golang/" + b.info.Main.Path + "@" + r.version, PackageURL: "pkg:golang/" + b.info.Main.Path +
				"@" + r.version,
			Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
		},
	}
	components := []cyclonedx.Component{{
		Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: strings.TrimPrefix(b.info.GoVersion, "go"),
		BOMRef:     "pkg:golang/std@" + strings.TrimPrefix(b.info.GoVersion, "go"),
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(b.info.GoVersion, "go"),
	}}
	for _, m := range b.info.Deps {
		version := m.Version
		if version == "(devel)" { // of this repository
			version = r.version
		}
		ref := "pkg:golang/" + m.Path + "@" + version
		components = append(components, cyclonedx.Component{
			Type:       cyclonedx.ComponentTypeLibrary,
			Name:       m.Path,
			Version:    version,
			BOMRef:     ref,
			PackageURL: ref,
		})
	}
	bom.Components = &components
	out, err := os.Create(r.name(b, ".cdx.json"))
	if err != nil {
		return err
	}
	if err := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return out.Close()
}
