package lint

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/headgate-io/headgate/policy"
)

// SARIF 2.1.0 (OASIS, 2020), of it what code scanning services read. URIs are
// relative to the folder of the call, which is the repository's in CI.
type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool       sarifTool     `json:"tool"`
	ColumnKind string        `json:"columnKind"`
	Results    []sarifResult `json:"results"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name           string      `json:"name"`
	Version        string      `json:"version,omitempty"`
	InformationURI string      `json:"informationUri"`
	Rules          []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID               string       `json:"id"`
	ShortDescription sarifText    `json:"shortDescription"`
	FullDescription  sarifText    `json:"fullDescription"`
	Help             sarifText    `json:"help"`
	HelpURI          string       `json:"helpUri"`
	Default          sarifDefault `json:"defaultConfiguration"`
}

type sarifText struct {
	Text     string `json:"text"`
	Markdown string `json:"markdown,omitempty"`
}

type sarifDefault struct {
	Level string `json:"level"`
}

type sarifResult struct {
	RuleID       string             `json:"ruleId"`
	RuleIndex    int                `json:"ruleIndex"`
	Level        string             `json:"level"`
	Message      sarifText          `json:"message"`
	Locations    []sarifLocation    `json:"locations"`
	Fingerprints map[string]string  `json:"partialFingerprints"`
	Suppressions []sarifSuppression `json:"suppressions,omitempty"`
}

type sarifLocation struct {
	Physical sarifPhysical  `json:"physicalLocation"`
	Logical  []sarifLogical `json:"logicalLocations,omitempty"`
}

type sarifPhysical struct {
	Artifact sarifArtifact `json:"artifactLocation"`
	Region   sarifRegion   `json:"region"`
}

type sarifArtifact struct {
	URI string `json:"uri"`
}

type sarifRegion struct {
	StartLine int `json:"startLine"`
}

type sarifLogical struct {
	Name string `json:"fullyQualifiedName"`
}

type sarifSuppression struct {
	Kind          string `json:"kind"`
	Justification string `json:"justification"`
}

const (
	sarifSchema = "https://json.schemastore.org/sarif-2.1.0.json"
	home        = "https://github.com/headgate-io/headgate"
	page        = home + "/blob/main/docs/lint.md"
)

// WriteSARIF writes SARIF for code scanning. version is the program's. What is
// accepted is in it, suppressed.
func WriteSARIF(w io.Writer, results []Result, version string) error {
	run := sarifRun{
		Tool:       sarifTool{sarifDriver{Name: "headgate policy lint", Version: version, InformationURI: page}},
		ColumnKind: "unicodeCodePoints",
		Results:    []sarifResult{},
	}
	index := map[string]int{}
	for i, check := range policy.Checks() {
		index[check.Code] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID:               check.Code,
			ShortDescription: sarifText{Text: Summary(check.Code)},
			FullDescription:  sarifText{Text: Summary(check.Code)},
			Help:             sarifText{Text: Explain(check.Code), Markdown: Explain(check.Code)},
			HelpURI:          page + "#" + check.Code,
			Default:          sarifDefault{check.Severity.String()},
		})
	}
	for _, r := range results {
		for _, p := range r.Problems {
			run.Results = append(run.Results, sarifOf(p, index, relativeURI(cmp.Or(p.Source, r.Source))))
		}
	}
	return writeJSON(w, sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}})
}

func sarifOf(p policy.Problem, index map[string]int, uri string) sarifResult {
	at := sarifLocation{Physical: sarifPhysical{sarifArtifact{uri}, sarifRegion{max(1, p.Line)}}}
	if p.Where != "" {
		at.Logical = []sarifLogical{{p.Where}}
	}
	i, known := index[p.Code]
	if !known {
		i = -1 // "no index", as the standard has it
	}
	message := p
	message.Source, message.Line = "", 0 // the location has them
	result := sarifResult{
		RuleID: p.Code, RuleIndex: i, Level: p.Severity.String(),
		Message:      sarifText{Text: message.Error()},
		Locations:    []sarifLocation{at},
		Fingerprints: map[string]string{"headgate/v1": fingerprint(p, uri)},
	}
	if p.Accepted != "" {
		result.Suppressions = []sarifSuppression{{"inSource", p.Accepted}}
		if strings.HasPrefix(p.Accepted, "--ignore ") {
			result.Suppressions[0].Kind = "external"
		}
	}
	return result
}

var position = regexp.MustCompile(`\[\d+\]`)

// fingerprint tells a finding from others by what does not change when rules
// are moved or limits changed.
func fingerprint(p policy.Problem, uri string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{p.Code, uri, position.ReplaceAllString(p.Where, "[]"), p.Field},
		"\x00")))
	return hex.EncodeToString(sum[:16])
}

// relativeURI is a path as a URI, relative to the working folder if it is in it.
func relativeURI(source string) string {
	if filepath.IsAbs(source) {
		dir, err := os.Getwd()
		if err == nil {
			if rel, err := filepath.Rel(dir, source); err == nil && filepath.IsLocal(rel) {
				source = rel
			}
		}
	}
	source = filepath.ToSlash(source)
	if path.IsAbs(source) {
		return (&url.URL{Scheme: "file", Path: source}).String()
	}
	return strings.TrimPrefix((&url.URL{Path: path.Clean(source)}).String(), "./")
}
