package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// What a page shows is what the command prints. The pages under docs/, and
// README.md where it says <!-- run -->, are executed:
//
//	```console      "$ " begins a command for bash, the lines after it are what it prints. A line "..." stands for
//	                any lines, "…" in a line for any text. A command that ends in & runs until the page ends.
//	```yaml, json,  is written to a file: <!-- file: NAME --> stands before the block.
//	```text         with such a comment too; without, it is a picture.
//	```go           is what stands in a tested Go file: <!-- code: FILE NAME --> stands before the block, and the
//	                file has it between "// begin: NAME" and "// end: NAME".
//
// <!-- soon --> before a console block lets its commands be repeated until they print what the page says, for as
// long as patience: that is how "within a second" reads to a machine. Use it for commands that only look.
//
// <!-- begin: COMMAND --> and <!-- end --> enclose what COMMAND writes; its own test compares it.
//
// Databases of a server at db.internal are made on real servers for the pages that name them.
//
// All blocks of a page share one shell and one folder, which prints as folder. The addresses below are replaced by
// free ones and back. 9000 is the example API, 9001 is nobody.
const (
	folder   = "/srv/headgate"
	gateway  = "127.0.0.1:8080"
	adminAPI = "127.0.0.1:8081"
	asked    = "127.0.0.1:8082"
	called   = "127.0.0.1:8083"
	redis    = "127.0.0.1:8084"
	api      = "127.0.0.1:9000"
	nobody   = "127.0.0.1:9001"

	patience = time.Minute
)

// repository returns the root folder.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// withoutExample are the pages that list what other pages show.
var withoutExample = []string{"README.md", "glossary.md"}

// ofADay are the pages that show what is counted by the day, and the zone of their days. One that prints something else
// once midnight has come between its commands begins anew, on the new day.
var ofADay = map[string]string{"usage.md": "UTC", "calendar.md": "Europe/Zurich"}

// pages returns the paths of docs/*.md but for those without an example, and README.md.
func pages(t *testing.T, root string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(found) == 0 {
		t.Fatalf("docs/*.md: %d pages, %v", len(found), err)
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		return slices.Contains(withoutExample,
			filepath.Base(path))
	})
	return append(found, filepath.Join(root, "README.md"))
}

func TestPagesRun(t *testing.T) {
	root := repository(t)
	program := buildProgram(t, root)
	for _, path := range pages(t, root) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			runPage(t, path, program, time.Now)
		})
	}
}

// buildProgram makes the command that the pages run.
func buildProgram(t *testing.T, root string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "headgate")
	build := exec.Command("go", "build", "-o", program, "./cmd/headgate")
	build.Dir = filepath.Join(root, "server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if engine := os.Getenv("HEADGATE_TEST_ENGINE"); engine != "" {
		return servingBy(t, engine, program)
	}
	return program
}

// servingBy makes the command that the pages run, with an engine that none of them asks for.
func servingBy(t *testing.T, engine, program string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "headgate")
	text := "#!/bin/sh\n[ \"$1\" != serve ] || { shift; set -- serve --engine " + engine + " \"$@\"; }\n" +
		"exec " + program + " \"$@\"\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return script
}

func runPage(t *testing.T, path, program string, clock func() time.Time) {
	today := func() string { return "any" }
	if zone := ofADay[filepath.Base(path)]; zone != "" {
		place, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		today = func() string { return clock().In(place).Format(time.DateOnly) }
	}
	for !playPage(t, path, program, today) {
	}
}

// playPage runs a page from its first block, to its end or until it has to begin anew.
func playPage(t *testing.T, path, program string, today func() string) (done bool) {
	blocks := readBlocks(t, path)
	readme := filepath.Base(path) == "README.md"
	s := newSession(t, program, path)
	s.today, s.day = today, today()
	examples := 0
	for _, b := range blocks {
		switch {
		case b.file != "":
			s.write(b)
		case b.language == "console" && (b.run || !readme):
			examples++
			if s.console(filepath.Base(path), b); s.anew {
				s.kill()
				return false
			}
		case b.language == "go":
			examples++ // TestBlocksAreOfAKind finds it in a tested file
		}
	}
	if examples == 0 {
		t.Errorf("%s has no block of console or go, want a worked example", filepath.Base(path))
	}
	return true
}

// block is a fenced block and the comments before it.
type block struct {
	line     int // of its first line of content
	language string
	content  []string

	file string // <!-- file: NAME -->
	code string // <!-- code: FILE NAME -->
	soon bool   // <!-- soon -->
	run  bool   // <!-- run -->
}

var directive = regexp.MustCompile(`^<!-- (file|code|soon|run|begin|end)(?:: (.*))? -->$`)

func readBlocks(t *testing.T, path string) []block {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	var next block
	inside := false
	for i, line := range strings.Split(string(text), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && !inside:
			next.language, next.line, inside = fence, i+2, true
		case isFence:
			blocks = append(blocks, next)
			next, inside = block{}, false
		case inside:
			next.content = append(next.content, line)
		case directive.MatchString(line):
			match := directive.FindStringSubmatch(line)
			switch match[1] {
			case "file":
				next.file = match[2]
			case "code":
				next.code = match[2]
			case "soon":
				next.soon = true
			case "run":
				next.run = true
			}
		case strings.HasPrefix(line, "<!--"):
			t.Errorf("%s:%d: comment %q is not a directive", path, i+1, line)
		}
	}
	if inside {
		t.Errorf("%s:%d: the block is not closed", path, next.line)
	}
	return blocks
}
