package body_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/internal/race"
)

// membersTwin are the names and values of an object, or the values of an array, as encoding/json reads them.
func membersTwin(text []byte) (all []string, ok bool) {
	if !utf8.Valid(text) || !json.Valid(text) || hasHalfPair(text) || depthOf(text) > body.MostDepth {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	first, _ := d.Token()
	for d.More() {
		if first == json.Delim('{') {
			name, _ := d.Token()
			all = append(all, name.(string))
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, false
		}
		all = append(all, string(value))
	}
	return all, first == json.Delim('{') || first == json.Delim('[')
}

func membersAgree(t *testing.T, text []byte) bool {
	t.Helper()
	var got []string
	each := func(name, value []byte) body.Fault {
		got = append(got, string(name), string(value))
		return body.None
	}
	fault := body.Kind
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		fault = body.Members(text, each)
	} else {
		fault = body.Elements(text, func(value []byte) body.Fault {
			got = append(got, string(value))
			return body.None
		})
	}
	want, ok := membersTwin(text)
	if ok != (fault == body.None) || ok && !slices.Equal(got, want) {
		t.Errorf("%.200q has %q, %v; want %q, %v", text, got, fault, want, ok)
	}
	for _, value := range got {
		unquoted, isText := body.Unquote([]byte(value))
		var twin string
		if ok && strings.HasPrefix(value, `"`) && json.Unmarshal([]byte(value), &twin) == nil &&
			(!isText || unquoted != twin) {
			t.Errorf("%q is the text %q, %v; want %q", value, unquoted, isText, twin)
		}
	}
	return ok
}

func TestRandomMembersAgreeWithTheTwin(t *testing.T) {
	seed := rand.Uint64()
	random, read := rand.New(rand.NewPCG(seed, 2)), 0
	for range race.Fewer(20000) {
		text := []byte(randomValue(random, 0))
		if random.IntN(4) == 0 {
			text = []byte("[" + string(text) + " , 7]")
		}
		for range random.IntN(3) {
			text = mutate(random, text)
		}
		if membersAgree(t, text) {
			read++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if read < race.Fewer(4000) {
		t.Errorf("%d texts were read, want the generator to make more", read)
	}
	for name, text := range vectors(t) {
		if membersAgree(t, text); t.Failed() {
			t.Fatal(name)
		}
	}
}

// TestMembersAreReadToTheEnd: what comes behind a fault of each is looked at, and comes first if it is no JSON.
func TestMembersAreReadToTheEnd(t *testing.T) {
	for text, want := range map[string]body.Fault{
		`{"a":1,"b":2}`:  body.Many,
		`{"a":1,"b":2`:   body.Syntax,
		`{"a":1,"b":2}x`: body.Syntax,
		`[1]`:            body.Kind,
		``:               body.Kind,
		`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`: body.Depth,
	} {
		calls := 0
		if got := body.Members([]byte(text), func(_, _ []byte) body.Fault { calls++; return body.Many }); got != want {
			t.Errorf("Members(%.40q) = %v, want %v", text, got, want)
		}
	}
}

func TestFormText(t *testing.T) {
	for _, c := range []struct {
		form, want string
		there      bool
		fault      body.Fault
	}{
		{"query=a+b%7D&x=1", "a b}", true, body.None},
		{"x=1", "", false, body.None},
		{"", "", false, body.None},
		{"query=", "", true, body.None},
		{"query=a&query=a", "", false, body.Twice},
		{"query=a&Query=b", "", false, body.Alike},
		{"query[]=a", "", false, body.Alike},
		{"query=a;x=1", "", false, body.Syntax},
		{"query=%zz", "", false, body.Syntax},
		{"query=%ff", "", false, body.Text},
	} {
		got, there, fault := body.FormText([]byte(c.form), "query")
		if fault != c.fault || fault == body.None && (got != c.want || there != c.there) {
			t.Errorf("FormText(%q) = %q, %v, %v; want %q, %v, %v", c.form, got, there, fault, c.want, c.there, c.fault)
		}
	}
}

func FuzzMembers(f *testing.F) {
	for _, text := range vectors(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) { membersAgree(t, text) })
}
