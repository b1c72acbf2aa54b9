package body_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/internal/race"
)

func newCounter(t testing.TB, b body.Batch) *body.Counter {
	t.Helper()
	c, err := body.NewCounter(b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCount(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       int
		fault      body.Fault
	}{
		{text: `{"jsonrpc":"2.0","method":"a","id":1}`, want: 1},
		{text: `[{"method":"a"},{"method":"b"},{"method":"c"}]`, want: 3},
		{text: " [ 1 , \"x\" , null , true ]\r\n", want: 4},
		{text: `[]`, want: 1},
		{text: `"x"`, want: 1},
		{text: `[{"a":[1,2,3]},{"b":[[4]]}]`, want: 2},
		{text: `[[1,2],[3],[]]`, want: 4}, // what flattens it has four
		{text: `[[[[[[1,2]]]]],{"a":[1]}]`, want: 3},
		{text: `[[{"a":1},[]],{"a":[[]]}]`, want: 3},
		{text: `[` + strings.Repeat(`1,`, 99) + `1]`, want: 100},
		{text: `[` + strings.Repeat(`1,`, 100) + `1]`, fault: body.Many},
		{text: `[[` + strings.Repeat(`1,`, 100) + `1]]`, fault: body.Many},

		{name: "requests", text: `{"requests":[{"id":"1"},{"id":"2"}]}`, want: 2},
		{name: "requests", text: `{"x":[1,2,3],"requests":[{"body":[1,2]},4],"y":[5,6]}`, want: 2},
		{name: "requests", text: `{"a":{"requests":[1,2,3]}}`, want: 1},
		{name: "requests", text: `{"requests":[]}`, want: 1},
		{name: "requests", text: `{}`, want: 1},
		{name: "a.b", text: `{"a":{"c":[1],"b":[1,[2,3]]},"b":[1]}`, want: 3},
		{name: "requests", text: `{"\u0072equests":[1,2]}`, want: 2},
		{name: "requests", text: `[{"requests":[1,2]}]`, fault: body.Kind},
		{name: "requests", text: `{"requests":{"a":1}}`, fault: body.Kind},
		{name: "requests", text: `{"requests":null}`, fault: body.Kind},
		{name: "requests", text: `{"requests":"[1,2]"}`, fault: body.Kind},
		{name: "a.b", text: `{"a":[{"b":[1,2]}]}`, fault: body.Kind},
		{name: "requests", text: `{"requests":[1],"requests":[1,2]}`, fault: body.Twice},
		{name: "requests", text: `{"requests":[1],"\u0072equests":[1,2]}`, fault: body.Twice},
		{name: "requests", text: `{"Requests":[1,2]}`, fault: body.Alike},
		{name: "requests", text: `{"requests":[1],"requests\u0000":[1,2]}`, fault: body.Alike},

		{text: ``, fault: body.Empty},
		{text: ` `, fault: body.Syntax},
		{text: `[1,2`, fault: body.Syntax},
		{text: `[1,2,]`, fault: body.Syntax},
		{text: `[1][2,3]`, fault: body.Syntax},
		{text: "1\n2\n3", fault: body.Syntax},
		{text: `[1,2] // more`, fault: body.Syntax},
		{text: `['a','b']`, fault: body.Syntax},
		{text: "\ufeff[1,2]", fault: body.Syntax},
		{text: "\x00[\x001\x00,\x002\x00]", fault: body.Syntax},
		{text: strings.Repeat("[", 64) + strings.Repeat("]", 64), want: 1},
		{text: strings.Repeat("[", 65) + strings.Repeat("]", 65), fault: body.Depth},
		{text: `[` + strings.Repeat(" ", body.DefaultBatchBytes) + `]`, fault: body.Long},
	} {
		counter := newCounter(t, body.Batch{Name: c.name})
		if got, fault := counter.Count([]byte(c.text)); got != c.want || fault != c.fault {
			t.Errorf("Count(%.80q) of %q = %d, %v, want %d, %v", c.text, c.name, got, fault, c.want, c.fault)
		}
	}
}

func TestBatchesWanted(t *testing.T) {
	for media, want := range map[string]body.Fault{
		"application/json": body.None, "Application/JSON; charset=UTF-8": body.None,
		"application/vnd.api+json": body.None,
		"application/json;odata.metadata=minimal;IEEE754Compatible=true;charset=utf-8": body.None,
		"application/json; odata=verbose":                                              body.None,

		"":                                  body.Media,
		"text/plain":                        body.Media,
		"multipart/mixed; boundary=x":       body.Media,
		"application/json, text/plain":      body.Media,
		"application/x-www-form-urlencoded": body.Media,
		"application/json; charset=utf-16":  body.Charset,
		"application/json; charset=utf-8; charset=utf-7":         body.Charset,
		"application/json; odata=\"x; charset=utf-7\"":           body.Charset,
		"application/json; charset*=utf-8''utf-7":                body.Charset,
		"application/json;odata.metadata=minimal;charset=cp1047": body.Charset,
		"application/json;":                                      body.Charset,
	} {
		c := newCounter(t, body.Batch{})
		if got := c.Wants(http.Header{"Content-Type": {media}}); got != want {
			t.Errorf("Wants(%q) = %v, want %v", media, got, want)
		}
		if got := c.Wants(http.Header{"Content-Type": {media}, "Content-Encoding": {"gzip"}}); got != body.Encoding {
			t.Errorf("Wants(%q), compressed = %v, want encoding", media, got)
		}
	}
}

func TestBatchesAreChecked(t *testing.T) {
	_, err := body.NewCounter(body.Batch{Name: "a..b", MaxParts: -1, MaxBytes: 1})
	for _, want := range []string{"Name is \"a..b\"", "MaxParts is -1, want 1 to 10000", "MaxBytes is 1, want 64 to"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %q", err, want)
		}
	}
	if _, err := body.NewCounter(body.Batch{Name: "a.b.c.d.e"}); err == nil {
		t.Error("five names are accepted, want at most 4")
	}
}

