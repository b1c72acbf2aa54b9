// Package openapi reads which endpoints an API has, from the documents that
// already say so.
//
// [Load] reads OpenAPI 3.x and Swagger 2.0 documents in JSON or YAML, plain or
// gzipped; [Routes] reads lists: templates, patterns of routers, methods of gRPC. Of a document only what names an
// endpoint is read: paths, methods and servers. Schemas, parameters, examples
// and responses are stepped over, so a reference into a file that is not there
// does no harm to the endpoints, and the 8 MB document of a large API takes a
// tenth of a second.
//
// Everything wrong with the documents is reported at once, one line each, with
// file, line and column. A document that cannot be read as one is an error; an
// operation that cannot is left out, and a [Warning] says so.
package openapi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
)

// Operation is one endpoint as a document declares it. An operation that is
// served under several base paths is several Operations.
type Operation struct {
	Method      string            // upper case
	Path        string            // as the document has it, "/pet/{petId}"
	BasePath    string            // of the server, "/api/v3"; empty for the root
	Template    endpoint.Template // method, base path and path
	OperationID string            // may be empty
	Source      string            // the file
}

// Warning is what is wrong with a part of a document: an operation that is left
// out, or read in another way than it is written.
type Warning struct {
	Text    string // with file, line and column
	LeftOut bool   // an operation is missing: requests to it match no endpoint, or another one
}

// String adds what became of the part.
func (w Warning) String() string {
	if w.LeftOut {
		return w.Text + ": left out"
	}
	return w.Text
}

// Load reads documents and reports their operations in document order. One
// fault in any part of them and it reports the faults alone.
func Load(files ...string) ([]Operation, error) {
	ops, warnings, err := LoadMost(files...)
	if err != nil {
		return nil, err
	}
	faults := make([]error, len(warnings))
	for i, w := range warnings {
		faults[i] = errors.New(w.Text)
	}
	if err := joinFew(strings.Join(files, ", "), faults); err != nil {
		return nil, err
	}
	return ops, nil
}

// LoadMost is Load for documents that somebody else wrote: an operation that
// cannot be read is left out, and a Warning says so. An error is about a whole
// document, or says that nothing is left of all of them.
func LoadMost(files ...string) ([]Operation, []Warning, error) {
	if len(files) == 0 {
		return nil, nil, errors.New("no OpenAPI document given, want one file or more")
	}
	var ops []Operation
	var warnings []Warning
	var faults []error
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		found, notes, err := parse(file, data)
		ops, warnings = append(ops, found...), append(warnings, notes...)
		if err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 && len(ops) > 0 {
		return ops, warnings, nil
	}
	// What else is wrong is of use beside the fault, and the cause if nothing is left.
	var parts []error
	for _, w := range warnings {
		parts = append(parts, errors.New(w.Text))
	}
	if len(faults)+len(parts) == 0 {
		return nil, nil, fmt.Errorf("%s: paths holds no operation, want one or more", files[0])
	}
	return nil, nil, errors.Join(errors.Join(faults...), joinFew(strings.Join(files, ", "), parts))
}

// Templates reports the templates of operations, in their order: what
// endpoint.Compile takes.
func Templates(ops []Operation) []endpoint.Template {
	ts := make([]endpoint.Template, len(ops))
	for i, op := range ops {
		ts[i] = op.Template
	}
	return ts
}
