package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
)

var write = flag.Bool("write", false, "write schema.json")

// TestSchemaIsOfTheCode compares schema.json with the fields of Config, their comments, their
// defaults, and the values that Complete accepts.
func TestSchemaIsOfTheCode(t *testing.T) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(newSchema(t)); err != nil {
		t.Fatal(err)
	}
	if *write {
		if err := os.WriteFile("schema.json", text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(text.Bytes(), Schema) {
		t.Error("schema.json is not that of the code: go test ./config -run TestSchemaIsOfTheCode -write, in server")
	}
}

// schema is a JSON Schema, as far as it is needed.
type schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        any                `json:"type"`
	Enum        []string           `json:"enum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Minimum     *int64             `json:"minimum,omitempty"`
	Maximum     *int64             `json:"maximum,omitempty"`
	Default     any                `json:"default,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Additional  any                `json:"additionalProperties,omitempty"` // false, or a schema
}

const (
	durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	bytesPattern    = `^[0-9]+ *([KMGT]i?B|B)?$`
	percentPattern  = `^([1-9][0-9]?%)?$`
)

// maker makes schemas of the types of this package.
type maker struct {
	comments map[string]string // by type, dot and field
	accepted map[string]values // by setting
	refused  func(setting string) bool
}

func newSchema(t *testing.T) *schema {
	m := maker{comments: comments(t), accepted: map[string]values{}}
	full := everything()
	full.check(&checker{asked: func(field string, may values) {
		m.accepted[indices.ReplaceAllString(field, "")] = may
	}})
	m.refused = func(setting string) bool {
		c := everything()
		clear(reflect.ValueOf(&c).Elem(), strings.Split(setting, "."))
		err := c.Complete()
		return err != nil && regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(setting)+` is "0s?"`).
			MatchString(indices.ReplaceAllString(err.Error(), ""))
	}
	s := m.object(reflect.TypeFor[Config](), reflect.ValueOf(Default()), "")
	s.Dialect, s.Title = "https://json-schema.org/draft/2020-12/schema", "Configuration of headgate serve"
	return s
}

var indices = regexp.MustCompile(`\[[^]]*\]`)

// everything is a Config in which every setting is looked at.
func everything() Config {
	c := Default()
	c.Endpoint.EncodedSlash, c.Endpoint.Params = "reject", "reject"
	c.Identifiers = []Identifier{{FailureStatuses: []int{401}}}
	c.Batches, c.MCP, c.GraphQL = []Batch{{}}, []MCP{{}}, []GraphQL{{}}
	c.WebSockets = map[string]WebSocket{"GET /": {}}
	c.GRPCStreams = map[string]WebSocket{"POST /": {}}
	c.Tokens.JWKSFile, c.Store.Redis, c.Keys.MaxStale = "keys.json", []string{"127.0.0.1:6379"}, time.Hour
	c.Store.Replays = "shared"
	return c
}

// clear sets a setting to zero, in the first entry of a list.
func clear(v reflect.Value, path []string) {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct {
		v = v.Index(0)
	}
	for i := range v.NumField() {
		switch tag := v.Type().Field(i).Tag.Get("yaml"); {
		case tag == ",inline":
			clear(v.Field(i), path)
		case tag == path[0] && len(path) == 1:
			v.Field(i).SetZero()
		case tag == path[0]:
			clear(v.Field(i), path[1:])
		}
	}
}

// object is the schema of a struct with its defaults.
func (m *maker) object(of reflect.Type, value reflect.Value, part string) *schema {
	s := &schema{Type: "object", Properties: map[string]*schema{}, Additional: false}
	for i := range of.NumField() {
		f, name := of.Field(i), of.Field(i).Tag.Get("yaml")
		if name == ",inline" {
			for name, one := range m.object(f.Type, value.Field(i), part).Properties {
				s.Properties[name] = one
			}
			continue
		}
		one := m.value(f.Type, value.Field(i), part+name)
		one.Description = m.describe(of.Name(), f.Name, name, part+name, one)
		s.Properties[name] = one
	}
	return s
}

