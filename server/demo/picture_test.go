package demo

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/daemon"
)

const picture = "../../docs/demo.svg"

var write = flag.Bool("write", false, "run the demonstration for 20 seconds and write "+picture)

// TestPictureIsOfTheScreen: the picture in the README is what `make run` shows, but for what it counts. The addresses
// are those of an ordinary run, and the file that a shell reads has a short name.
func TestPictureIsOfTheScreen(t *testing.T) {
	if *write {
		var out bytes.Buffer
		size := func() (int, int) { return 80, 24 }
		if err := Run(t.Context(), Options{Out: &out, Size: size, For: 20 * time.Second}); err != nil {
			t.Fatal(err)
		}
		frames := strings.Split(out.String(), home)
		last, _, _ := strings.Cut(frames[len(frames)-1], restBelow)
		if err := os.WriteFile(picture, drawn(last), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	api, err := startAPI()
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	var out bytes.Buffer
	o := Options{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Out: &out, Size: func() (int, int) { return 80, 24 }}
	dir := t.TempDir()
	conf, keys, err := prepare(t.Context(), dir, api.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	gate, err := daemon.Start(t.Context(), conf, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := newScreen(o, gate, conf, dir+"/env", newClients("http://"+gate.Gateway().String(), keys))
	if err := s.draw(); err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(out.String(), home), restBelow)
	kept, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if want, got := withoutCounts(drawn(text)), withoutCounts(kept); got != want {
		t.Errorf("go test ./demo -run Picture -write\n%s\nin place of\n%s", got, want)
	}
}

// shown is what becomes of what differs from run to run.
var shown = []struct {
	found *regexp.Regexp
	is    string
}{
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+/ui/`), "http://127.0.0.1:8081/ui/"},
	{regexp.MustCompile(`gateway http://127\.0\.0\.1:\d+`), "gateway http://127.0.0.1:8080"},
	{regexp.MustCompile(`API http://127\.0\.0\.1:\d+`), "API http://127.0.0.1:9000"},
	{regexp.MustCompile(`(?m)^  \. .*/env`), "  . /tmp/headgate-demo/env"},
}

// runs are words with single blanks between them.
var runs = regexp.MustCompile(`\S+(?: \S+)*`)

// drawn is a frame of a terminal of 80 columns as SVG.
func drawn(frame string) []byte {
	const wide, high, size = 8.4, 18, 14
	for _, s := range shown {
		frame = s.found.ReplaceAllString(frame, s.is)
	}
	lines := strings.Split(strings.ReplaceAll(frame, restOfLine, ""), "\r\n")
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" `+
		`role="img" aria-label="The demonstration on a terminal">`+"\n", 700, high*len(lines)+24)
	b.WriteString(`<rect width="100%" height="100%" rx="6" fill="#1b1f27"/>` + "\n")
	fmt.Fprintf(&b, `<g font-family="ui-monospace,Menlo,Consolas,monospace" font-size="%d" fill="#d7dce5">`+"\n",
		size)
	for i, line := range lines {
		column := 0
		for j, part := range strings.Split(line, "\x1b[") {
			colour := ""
			if j > 0 {
				code, rest, _ := strings.Cut(part, "m")
				part, colour = rest, map[string]string{"32": ` fill="#5fcf80"`, "31": ` fill="#f07178"`}[code]
			}
			for _, at := range runs.FindAllStringIndex(part, -1) { // SVG makes one blank of many
				text := part[at[0]:at[1]]
				fmt.Fprintf(&b, `<text y="%d" x="%.1f" textLength="%.1f"%s>%s</text>`+"\n", high*(i+1)+8,
					14+wide*float64(column+len([]rune(part[:at[0]]))), wide*float64(len([]rune(text))), colour,
					html.EscapeString(text))
			}
			column += len([]rune(part))
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// counts are the rows of a picture that change from second to second, and how long it has been running.
var counts = regexp.MustCompile(`(?m)^<text y="(?:206|224|242)".*\n|^.*>\d+m?s</text>\n`)

func withoutCounts(svg []byte) string { return counts.ReplaceAllString(string(svg), "") }
