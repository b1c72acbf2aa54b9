// Package framework makes endpoints of the routes that applications of web frameworks report: of what commands of
// Rails and Flask print, of the mappings of Spring's actuator, and of what the scripts of this package print inside
// an application of FastAPI, Starlette, Express or Django.
//
//	rails routes ──▶ routes, as pieces of text and parameters ──▶ templates, in the order of the routes
//	                                                           └─▶ notes: what differs, what was not carried over
//
// Most frameworks take the first route that fits, and Headgate the most specific one. What is never served for that
// reason is left out, and where requests of one route would be counted as another's, a note says so.
package framework

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/server/convert"
)

// maxRoutes bounds how many routes one application may report: all pairs are compared.
const maxRoutes = 10_000

// maxLine bounds a line of a report, in bytes.
const maxLine = 64 << 10

// Routes are what an application serves.
type Routes struct {
	Found     int      // routes that were reported, one for each method and way to write it
	Templates []string // of the endpoints, as lines of a list of routes
	Notes     []convert.Note
}

// frameworks are what can be read, by name.
var frameworks = map[string]struct {
	read func(*report, string) error
	// first says that of routes that fit, the first one serves; else the most specific one.
	first bool
	// folds says that letter case does not tell routes apart.
	folds bool
	// slash says that a slash at the end tells routes apart, which templates do not.
	slash bool
	how   string // the command that prints what is read
}{
	"django": {
		read: records, first: true, slash: true,
		how: "headgate routes from django --script | python - mysite.settings",
	},
	"express": {
		read: records, first: true, folds: true,
		how: "headgate routes from express --script | node - ./app.js",
	},
	"fastapi": {
		read: records, first: true, slash: true,
		how: "headgate routes from fastapi --script | python - main:app",
	},
	"flask":  {read: flask, slash: true, how: "flask routes"},
	"rails":  {read: rails, first: true, how: "bin/rails routes"},
	"spring": {read: spring, how: "curl -s http://127.0.0.1:8080/actuator/mappings"},
}

// Names are the names of the frameworks.
func Names() []string { return slices.Sorted(maps.Keys(frameworks)) }

// Command is the command line that prints what Read reads, of a framework that Names names.
func Command(name string) string { return frameworks[name].how }

// Read makes endpoints of what an application reported; file is its name in messages. The error says what keeps it
// from being read, with file and line, or that no route was found.
func Read(name, file, text string) (Routes, error) {
	f, ok := frameworks[name]
	if !ok {
		return Routes{}, fmt.Errorf("framework is %q, want one of %s", name, strings.Join(Names(), ", "))
	}
	r := &report{file: file, first: f.first, folds: f.folds, slash: f.slash}
	if strings.TrimSpace(text) == "" {
		return Routes{}, fmt.Errorf("%s: is empty, want what %q prints", file, f.how)
	}
	if err := f.read(r, text); err != nil {
		return Routes{}, err
	}
	if len(r.routes) == 0 {
		return Routes{}, errors.Join(fmt.Errorf("%s: holds no route that can be carried over, want what %q prints",
			file, f.how), r.noted())
	}
	return r.done(), nil
}

// report is what is read of an application.
type report struct {
	file         string
	first, folds bool
	slash        bool
	routes       []route
	notes        []convert.Note
	of           [][]string // methods of each note
	noticed      map[convert.Note]int
	extensions   int // routes whose extension is an endpoint of its own
}

// noted are the first notes as an error.
func (r *report) noted() error {
	var all []error
	for _, n := range r.notes[:min(len(r.notes), 10)] {
		all = append(all, errors.New(n.String()))
	}
	return errors.Join(all...)
}

// note says something once for all methods of a route that it is true of.
func (r *report) note(s convert.Severity, line int, method, format string, args ...any) {
	n := convert.Note{File: r.file, Line: line, Severity: s, Text: fmt.Sprintf(format, args...)}
	if r.noticed == nil {
		r.noticed = map[convert.Note]int{}
	}
	at, again := r.noticed[n]
	if !again {
		at = len(r.notes)
		r.noticed[n] = at
		r.notes, r.of = append(r.notes, n), append(r.of, nil)
	}
	if method != "" && !slices.Contains(r.of[at], method) {
		r.of[at] = append(r.of[at], method)
	}
}

// said are the notes, each with its methods unless it is true of a route for all.
func (r *report) said() []convert.Note {
	for i, of := range r.of {
		if len(of) > 0 && len(of) < len(methods) {
			r.notes[i].Text = strings.Join(of, "|") + " " + r.notes[i].Text
		}
	}
	return r.notes
}

func (r *report) differs(line int, format string, args ...any) {
	r.note(convert.Differs, line, "", format, args...)
}

func (r *report) lost(line int, format string, args ...any) {
	r.note(convert.Lost, line, "", format, args...)
}

// methods are what a route for every method stands for. HEAD counts as GET.
var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

// add adds a route as it is read: alternatives are its ways to be written, of which templates have one each.
func (r *report) add(line int, only []string, pattern string, alternatives [][]token) error {
	if len(only) == 0 {
		only = methods
	}
	if slices.Contains(only, "GET") {
		only = slices.DeleteFunc(slices.Clone(only), func(m string) bool { return m == "HEAD" })
	}
	paths, ends, err := pathsOf(alternatives, r.folds)
	if err != nil {
		r.lost(line, "%s: %v", pattern, err)
		return nil
	}
	for _, method := range only {
		if method == "CONNECT" {
			continue // never let through
		}
		for i, p := range paths {
			if len(r.routes) == maxRoutes {
				return fmt.Errorf("%s:%d: more than %d routes, want the list of one application", r.file, line,
					maxRoutes)
			}
			r.routes = append(r.routes, route{line: line, method: method, pattern: pattern, path: p, ends: ends[i]})
		}
	}
	return nil
}

// clip shortens what an application wrote, for a message.
func clip(text string) string {
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	return fmt.Sprintf("%q", text)
}
