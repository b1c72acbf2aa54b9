package main

import (
	"strings"
	"testing"
	"time"
)

// What an API receives from several gateways stays within what is published, in a short form of the measurement.
func TestWithinThePromise(t *testing.T) {
	p := plan{limit: 100, over: 3, span: 2 * time.Second, replicas: []int{2}, scopes: []string{"split", "lease", "strict"}, traffics: traffics[1:]}
	cells, err := p.all(testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 4 {
		t.Errorf("%d cells, want one for each scope, and the naive script's", len(cells))
	}
	for _, c := range cells {
		switch {
		case c.Bound >= 0 && c.Excess > c.Bound:
			t.Errorf("%v: want the excess within its bound", c)
		case c.Used < 0.3:
			t.Errorf("%v: want much of the limit used, three times as much is sent", c)
		}
	}
	if text := p.page(cells, time.Unix(0, 0)); strings.Count(text, "\n| ") != len(cells)+1 {
		t.Errorf("the page is\n%s\nwant a row for each of %d cells", text, len(cells))
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(text []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(text)))
	return len(text), nil
}
