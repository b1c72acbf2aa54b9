package values_test

import (
	"bytes"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/internal/values"
)

// roomy brings its own.
type roomy struct {
	*httptest.ResponseRecorder
	own values.Room
}

func (r *roomy) Values() *values.Room { return &r.own }

func TestRoomIsTheAnswers(t *testing.T) {
	w := &roomy{ResponseRecorder: httptest.NewRecorder()}
	if values.Of(w) != &w.own {
		t.Error("the room is not that of the answer")
	}
	if values.Of(w.ResponseRecorder) != nil {
		t.Error("an answer without room brings some")
	}
}

// Lists of an answer are apart from each other, and texts stay what they were whatever comes later.
func TestRoom(t *testing.T) {
	for _, r := range []*values.Room{nil, {}} {
		var texts, want []string
		for answer := range 50 {
			var lists [][]string
			for n := range 12 {
				list := r.List(n)
				for i := range list {
					b := bytes.Repeat([]byte{byte('a' + answer%26)}, (answer*37+n*11+i)%700)
					list[i] = r.Text(b)
					want, texts = append(want, string(b)), append(texts, list[i])
					b = append(b, "after"...)
					clear(b)
				}
				if lists = append(lists, list); len(list) != n || cap(list) != n {
					t.Fatalf("a list has %d values and room for %d, want %d", len(list), cap(list), n)
				}
			}
			if got := slices.Concat(lists...); !slices.Equal(got, texts[len(texts)-len(got):]) {
				t.Fatalf("answer %d: lists share room", answer)
			}
			if got := r.One("x"); len(got) != 1 || cap(got) != 1 || got[0] != "x" {
				t.Errorf("a list of one value is %q", got)
			}
			if r != nil {
				r.Reset()
			}
		}
		if !slices.Equal(texts, want) {
			t.Error("texts have changed")
		}
	}
	lent := values.Lend()
	first := lent.List(2)
	lent.GiveBack()
	first[0], first[1] = "a", "b"
	if lent = values.Lend(); slices.Contains(lent.List(32), "a") || !slices.Equal(first, []string{"a", "b"}) {
		t.Errorf("room that was given back is lent again: %q", first)
	}
	var r values.Room
	list := r.List(2)
	list[0], list[1] = "a", "b"
	if r.Clear(); list[0] != "" || list[1] != "" {
		t.Errorf("what was cleared is %q", list)
	}
}

// In the steady state neither lists nor short texts take an allocation each.
func TestRoomAllocatesNothing(t *testing.T) {
	var r values.Room
	text := []byte(`"default";r=999;t=1`)
	if n := testing.AllocsPerRun(10_000, func() {
		r.Reset()
		r.List(2)[1] = r.Text(text)
		r.One("x")
	}); n > 0 {
		t.Errorf("%v allocations, want fewer than one in a hundred", n)
	}
}
