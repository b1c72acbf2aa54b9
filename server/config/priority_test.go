package config_test

import (
	"strings"
	"testing"
)

func TestPriority(t *testing.T) {
	const tokens = "tokens: {key_files: [a], algorithms: [RS256], issuer: a, audiences: [b], claims: [urgency, org]}\n"
	for _, c := range [][2]string{
		{"priority: {}", ""},
		{`priority: {endpoints: {"GET /v1/reports": low, UNKNOWN: low}, tiers: {gold: high, "very good": critical}}`, ""},
		{tokens + "priority: {claim: urgency}", ""},
		{"priority: {claim: urgency}", `claim is "urgency", want one of tokens.claims, of which there are none`},
		{tokens + "priority: {claim: urgent}", `claim is "urgent", want one of tokens.claims: urgency, org`},
		{"priority: {endpoints: {GET /a: urgent}}", `endpoints[GET /a] is "urgent", want critical, high, normal or low`},
		{`priority: {tiers: {gold: ""}}`, `tiers[gold] is "", want critical, high, normal or low`},
		{"priority: {tiers: {gold: High}}", `tiers[gold] is "High", want critical, high, normal or low`},
		{`priority: {tiers: {gold: "high:30,low:10"}}`, `tiers[gold] is "high:30,low:10", want critical`},
		{`priority: {tiers: {" gold": high}}`, `tiers[ gold] is " gold", want a name`},
	} {
		text, want := c[0], c[1]
		c, err := read(t, whole+text+"\n")
		if err == nil {
			err = c.Complete()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "priority."+want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
