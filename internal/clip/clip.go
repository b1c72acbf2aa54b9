// Package clip shortens texts that others wrote, for messages and log lines.
package clip

import "unicode/utf8"

// Mark stands at the end of a text that was shortened.
const Mark = "…"

// To returns s if it has at most most bytes; else as many of them as are whole characters, and
// Mark. What is no UTF-8 in s stays as it is.
func To(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most
	for end > 0 && most-end < utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	if !utf8.RuneStart(s[end]) {
		end = most // in the middle of bytes that are no character
	}
	return s[:end] + Mark
}
