package lint

import (
	_ "embed"
	"strings"

	"github.com/headgate-io/headgate/policy"
)

// Texts explains every check: a section each, headed by its code. It is a part
// of docs/lint.md.
//
//go:embed checks.md
var Texts string

// Section is the text on a check as docs/lint.md has it, or "".
func Section(code string) string {
	_, text, ok := strings.Cut("\n"+Texts, "\n### "+code+"\n")
	if !ok {
		return ""
	}
	text, _, _ = strings.Cut(text, "\n### ")
	return strings.TrimSpace(text)
}

// Explain is the text on a check for a terminal, or "".
func Explain(code string) string {
	var b strings.Builder
	for line := range strings.Lines(Section(code)) {
		if !strings.HasPrefix(line, "<!--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Summary is the first sentence of the text on a check, without its severity.
func Summary(code string) string {
	text, _, _ := strings.Cut(Section(code), "\n")
	if check, err := policy.FindCheck(code); err == nil {
		severity := check.Severity.String()
		text = strings.TrimPrefix(text, strings.ToUpper(severity[:1])+severity[1:]+". ")
	}
	if end := strings.Index(text, ". "); end >= 0 {
		text = text[:end+1]
	}
	return text
}
