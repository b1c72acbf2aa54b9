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
// file, line and column.
package openapi

import (
	"errors"
	"fmt"

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

// Load reads documents and reports their operations in document order. One
// fault in any of them and it reports the faults alone: an endpoint left out
// because its line could not be read would run without its limit.
func Load(files ...string) ([]Operation, error) {
	if len(files) == 0 {
		return nil, errors.New("no OpenAPI document given, want one file or more")
	}
	var ops []Operation
	var faults []error
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		found, err := parse(file, data)
		ops = append(ops, found...)
		if err != nil {
			faults = append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		return nil, fmt.Errorf("%s: paths holds no operation, want one or more", files[0])
	}
	return ops, nil
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
