package redis

import (
	"fmt"
	"testing"

	"github.com/headgate-io/headgate/bucket/redis"
)

// Members keep their numbers, heirs take over those of whom they replace, and whoever has nothing left gives his back.
func TestMembersKeepTheirNumbers(t *testing.T) {
	const last = redis.Slots - 1
	var m members
	steps := []struct {
		what    string
		ranges  []slots
		retired string
		names   string
		at      string // the numbers of the first, a middle and the last slot
	}{
		{"a cluster of two", []slots{{0, 8000, "a:1"}, {8001, last, "b:1"}}, "[]", "[a:1 b:1]", "0 1 1"},
		{"nothing changed, told in another order", []slots{{8001, last, "b:1"}, {0, 8000, "a:1"}}, "[]",
			"[a:1 b:1]", "0 1 1"},
		{"a replica is promoted", []slots{{0, 8000, "x:1"}, {8001, last, "b:1"}}, "[]", "[x:1 b:1]", "0 1 1"},
		{"it fails over back", []slots{{0, 8000, "a:1"}, {8001, last, "b:1"}}, "[]", "[a:1 b:1]", "0 1 1"},
		{"another joins", []slots{{0, 8000, "a:1"}, {8001, 12000, "b:1"}, {12001, last, "c:1"}}, "[]",
			"[a:1 b:1 c:1]", "0 1 2"},
		{"one leaves to another", []slots{{0, 12000, "a:1"}, {12001, last, "c:1"}}, "[1]", "[a:1  c:1]", "0 0 2"},
		{"its number is given anew", []slots{{0, 8000, "a:1"}, {8001, 12000, "d:1"}, {12001, last, "c:1"}}, "[]",
			"[a:1 d:1 c:1]", "0 1 2"},
		{"slots that nobody has stay whose they were", []slots{{0, 8000, "a:1"}, {12001, last, "c:1"}}, "[]",
			"[a:1 d:1 c:1]", "0 1 2"},
		{"those of one that has others do not", []slots{{0, 8000, "a:1"}, {8001, 12000, "d:1"},
			{12001, last - 1, "c:1"}}, "[]", "[a:1 d:1 c:1 nobody]", "0 1 3"},
		{"and those of another", []slots{{1, 8000, "a:1"}, {8001, 12000, "d:1"}, {12001, last - 1, "c:1"}}, "[]",
			"[a:1 d:1 c:1 nobody]", "3 1 3"},
		{"one that joins has some of them", []slots{{0, 8000, "a:1"}, {8001, 12000, "d:1"}, {12001, last - 1, "c:1"},
			{last, last, "g:1"}}, "[]", "[a:1 d:1 c:1 g:1]", "0 1 3"},
		{"some have nobody again", []slots{{0, 8000, "a:1"}, {9001, 12000, "d:1"}, {12001, last - 1, "c:1"},
			{last, last, "g:1"}}, "[]", "[a:1 d:1 c:1 g:1 nobody]", "0 4 3"},
		{"and all are had", []slots{{0, 8000, "a:1"}, {8001, 12000, "d:1"}, {12001, last, "c:1"}}, "[3 4]",
			"[a:1 d:1 c:1  ]", "0 1 2"},
		{"both ends are replaced at once", []slots{{0, 8000, "e:1"}, {8001, 12000, "d:1"}, {12001, last, "f:1"}}, "[]",
			"[e:1 d:1 f:1  ]", "0 1 2"},
	}
	for _, s := range steps {
		retired := m.learn(s.ranges)
		at := fmt.Sprint(m.number(0), m.number(9000), m.number(last))
		if fmt.Sprint(retired) != s.retired || fmt.Sprint(m.known()) != s.names || at != s.at {
			t.Errorf("%s: retired %v, names %v, slots at %s; want %s, %s, %s", s.what, retired, m.known(), at,
				s.retired, s.names, s.at)
		}
	}
}

func TestMembersAreBounded(t *testing.T) {
	var m members
	var ranges []slots
	for i := range 2 * most {
		ranges = append(ranges, slots{i * 8, i*8 + 7, fmt.Sprintf("h%d:1", i)})
	}
	m.learn(ranges)
	if n := len(m.known()); n != most {
		t.Errorf("%d members are told apart, want %d", n, most)
	}
	if n := m.number(redis.Slots - 1); n < 0 || n >= most {
		t.Errorf("the last has number %d, want one below %d", n, most)
	}
}

func TestOlder(t *testing.T) {
	for version, want := range map[string]bool{
		"5.0.14":  true,
		"2.8.24":  true,
		"6.0.0":   false,
		"7.2.4":   false,
		"10.0":    false,
		"":        false,
		"unknown": false,
	} {
		if got := older(version, oldest); got != want {
			t.Errorf("older(%q, %d) = %t, want %t", version, oldest, got, want)
		}
	}
}
