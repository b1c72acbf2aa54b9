// Command mutants plants bugs, one after the other, and says which tests catch them.
//
// A planted bug (Mutant) is a few words of a file in the place of others. The tree is never
// changed: the go command is told of the changed copy by -overlay. Each is tried against the tests
// of its package and, if it is one of the protocol between replicas, against the simulation and the
// nemesis alone. The command fails if too many survive, or if one cannot be planted any more: then
// the code has changed, and the list has to follow.
//
//	go run ./mutants                  tries all, and writes docs/benchmarks/mutants.md
//	go run ./mutants -run 'lease/'    tries some, and writes nothing
//	go run ./mutants -check           only sees that all can be planted, and compile
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
)

// What has to be caught, in percent.
const (
	wantByTests   = 95
	wantByNemesis = 80 // of the protocol's
)

func main() {
	var o options
	some := flag.String("run", "", "try those alone whose name matches this expression, and write no page")
	flag.BoolVar(&o.check, "check", false, "only see that all can be planted, and compile")
	flag.BoolVar(&o.nemesisAlone, "nemesis", false,
		"try those of the protocol against simulation and nemesis alone, and write no page")
	flag.StringVar(&o.kept, "keep", "",
		"keep results in this file, and go on with those that it has of bugs that are the same")
	flag.IntVar(&o.atOnce, "j", 2, "how many to try at once")
	flag.Parse()
	var err error
	if o.some, err = regexp.Compile(*some); err == nil {
		o.page = *some == "" && !o.nemesisAlone
		err = o.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type options struct {
	some         *regexp.Regexp
	check        bool
	nemesisAlone bool
	page         bool
	kept         string
	atOnce       int
}

func (o options) run() error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "headgate-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	var chosen []Mutant
	for _, m := range all() {
		if o.some.MatchString(m.Name) && (!o.nemesisAlone || m.protocol()) {
			chosen = append(chosen, m)
		}
	}
	if o.check {
		return compile(root, scratch, chosen)
	}
	known, err := recall(o.kept)
	if err != nil {
		return err
	}
	if err := o.clean(root, chosen, known); err != nil {
		return err
	}
	results := make([]result, len(chosen))
	var trying sync.WaitGroup
	places := make(chan struct{}, max(1, o.atOnce))
	var saying sync.Mutex
	for i, m := range chosen {
		places <- struct{}{}
		saying.Lock()
		before := known.find(m)
		saying.Unlock()
		trying.Go(func() {
			r := try(root, filepath.Join(scratch, fmt.Sprint(i)), m, before, o.nemesisAlone)
			saying.Lock()
			results[i] = r
			if err := known.note(o.kept, r); err != nil {
				results[i].err = err
			}
			fmt.Println(results[i])
			saying.Unlock()
			<-places
		})
	}
	trying.Wait()
	sum := summarize(results)
	fmt.Println(sum)
	if o.page {
		if err := os.WriteFile(filepath.Join(root, "docs/benchmarks/mutants.md"), []byte(page(results)),
			0o644); err != nil {
			return err
		}
	}
	return sum.verdict(o)
}

// clean sees that the tests pass where no bug is planted, else each would be caught by what fails anyway.
func (o options) clean(root string, chosen []Mutant, known memory) error {
	var packages []string
	simulated := false
	for _, m := range chosen {
		if before := known.find(m); !before.Tested && !o.nemesisAlone {
			packages = append(packages, m.packages()...)
		} else if before.Simulated || !m.protocol() {
			continue
		}
		simulated = simulated || m.protocol()
	}
	slices.Sort(packages)
	var runs [][]string
	if packages = slices.Compact(packages); len(packages) > 0 {
		runs = append(runs, packages)
	}
	if simulated {
		runs = append(runs, []string{"./simulate"}, nemesis)
	}
	for _, args := range runs {
		if out, err := command(root, append(slices.Clone(goTest), args...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("tests fail where no bug is planted: %w\n%s", err, out)
		}
	}
	return nil
}

// findRoot is the folder of the repository.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.work")); missing == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "",
				errors.New("there is no go.work above the working directory, want to be run inside the repository")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
