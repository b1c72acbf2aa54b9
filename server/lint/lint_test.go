package lint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/lint"
)

const doubtful = `# Comments and empty lines count.

ignore:
  - {code: no_default, reason: "every endpoint has a rule"}
rules:
  - endpoint: "POST /v1/items"
    subject: ip

    limit: 200
  - {endpoint: "*", limit: 50, subject: ip}
  - {endpoint: UNKNOWN, limit: 5}
  - {endpoint: UNKNOWN, limit: 50, project: "acme",
     algorithm: fixed_window}
`

// options hold documents against endpoints.
func options(t *testing.T, templates ...string) lint.Options {
	t.Helper()
	var parsed []endpoint.Template
	for _, text := range templates {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, template)
	}
	table, err := endpoint.Compile(parsed, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	return lint.Options{Compile: policy.CompileOptions{Endpoints: table, Now: today}}
}

func TestText(t *testing.T) {
	o := options(t, "POST /v1/items", "GET /v1/items", "GET /v1/items/{id}")
	results := []lint.Result{lint.Text([]byte(doubtful), "doubtful.yaml", o)}
	var b bytes.Buffer
	if err := lint.WriteText(&b, results); err != nil {
		t.Fatal(err)
	}
	want := `warning: doubtful.yaml:9: rules[0] (POST /v1/items, per ip): limit is 200 per 1s (burst 200), want less than the 50 per 1s (burst 50) of (*, per ip), which makes this rule void [void]
warning: doubtful.yaml:12: rules[3] (UNKNOWN, project acme): project is "acme", want none, because UNKNOWN rules are the same for everybody; this one never applies [unreachable]
4 rules, 0 errors, 2 warnings, 1 accepted; 2 of 3 endpoints without a rule of their own
`
	if b.String() != want {
		t.Errorf("WriteText wrote\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	results = append(results, lint.Text([]byte("rules: [\n  {endpoint: x\n"), "broken.yaml", o))
	if err := lint.WriteText(&b, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\ndoubtful.yaml: 4 rules, 0 errors, 2 warnings", "error: broken.yaml:",
		" it is no YAML (", "\nbroken.yaml: 1 error, 0 warnings\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("WriteText of two wrote\n%s\nwant %q in it", b.String(), want)
		}
	}
}

func TestReport(t *testing.T) {
	o := options(t, "POST /v1/items", "GET /v1/items")
	var b bytes.Buffer
	err := lint.WriteJSON(&b, []lint.Result{lint.Text([]byte(doubtful), "doubtful.yaml", o)})
	want := `{
  "documents": [
    {
      "source": "doubtful.yaml",
      "read": true,
      "rules": 4,
      "endpoints": 2,
      "endpoints_without_rule": 1
    }
  ],
  "findings": [
    {
      "severity": "warning",
      "code": "void",
      "source": "doubtful.yaml",
      "line": 9,
      "where": "rules[0] (POST /v1/items, per ip)",
      "field": "limit",
      "value": "200 per 1s (burst 200)",
      "want": "less than the 50 per 1s (burst 50) of (*, per ip), which makes this rule void"
    },
    {
      "severity": "warning",
      "code": "unreachable",
      "source": "doubtful.yaml",
      "line": 12,
      "where": "rules[3] (UNKNOWN, project acme)",
      "field": "project",
      "value": "\"acme\"",
      "want": "none, because UNKNOWN rules are the same for everybody; this one never applies"
    }
  ],
  "accepted": [
    {
      "severity": "warning",
      "code": "no_default",
      "source": "doubtful.yaml",
      "line": 5,
      "where": "rules",
      "field": "default",
      "value": "missing",
      "want": "a rule with endpoint \"default\"; endpoints without a rule of their own have that of UNKNOWN",
      "reason": "every endpoint has a rule"
    }
  ],
  "count": {
    "errors": 0,
    "warnings": 2,
    "notes": 0,
    "accepted": 1
  }
}
`
	if err != nil || b.String() != want {
		t.Errorf("WriteJSON wrote\n%s%v, want\n%s", b.String(), err, want)
	}
	b.Reset()
	if err := lint.WriteJSON(&b, []lint.Result{lint.Document(policy.Document{Source: "empty"},
		lint.Options{Ignore: []string{"no_default", "no_unknown"}})}); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, `"findings": [],`) {
		t.Errorf("WriteJSON of a document without findings wrote\n%s\nwant an empty list", text)
	}
}

// TestSARIF holds what SARIF 2.1.0 requires and code scanning reads: version
// and schema, rules with help, results with a rule that there is, a level, a
// message and a line of a file of the repository.
func TestSARIF(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	o := options(t, "POST /v1/items", "POST /v1/login")
	results := []lint.Result{
		lint.Text([]byte(doubtful), "rules/ein fall.yaml", o),
		lint.Text([]byte("rules: 7"), filepath.Join(dir, "sub", "broken.yaml"), o),
		lint.Document(policy.Document{Source: "headgate.db", Rules: []policy.Rule{
			{Endpoint: policy.Default, Limit: 1}, {Endpoint: policy.UnknownEndpoint, Limit: 1}}}, o),
	}
	var b bytes.Buffer
	if err := lint.WriteSARIF(&b, results, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Schema  string `json:"$schema"`
		Version string `json:"version"`
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name, Version, InformationURI string
					Rules                         []struct {
						ID, HelpURI            string
						ShortDescription, Help struct{ Text string }
						DefaultConfiguration   struct{ Level string }
					}
				}
			}
			Results []struct {
				RuleID    string
				RuleIndex *int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
				PartialFingerprints map[string]string
				Suppressions        []struct{ Kind, Justification string }
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || log.Schema != "https://json.schemastore.org/sarif-2.1.0.json" || len(log.Runs) != 1 {
		t.Fatalf("version %q, $schema %q, %d runs", log.Version, log.Schema, len(log.Runs))
	}
	driver := log.Runs[0].Tool.Driver
	if driver.Name == "" || driver.Version != "v1.2.3" || driver.InformationURI == "" ||
		len(driver.Rules) != len(policy.Checks()) {
		t.Errorf("driver = %q %q %q with %d rules, want all checks", driver.Name, driver.Version, driver.InformationURI,
			len(driver.Rules))
	}
	levels := []string{"error", "warning", "note"}
	for i, rule := range driver.Rules {
		check := policy.Checks()[i]
		help, err := url.Parse(rule.HelpURI)
		if err != nil || !help.IsAbs() || help.Fragment != check.Code {
			t.Errorf("%s: helpUri is %q (%v), want the section of a page", rule.ID, rule.HelpURI, err)
		}
		if rule.ID != check.Code || rule.ShortDescription.Text == "" || rule.Help.Text == "" ||
			rule.DefaultConfiguration.Level != check.Severity.String() {
			t.Errorf("rule %d = %+v, want %+v explained", i, rule, check)
		}
	}
	type result struct {
		code, level, uri string
		line             int
		suppressed       string
	}
	var got []result
	prints := map[string]bool{}
	for _, r := range log.Runs[0].Results {
		if r.RuleIndex == nil || driver.Rules[*r.RuleIndex].ID != r.RuleID || !slices.Contains(levels, r.Level) ||
			r.Message.Text == "" || len(r.Locations) != 1 {
			t.Fatalf("result %+v lacks rule, level, message or location", r)
		}
		at := r.Locations[0].PhysicalLocation
		one := result{r.RuleID, r.Level, at.ArtifactLocation.URI, at.Region.StartLine, ""}
		if len(r.Suppressions) == 1 {
			one.suppressed = r.Suppressions[0].Kind + ": " + r.Suppressions[0].Justification
		}
		got = append(got, one)
		if p := r.PartialFingerprints["headgate/v1"]; p == "" || prints[p] {
			t.Errorf("the fingerprint of %+v is empty or another's", one)
		} else {
			prints[p] = true
		}
		if uri, err := url.Parse(at.ArtifactLocation.URI); err != nil || uri.IsAbs() ||
			strings.HasPrefix(uri.Path, "/") || strings.Contains(r.Message.Text, dir) {
			t.Errorf("%+v: want a relative URI, and no path in the message %q", one, r.Message.Text)
		}
	}
	want := []result{
		{"no_default", "warning", "rules/ein%20fall.yaml", 5, "inSource: every endpoint has a rule"},
		{"void", "warning", "rules/ein%20fall.yaml", 9, ""},
		{"unreachable", "warning", "rules/ein%20fall.yaml", 12, ""},
		{"file", "error", "sub/broken.yaml", 1, ""},
		{"login_open", "note", "headgate.db", 1, ""},
	}
	if !slices.Equal(got, want) {
		t.Errorf("results\n %+v\nwant\n %+v", got, want)
	}
}

// TestFingerprintsStay: moving a rule or changing its limit makes no new
// finding of an old one.
func TestFingerprintsStay(t *testing.T) {
	prints := func(text string) (found []string) {
		var b bytes.Buffer
		if err := lint.WriteSARIF(&b, []lint.Result{lint.Text([]byte(text), "r.yaml", options(t, "GET /a"))},
			""); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if strings.Contains(line, `"headgate/v1"`) {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return found
	}
	const tail = "  - {endpoint: default, limit: 1}\n  - {endpoint: UNKNOWN, limit: 1}\n"
	first := prints("rules:\n  - {endpoint: GET /b, limit: 5}\n" + tail)
	moved := prints("# moved\nrules:\n" + tail + "  - {endpoint: GET /b, limit: 7}\n")
	if len(first) != 1 || !slices.Equal(first, moved) {
		t.Errorf("fingerprints %q, moved %q, want one and the same", first, moved)
	}
}

// TestWithoutEndpoints: rules are held against each other all the same, and
// none is reported for a template that nobody said there is not.
func TestWithoutEndpoints(t *testing.T) {
	r := lint.Text([]byte(doubtful+`  - {endpoint: "GET /v1/nowhere/{id}", limit: 1}`+"\n"), "r.yaml",
		lint.Options{Compile: policy.CompileOptions{Now: today}})
	var codes []string
	for _, p := range r.Problems {
		codes = append(codes, p.Code)
	}
	if want := []string{"no_default", "void", "unreachable"}; !slices.Equal(codes, want) || r.Endpoints != 0 ||
		r.Fallback != 0 {
		t.Errorf("codes %q, %d endpoints, want %q and none known", codes, r.Endpoints, want)
	}
}

func TestIgnoreFromOutside(t *testing.T) {
	o := options(t, "POST /v1/items")
	o.Ignore = []string{"void", "unseen"}
	r := lint.Text([]byte(doubtful), "r.yaml", o)
	n := lint.Total([]lint.Result{r})
	if want := (lint.Count{Warnings: 1, Accepted: 2}); n != want {
		t.Errorf("count = %+v, want %+v, and no note on what --ignore did not meet\n%v", n, want, r.Problems)
	}
	err := lint.CheckIgnore("--ignore", []string{"void", "viod", "limit"})
	want := `--ignore is "viod", want the code of a check; the closest is "void"
--ignore is "limit", want the code of a warning or a note, because a document with errors is not loaded`
	if err == nil || err.Error() != want {
		t.Errorf("CheckIgnore = %v, want\n%s", err, want)
	}
}

func TestNoSuchFile(t *testing.T) {
	if _, err := lint.File(filepath.Join(t.TempDir(), "none.yaml"), lint.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("File = %v, want ErrNotExist", err)
	}
}

// Codes of tables are those of checks.
func TestUnreadTable(t *testing.T) {
	r := lint.Unread("headgate.db", errors.Join(
		policy.Problem{
			Code:  "rps_limit",
			Rule:  -1,
			Where: "headgate.db: table policies, row 7",
			Field: "rps_limit",
			Value: "0",
			Want:  "1",
		},
		policy.Problem{
			Code:  "subject",
			Rule:  -1,
			Where: "headgate.db: table policies, row 8",
			Field: "subject",
			Value: "x",
			Want:  "y",
		}))
	for i, want := range []string{"limit", "subject"} {
		if r.Problems[i].Code != want {
			t.Errorf("code %q, want %q", r.Problems[i].Code, want)
		}
	}
	if r.Read || lint.ProblemsIn(errors.New("disk full")) != nil {
		t.Error("a table that was not read counts as read, or an error of the disk as a finding")
	}
}

// What people get wrong in YAML is said in words of the file, with its line.
func TestMistakesOfYAML(t *testing.T) {
	for text, want := range map[string]string{
		"rules:\n\t- {endpoint: default, limit: 5}\n":            "it is no YAML (begins with a tab, want spaces)",
		"rules:\n  - {endpoint: GET /v1/items/{id}, limit: 5}\n": "it is no YAML (between brackets or braces",
	} {
		var b strings.Builder
		r := lint.Text([]byte(text), "a.yaml", lint.Options{})
		err := lint.WriteText(&b, []lint.Result{r})
		if err != nil || !strings.Contains(b.String(), "a.yaml:2: document: "+want) {
			t.Errorf("lint of %q says %v\n%s\nwant %q in it", text, err, b.String(), want)
		}
	}
}
