package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/anomaly"
)

func TestAnomalies(t *testing.T) {
	const on = "anomalies: {window: 5m, "
	for _, c := range [][2]string{
		{"anomalies: {window: 5m}", ""},
		{"anomalies: {window: 0s}", ""},
		{on + "tiers: [{score: 40, tier: a}, {score: 70, tier: b}]}", ""},
		{on + "weights: {rate: 0, errors: 100}}", ""},
		{"anomalies: {window: 10ms}", `window is "10ms", want`},
		{"anomalies: {window: 25h}", `window is "25h0m0s", want`},
		{"anomalies: {callers: 10}", `callers is "10", want`},
		{on + "weights: {unknown: 101}}", `weights.unknown is "101", want`},
		{on + "weights: {endpoints: -1}}", `weights.endpoints is "-1", want`},
		{on + "tiers: [{score: 0, tier: a}]}", `tiers[0].score is "0", want`},
		{on + "tiers: [{score: 101, tier: a}]}", `tiers[0].score is "101", want`},
		{on + "tiers: [{score: 70, tier: a}, {score: 40, tier: b}]}", `tiers[1].score is "40", want more than 70`},
		{on + "tiers: [{score: 70, tier: a}, {score: 70, tier: b}]}", `tiers[1].score is "70", want more than 70`},
		{on + "tiers: [{score: 70}]}", `tiers[0].tier is "", want`},
		{on + "tiers: [{score: 70, tier: ' a'}]}", `tiers[0].tier is " a", want`},
		{
			on + "weights: {rate: 0, unknown: 0, spellings: 0}, tiers: [{score: 61, tier: a}]}",
			`tiers[0].score is "61", want 60 at most`,
		},
		{"anomalies: {tiers: [{score: 70, tier: a}]}", `tiers is "set", want anomalies.window too`},
		{on + "tiers: [" + strings.Repeat("{score: 1, tier: a}, ", 9) + "]}", `tiers is "9 tiers", want 8 at most`},
	} {
		text, want := c[0], c[1]
		c, err := read(t, whole+text+"\n")
		if err == nil {
			err = c.Complete()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), "anomalies."+want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), "more than 0, that of the tier before"):
			t.Errorf("%s: %v, where no tier is before", text, err)
		}
		if settings := c.Anomalies.Settings(); err == nil && settings != nil && settings.Check() != nil {
			t.Errorf("%s: what is taken makes %v", text, settings.Check())
		}
	}
}

func TestAnomaliesSettings(t *testing.T) {
	c, err := read(t, whole+"anomalies:\n  window: 1m\n  weights: {rate: 7}\n"+
		"  tiers: [{score: 70, tier: a, addresses: true}]\n")
	if err != nil {
		t.Fatal(err)
	}
	want := &anomaly.Settings{Window: time.Minute, Weights: anomaly.DefaultWeights,
		Tiers: []anomaly.Tier{{From: 70, Name: "a", Addresses: true}}}
	want.Weights[anomaly.Rate] = 7
	if got := c.Anomalies.Settings(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	c.Anomalies.Window = 0
	if c.Anomalies.Settings() != nil || c.Anomalies.TierNames() != nil {
		t.Error("without a window callers are scored")
	}
}
