package main

import (
	"errors"
	"testing"
)

// The bytes are those that the protocol's own library makes of the same message.
func TestQuestion(t *testing.T) {
	const want = "\x00\x00\x00\x00\x13" + "\x0a\x04eval" + "\x12\x0b" + "\x0a\x09" + "\x0a\x03key" + "\x12\x0242"
	if got := string(question("key", "42")); got != want {
		t.Errorf("question(key, 42) = %q, want %q", got, want)
	}
}

func TestVerdict(t *testing.T) {
	const frame = "\x00\x00\x00\x00\x02"
	for _, c := range []struct {
		answer string
		want   bool
		err    bool
	}{
		{frame + "\x08\x01", true, false},
		{frame + "\x08\x02", false, false},
		{frame + "\x08\x01\x12\x04\x08\x01\x18\x05", true, false}, // and the state of the descriptor
		{frame + "\x08\x00", false, true},
		{frame + "\x12\x00", false, true},
		{frame, false, true},
		{"", false, true},
	} {
		got, err := verdict([]byte(c.answer))
		if got != c.want || (err != nil) != c.err {
			t.Errorf("verdict(%q) = %t, %v, want %t and an error: %t", c.answer, got, err, c.want, c.err)
		}
	}
	if _, err := verdict(nil); !errors.Is(err, errNoVerdict) {
		t.Errorf("verdict of nothing = %v, want %v", err, errNoVerdict)
	}
}