// partsTwin is the slow, obvious reading: encoding/json's, value by value.
func partsTwin(text []byte, path []string) (parts int, ok bool) {
	if !utf8.Valid(text) || !json.Valid(text) || hasHalfPair(text) || depthOf(text) > body.MostDepth {
		return 0, false
	}
	for _, name := range path {
		if text = bytes.TrimLeft(text, " \t\r\n"); text[0] != '{' {
			return 0, false
		}
		tokens := json.NewDecoder(bytes.NewReader(text))
		_, _ = tokens.Token()
		var found []json.RawMessage
		for tokens.More() {
			key, _ := tokens.Token()
			var value json.RawMessage
			if err := tokens.Decode(&value); err != nil {
				return 0, false
			}
			cut, _, _ := strings.Cut(key.(string), "\x00")
			if key != name && strings.EqualFold(cut, name) {
				return 0, false
			}
			if key == name {
				found = append(found, value)
			}
		}
		if len(found) > 1 {
			return 0, false
		}
		if found == nil {
			return 1, true
		}
		text = found[0]
	}
	if text = bytes.TrimLeft(text, " \t\r\n"); text[0] != '[' {
		return 1, len(path) == 0
	}
	return max(1, leaves(text, true)), true
}

// leaves counts what stands in arrays within arrays.
func leaves(text []byte, outer bool) (n int) {
	var elements []json.RawMessage
	if text = bytes.TrimLeft(text, " \t\r\n"); text[0] != '[' {
		return 1
	}
	_ = json.Unmarshal(text, &elements)
	if len(elements) == 0 && !outer {
		return 1
	}
	for _, e := range elements {
		n += leaves(e, false)
	}
	return n
}

