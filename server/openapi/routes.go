package openapi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
)

// plainRoutes reads a plain list of endpoints, for an API that has no document: one
// template a line, "GET /v1/items/{id}". What follows a # at the start of a
// line or after a space is a comment; empty lines count for nothing. All
// faults are reported at once, each with its line.
func plainRoutes(file string) ([]Operation, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return parseRoutes(file, string(data))
}

func parseRoutes(file, text string) ([]Operation, error) {
	var ops []Operation
	var faults []error
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(withoutComment(line))
		if len(fields) == 0 {
			continue
		}
		op, err := route(fields)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", file, number, err))
			continue
		}
		op.Source = file
		ops = append(ops, op)
	}
	if len(faults) > maxFaults {
		more := len(faults) - maxFaults
		faults = append(faults[:maxFaults], fmt.Errorf("%s: %d faults more", file, more))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		return nil, fmt.Errorf("%s: holds no endpoint, want lines such as \"GET /v1/items/{id}\"", file)
	}
	return ops, nil
}

func route(fields []string) (Operation, error) {
	if len(fields) != 2 {
		return Operation{}, fmt.Errorf("endpoint is %s, want a method and a path such as \"GET /v1/items/{id}\"",
			quoted(strings.Join(fields, " ")))
	}
	t, err := endpoint.ParseTemplate(fields[0] + " " + fields[1])
	if err != nil {
		return Operation{}, err
	}
	return Operation{Method: fields[0], Path: fields[1], Template: t}, nil
}

func withoutComment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[:i]
		}
	}
	return line
}
