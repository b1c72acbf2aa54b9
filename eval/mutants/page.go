package main

import (
	"errors"
	"fmt"
	"strings"
)

// summary counts results.
type summary struct {
	all, caught         int
	protocol, byNemesis int
	errs                []error
	unexpected          []string
}

func summarize(results []result) (s summary) {
	for _, r := range results {
		if r.err != nil {
			s.errs = append(s.errs, fmt.Errorf("%s: %w", r.Name, r.err))
			continue
		}
		s.all++
		if r.Test != "" {
			s.caught++
		} else if r.Survives == "" {
			s.unexpected = append(s.unexpected, r.Name)
		}
		if r.protocol() {
			s.protocol++
			if r.Nemesis != "" {
				s.byNemesis++
			}
		}
	}
	return s
}

func percent(part, of int) float64 {
	if of == 0 {
		return 100
	}
	return 100 * float64(part) / float64(of)
}

func (s summary) String() string {
	return fmt.Sprintf(
		"%d of %d caught by tests (%.0f %%); of the protocol's %d of %d by simulation and nemesis alone (%.0f %%)",
		s.caught, s.all, percent(s.caught, s.all), s.byNemesis, s.protocol, percent(s.byNemesis, s.protocol))
}

// verdict is what is not good enough.
func (s summary) verdict(o options) error {
	errs := s.errs
	if !o.nemesisAlone && percent(s.caught, s.all) < wantByTests {
		errs = append(errs, fmt.Errorf("tests catch %.1f %%, want %d", percent(s.caught, s.all), wantByTests))
	}
	if !o.nemesisAlone && len(s.unexpected) > 0 {
		errs = append(errs, fmt.Errorf("no test catches %s: want one, or why there is none (Survives)",
			strings.Join(s.unexpected, ", ")))
	}
	if percent(s.byNemesis, s.protocol) < wantByNemesis {
		errs = append(errs, fmt.Errorf("simulation and nemesis catch %.1f %% of the protocol's, want %d",
			percent(s.byNemesis, s.protocol), wantByNemesis))
	}
	return errors.Join(errs...)
}

// page is docs/benchmarks/mutants.md.
func page(results []result) string {
	var b strings.Builder
	s := summarize(results)
	fmt.Fprintf(&b, `# Planted bugs

%[1]ccommand%[1]c
$ make mutants
%[1]ccommand%[1]c

plants one bug after the other in a copy of the code, and runs the tests of its package. Those in the packages by which replicas share limits are
also tried against the [simulation and the nemesis](../scaling.md#how-it-is-tested) alone, with %[2]s plans. This page is what the command wrote.

| | caught | of | | wanted |
|---|---:|---:|---:|---:|
| by tests | %[3]d | %[4]d | %.0[5]f %% | %[9]d %% |
| of the protocol's, by simulation and nemesis alone | %[6]d | %[7]d | %.0[8]f %% | %[10]d %% |

`, '`', nemesisSeeds, s.caught, s.all, percent(s.caught, s.all), s.byNemesis, s.protocol,
		percent(s.byNemesis, s.protocol), wantByTests, wantByNemesis)
	text := strings.ReplaceAll(strings.ReplaceAll(b.String(), "`command`\n$", "```text\n$"), "`command`", "```")
	b.Reset()
	b.WriteString(text)
	survivors(&b, results)
	last := ""
	for _, r := range results {
		if dir := r.folder(); dir != last {
			fmt.Fprintf(&b, "\n## %s\n\n| planted | what it would do | caught by |", dir)
			if r.protocol() {
				b.WriteString(" and by |\n|---|---|---|---|\n")
			} else {
				b.WriteString("\n|---|---|---|\n")
			}
			last = dir
		}
		_, what, _ := strings.Cut(r.Name, ": ")
		fmt.Fprintf(&b, "| %s | %s | %s |", what, r.Why, cell(r.Test))
		if r.protocol() {
			fmt.Fprintf(&b, " %s |", cell(r.Nemesis))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func survivors(b *strings.Builder, results []result) {
	b.WriteString("## Not caught\n\n")
	none := true
	for _, r := range results {
		if r.err == nil && r.Test == "" {
			none = false
			fmt.Fprintf(b, "- %s, by tests: %s\n", r.Name, orSo(r.Survives))
		}
		if r.err == nil && r.protocol() && r.Nemesis == "" {
			none = false
			fmt.Fprintf(b, "- %s, by simulation and nemesis: %s\n", r.Name, orSo(r.ByTests))
		}
	}
	if none {
		b.WriteString("None.\n")
	}
}

func orSo(why string) string {
	if why == "" {
		return "it is not known why."
	}
	return why
}

func cell(test string) string {
	if test == "" {
		return "–"
	}
	return "`" + strings.ReplaceAll(test, "|", "/") + "`"
}
