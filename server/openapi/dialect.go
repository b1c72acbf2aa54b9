package openapi

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/endpoint/pattern"
)

// dialects are the notations of lists besides our own, by the name that stands before the file: "gin:routes.txt".
const dialects = "servemux, chi, gin, echo, fiber, grpc or protoset"

// A dialect has two letters or more; one before a colon is a drive.
var dialectName = regexp.MustCompile(`^[a-z]{2,}$`)

// Routes reads a list of endpoints. What stands before a colon says in which notation it is:
//
//	routes.txt          templates, see parseRoutes
//	gin:routes.txt      patterns of a router: servemux, chi, gin, echo or fiber; "METHOD /pattern", a line each
//	grpc:methods.txt    methods of gRPC, as package.Service/Method, a line each
//	protoset:api.binpb  the methods of a FileDescriptorSet, as protoc --descriptor_set_out and buf build write it
//
// All faults are reported at once.
func Routes(source string) ([]Operation, error) {
	dialect, file, ok := strings.Cut(source, ":")
	if !ok || !dialectName.MatchString(dialect) {
		return plainRoutes(source)
	}
	read := map[string]func(dialect, file string) ([]Operation, error){
		"servemux": patternRoutes, "chi": patternRoutes, "gin": patternRoutes, "echo": patternRoutes,
		"fiber": patternRoutes,
		"grpc":  methodRoutes, "protoset": descriptorRoutes,
	}[dialect]
	if read == nil {
		return nil, fmt.Errorf("routes is %q, want %s before the colon, or %q for a file of that name", source,
			dialects, "./"+source)
	}
	if file == "" {
		return nil, fmt.Errorf("routes is %q, want a file after the colon", source)
	}
	return read(dialect, file)
}

// File is the file that a source of routes names.
func File(source string) string {
	if dialect, file, ok := strings.Cut(source, ":"); ok && dialectName.MatchString(dialect) {
		return file
	}
	return source
}

// patternRoutes reads a list of a router's patterns.
func patternRoutes(dialect, file string) ([]Operation, error) {
	d, err := pattern.Parse(dialect)
	if err != nil {
		return nil, err
	}
	lines, err := readLines(file)
	if err != nil {
		return nil, err
	}
	var routes []pattern.Route
	var faults []error
	for _, line := range lines {
		if d == pattern.ServeMux {
			routes = append(routes, pattern.Route{Pattern: line.text})
			continue
		}
		method, path, ok := strings.Cut(line.text, " ")
		if !ok || strings.HasPrefix(method, "/") {
			faults = append(faults, fmt.Errorf("%s:%d: route is %s, want a method, or ANY, and a pattern", file,
				line.number, quoted(line.text)))
			continue
		}
		routes = append(routes, pattern.Route{Method: method, Pattern: strings.TrimSpace(path)})
	}
	templates, err := d.Templates(routes...)
	if err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			faults = append(faults, fmt.Errorf("%s: %s", file, line))
		}
	}
	if err := joinFew(file, faults); err != nil {
		return nil, err
	}
	var ops []Operation
	for _, t := range templates {
		ops = append(ops, Operation{Method: t.Method(), Path: t.Path(), Template: t, Source: file})
	}
	return ops, nil
}

// fullMethod is how gRPC names a method on the wire, without the first slash.
var fullMethod = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*\.)*[A-Za-z_][A-Za-z0-9_]*/[A-Za-z_][A-Za-z0-9_]*$`)

// methodRoutes reads a list of gRPC's methods.
func methodRoutes(_, file string) ([]Operation, error) {
	lines, err := readLines(file)
	if err != nil {
		return nil, err
	}
	var ops []Operation
	var faults []error
	for _, line := range lines {
		name := strings.TrimPrefix(line.text, "/")
		if !fullMethod.MatchString(name) {
			faults = append(faults, fmt.Errorf("%s:%d: method is %s, want package.Service/Method", file, line.number,
				quoted(line.text)))
			continue
		}
		op, err := methodOperation(file, name)
		ops, faults = append(ops, op), append(faults, err)
	}
	if err := joinFew(file, faults); err != nil {
		return nil, err
	}
	return ops, nil
}

// methodOperation returns the operation that calls a method: gRPC sends POST /package.Service/Method.
func methodOperation(file, name string) (Operation, error) {
	t, err := endpoint.ParseTemplate("POST /" + name)
	if err != nil {
		return Operation{}, fmt.Errorf("%s: %w", file, err)
	}
	_, method, _ := strings.Cut(name, "/")
	return Operation{Method: "POST", Path: "/" + name, Template: t, OperationID: method, Source: file}, nil
}

// descriptorRoutes reads the methods of a FileDescriptorSet.
func descriptorRoutes(_, file string) ([]Operation, error) {
	data, err := readBytes(file)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	const want = "want a FileDescriptorSet, as `protoc --descriptor_set_out` and `buf build -o` write it"
	if err := proto.Unmarshal(data, &set); err != nil || len(set.ProtoReflect().GetUnknown()) > 0 {
		return nil, fmt.Errorf("%s: is no descriptor set, %s", file, want)
	}
	var ops []Operation
	var faults []error
	seen := make(map[string]string)
	for _, f := range set.GetFile() {
		if f.GetName() == "" {
			return nil, fmt.Errorf("%s: holds a file without a name, %s", file, want)
		}
		for _, service := range f.GetService() {
			name := service.GetName()
			if f.GetPackage() != "" {
				name = f.GetPackage() + "." + name
			}
			if other, twice := seen[name]; twice {
				faults = append(faults, fmt.Errorf("%s: service %q is in %q and in %q, want it once", file, name,
					other, f.GetName()))
				continue
			}
			seen[name] = f.GetName()
			for _, m := range service.GetMethod() {
				full := name + "/" + m.GetName()
				if !fullMethod.MatchString(full) {
					faults = append(faults, fmt.Errorf("%s: method in %q is %s, want package.Service/Method", file,
						f.GetName(), quoted(full)))
					continue
				}
				op, err := methodOperation(file, full)
				ops, faults = append(ops, op), append(faults, err)
			}
		}
	}
	if err := joinFew(file, faults); err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		return nil, fmt.Errorf("%s: holds no method of a service, want one or more", file)
	}
	return ops, nil
}

// line is a line of a list, without its comment.
type line struct {
	number int
	text   string
}

// readLines returns what a list holds.
func readLines(file string) ([]line, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	var lines []line
	number := 0
	for text := range strings.Lines(string(data)) {
		number++
		if text = strings.TrimSpace(withoutComment(text)); text != "" {
			lines = append(lines, line{number, text})
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s: holds no endpoint, want a line for each", file)
	}
	return lines, nil
}

// joinFew joins the first of many faults.
func joinFew(file string, faults []error) error {
	faults = slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	if len(faults) > maxFaults {
		more := len(faults) - maxFaults
		faults = append(faults[:maxFaults], fmt.Errorf("%s: %d faults more", file, more))
	}
	return errors.Join(faults...)
}
