package file_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
)

const spread = `{
  "projects": {
    "acme": "gold",
    "u]\n": "lead"
  },
  "ignore": [
    {"code": "void",
     "reason": "so"}
  ],
  "rules": [

    {"endpoint": "default", "limit": 1},
    {
      "endpoint": "UNKNOWN",
      "limit":
        2,
      "name": {"rules": [[{"endpoint": 1}]]}
    },
    7,
    {"endpoint": "*",
     "limit": 3}
  ]
}`

func TestLocate(t *testing.T) {
	tests := []struct {
		problem policy.Problem
		want    int
	}{
		{policy.Problem{Rule: 0, Field: "limit"}, 12},
		{policy.Problem{Rule: 0, Field: "burst"}, 12},
		{policy.Problem{Rule: 1, Field: "endpoint"}, 14},
		{policy.Problem{Rule: 1, Field: "limit"}, 15},
		{policy.Problem{Rule: 1, Field: "rule"}, 13},
		{policy.Problem{Rule: 2, Field: "it"}, 19},
		{policy.Problem{Rule: 3, Field: "limit"}, 21},
		{policy.Problem{Rule: 4, Field: "limit"}, 0},
		{policy.Problem{Rule: -1, Where: "rules", Field: "default"}, 10},
		{policy.Problem{Rule: -1, Where: "projects", Field: "project"}, 2},
		{policy.Problem{Rule: -1, Where: `projects["acme"]`, Field: "tier"}, 3},
		{policy.Problem{Rule: -1, Where: `projects["u]\n"]`, Field: "tier"}, 4},
		{policy.Problem{Rule: -1, Where: "ignore[0]", Field: "reason"}, 8},
		{policy.Problem{Rule: -1, Where: "costs", Field: "limit"}, 0},
		{policy.Problem{Rule: 0, Field: "limit", Line: 99}, 99},
	}
	problems := make(policy.Problems, len(tests))
	for i := range tests {
		problems[i] = tests[i].problem
	}
	file.Locate([]byte(spread), problems)
	for i, tt := range tests {
		if problems[i].Line != tt.want {
			t.Errorf("%v: line %d, want %d", tt.problem, problems[i].Line, tt.want)
		}
	}
}

// TestLocateManyRules finds each of many rules at its line.
func TestLocateManyRules(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var b strings.Builder
	b.WriteString(`{"rules":[`)
	line, lines := 1, []int(nil)
	for i := range 500 {
		if i > 0 {
			b.WriteByte(',')
		}
		skip := random.IntN(4)
		b.WriteString(strings.Repeat("\n", skip))
		line += skip
		lines = append(lines, line)
		fmt.Fprintf(&b, `{"endpoint":"default","project":"p%d","limit":1}`, i)
	}
	b.WriteString("]}")
	var problems policy.Problems
	for i := range lines {
		if random.IntN(3) == 0 {
			problems = append(problems, policy.Problem{Rule: i, Field: "limit"})
		}
	}
	file.Locate([]byte(b.String()), problems)
	for _, p := range problems {
		if p.Line != lines[p.Rule] {
			t.Fatalf("rule %d: line %d, want %d", p.Rule, p.Line, lines[p.Rule])
		}
	}
}

// FuzzLocate: whatever the text, no panic, and no line that it does not have.
func FuzzLocate(f *testing.F) {
	f.Add([]byte(spread))
	f.Add([]byte(`[[[[[{"rules":[`))
	f.Add([]byte(`{"rules":{"a":[{}]},"projects":[1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		problems := policy.Problems{
			{Rule: 0, Field: "limit"}, {Rule: 3, Field: "endpoint"},
			{Rule: -1, Where: "rules"}, {Rule: -1, Where: `projects["acme"]`, Field: "tier"},
			{Rule: -1, Where: "ignore[0]", Field: "code"},
		}
		file.Locate(data, problems)
		for _, p := range problems {
			if p.Line < 0 || p.Line > 1+strings.Count(string(data), "\n") {
				t.Fatalf("line %d of a text of %d", p.Line, 1+strings.Count(string(data), "\n"))
			}
		}
	})
}

func TestDecodeIgnore(t *testing.T) {
	text := `{
  "ignore": [
    {"code":"void","endpoint":"*","project":"acme","tier":"gold","reason":"so"}
  ],
  "rules": [
    {"endpoint":"default","limit":1}
  ]
}
`
	doc, err := file.Decode([]byte(text), "")
	want := policy.Ignore{Code: "void", Endpoint: "*", Project: "acme", Tier: "gold", Reason: "so"}
	if err != nil || len(doc.Ignore) != 1 || doc.Ignore[0] != want {
		t.Fatalf("Decode = %+v, %v", doc, err)
	}
	var b strings.Builder
	if err := file.Encode(&b, doc); err != nil || b.String() != text {
		t.Errorf("Encode wrote\n%s%v, want\n%s", b.String(), err, text)
	}
	_, err = file.Decode([]byte(`{"rules":[],"ignore":[{"code":1},{"kode":"void"}]}`), "")
	want2 := "line 1: ignore[0]: code is 1, want the code of a warning or a note\n" +
		"line 1: ignore[1]: kode is no field of this format, want code, endpoint, project, tier or reason"
	if err == nil || err.Error() != want2 {
		t.Errorf("Decode = %v, want\n%s", err, want2)
	}
}

// Wrong values have the code of their field, as in a table; what is no value
// of a field is the file's.
func TestDecodeCodes(t *testing.T) {
	for text, want := range map[string]string{
		`{"rules":[{"endpoint":"default","limit":1.5}]}`:           "limit",
		`{"rules":[{"endpoint":"default"}]}`:                       "limit",
		`{"rules":[{"limit":1}]}`:                                  "endpoint",
		`{"rules":[{"endpoint":"default","limit":1,"mode":"x"}]}`:  "mode",
		`{"rules":[{"endpoint":"default","limit":1,"per":"1ms"}]}`: "per",
		`{"rules":[{"endpoint":"default","limit":1,"limit":1}]}`:   "file",
		`{"rules":[{"endpoint":"default","limit":1,"x":1}]}`:       "file",
		`{"rules":[3]}`:                      "file",
		`{"rules":3}`:                        "file",
		`{`:                                  "file",
		`{"rules":[],"projects":{"a":1}}`:    "projects",
		`{"rules":[],"projects":{"":"x"}}`:   "projects",
		`{"rules":[],"ignore":[{"code":7}]}`: "ignore",
	} {
		_, err := file.Decode([]byte(text), "")
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			t.Errorf("Decode(%s) = %v", text, err)
			continue
		}
		if p, ok := joined.Unwrap()[0].(policy.Problem); !ok || p.Code != want || p.Line != 1 {
			t.Errorf("Decode(%s): code %q at line %d, want %q at 1", text, p.Code, p.Line, want)
		}
	}
}
