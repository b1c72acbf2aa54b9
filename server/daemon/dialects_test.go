package daemon

import (
	"encoding/json"
	"os"
	"testing"
)

// A dialect that the configuration takes is one that the daemon knows.
func TestDialectsAreThoseOfTheConfiguration(t *testing.T) {
	text, err := os.ReadFile("../config/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Headers struct {
				Properties struct{ Legacy struct{ Enum []string } }
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	words := schema.Properties.Headers.Properties.Legacy.Enum
	if len(words) != len(dialects) {
		t.Errorf("headers.legacy takes %q, and there are %d dialects", words, len(dialects))
	}
	for _, word := range words {
		if _, ok := dialects[word]; !ok {
			t.Errorf("headers.legacy takes %q, which is no dialect", word)
		}
	}
}
