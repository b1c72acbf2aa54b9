package admin_test

import (
	"encoding"
	"encoding/json"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/draw"
	"github.com/headgate-io/headgate/server/lint"
)

// try is admin.Try with its rules as they are read.
type try struct {
	Rules  []file.Entry `json:"rules"`
	Reveal bool         `json:"reveal,omitempty"`
}

// drawn is admin.Draw with its rule as it is read.
type drawn struct {
	Rule file.Entry `json:"rule"`
}

// bodies are the Go types of what operations read and answer.
var bodies = map[string]struct {
	in  any
	out []any // several where the answer is one of them
}{
	"listPolicies":        {nil, []any{admin.Listing{}, admin.DatabaseListing{}}},
	"setPolicy":           {file.Entry{}, []any{admin.Done{}}},
	"deletePolicy":        {nil, []any{admin.Done{}}},
	"getPolicy":           {nil, []any{admin.One{}}},
	"applyPolicies":       {edit{}, []any{admin.Done{}, admin.Plan{}}},
	"lintDatabase":        {nil, []any{lint.Report{}}},
	"lintPolicies":        {nil, []any{lint.Report{}}}, // it takes anything
	"reload":              {nil, []any{admin.Reloaded{}}},
	"listProjects":        {nil, []any{admin.Projects{}}},
	"setProject":          {admin.ProjectEntry{}, []any{admin.Done{}}},
	"deleteProject":       {nil, []any{admin.Done{}}},
	"listVersions":        {nil, []any{admin.Versions{}}},
	"getVersion":          {nil, []any{admin.Detail{}}},
	"listVersionPolicies": {nil, []any{admin.VersionRules{}}},
	"diffVersions":        {nil, []any{admin.Changes{}}},
	"rollbackVersion":     {admin.Rollback{}, []any{admin.Done{}}},
	"explainByQuery":      {nil, []any{inspect.Explanation{}}},
	"explain":             {admin.ExplainRequest{}, []any{inspect.Explanation{}}},
	"getBuckets":          {nil, []any{inspect.Found{}}},
	"inspectBuckets":      {admin.BucketRequest{}, []any{inspect.Found{}}},
	"resetBucket":         {admin.BucketRequest{}, []any{admin.BucketChange{}}},
	"grantBucket":         {admin.BucketRequest{}, []any{admin.BucketChange{}}},
	"getBudgets":          {admin.BudgetRequest{}, []any{developers.Report{}}},
	"getActivity":         {nil, []any{admin.Activity{}}},
	"getActivitySeries":   {nil, []any{activity.Series{}}},
	"getAnomalies":        {nil, []any{admin.Anomalies{}}},
	"getUsage":            {nil, []any{admin.Usage{}}},
	"drawRule":            {drawn{}, []any{draw.Picture{}}},
	"tryRules":            {try{}, []any{admin.Tried{}}},
	"listRequests":        {nil, []any{admin.LimitRequests{}}},
	"getRequest":          {nil, []any{admin.LimitRequest{}}},
	"approveRequest":      {admin.RequestApproval{}, []any{admin.Approved{}}},
	"declineRequest":      {admin.RequestDecline{}, []any{admin.LimitRequest{}}},
	"listAudit":           {nil, []any{admin.AuditPage{}}},
	"listFleet":           {nil, []any{admin.FleetPage{}}},
	"listCalls":           {nil, []any{admin.Calls{}}},
	"listTokens":          {nil, []any{admin.Tokens{}}},
	"listKeys":            {nil, []any{admin.Keys{}}},
	"createKey":           {admin.NewKey{}, []any{admin.MadeKey{}}},
	"rotateKey":           {admin.RotatedKey{}, []any{admin.MadeKey{}}},
	"createToken":         {admin.NewToken{}, []any{admin.MadeToken{}}},
}

// edit is an admin.Edit with the rules that its Set is read as.
type edit struct {
	Set []file.Entry `json:"set,omitempty"`
	admin.Edit
}

