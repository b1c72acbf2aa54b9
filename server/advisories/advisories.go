// Package advisories knows which releases of Go, and of the modules that this program is built of,
// have known vulnerabilities: a list kept in this repository, for places from which the Go
// vulnerability database cannot be reached. `make vuln` asks the database itself.
package advisories

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed advisories.json
var text []byte

// Std is the module of the standard library, whose versions are those of Go.
const Std = "std"

// List is the advisories that are known.
type List struct {
	Source     string     `json:"source"`
	Taken      string     `json:"taken"` // the date of the database that it was made from, YYYY-MM-DD
	Advisories []Advisory `json:"advisories"`
}

// Advisory is one vulnerability of one module.
type Advisory struct {
	ID        string   `json:"id"`      // of the Go vulnerability database
	Aliases   []string `json:"aliases"` // CVEs
	Module    string   `json:"module"`
	Packages  []string `json:"packages"`  // empty is all
	Published string   `json:"published"` // YYYY-MM-DD, or the year alone
	Versions  []Range  `json:"versions"`
	Summary   string   `json:"summary"`
}

// Range is the versions from Introduced, before Fixed, without a "v". An empty Fixed is none.
type Range struct {
	Introduced string `json:"introduced"`
	Fixed      string `json:"fixed,omitempty"`
}

// Known returns the list.
func Known() List {
	var l List
	if err := json.Unmarshal(text, &l); err != nil {
		panic("advisories.json is no list: " + err.Error()) // ours to mend, and a test reads it
	}
	return l
}

// Of returns the advisories about a version of a module, with or without a "v".
func (l List) Of(module, version string) []Advisory {
	var found []Advisory
	for _, a := range l.Advisories {
		if a.Module == module && slices.ContainsFunc(a.Versions, func(r Range) bool { return r.holds(version) }) {
			found = append(found, a)
		}
	}
	return found
}

// OfRuntime returns the advisories about a release of Go, as runtime.Version names it; none for one that is no release.
func (l List) OfRuntime(release string) []Advisory {
	version, ok := releaseVersion(release)
	if !ok {
		return nil
	}
	return l.Of(Std, version)
}

// Words says which vulnerabilities a release of Go has, "" for none.
func (l List) Words(release string) string {
	found := l.OfRuntime(release)
	if len(found) == 0 {
		return ""
	}
	const shown = 5
	var names []string
	for _, a := range slices.Backward(found) { // the newest first
		names = append(names, fmt.Sprintf("%s (%s)", a.ID, a.Summary))
	}
	if more := len(names) - shown; more > 0 {
		names = append(names[:shown], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("built with %s, which has known vulnerabilities: %s", release, strings.Join(names, "; "))
}

var goRelease = regexp.MustCompile(`^go(\d+)\.(\d+)(?:\.(\d+))?(?:(rc|beta)(\d+))?(?:[ -].*)?$`)

// releaseVersion writes a release of Go as the database writes versions: go1.27rc2 is 1.27.0-rc.2.
func releaseVersion(release string) (string, bool) {
	m := goRelease.FindStringSubmatch(release)
	if m == nil {
		return "", false
	}
	version := m[1] + "." + m[2] + "." + cmp.Or(m[3], "0")
	if m[4] != "" {
		version += "-" + m[4] + "." + m[5]
	}
	return version, true
}

func (r Range) holds(version string) bool {
	return compare(version, r.Introduced) >= 0 && (r.Fixed == "" || compare(version, r.Fixed) < 0)
}

// compare orders two semantic versions (semver.org, section 11), of which parts that are missing are 0.
func compare(a, b string) int {
	aCore, aPre, aIsPre := strings.Cut(core(a), "-")
	bCore, bPre, bIsPre := strings.Cut(core(b), "-")
	if c := compareParts(aCore+".0.0", bCore+".0.0", 3); c != 0 {
		return c
	}
	switch {
	case aIsPre && bIsPre:
		return compareParts(aPre, bPre, -1)
	case aIsPre:
		return -1
	case bIsPre:
		return 1
	}
	return 0
}

// core is a version without its "v" and its build.
func core(version string) string {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "+")
	return version
}

// compareParts compares up to most parts, all if it is below 0: numbers as such, and before words.
func compareParts(a, b string, most int) int {
	return slices.CompareFunc(first(a, most), first(b, most), func(x, y string) int {
		n, errX := strconv.Atoi(x)
		m, errY := strconv.Atoi(y)
		switch {
		case errX == nil && errY == nil:
			return cmp.Compare(n, m)
		case errX == nil:
			return -1
		case errY == nil:
			return 1
		}
		return strings.Compare(x, y)
	})
}

func first(version string, most int) []string {
	parts := strings.Split(version, ".")
	if most >= 0 && len(parts) > most {
		parts = parts[:most]
	}
	return parts
}
