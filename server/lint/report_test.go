package lint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/lint"
)

// What is written a finding after the other is the Report, byte for byte.
func TestWriteReport(t *testing.T) {
	var many policy.Problems
	for i := range 3 {
		many = append(many,
			policy.Problem{
				Severity: policy.Warning,
				Code:     "no_unknown",
				Line:     i,
				Where:    "document",
				Field:    "rules",
				Value:    "<none> & \"more\"\n",
				Want:     "one",
			},
			policy.Problem{Severity: policy.Note, Code: "covered", Field: "limit", Accepted: "we know"})
	}
	for name, results := range map[string][]lint.Result{
		"none":  nil,
		"clean": {{Source: "a.json", Rules: 3, Read: true, Endpoints: 2, Fallback: 1}},
		"several": {{Source: "a.json", Read: true, Problems: many}, {Source: "b.json", Broken: 1, Problems: many[1:2]},
			{Source: "c.json", Problems: many[:1]}},
	} {
		var got, want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		if err := errors.Join(lint.WriteReport(&got, results), encoder.Encode(lint.NewReport(results))); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Errorf("%s: WriteReport writes\n%s, want\n%s", name, &got, &want)
		}
	}
	if err := lint.WriteReport(full{}, []lint.Result{{Problems: many}}); !errors.Is(err, errFull) {
		t.Errorf("WriteReport where nothing can be written = %v, want %v", err, errFull)
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
