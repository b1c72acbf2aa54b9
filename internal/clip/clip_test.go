package clip_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/clip"
)

func TestTo(t *testing.T) {
	for _, c := range []struct {
		s    string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"abcd", 0, "…"},
		{"ab€", 5, "ab€"},
		{"ab€d", 5, "ab€…"},
		{"ab€d", 4, "ab…"},
		{"ab€d", 3, "ab…"},
		{"ab€d", 2, "ab…"},
		{"𝄞𝄞", 7, "𝄞…"},
		{"𝄞", 3, "…"},
		{"a\xff\xffb", 2, "a\xff…"},
		{"\x80\x80\x80\x80\x80\x80\x80\x80", 6, "\x80\x80\x80\x80\x80\x80…"},
	} {
		if got := clip.To(c.s, c.most); got != c.want {
			t.Errorf("To(%q, %d) = %q, want %q", c.s, c.most, got, c.want)
		}
	}
}

// Whatever is cut, what was valid stays valid, and nothing is longer than asked for.
func FuzzTo(f *testing.F) {
	f.Add(strings.Repeat("ä", 100), 101)
	f.Add("\xf0\x9f\x98", 2)
	f.Fuzz(func(t *testing.T, s string, most int) {
		if most < 0 || most > 1<<16 {
			return
		}
		got := clip.To(s, most)
		kept := strings.TrimSuffix(got, clip.Mark)
		if len(s) <= most {
			kept = got
		}
		if len(kept) > most || !strings.HasPrefix(s, kept) || most-len(kept) >= utf8.UTFMax && len(s) > most {
			t.Errorf("To(%q, %d) = %q", s, most, got)
		}
		if utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("To(%q, %d) = %q, want it as valid as it was", s, most, got)
		}
	})
}
