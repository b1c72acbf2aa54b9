package usage

import (
	"crypto/sha256"
	"strings"
)

// WithSum replaces the last line of a file by the right checksum.
func WithSum(text string) string {
	all := strings.SplitAfter(text, "\n")
	text = strings.Join(all[:max(0, len(all)-2)], "")
	sum := sha256.New()
	sum.Write([]byte(text))
	return text + lastLine(sum)
}