func depthOf(text []byte) (most int) {
	tokens, depth := json.NewDecoder(bytes.NewReader(text)), 0
	tokens.UseNumber()
	for {
		token, err := tokens.Token()
		if err != nil {
			return most
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
		most = max(most, depth)
	}
}

func countAgrees(t *testing.T, c *body.Counter, name string, text []byte) (known bool) {
	t.Helper()
	var path []string
	if name != "" {
		path = strings.Split(name, ".")
	}
	want, ok := 0, false
	if len(text) > 0 && len(text) <= body.DefaultBatchBytes {
		want, ok = partsTwin(text, path)
	}
	got, fault := c.Count(text)
	switch {
	case ok && want > c.MaxParts():
		if fault != body.Many {
			t.Errorf("Count(%.200q) of %q = %d, %v, want many, as there are %d", text, name, got, fault, want)
		}
	case ok != (fault == body.None) || ok && got != want || !ok && got != 0:
		t.Errorf("Count(%.200q) of %q = %d, %v, want %d, %v", text, name, got, fault, want, ok)
	}
	return ok
}

func TestRandomPartsAgreeWithTheTwin(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 3))
	counters := map[string]*body.Counter{}
	for _, name := range []string{"", "user", "a.user", "a.a.user"} {
		counters[name] = newCounter(t, body.Batch{Name: name, MaxParts: 5})
	}
	known := 0
	for range race.Fewer(20000) {
		text := []byte(randomValue(random, 0))
		switch random.IntN(4) {
		case 0:
			text = fmt.Appendf(nil, "[%s,[%s , %s]]", text, randomValue(random, 1), randomValue(random, 2))
		case 1:
			text = fmt.Appendf(nil, `{"user":[%s,%s]}`, text, randomValue(random, 1))
		}
		for range random.IntN(3) {
			text = mutate(random, text)
		}
		for name, c := range counters {
			if countAgrees(t, c, name, text) {
				known++
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if known < race.Fewer(2000) {
		t.Errorf("%d bodies counted, want the generator to make more", known)
	}
}

func TestVectorsOfPartsAgreeWithTheTwin(t *testing.T) {
	plain, named := newCounter(t, body.Batch{}), newCounter(t, body.Batch{Name: "v"})
	for _, text := range vectors(t) {
		countAgrees(t, plain, "", text)
		countAgrees(t, plain, "", fmt.Appendf(nil, `[1,%s,[2,%s]]`, text, text))
		countAgrees(t, named, "v", fmt.Appendf(nil, `{"v":%s}`, text))
		countAgrees(t, named, "v", fmt.Appendf(nil, `{"v":[%s,1],"x":%s}`, text, text))
	}
}

func TestCountAllocatesNothing(t *testing.T) {
	plain, named := newCounter(t, body.Batch{MaxParts: body.MostParts}), newCounter(t, body.Batch{Name: "requests"})
	for _, text := range []string{
		`[` + strings.Repeat(`{"method":"a","params":[1,{"x":"\u0041"}]},`, 200) + `1]`,
		`{"requests":[{"id":"1","body":{"x":[1,2]}},2]}`, strings.Repeat("[", 100),
	} {
		b := []byte(text)
		if n := testing.AllocsPerRun(100, func() {
			_, _ = plain.Count(b)
			_, _ = named.Count(b)
		}); n != 0 {
			t.Errorf("Count(%.40q) allocates %v times, want 0", text, n)
		}
	}
}

func FuzzCount(f *testing.F) {
	for _, text := range vectors(f) {
		if len(text) < 1<<10 {
			f.Add(text)
			f.Add(fmt.Appendf(nil, `[1,%s,[2,%s]]`, text, text))
			f.Add(fmt.Appendf(nil, `{"v":{"user":[%s]}}`, text))
		}
	}
	plain := newCounter(f, body.Batch{MaxParts: 10})
	named := newCounter(f, body.Batch{Name: "v.user", MaxParts: 10})
	f.Fuzz(func(t *testing.T, text []byte) {
		countAgrees(t, plain, "", text)
		countAgrees(t, named, "v.user", text)
	})
}
