package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	var out printer
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of headgate and what built it",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.say(cmd, map[string]string{
				"version": programVersion(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				"commit": built("vcs.revision"),
			}, "headgate %s", versionWords())
		},
	}
	out.addFlags(cmd)
	return cmd
}

// versionWords are the version, what built it, and the commit if it is known.
func versionWords() string {
	words := fmt.Sprintf("%s (%s %s/%s", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if commit := built("vcs.revision"); commit != "" {
		words += ", commit " + commit
		if built("vcs.modified") == "true" {
			words += " with changes"
		}
	}
	return words + ")"
}

// built is what the build noted under a name, "" if nothing.
func built(name string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == name {
				return s.Value
			}
		}
	}
	return ""
}

// programVersion is the module version when installed by version, else the
// commit it was built from, else "devel".
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	if commit := built("vcs.revision"); len(commit) >= 12 {
		return "devel-" + commit[:12]
	}
	return "devel"
}
