package outbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket/internal/outbox"
)

func TestEach(t *testing.T) {
	type thing struct {
		name    string
		message int
		err     error
	}
	lost, busy := errors.New("lost"), errors.New("busy")
	for _, c := range []struct {
		all  []thing
		want string
		n    int
	}{
		{nil, "", 0},
		{[]thing{{"a", 0, nil}, {"b", 0, nil}}, "a <nil>", 1},
		{[]thing{{"a", 0, nil}, {"b", 0, lost}, {"c", 0, busy}}, "a lost", 1},
		{[]thing{{"a", 0, nil}, {"b", 1, lost}, {"c", 0, nil}, {"d", 2, nil}, {"e", 1, nil}},
			"a <nil>, b lost, d <nil>", 3},
		{[]thing{{"a", 0, nil}, {"b", 1, nil}, {"c", 0, busy}, {"d", 1, lost}}, "a busy, b lost", 2},
	} {
		var got []string
		n := outbox.Each(c.all, func(one *thing) (int, error) { return one.message, one.err },
			func(first *thing, err error) {
				got = append(got, fmt.Sprint(first.name, " ", err))
			})
		if strings.Join(got, ", ") != c.want || n != c.n {
			t.Errorf("Each(%v) = %d, told of %q, want %d and %q", c.all, n, got, c.n, c.want)
		}
	}
}
