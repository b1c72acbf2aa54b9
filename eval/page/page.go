// Package page writes what an evaluation measured into the documentation: a part of a Markdown file
// between two markers, and charts.
package page

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Replace puts text between the markers <!-- begin NAME --> and <!-- end NAME --> of a file, and
// leaves the rest of it alone. A file that does not exist yet is started with the markers.
func Replace(file, name, text string) error {
	return Between(file, "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n", text)
}

// Between is Replace with other markers, which are lines.
func Between(file, begin, end, text string) error {
	old, err := os.ReadFile(file)
	switch {
	case os.IsNotExist(err):
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		old = []byte(begin + end)
	case err != nil:
		return err
	}
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return fmt.Errorf("%s does not hold the lines %q and %q, in this order", file, strings.TrimSpace(begin),
			strings.TrimSpace(end))
	}
	return os.WriteFile(file, []byte(string(before)+begin+text+end+string(after)), 0o644)
}

// Docs is the folder docs/benchmarks of the repository that the working directory lies in.
func Docs() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "eval", "go.mod")); err == nil {
			return filepath.Join(dir, "docs", "benchmarks"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no folder above holds eval/go.mod: run this inside the repository")
		}
	}
}

// Conditions says on what, when and by which command something was measured.
func Conditions(now time.Time, command string) string {
	return fmt.Sprintf("Measured on %s by `%s`: %s, %s/%s on %d processors (%s), %s.\n",
		now.UTC().Format("2 January 2006"), command, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		fact("/proc/cpuinfo", "model name"), memory())
}

// memory is how much the machine has.
func memory() string {
	var kib int64
	if _, err := fmt.Sscan(fact("/proc/meminfo", "MemTotal"), &kib); err != nil {
		return "memory unknown"
	}
	return fmt.Sprintf("%.0f GiB of memory", float64(kib)/(1<<20))
}

// fact is what a file of the kernel says about a name.
func fact(file, name string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// Version is the version of a module that this program was built with.
func Version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "unknown"
}

// Table is a Markdown table. The first row is the head; columns after the first are aligned to the right.
type Table [][]string

func (t Table) String() string {
	var b strings.Builder
	for i, row := range t {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|---|%s\n", strings.Repeat("---:|", len(row)-1))
		}
	}
	return b.String()
}