// Every schema has the fields of the Go type that is read or written, and no
// other: a field that is added to the one must be added to the other.
func TestSchemasHaveTheFieldsOfTheTypes(t *testing.T) {
	c := schemas{t: t, seen: map[*openapi3.Schema]bool{}}
	for _, item := range document(t).Paths.Map() {
		for _, op := range item.Operations() {
			body := bodies[op.OperationID]
			if op.RequestBody != nil && body.in != nil {
				c.compare(op.OperationID+": body", op.RequestBody.Value.Content["application/json"].Schema,
					reflect.TypeOf(body.in))
			} else if op.RequestBody != nil && op.OperationID != "lintPolicies" ||
				body.in != nil && op.RequestBody == nil {
				t.Errorf("%s: the body is described: %v, and has a type: %v", op.OperationID, op.RequestBody != nil,
					body.in != nil)
			}
			for status, response := range op.Responses.Map() {
				content := response.Value.Content["application/json"]
				if status[0] != '2' || content == nil {
					continue
				}
				answers := []*openapi3.SchemaRef{content.Schema}
				if one := content.Schema.Value.OneOf; one != nil {
					answers = one
				}
				if len(answers) != len(body.out) {
					t.Errorf("%s: %d answers are described, and %d have a type", op.OperationID, len(answers),
						len(body.out))
					continue
				}
				for i, answer := range answers {
					c.compare(op.OperationID+": answer", answer, reflect.TypeOf(body.out[i]))
				}
			}
		}
	}
	c.compare("Problem", document(t).Components.Schemas["Problem"], reflect.TypeFor[admin.Problem]())
	c.compare("Conflict", document(t).Components.Schemas["Conflict"], reflect.TypeFor[admin.Conflict]())
	for name, schema := range document(t).Components.Schemas {
		if schema.Value.Properties != nil && !c.seen[schema.Value] {
			t.Errorf("no type was compared with the schema %s", name)
		}
	}
}

// neverThere are fields that a type has by another one that it embeds, and that
// nothing is ever written into.
var neverThere = []string{"Conflict.faults", "applyPolicies: answer.next", "createToken: answer.revoked"}

// schemas compares schemas with types.
type schemas struct {
	t    *testing.T
	seen map[*openapi3.Schema]bool
}

func (c *schemas) compare(at string, ref *openapi3.SchemaRef, is reflect.Type) {
	schema := ref.Value
	for is.Kind() == reflect.Pointer {
		is = is.Elem()
	}
	if want := kindOf(is); want != "" && schema.AnyOf == nil && !schema.Type.Is(want) {
		c.t.Errorf("%s is %v in the document, and a %v in Go, want %s", at, schema.Type, is, want)
		return
	}
	c.compareValues(at, schema, is)
	switch {
	case is == reflect.TypeFor[time.Time]():
		if schema.Format != "date-time" {
			c.t.Errorf("%s has the format %q, want date-time", at, schema.Format)
		}
	case isText(is):
	case is.Kind() == reflect.Struct:
		if !c.seen[schema] {
			c.seen[schema] = true
			c.compareFields(at, schema, is)
		}
	case is.Kind() == reflect.Slice:
		c.compare(at+"[]", schema.Items, is.Elem())
	case is.Kind() == reflect.Map:
		if schema.AdditionalProperties.Schema == nil {
			c.t.Errorf("%s says nothing of its values, and is a %v in Go", at, is)
			return
		}
		c.compare(at+"{}", schema.AdditionalProperties.Schema, is.Elem())
	}
}

// compareFields compares the properties of an object with the fields of a
// struct, and which of them are always there.
func (c *schemas) compareFields(at string, schema *openapi3.Schema, is reflect.Type) {
	fields := map[string]reflect.Type{}
	for f := range jsonFields(is) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		// one outside goes before one of an embedded struct
		if name == "-" || slices.Contains(neverThere, at+"."+name) || fields[name] != nil {
			continue
		}
		if name == "" {
			c.t.Errorf("%s: %v.%s has no json tag", at, is, f.Name)
			continue
		}
		fields[name] = f.Type
		described, ok := schema.Properties[name]
		if !ok {
			c.t.Errorf("%s: the document lacks %s, a %v", at, name, f.Type)
			continue
		}
		always := !strings.Contains(options, "omit")
		if required := slices.Contains(schema.Required, name); required != always {
			c.t.Errorf("%s.%s is required: %v, and in Go it is always there: %v", at, name, required, always)
		}
		c.compare(at+"."+name, described, f.Type)
	}
	for name := range schema.Properties {
		if fields[name] == nil {
			c.t.Errorf("%s: the document has %s, and %v has not", at, name, is)
		}
	}
	if has := schema.AdditionalProperties.Has; has == nil || *has {
		c.t.Errorf("%s allows fields that it does not name", at)
	}
}

