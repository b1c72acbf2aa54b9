// Package file reads and writes policies as one JSON document.
//
//	{
//	  "projects": {"acme": "gold"},
//	  "rules": [
//	    {"endpoint": "GET /v1/items/{id}", "limit": 10},
//	    {"endpoint": "GET /v1/items/{id}", "tier": "gold", "limit": 100, "burst": 300},
//	    {"endpoint": "POST /v1/login", "subject": "ip", "limit": 5, "per": "60s"},
//	    {"endpoint": "default", "limit": 50},
//	    {"endpoint": "UNKNOWN", "subject": "ip", "limit": 1}
//	  ]
//	}
//
// Reading is strict: a field that does not exist, a field given twice, a number
// that is not whole or a value of another kind is an error that names the
// place, the field, the value and what is wanted. All of them are found at
// once. Field names are case-sensitive.
//
// Document carries yaml tags too, for decoders that read YAML into structs. A
// program that reads YAML does better to convert it to JSON and to call Decode,
// which keeps every check and every message.
package file

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// Document is the form of the file.
type Document struct {
	// of the rules that it was made from, where they have one
	Version  int64             `json:"version,omitempty" yaml:"version,omitempty"`
	Projects map[string]string `json:"projects,omitempty" yaml:"projects,omitempty"` // project → tier
	Rules    []Entry           `json:"rules" yaml:"rules"`
	Ignore   []Ignore          `json:"ignore,omitempty" yaml:"ignore,omitempty"` // findings of lint that are accepted
}

// Ignore is a finding of lint that is accepted. Code and Reason are required.
type Ignore struct {
	Code     string `json:"code" yaml:"code"`
	Endpoint string `json:"endpoint,omitempty" yaml:"endpoint,omitempty"`
	Project  string `json:"project,omitempty" yaml:"project,omitempty"`
	Tier     string `json:"tier,omitempty" yaml:"tier,omitempty"`
	Reason   string `json:"reason" yaml:"reason"`
}

// Entry is one rule. Endpoint is required, and Limit but for modes allow and block. The table of policy/sql
// calls Limit rps_limit, after the paper; here it is one word, because Per need
// not be a second.
type Entry struct {
	Endpoint    string           `json:"endpoint" yaml:"endpoint"`
	Project     string           `json:"project,omitempty" yaml:"project,omitempty"`
	Tier        string           `json:"tier,omitempty" yaml:"tier,omitempty"`
	Limit       int64            `json:"limit,omitempty" yaml:"limit,omitempty"`
	Per         Seconds          `json:"per,omitempty" yaml:"per,omitempty"`
	Burst       int64            `json:"burst,omitempty" yaml:"burst,omitempty"`
	Subject     policy.Whom      `json:"subject,omitzero" yaml:"subject,omitempty"`
	Algorithm   policy.Algorithm `json:"algorithm,omitempty" yaml:"algorithm,omitempty"`
	Mode        policy.Mode      `json:"mode,omitempty" yaml:"mode,omitempty"`
	Scope       policy.Scope     `json:"scope,omitempty" yaml:"scope,omitempty"`
	OnStoreLoss policy.StoreLoss `json:"on_store_loss,omitempty" yaml:"on_store_loss,omitempty"`
	CountWhen   policy.Answers   `json:"count_when,omitempty" yaml:"count_when,omitempty"` // "401,403"
	Penalty     policy.Penalty   `json:"penalty,omitempty" yaml:"penalty,omitempty"`       // "10 in 1m for 15m"
	Refusal     policy.Refusal   `json:"refusal,omitempty" yaml:"refusal,omitempty"`       // "503 without fields"
	Priority    policy.Priority  `json:"priority,omitempty" yaml:"priority,omitempty"`     // "low", "high:50,low:10"
	Expires     time.Time        `json:"expires,omitzero" yaml:"expires,omitempty"`        // RFC 3339
	Name        string           `json:"name,omitempty" yaml:"name,omitempty"`

	EnforcePercent int64 `json:"enforce_percent,omitempty" yaml:"enforce_percent,omitempty"` // 1 to 100
}

// Seconds is a time in whole seconds. It is written "60s" and read from "60s",
// "1m", "60" or the number 60.
type Seconds time.Duration

const wantSeconds = `whole seconds, 1 or more: 60, "60s", "1m" or "1d"`

