package endpoint_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

// TestHasUpper tries every byte at every place of texts of every length about a word's, among bytes that could carry
// into the next one.
func TestHasUpper(t *testing.T) {
	for _, fill := range []byte{'a', '@', '[', 0x00, 0x7f, 0x80, 0xc1, 0xff} {
		for n := range 26 {
			text := []byte(strings.Repeat(string([]byte{fill}), n))
			if endpoint.HasUpper(string(text)) {
				t.Errorf("there is a capital in %q", text)
			}
			for at := range text {
				for b := range 256 {
					text[at] = byte(b)
					if got := endpoint.HasUpper(string(text)); got != ('A' <= b && b <= 'Z') {
						t.Fatalf("HasUpper(%q) = %v", text, got)
					}
				}
				text[at] = fill
			}
		}
	}
}

func BenchmarkHasUpper(b *testing.B) {
	for b.Loop() {
		if endpoint.HasUpper("/v1/order/4711/items") {
			b.Fatal("there is no capital")
		}
	}
}
