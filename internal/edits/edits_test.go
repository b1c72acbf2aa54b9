package edits_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate-io/headgate/internal/edits"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		limit int
		want  int
	}{
		{"", "", 9, 0},
		{"", "abc", 9, 3},
		{"abc", "", 2, 2},
		{"kitten", "sitting", 9, 3},
		{"kitten", "sitting", 3, 3},
		{"kitten", "sitting", 2, 2},
		{"bakcend", "backend", 9, 2},
		{"same", "same", 1, 0},
	} {
		if got := edits.Distance(c.a, c.b, c.limit); got != c.want {
			t.Errorf("Distance(%q, %q, %d) = %d, want %d", c.a, c.b, c.limit, got, c.want)
		}
	}
}

// slow is the definition.
func slow(a, b string) int {
	switch {
	case a == "" || b == "":
		return len(a) + len(b)
	case a[0] == b[0]:
		return slow(a[1:], b[1:])
	}
	return 1 + min(slow(a[1:], b), slow(a, b[1:]), slow(a[1:], b[1:]))
}

func TestDistanceEqualsItsTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	text := func() string {
		b := make([]byte, random.IntN(7))
		for i := range b {
			b[i] = 'a' + byte(random.IntN(3))
		}
		return string(b)
	}
	for range 2000 {
		a, b, limit := text(), text(), random.IntN(8)
		if got, want := edits.Distance(a, b, limit), min(limit, slow(a, b)); got != want {
			t.Fatalf("Distance(%q, %q, %d) = %d, want %d", a, b, limit, got, want)
		}
	}
}
