package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Mutant is a planted bug.
type Mutant struct {
	Name string // the package, and what is wrong
	File string // from the root of the repository
	Old  string // stands in File once
	New  string
	Why  string // what it would do in life

	// Survives says why no test can see it, where that is so; ByTests that the nemesis cannot, but tests do.
	Survives, ByTests string

	Tests []string // packages besides its own whose tests may catch it
}

// protocols are the packages by which replicas share buckets.
var protocols = []string{"bucket/gossip", "bucket/lease", "bucket/report", "bucket/redis", "bucket/scoped"}

func (m Mutant) protocol() bool { return slices.Contains(protocols, path.Dir(m.File)) }

// folder is where the package is; the library's own is called by its name.
func (m Mutant) folder() string {
	if dir := path.Dir(m.File); dir != "." {
		return dir
	}
	return "headgate"
}

func (m Mutant) packages() []string { return append([]string{"./" + path.Dir(m.File)}, m.Tests...) }

// planted is the file with the bug in it.
func (m Mutant) planted(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	if n := bytes.Count(text, []byte(m.Old)); n != 1 || m.Old == m.New {
		return nil, fmt.Errorf("%s: %s has the text to replace %d times, want once: %q", m.Name, m.File, n, m.Old)
	}
	return bytes.Replace(text, []byte(m.Old), []byte(m.New), 1), nil
}

// overlay plants bugs, each in another file, and returns what to tell the go command.
func overlay(root, scratch string, all ...Mutant) (flag string, err error) {
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for i, m := range all {
		text, err := m.planted(root)
		if err != nil {
			return "", err
		}
		copied := filepath.Join(scratch, fmt.Sprint(i)+"-"+path.Base(m.File))
		if err := os.WriteFile(copied, text, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, m.File)] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(scratch, "overlay.json")
	return "-overlay=" + list, os.WriteFile(list, text, 0o644)
}

// compile sees that all can be planted, and compile: as many at once as there are files, one of each.
func compile(root, scratch string, all []Mutant) error {
	for round := 0; len(all) > 0; round++ {
		var now, later []Mutant
		for _, m := range all {
			if slices.ContainsFunc(now, func(o Mutant) bool { return o.File == m.File }) {
				later = append(later, m)
			} else {
				now = append(now, m)
			}
		}
		flag, err := overlay(root, filepath.Join(scratch, fmt.Sprint("check", round)), now...)
		if err != nil {
			return err
		}
		args := []string{"build", flag}
		for _, m := range now {
			args = append(args, "./"+path.Dir(m.File))
		}
		if out, err := command(root, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("planted bugs do not compile: %w\n%s", err, out)
		}
		all = later
	}
	return nil
}

func command(root string, args ...string) *exec.Cmd {
	c := exec.Command("go", args...)
	c.Dir = root
	return c
}

// result is what became of a Mutant.
type result struct {
	Mutant
	outcome
	err error // it could not be tried
}

// outcome is which tests caught it.
type outcome struct {
	Tested    bool   // by the tests of its package
	Test      string // that caught it; "" if none did
	Simulated bool   // by simulate and nemesis
	Nemesis   string // of those, that caught it
}

func (r result) String() string {
	switch {
	case r.err != nil:
		return fmt.Sprintf("ERROR     %s: %v", r.Name, r.err)
	case r.protocol():
		return fmt.Sprintf("%-9s %s: tests %s; nemesis %s", r.word(), r.Name, or(r.Test), or(r.Nemesis))
	}
	return fmt.Sprintf("%-9s %s: tests %s", r.word(), r.Name, or(r.Test))
}

func (r result) word() string {
	if r.Test == "" && r.Nemesis == "" {
		return "survived"
	}
	return "caught"
}

func or(test string) string {
	if test == "" {
		return "none"
	}
	return test
}

// nemesisSeeds is how many plans may catch a bug.
const nemesisSeeds = "80"

var (
	goTest  = []string{"test", "-vet=off", "-count=1", "-failfast", "-timeout=600s"}
	nemesis = []string{"./eval/nemesis",
		"-run=TestStoreIsItsTwin|Exactly$|TestAChangeThatGoesRound|TestWhoAsksGoesOnOwing|TestALimitThatComesBack|TestFlaws|TestNemesis(OfPlaces)?$", "-args", "-seeds=" + nemesisSeeds, "-plain"}
)

// try plants a bug and runs the tests, but for those of which it is known what they say.
func try(root, scratch string, m Mutant, known outcome, nemesisAlone bool) (r result) {
	r.Mutant = m
	r.outcome = known
	flag, err := overlay(root, scratch, m)
	if err != nil {
		r.err = err
		return r
	}
	test := func(args ...string) string {
		out, err := command(root, slices.Concat(goTest, []string{flag}, args)...).CombinedOutput()
		if err == nil {
			return ""
		}
		if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
			r.err = fmt.Errorf("does not build:\n%s", out)
			return ""
		}
		return culprit(string(out))
	}
	if !nemesisAlone && !r.Tested {
		r.Test = test(m.packages()...)
		r.Tested = r.err == nil
	}
	if r.err == nil && m.protocol() && !r.Simulated {
		if r.Nemesis = test("./simulate"); r.Nemesis == "" && r.err == nil {
			r.Nemesis = test(nemesis...)
		}
		r.Simulated = r.err == nil
	}
	return r
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	panicked   = regexp.MustCompile(`(?m)^(panic: test timed out|panic: |fatal error: )(.*)$`)
)

// culprit is the test that failed.
func culprit(out string) string {
	if all := failedTest.FindAllStringSubmatch(out, -1); all != nil {
		return strings.ReplaceAll(all[len(all)-1][1], "_", " ")
	}
	if m := panicked.FindStringSubmatch(out); m != nil {
		return strings.TrimSpace(strings.TrimSuffix(m[1], ": ") + " " + m[2])
	}
	return "a test"
}
