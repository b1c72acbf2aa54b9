package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/adaptive"
)

// TestWhatIsWrongWithOtherGatewaysIsSaidOnce: when it begins, and again when it began anew.
func TestWhatIsWrongWithOtherGatewaysIsSaidOnce(t *testing.T) {
	const unread, crowded = "cannot be read", "as many gateways as can be heard"
	var known heard
	for i, step := range []struct {
		unread, others int
		said           string
	}{
		{0, 3, ""},
		{1, 3, unread},
		{2, 3, ""},
		{0, 3, ""},
		{0, adaptive.MaxVoices - 1, ""},
		{0, adaptive.MaxVoices, crowded},
		{0, adaptive.MaxVoices, ""},
		{1, adaptive.MaxVoices, unread},
		{1, 3, ""},
		{1, adaptive.MaxVoices, crowded},
	} {
		var log bytes.Buffer
		known.say(slog.New(slog.NewTextHandler(&log, nil)), step.unread, step.others)
		if got := log.String(); (step.said == "") != (got == "") || !strings.Contains(got, step.said) {
			t.Errorf("step %d: %q, want %q", i, got, step.said)
		}
	}
}
