package demo

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/daemon"
)

var colours = regexp.MustCompile("\x1b\\[[0-9?;]*[A-Za-z]")

// TestScreenFits: a frame is no wider and no higher than the terminal, whatever its size, and shows the clients.
func TestScreenFits(t *testing.T) {
	dir := t.TempDir()
	api, err := startAPI()
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	var size [2]int
	var out bytes.Buffer
	o := Options{
		Listen: "127.0.0.1:0",
		Admin:  "127.0.0.1:0",
		Out:    &out,
		Size:   func() (int, int) { return size[0], size[1] },
	}
	conf, keys, err := prepare(t.Context(), dir, api.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	gate, err := daemon.Start(t.Context(), conf, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := newScreen(o, gate, conf, filepath.Join(dir, "env"), newClients("http://"+gate.Gateway().String(), keys))
	s.rows = []row{{4, 0}, {5, 45}, {1e6, 1e6}}
	for _, size = range [][2]int{{80, 24}, {60, 20}, {200, 60}, {20, 8}, {1, 1}, {80, 3}} {
		out.Reset()
		s.last = time.Now()
		if err := s.draw(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(colours.ReplaceAllString(out.String(), ""), "\r\n")
		if len(lines) > size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > size[0] {
				t.Errorf("%v: %d columns: %s", size, n, line)
			}
		}
		if size[0] >= 30 && size[1] >= 3 && !strings.HasPrefix(lines[0], "http://"+gate.Admin().String()+"/ui/") {
			t.Errorf("%v does not begin with the page's address: %s", size, lines[0])
		}
		if size[0] >= 60 && size[1] >= 20 && (!strings.Contains(out.String(), "polite") ||
			!strings.Contains(out.String(), "headgate explain")) {
			t.Errorf("%v lacks the clients or what to try:\n%s", size, out.String())
		}
	}
	size = [2]int{80, 24}
	out.Reset()
	if err := s.draw(); err != nil || !strings.Contains(out.String(), "Headgate demonstration") ||
		!strings.Contains(out.String(), "| grep ^headgate_") {
		t.Errorf("the usual terminal does not show all of it:\n%s", out.String())
	}
}

// TestAboutIsForAShell: what the lines to try need comes out of the file as it went in, wherever the program is.
func TestAboutIsForAShell(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's here")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "head gate")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho called with \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	about, err := writeAbout(dir, program, "127.0.0.1:8080", "127.0.0.1:8081", "hg_key")
	if err != nil {
		t.Fatal(err)
	}
	found, err := writeAbout(t.TempDir(), "headgate", "a", "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(found); err != nil || strings.Contains(string(text), "headgate()") {
		t.Errorf("a program that the shell finds: %s, %v", text, err)
	}
	for _, shell := range []string{"sh", "bash"} {
		got, err := exec.Command(shell, "-c", `. "$0"; echo $URL $ADMIN $KEY; headgate explain 'a b'`,
			about).CombinedOutput()
		if want := "http://127.0.0.1:8080 http://127.0.0.1:8081 hg_key\ncalled with explain a b\n"; err != nil ||
			string(got) != want {
			t.Errorf("%s: %q, %v, want %q", shell, got, err, want)
		}
	}
}

// TestNobodyLooks: the demonstration ends when the other end of its pipe has gone, and takes its folder with it.
func TestNobodyLooks(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	if err := Run(t.Context(), Options{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Out: w}); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