func (m *maker) value(of reflect.Type, value reflect.Value, setting string) *schema {
	if of.Kind() == reflect.Pointer { // what is left out is decided elsewhere
		s := m.value(of.Elem(), reflect.Zero(of.Elem()), setting)
		s.Default = nil
		return s
	}
	may := m.accepted[setting]
	switch {
	case of == reflect.TypeFor[time.Duration]():
		s := &schema{Type: "string", Pattern: durationPattern}
		if d := time.Duration(value.Int()); d != 0 {
			s.Default = short(d)
		}
		return s
	case of == reflect.TypeFor[Bytes]():
		s := &schema{Type: []string{"string", "integer"}, Pattern: bytesPattern}
		if value.Int() != 0 {
			s.Default = Bytes(value.Int()).String()
		}
		return s
	case of == reflect.TypeFor[Status]():
		return &schema{Type: []string{"string", "integer"}, Pattern: "^([2-5][0-9][0-9]|[2-5]xx)$"}
	case of == reflect.TypeFor[Percent]():
		return &schema{Type: "string", Pattern: percentPattern}
	}
	switch of.Kind() {
	case reflect.Struct:
		return m.object(of, value, setting+".")
	case reflect.Slice:
		s := &schema{Type: "array", Items: m.value(of.Elem(), reflect.Zero(of.Elem()), setting)}
		if value.Len() > 0 {
			s.Default = value.Interface()
		}
		return s
	case reflect.Map:
		return &schema{Type: "object", Additional: m.value(of.Elem(), reflect.Zero(of.Elem()), setting)}
	case reflect.Bool:
		return &schema{Type: "boolean", Default: value.Bool()}
	case reflect.Int, reflect.Int64:
		s := &schema{Type: "integer"}
		if low, is := may.low.(int64); is {
			high := may.high.(int64)
			if low > 0 && !m.refused(setting) {
				low = 0 // it stands for the default, or for none
			}
			if s.Minimum = &low; high < math.MaxInt64 {
				s.Maximum = &high
			}
		}
		if value.Int() != 0 {
			s.Default = value.Int()
		}
		return s
	case reflect.Float64:
		return &schema{Type: "number"}
	case reflect.String:
		s := &schema{Type: "string", Enum: may.oneOf}
		if value.String() != "" {
			s.Default = value.String()
		}
		return s
	}
	panic(fmt.Sprintf("%s is of type %v, which has no schema yet", setting, of))
}

// short writes a duration as people do: 1m0s as 1m.
func short(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "m0s")
	if text != d.String() {
		text += "m"
	}
	if hours, whole := strings.CutSuffix(text, "h0m"); whole {
		text = hours + "h"
	}
	return text
}

// describe is the comment of a field, in the names of the file, with what a duration may be.
func (m *maker) describe(of, field, name, setting string, s *schema) string {
	text := m.comments[of+"."+field]
	for other := range m.comments {
		its, called, _ := strings.Cut(other, ".")
		tag, ok := tagOf(its, called)
		switch {
		case !ok:
		case its == of: // Words such as Header are settings only where they begin what is said of them.
			text = regexp.MustCompile(`(^|and |[.;,] )`+called+`\b`).ReplaceAllString(text, "${1}"+tag)
			fallthrough
		case twoWords.MatchString(called) && m.once(called):
			text = regexp.MustCompile(`\b`+called+`\b`).ReplaceAllStringFunc(text, func(found string) string {
				if twoWords.MatchString(called) {
					return tag
				}
				return found
			})
		}
	}
	if low, is := m.accepted[setting].low.(time.Duration); is {
		text = strings.TrimSuffix(text, ".") + fmt.Sprintf(". %s to %s.", short(low),
			short(m.accepted[setting].high.(time.Duration)))
	}
	return strings.TrimPrefix(text, ". ")
}

// twoWords are names that nobody takes for a word of the text.
var twoWords = regexp.MustCompile(`[a-z0-9][A-Z]|[A-Z]{2}[a-z]|^DB$`)

// once reports whether one struct alone has a field of a name.
func (m *maker) once(field string) bool {
	n := 0
	for other := range m.comments {
		if strings.HasSuffix(other, "."+field) {
			n++
		}
	}
	return n == 1
}

// tagOf is what a field is called in the file.
func tagOf(of, field string) (string, bool) {
	t := structs(reflect.TypeFor[Config]())[of]
	if t == nil {
		return "", false
	}
	f, ok := t.FieldByName(field)
	tag := f.Tag.Get("yaml")
	return tag, ok && tag != "" && tag != ",inline"
}

// structs are those of this package that a Config is made of, by name.
func structs(of reflect.Type) map[string]reflect.Type {
	found := map[string]reflect.Type{}
	var visit func(reflect.Type)
	visit = func(t reflect.Type) {
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || found[t.Name()] != nil {
			return
		}
		found[t.Name()] = t
		for i := range t.NumField() {
			visit(t.Field(i).Type)
		}
	}
	visit(of)
	return found
}

// comments are those of the fields of structs, in one line each. Fields that stand together under
// one comment share it.
func comments(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	found := map[string]string{}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	visit := func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.StructType); ok {
			above, line := "", 0
			for _, f := range of.Fields.List {
				at := files.Position(f.Pos()).Line
				if f.Doc != nil || at != line+1 {
					above = f.Doc.Text()
				}
				line = files.Position(f.End()).Line
				text := above
				if f.Comment != nil {
					text = f.Comment.Text()
				}
				for _, name := range f.Names {
					found[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(text), " ")
				}
			}
		}
		return true
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, visit)
	}
	if found["Config.Listen"] == "" {
		t.Fatal("no comment of Config.Listen was found, want those of all fields")
	}
	return found
}

