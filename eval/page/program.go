package page

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Child runs this program anew with arguments, in a process of its own, and reads what it prints as
// JSON. What it says besides goes to the standard error output.
func Child[T any](arguments ...any) (found T, err error) {
	self, err := os.Executable()
	if err != nil {
		return found, err
	}
	texts := make([]string, len(arguments))
	for i, a := range arguments {
		texts[i] = fmt.Sprint(a)
	}
	cmd := exec.Command(self, texts...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil {
		return found, fmt.Errorf("measure: %w", err)
	}
	return found, nil
}

// Publish writes text between the markers of a name into the page of that name, and its chart
// beside it, if there is one. On a dry run it prints the text instead.
func Publish(name, text string, svg []byte, dry bool, stdout, stderr io.Writer) error {
	if dry {
		_, err := io.WriteString(stdout, text)
		return err
	}
	docs, err := Docs()
	if err != nil {
		return err
	}
	if err := Replace(filepath.Join(docs, name+".md"), name, text); err != nil {
		return err
	}
	wrote := "docs/benchmarks/" + name + ".md"
	if svg != nil {
		if err := os.WriteFile(filepath.Join(docs, name+".svg"), svg, 0o644); err != nil {
			return err
		}
		wrote += " and " + name + ".svg"
	}
	_, err = fmt.Fprintln(stderr, "wrote", wrote)
	return err
}
