package hold_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// The lines of every head are counted while it comes, not those of the first one on a connection alone: to parse
// thousands of fields is what costs.
func TestLinesOfEveryHeadAreCounted(t *testing.T) {
	o := small()
	o.HeadTimeout = bound
	s := serve(t, o, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	const begin = "GET / HTTP/1.1\r\nHost: a\r\n"
	for before := range 3 {
		c := s.dial(t, 1)
		for range before {
			_, _ = io.WriteString(c, begin+"\r\n")
			a, err := http.ReadResponse(c.answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, a.Body)
		}
		_, _ = io.WriteString(c, begin+strings.Repeat("X: y\r\n", 1000)) // and no end
		a, err := http.ReadResponse(c.answers, nil)
		if err != nil || a.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Fatalf("behind %d requests a head of many lines was answered by %v, %v, want 431", before, a, err)
		}
	}
}
