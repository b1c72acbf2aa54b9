package lint

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/headgate-io/headgate/policy"
)

// WriteText writes one finding a line and one line on each document, for people.
func WriteText(w io.Writer, results []Result) error {
	for _, r := range results {
		for _, p := range r.Problems {
			if p.Accepted == "" {
				if _, err := fmt.Fprintf(w, "%s: %s [%s]\n", p.Severity, p.Error(), p.Code); err != nil {
					return err
				}
			}
		}
		if len(results) > 1 {
			if _, err := fmt.Fprintf(w, "%s: ", r.Source); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w, r.summary()); err != nil {
			return err
		}
	}
	return nil
}

func (r Result) summary() string {
	n, text := Total([]Result{r}), ""
	if r.Read || r.Rules > 0 {
		text = Counted(r.Rules, "rule", "rules") + ", "
	}
	if r.Broken > 0 {
		text += fmt.Sprintf("%d of them not readable and the others checked without, ", r.Broken)
	}
	text += Counted(n.Errors, "error", "errors") + ", " + Counted(n.Warnings, "warning", "warnings")
	if n.Notes > 0 {
		text += ", " + Counted(n.Notes, "note", "notes")
	}
	if n.Accepted > 0 {
		text += fmt.Sprintf(", %d accepted", n.Accepted)
	}
	if r.Fallback > 0 {
		text += fmt.Sprintf("; %d of %s without a rule of their own", r.Fallback,
			Counted(r.Endpoints, "endpoint", "endpoints"))
	}
	if r.Read && r.Endpoints == 0 {
		text += "; compared with no endpoints, which --config, --openapi or --routes name"
	}
	return text
}

// Counted is a number and what it counts: "1 rule", "2 rules".
func Counted(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Report is the form of the JSON output. Fields may be added to it; those that
// are there keep their meaning.
type Report struct {
	Documents []ReportDocument `json:"documents"`
	Findings  []Finding        `json:"findings"` // not accepted
	Accepted  []Finding        `json:"accepted"`
	Count     Count            `json:"count"`
}

// ReportDocument is a document that was linted.
type ReportDocument struct {
	Source    string `json:"source"`
	Read      bool   `json:"read"` // false: it could not be read as rules
	Rules     int    `json:"rules"`
	Endpoints int    `json:"endpoints"`
	Fallback  int    `json:"endpoints_without_rule"`
	Broken    int    `json:"unreadable_rules,omitempty"` // the others were linted without them
}

// Finding is a problem.
type Finding struct {
	Severity policy.Severity `json:"severity"`
	Code     string          `json:"code"`
	Source   string          `json:"source"`
	Line     int             `json:"line,omitempty"` // from 1; absent in a database
	Where    string          `json:"where,omitempty"`
	Field    string          `json:"field"`
	Value    string          `json:"value"`
	Want     string          `json:"want"`
	Reason   string          `json:"reason,omitempty"` // for which it is accepted
}

// NewReport puts results in the form of the JSON output.
func NewReport(results []Result) Report {
	out := Report{Documents: []ReportDocument{}, Findings: []Finding{}, Accepted: []Finding{}, Count: Total(results)}
	for _, r := range results {
		out.Documents = append(out.Documents, documentOf(r))
		for _, p := range r.Problems {
			f := findingOf(r, &p)
			if p.Accepted == "" {
				out.Findings = append(out.Findings, f)
			} else {
				out.Accepted = append(out.Accepted, f)
			}
		}
	}
	return out
}

// WriteJSON writes a Report.
func WriteJSON(w io.Writer, results []Result) error { return writeJSON(w, NewReport(results)) }

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