// jsonFields are the fields that encoding/json knows, those of embedded structs
// after those beside them.
func jsonFields(is reflect.Type) iter.Seq[reflect.StructField] {
	return func(yield func(reflect.StructField) bool) {
		for _, embedded := range []bool{false, true} {
			for i := range is.NumField() {
				f := is.Field(i)
				switch {
				case f.Anonymous != embedded:
				case embedded:
					for inner := range jsonFields(f.Type) {
						if !yield(inner) {
							return
						}
					}
				case f.IsExported() && !yield(f):
					return
				}
			}
		}
	}
}

// compareValues compares an enum with the values of a type that knows its texts:
// as many, and each is one.
func (c *schemas) compareValues(at string, schema *openapi3.Schema, is reflect.Type) {
	if is.Kind() != reflect.Uint8 || !isText(is) || schema.Enum == nil {
		return
	}
	for _, v := range schema.Enum {
		text, _ := json.Marshal(v)
		if err := json.Unmarshal(text, reflect.New(is).Interface()); err != nil {
			c.t.Errorf("%s may be %v: %v", at, v, err)
		}
	}
	known := 0
	for ; known < 256; known++ {
		value, again := reflect.New(is), reflect.New(is)
		value.Elem().SetUint(uint64(known))
		if text, err := json.Marshal(value.Interface()); err != nil || json.Unmarshal(text, again.Interface()) != nil ||
			again.Elem().Uint() != uint64(known) {
			break
		}
	}
	if known != len(schema.Enum) {
		c.t.Errorf("%s may be one of %d, and %v has %d values", at, len(schema.Enum), is, known)
	}
}

// The texts of a rule's scope grow with the program, so they are no enum; the
// description names those there are.
func TestScopesAreNamed(t *testing.T) {
	description := document(t).Components.Schemas["Rule"].Value.Properties["scope"].Value.Description
	n := 0
	for ; ; n++ {
		text, err := policy.Scope(n).MarshalText()
		if err != nil {
			break
		}
		if !regexp.MustCompile(`\b` + string(text) + `\b`).MatchString(description) {
			t.Errorf("scope is described as %q, want %q among what is known", description, text)
		}
	}
	if n == 0 {
		t.Error("no scope was found")
	}
}

// Each subject that a rule may have is one that the document knows.
func TestEverySubjectIsInTheDocument(t *testing.T) {
	for _, name := range []string{"Subject", "Whom"} {
		known := regexp.MustCompile(document(t).Components.Schemas[name].Value.Pattern)
		n := policy.Subject(0)
		for ; !strings.Contains(n.String(), "subject("); n++ {
			text := n.String()
			if n.Named() {
				text += ":name"
			}
			if !known.MatchString(text) {
				t.Errorf("the pattern of %s is %v, which does not know %q", name, known, text)
			}
		}
		if n < 9 {
			t.Errorf("there are %d subjects, want 9 or more", n)
		}
	}
}

// isText reports whether a type is written as a text of its own.
func isText(is reflect.Type) bool {
	return is.Implements(reflect.TypeFor[encoding.TextMarshaler]()) && is != reflect.TypeFor[time.Time]()
}

// kindOf is the type of a schema for a Go type.
func kindOf(is reflect.Type) string {
	switch {
	case is == reflect.TypeFor[time.Time](), isText(is):
		return "string"
	case is == reflect.TypeFor[json.RawMessage]():
		return ""
	}
	switch is.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.String:
		return "string"
	case reflect.Slice:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	}
	return "a type that the test knows"
}
