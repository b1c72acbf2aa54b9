package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
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

// TestReloadableSettingsAreOnTheirPage compares docs/reload.md with what reloads.
func TestReloadableSettingsAreOnTheirPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository(t), "docs", "reload.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What reloads")
	table, _, _ = strings.Cut(table, "All other settings")
	var named []string
	for line := range strings.Lines(table) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok {
			for name := range strings.SplitSeq(cell, ", ") {
				named = append(named, strings.Trim(name, "`"))
			}
		}
	}
	named = slices.DeleteFunc(named, func(name string) bool {
		return name == "setting" ||
			strings.HasPrefix(name, "|")
	})
	want := config.ReloadableSettings()
	slices.Sort(named)
	slices.Sort(want)
	if !slices.Equal(named, want) {
		t.Errorf("docs/reload.md names %q, want %q", named, want)
	}
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
