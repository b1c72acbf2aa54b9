package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/server/config"
)

// TestEverySettingIsOnItsPage compares the configuration with docs/settings.md.
func TestEverySettingIsOnItsPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository(t), "docs", "settings.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := prose(text)
	want := func(setting string) {
		if !strings.Contains(page, "`"+setting+"`") {
			t.Errorf("docs/settings.md does not explain `%s`", setting)
		}
	}
	settings(reflect.TypeFor[config.Config](), "", want)
	newServe().Flags().VisitAll(func(f *pflag.Flag) { want("--" + f.Name) })
}

// settings names every field as the file writes it, those of a part after the
// part's name and a dot.
func settings(of reflect.Type, part string, each func(string)) {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Tag.Get("yaml") == ",inline" {
			settings(f.Type, part, each)
			continue
		}
		if name := part + f.Tag.Get("yaml"); f.Type.Kind() == reflect.Struct {
			settings(f.Type, name+".", each)
		} else {
			each(name)
		}
	}
}
