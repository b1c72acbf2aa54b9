package openapi_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/openapi"
)

// descriptors is the set that testdata/shop.protoset holds, of
//
//	package shop.v1;
//	service Books { rpc Get…; rpc List… }
//	service Admin { rpc Delete… }
func descriptors() *descriptorpb.FileDescriptorSet {
	message := &descriptorpb.DescriptorProto{Name: proto.String("Book")}
	service := func(name string, methods ...string) *descriptorpb.ServiceDescriptorProto {
		s := &descriptorpb.ServiceDescriptorProto{Name: proto.String(name)}
		for _, m := range methods {
			s.Method = append(s.Method, &descriptorpb.MethodDescriptorProto{
				Name:       proto.String(m),
				InputType:  proto.String(".shop.v1.Book"),
				OutputType: proto.String(".shop.v1.Book"),
			})
		}
		return s
	}
	return &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{
		Name: proto.String("shop.proto"), Package: proto.String("shop.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{message},
		Service: []*descriptorpb.ServiceDescriptorProto{service("Books", "GetBook", "ListBooks"),
			service("Admin", "DeleteBook")},
	}}}
}

func TestDescriptorSetOfTheFolder(t *testing.T) {
	data, err := os.ReadFile("testdata/shop.protoset")
	if err != nil {
		t.Fatal(err)
	}
	var got descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &got); err != nil || !proto.Equal(&got, descriptors()) {
		t.Errorf("testdata/shop.protoset holds %v, %v, want what descriptors returns", &got, err)
	}
}

func TestRoutesInDialects(t *testing.T) {
	for _, tt := range []struct {
		dialect, text string
		want          []string
	}{
		{"servemux:", "GET /items/{id} # one\n\nGET /files/{path...}",
			[]string{"GET /items/{id}", "GET /files/{path...}", "GET /files"}},
		{"chi:", "GET /items/{id:[0-9]+}\nPOST   /items", []string{"GET /items/{id}", "POST /items"}},
		{"gin:", "# routes\nGET /items/:id\n", []string{"GET /items/{id}"}},
		{"fiber:", "GET /items/:id\n", []string{"GET /items/{id}"}},
		{"echo:", "GET /items/:id\nGET /items/:id/pages", []string{"GET /items/{id}", "GET /items/{id}/pages"}},
		{"grpc:", "shop.v1.Books/GetBook\n/Health/Check # plain",
			[]string{"POST /shop.v1.Books/GetBook", "POST /Health/Check"}},
		{"", "GET /rpc?action=login\nGET /items/{id}", []string{"GET /rpc?action=login", "GET /items/{id}"}},
	} {
		ops, err := openapi.Routes(tt.dialect + write(t, "routes", tt.text))
		if err != nil {
			t.Errorf("%s%q: %v", tt.dialect, tt.text, err)
		}
		var got []string
		for _, op := range ops {
			got = append(got, op.Template.String())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s%q = %q, want %q", tt.dialect, tt.text, got, tt.want)
		}
	}
}

func TestMethodsOfDescriptors(t *testing.T) {
	ops, err := openapi.Routes("protoset:testdata/shop.protoset")
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile(openapi.Templates(ops), endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]endpoint.Status{
		"/shop.v1.Books/GetBook": endpoint.Known, "/shop.v1.Admin/DeleteBook": endpoint.Known,
		"/shop.v1.Books/Getbook": endpoint.UnknownPath, "/shop.v1.Books/Delete": endpoint.UnknownPath,
		"/shop.v1.Books": endpoint.UnknownPath,
	} {
		if m := table.Match("POST", target); m.Status != want {
			t.Errorf("Match(POST, %q) = %v, want %v", target, m.Status, want)
		}
	}
	if m := table.Match("GET", "/shop.v1.Books/GetBook"); m.Status != endpoint.UnknownMethod {
		t.Errorf("Match(GET) = %v, want an unknown method", m.Status)
	}
}

func TestRoutesSayWhatIsWrong(t *testing.T) {
	twice := descriptors()
	twice.File = append(twice.File, proto.CloneOf(twice.File[0]))
	twice.File[1].Name = proto.String("copy.proto")
	odd := descriptors()
	odd.File[0].Service[0].Method[0].Name = proto.String("a/b")
	empty := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{Name: proto.String("x.proto")}}}
	bytes := func(m proto.Message) string {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, tt := range []struct{ dialect, text, want string }{
		{"gim:", "GET /a", `want servemux, chi, gin, echo, fiber, grpc or protoset before the colon`},
		{"gin:", "/items/:id\nGET /a/:", `routes:1: route is "/items/:id", want a method, or ANY, and a pattern`},
		{"gin:", "GET /items/:id\nGET /a/:", `routes: gin pattern "/a/:": segment is ":", want a name after the colon`},
		{"chi:", "#", `routes: holds no endpoint, want a line for each`},
		{"grpc:", "shop.v1.Books.GetBook\nGET /x",
			`routes:1: method is "shop.v1.Books.GetBook", want package.Service/Method`},
		{"protoset:", "GET /items", `routes: is no descriptor set, want a FileDescriptorSet, as`},
		{"protoset:", bytes(twice), `service "shop.v1.Books" is in "shop.proto" and in "copy.proto", want it once`},
		{"protoset:", bytes(odd), `method in "shop.proto" is "shop.v1.Books/a/b", want package.Service/Method`},
		{"protoset:", bytes(empty), `routes: holds no method of a service, want one or more`},
		{"protoset:", bytes(descriptors())[:40], `routes: is no descriptor set`},
	} {
		_, err := openapi.Routes(tt.dialect + write(t, "routes", tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s%q: %v, want %s", tt.dialect, tt.text, err, tt.want)
		}
	}
	if _, err := openapi.Routes("gin:"); err == nil || err.Error() != `routes is "gin:", want a file after the colon` {
		t.Errorf(`Routes("gin:") = %v`, err)
	}
}

func TestOpenAPIPathsWithQueries(t *testing.T) {
	const document = `{"openapi": "3.0.0", "info": {"title": "x", "version": "1"}, "paths": {
		"/rpc?Action=Login": {"post": {}}, "/{Bucket}?acl={acl}": {"get": {}}}}`
	ops, err := openapi.Load(write(t, "api.json", document))
	if err != nil || len(ops) != 2 || ops[0].Template.Query() != "Action=Login" ||
		ops[1].Template.Query() != "acl={acl}" {
		t.Errorf("Load = %v, %v, want two operations with queries", ops, err)
	}
	_, err = openapi.Load(write(t, "api.json", strings.Replace(document, "acl={acl}", "acl", 1)))
	if err == nil || !strings.Contains(err.Error(),
		`query parameter is "acl", want "acl={value}" for any value or "acl=" for an empty one`) {
		t.Errorf("Load of a bare query = %v, want an error that says how", err)
	}
	_, err = openapi.Load(write(t, "api.json", strings.Replace(document, "?acl={acl}", "#acl", 1)))
	if err == nil || !strings.Contains(err.Error(), `nobody sends the fragment "#acl"`) {
		t.Errorf("Load of a fragment = %v, want an error", err)
	}
}