// MarshalText writes "60s".
func (s Seconds) MarshalText() ([]byte, error) {
	d := time.Duration(s)
	if d%time.Second != 0 {
		return []byte(d.String()), nil // wrong, and shown as it is
	}
	return []byte(strconv.FormatInt(int64(d/time.Second), 10) + "s"), nil
}

// UnmarshalText reads what MarshalText writes, other durations of whole
// seconds (policy.ParseDuration), and plain numbers of seconds.
func (s *Seconds) UnmarshalText(text []byte) error {
	wrong := policy.Problem{Code: "per", Rule: -1, Field: "per", Value: quote(string(text)), Want: wantSeconds}
	d, err := policy.ParseDuration(string(text))
	if err != nil {
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || n > maxSeconds {
			return wrong
		}
		d = time.Duration(n) * time.Second
	}
	if d <= 0 || d%time.Second != 0 {
		return wrong
	}
	*s = Seconds(d)
	return nil
}

const maxSeconds = int64(1<<63-1) / int64(time.Second)

// Policy returns the document as policy wants it.
func (d Document) Policy(source string) policy.Document {
	out := policy.Document{
		Number:   d.Version,
		Projects: d.Projects,
		Source:   source,
		Rules:    make([]policy.Rule, len(d.Rules)),
	}
	for i, e := range d.Rules {
		out.Rules[i] = policy.Rule{
			Endpoint: e.Endpoint, Project: e.Project, Tier: e.Tier,
			Limit: e.Limit, Per: time.Duration(e.Per), Burst: e.Burst,
			Subject: e.Subject.Subject, Only: e.Subject.Only, Algorithm: e.Algorithm, Mode: e.Mode, Scope: e.Scope,
			OnStoreLoss: e.OnStoreLoss, CountWhen: e.CountWhen, Penalty: e.Penalty, Refusal: e.Refusal,
			Priority: e.Priority,
			Expires:  e.Expires, Name: e.Name,
			EnforcePercent: e.EnforcePercent,
		}
	}
	for _, a := range d.Ignore {
		out.Ignore = append(out.Ignore, policy.Ignore(a))
	}
	return out
}

// From returns the form in the file of a document, its rules in their order.
func From(d policy.Document) Document {
	out := Document{Version: d.Number, Projects: d.Projects, Rules: make([]Entry, len(d.Rules))}
	for i, r := range d.Rules {
		if !r.Mode.Limits() {
			r.Per = 0
		}
		out.Rules[i] = Entry{
			Endpoint: r.Endpoint, Project: r.Project, Tier: r.Tier,
			Limit: r.Limit, Per: Seconds(r.Per), Burst: r.Burst,
			Subject: policy.Whom{Subject: r.Subject, Only: r.Only}, Algorithm: r.Algorithm, Mode: r.Mode,
			Scope:       r.Scope,
			OnStoreLoss: r.OnStoreLoss, CountWhen: r.CountWhen, Penalty: r.Penalty, Refusal: r.Refusal,
			Priority: r.Priority,
			Expires:  r.Expires, Name: r.Name,
			EnforcePercent: r.EnforcePercent,
		}
	}
	for _, a := range d.Ignore {
		out.Ignore = append(out.Ignore, Ignore(a))
	}
	return out
}

// Encode writes a document: one rule a line, in the order of the document, so
// that files compare well. Decode reads it back to an equal document, if it is
// one that policy.Compile accepts.
func Encode(w io.Writer, d policy.Document) error {
	out := From(d)
	var b bytes.Buffer
	b.WriteString("{\n")
	if out.Version > 0 {
		fmt.Fprintf(&b, "  \"version\": %d,\n", out.Version)
	}
	if len(out.Projects) > 0 {
		projects, err := marshal(out.Projects) // sorted by project
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "  \"projects\": %s,\n", projects)
	}
	if len(out.Ignore) > 0 {
		b.WriteString("  \"ignore\": [")
		for i, a := range out.Ignore {
			accepted, err := marshal(a)
			if err != nil {
				return err
			}
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n    ")
			b.Write(accepted)
		}
		b.WriteString("\n  ],\n")
	}
	b.WriteString("  \"rules\": [")
	for i, e := range out.Rules {
		rule, err := marshal(e)
		if err != nil {
			return fmt.Errorf("rules[%d]: %w", i, err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    ")
		b.Write(rule)
	}
	if len(out.Rules) > 0 {
		b.WriteString("\n  ")
	}
	b.WriteString("]\n}\n")
	_, err := w.Write(b.Bytes())
	return err
}

// marshal is json.Marshal without \u003c for <, which templates may hold.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}
