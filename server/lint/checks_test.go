package lint_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/lint"
)

var update = flag.Bool("update", false, "write the texts on the checks into docs/lint.md")

const (
	routes = "GET /v1/items/{id}\nPOST /v1/items\nPOST /v1/login\n"
	begin  = "<!-- begin: go test ./server/lint -run TestPage -update -->\n"
	end    = "<!-- end -->\n"
)

// today is when the examples are linted.
var today = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// withoutExample are checks that no document can show.
var withoutExample = map[string]string{
	"too_many_names": "it takes 4 GiB",
	"not_higher":     "it is found in approvals alone",
}

// TestTexts holds that every check has a text that begins with its severity and
// says what to do, that there is no other text, and that its example has
// this finding and no other.
func TestTexts(t *testing.T) {
	var codes []string
	for _, check := range policy.Checks() {
		codes = append(codes, check.Code)
		t.Run(check.Code, func(t *testing.T) {
			text := lint.Section(check.Code)
			severity := check.Severity.String()
			if want := strings.ToUpper(severity[:1]) + severity[1:] + ". "; !strings.HasPrefix(text, want) {
				t.Errorf("the text begins %.20q, want %q", text, want)
			}
			if !strings.Contains(text, "\n\nWhat to do: ") {
				t.Error("the text does not say what to do")
			}
			if s := lint.Summary(check.Code); len(s) < 20 || len(s) > 160 || !strings.HasSuffix(s, ".") {
				t.Errorf("the summary is %q, want a sentence", s)
			}
			files := examples(text)
			if reason := withoutExample[check.Code]; reason != "" {
				if len(files) > 0 {
					t.Errorf("there is an example although %s", reason)
				}
				return
			}
			r := lintExample(t, files, check.Code)
			found := map[string]bool{}
			for _, p := range r.Problems {
				found[p.Code] = true
				if p.Severity != check.Severity {
					t.Errorf("the finding is a %v: %v", p.Severity, p)
				}
			}
			if len(found) != 1 || !found[check.Code] {
				t.Errorf("the example has %v, want %s alone\n%v", slices.Collect(maps.Keys(found)),
					check.Code, r.Problems)
			}
		})
	}
	for _, match := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(lint.Texts, -1) {
		if !slices.Contains(codes, match[1]) {
			t.Errorf("there is a text on %s, which is no check", match[1])
		}
	}
}

var example = regexp.MustCompile("(?s)<!-- file: ([^ ]+) -->\n```[a-z]+\n(.*?)```\n")

// examples are the files of a section by name.
func examples(section string) map[string]string {
	files := map[string]string{}
	for _, match := range example.FindAllStringSubmatch(section, -1) {
		files[match[1]] = match[2]
	}
	return files
}

func lintExample(t *testing.T, files map[string]string, code string) lint.Result {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "routes.txt", routes)
	c := config.Default()
	c.Routes = []string{"routes.txt"}
	for name, text := range files {
		write(t, name, text)
		if name == code+".config.yaml" {
			var err error
			if c, err = config.Read(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	registry, err := daemon.Endpoints(c)
	if err != nil {
		t.Fatal(err)
	}
	o := daemon.CompileOptions(c, registry)
	o.Now = today
	r, err := lint.File(code+".yaml", lint.Options{Compile: o})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPage holds that docs/lint.md has the texts.
func TestPage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "lint.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	inside, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("docs/lint.md does not have %q and %q", begin, end)
	}
	if inside == lint.Texts {
		return
	}
	if !*update {
		t.Fatal("docs/lint.md does not have the texts of server/lint/checks.md: run with -update")
	}
	if err := os.WriteFile(path, []byte(before+begin+lint.Texts+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
