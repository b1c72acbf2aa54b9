package main

import (
	"encoding/json"
	"testing"
)

func TestConfigSchemaIsPrinted(t *testing.T) {
	code, out, text := call(t, t.TempDir(), "config", "schema")
	var s struct {
		Dialect    string `json:"$schema"`
		Properties map[string]struct{ Description string }
	}
	if err := json.Unmarshal([]byte(out), &s); code != exitOK || text != "" || err != nil {
		t.Fatalf("headgate config schema = %d, %q, %v", code, text, err)
	}
	if s.Dialect == "" || s.Properties["upstream"].Description == "" {
		t.Errorf("the dialect is %q and upstream is described as %q, want both", s.Dialect,
			s.Properties["upstream"].Description)
	}
}