// TestEverySettingIsDescribed holds for what an editor shows.
func TestEverySettingIsDescribed(t *testing.T) {
	var visit func(s *schema, path string)
	visit = func(s *schema, path string) {
		if s.Description == "" && path != "" && s.Type != "object" {
			t.Errorf("%s has no description: the field of the struct wants a comment", path)
		}
		if s.Items != nil {
			for name, one := range s.Items.Properties {
				visit(one, path+"."+name)
			}
		}
		for name, one := range s.Properties {
			visit(one, strings.TrimPrefix(path+"."+name, "."))
		}
	}
	visit(newSchema(t), "")
}

// TestSchemaAgreesWithRead checks files by the schema and by Read and Complete: what either refuses
// of these, the other does too.
func TestSchemaAgreesWithRead(t *testing.T) {
	s := openAPI(t)
	const fine = "upstream: http://127.0.0.1:9000\nroutes: [routes.txt]\n"
	for _, c := range []struct {
		text string
		good bool
	}{
		{fine, true},
		{fine + "refresh: 1s\n", true},
		{fine + "refresh: 1m30s\n", true},
		{fine + "refresh: 1 second\n", false},
		{fine + "refresh: 5\n", false},
		{fine + "refreshh: 1s\n", false},
		{fine + "unknown: limit\n", true},
		{fine + "unknown: pass\n", false},
		{fine + "max_bytes: 64MiB\n", true},
		{fine + "max_bytes: 1048576\n", true},
		{fine + "max_bytes: 64 apples\n", false},
		{fine + "ipv6_prefix: 56\n", true},
		{fine + "ipv6_prefix: 129\n", false},
		{fine + "ipv6_prefix: wide\n", false},
		{fine + "auto_revert: {share: 50%}\n", true},
		{fine + "auto_revert: {share: 500%}\n", false},
		{fine + "api_keys: {bearer: false, imported: [{prefix: sk_, min_length: 20, max_length: 40}]}\n", true},
		{fine + "api_keys: {bearer: perhaps}\n", false},
		{fine + "api_keys: [header]\n", false},
		{fine + "identifiers: [{endpoint: POST /v1/login, field: email, format: any}]\n", true},
		{fine + "identifiers: [{endpoint: POST /v1/login, field: email, format: xml}]\n", false},
		{fine + "identifiers: [{endpoint: POST /v1/login, field: email, max_depth: 0}]\n", true},
		{fine + "endpoint: {encoded_slash: decode, refuse: [dot_segments]}\n", true},
		{fine + "endpoint: {encoded_slash: perhaps}\n", false},
		{fine + "costs: {POST /v1/items: 30}\n", true},
		{fine + "costs: {POST /v1/items: much}\n", false},
		{fine + "trusted_proxies: 10.0.0.0/8\n", false},
		{fine + "clients: {max_connections: 0, patience: 30s}\n", true},
		{fine + "clients: {patience: slow}\n", false},
	} {
		conf, _, err := parse("headgate.yaml", []byte(c.text))
		if err == nil {
			err = conf.Complete()
		}
		if (err == nil) != c.good {
			t.Errorf("%q: Read and Complete = %v, want good %v", c.text, err, c.good)
		}
		if err := s.VisitJSON(read(t, c.text)); (err == nil) != c.good {
			t.Errorf("%q: by the schema %v, want good %v", c.text, err, c.good)
		}
	}
	all := Default()
	all.Endpoint, all.Store.Replays = EndpointOf(all.Endpoint.Profile()), "shared"
	defaults, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := parse("defaults.yaml", defaults); err != nil {
		t.Error(err)
	}
	if err := s.VisitJSON(read(t, string(defaults))); err != nil {
		t.Errorf("the defaults by the schema: %v", err)
	}
}

// fileBlock is a file of a page, which the page's commands read.
var fileBlock = regexp.MustCompile("(?s)<!-- file: ([^ ]+\\.yaml) -->\n+```yaml\n(.*?)```")

// TestExamplesFitTheSchema checks every configuration on the pages.
func TestExamplesFitTheSchema(t *testing.T) {
	s := openAPI(t)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range fileBlock.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(found[2], "upstream:") || found[1] == "wrong.yaml" {
				continue
			}
			checked++
			if err := s.VisitJSON(read(t, found[2])); err != nil {
				t.Errorf("%s, %s: %v", filepath.Base(page), found[1], err)
			}
		}
	}
	if checked < 5 {
		t.Errorf("%d configurations found on the pages, want 5 or more", checked)
	}
}

// openAPI is the schema, for a library that checks values by such.
func openAPI(t *testing.T) *openapi3.Schema {
	t.Helper()
	// Types in the plural are of a newer dialect than the library's objects.
	text := regexp.MustCompile(`"type": \[\s*"string",\s*"integer"\s*\],\s*"pattern": ("[^\n]*"),?\n`).
		ReplaceAllString(string(Schema), `"anyOf": [{"type": "integer"}, {"type": "string", "pattern": $1}],`+"\n")
	text = regexp.MustCompile(`\],\n(\s*)\}`).ReplaceAllString(text, "]\n$1}")
	var s openapi3.Schema
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// read is a YAML text as JSON has it.
func read(t *testing.T, text string) any {
	t.Helper()
	as, err := ToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(as, &value); err != nil {
		t.Fatal(err)
	}
	return value
}
