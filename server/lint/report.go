package lint

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"

	"github.com/headgate-io/headgate/policy"
)

// WriteReport writes a Report of results in one line of JSON, a finding after the
// other: of a million rules there may be as many, and neither the Report nor its
// text is made as a whole.
func WriteReport(w io.Writer, results []Result) error {
	out := reportWriter{to: bufio.NewWriter(w)}
	out.encoder = json.NewEncoder(&out.text)
	out.encoder.SetEscapeHTML(false)

	documents := []ReportDocument{}
	for _, r := range results {
		documents = append(documents, documentOf(r))
	}
	out.raw(`{"documents":`) // the fields of Report, in their order
	out.value(documents)
	out.raw(`,"findings":[`)
	out.findings(results, false)
	out.raw(`],"accepted":[`)
	out.findings(results, true)
	out.raw(`],"count":`)
	out.value(Total(results))
	out.raw("}\n")
	if out.err == nil {
		out.err = out.to.Flush()
	}
	return out.err
}

// reportWriter writes JSON until an error comes.
type reportWriter struct {
	to      *bufio.Writer
	text    bytes.Buffer // of one value
	encoder *json.Encoder
	err     error
}

func (o *reportWriter) raw(text string) {
	if o.err == nil {
		_, o.err = o.to.WriteString(text)
	}
}

func (o *reportWriter) value(v any) {
	if o.err != nil {
		return
	}
	o.text.Reset()
	if o.err = o.encoder.Encode(v); o.err == nil {
		_, o.err = o.to.Write(bytes.TrimSuffix(o.text.Bytes(), []byte("\n")))
	}
}

func (o *reportWriter) findings(results []Result, accepted bool) {
	first := true
	for _, r := range results {
		for i := range r.Problems {
			p := &r.Problems[i]
			if o.err != nil || (p.Accepted != "") != accepted {
				continue
			}
			if !first {
				o.raw(",")
			}
			first = false
			o.value(findingOf(r, p))
		}
	}
}

func documentOf(r Result) ReportDocument {
	return ReportDocument{r.Source, r.Read, r.Rules, r.Endpoints, r.Fallback, r.Broken}
}

func findingOf(r Result, p *policy.Problem) Finding {
	source := cmp.Or(p.Source, r.Source)
	return Finding{p.Severity, p.Code, source, p.Line, p.Where, p.Field, p.Value, p.Want, p.Accepted}
}
