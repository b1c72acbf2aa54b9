package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The last good copy is what encoding/json makes of the rules, whether it is
// written from memory or rules went through a file in pieces; and a file that was
// used for another document before is none the worse.
func TestCopyIsJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(20261127, 1))
	s := &spool{copy: filepath.Join(t.TempDir(), "copy")}
	texts := []string{"", "a", "acme", "GET /a]},/{id}", `"\`, "<&>", "ü", "\x7f", "\xff", "\u2028", "tab\t"}
	pick := func() string { return texts[rng.IntN(len(texts))] }
	for _, n := range []int{0, 1, 2, 10, 100, 5000} {
		doc := Document{Source: pick(), Number: rng.Int64N(3), Projects: map[string]string{"acme": "gold"},
			Rules: make([]Rule, n)}
		for i := range doc.Rules {
			r := Rule{Endpoint: pick(), Project: pick(), Limit: rng.Int64N(1000)}
			r.Per = time.Duration(rng.IntN(3)) * time.Minute
			if v := reflect.ValueOf(&r).Elem(); rng.IntN(2) == 0 { // one field more, each in its turn
				switch f := v.Field(rng.IntN(v.NumField())); f.Kind() {
				case reflect.String:
					f.SetString("401")
				case reflect.Int64, reflect.Int:
					f.SetInt(1 + rng.Int64N(1000))
				case reflect.Uint8:
					f.SetUint(1)
				case reflect.Struct:
					f.Set(reflect.ValueOf(time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)))
				default:
					t.Fatalf("a field is a %v, want a case for it here", f.Kind())
				}
			}
			doc.Rules[i] = r
		}
		whole := savedDocument{savedHead{savedFormat, n, doc.Source, doc.Number, doc.Projects}, make([]savedRule, n)}
		for i, r := range doc.Rules {
			whole.Rules[i] = savedRule(r)
		}
		want, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		var once, pieces bytes.Buffer
		if err := encodeCopy(doc, &once); err != nil || once.String() != string(want) {
			t.Errorf("%d rules: encodeCopy = %v, and not what encoding/json makes\n%.500s\n%.500s", n, err, &once, want)
		}
		s.begin()
		s.add(doc.Rules[:n/2]) // of a load that failed
		s.begin()
		for rest := doc.Rules; len(rest) > 0; {
			next := 1 + rng.IntN(len(rest))
			s.add(rest[:next])
			rest = rest[next:]
		}
		if err := s.encodeCopy(doc, &pieces); err != nil || pieces.String() != string(want) {
			t.Errorf("%d rules in pieces: %v, and not what encoding/json makes", n, err)
		}
	}
}

// The last good copy reads as the document that was written.
func TestCopyReadsAsWritten(t *testing.T) {
	doc := Document{Source: "test", Number: 7, Projects: map[string]string{"acme": "gold"}}
	for i := range 1000 {
		doc.Rules = append(doc.Rules, Rule{Endpoint: fmt.Sprintf("GET /a]},/%d", i), Limit: int64(i + 1),
			Per: time.Duration(i%3) * time.Second, Subject: Subject(i % subjects)})
	}
	var data bytes.Buffer
	if err := encodeCopy(doc, &data); err != nil {
		t.Fatal(err)
	}
	if got, _, err := decodeCopy(&data, nil); err != nil || !reflect.DeepEqual(got, doc) {
		t.Errorf("the copy reads as %d rules, %v, want what was written", len(got.Rules), err)
	}
}

// A copy of an older program does not say how many rules it has, and a database may be wrong about that: rules are
// not kept once there are many, whatever was said before.
func TestManyRulesAreNotKeptWhateverWasSaid(t *testing.T) {
	text := `{"format":1,"source":"test","number":7,"projects":null,"rules":[{"e":"default","l":1},{"e":"UNKNOWN","l":1}`
	const rules = 5000
	for i := range rules - 2 {
		text += fmt.Sprintf(`,{"e":"*","p":"p%d","l":%d}`, i, 1+i%7)
	}
	text += "]}"
	want, _, err := decodeCopy(strings.NewReader(text), nil)
	if err != nil || len(want.Rules) != rules {
		t.Fatalf("the copy has %d rules, %v", len(want.Rules), err)
	}
	whole, _ := Compile(want, CompileOptions{})
	for _, alone := range []bool{true, false} {
		d := newDraft(CompileOptions{}, 2000)
		d.Alone = alone
		doc, n, err := decodeCopy(strings.NewReader(text), d)
		if err != nil || n != rules || d.gone < 2000 || d.gone+len(doc.Rules) != rules {
			t.Fatalf("alone %v: of %d rules %d are gone and %d left, %v", alone, n, d.gone, len(doc.Rules), err)
		}
		got, problems := d.Compile(doc)
		if got == nil || got.Version() != whole.Version() || got.Number() != 7 || got.Len() != whole.Len() {
			t.Errorf("alone %v: %v, and not the rules of the whole copy", alone, problems)
		}
	}
}

// A folder in which nothing can be written costs the copy alone, and says so.
func TestCopyThatCannotBeSpooled(t *testing.T) {
	s := &spool{copy: filepath.Join(t.TempDir(), "no such folder", "copy")}
	s.begin()
	s.add([]Rule{{Endpoint: Default, Limit: 1}})
	if err := s.encodeCopy(Document{}, io.Discard); !os.IsNotExist(err) {
		t.Errorf("encodeCopy = %v, want that there is no such folder", err)
	}
}

// What is wrong with the file that rules go to costs one copy, and not those after it.
func TestSpoolBeginsAnew(t *testing.T) {
	s := &spool{copy: filepath.Join(t.TempDir(), "copy")}
	rules := []Rule{{Endpoint: Default, Limit: 1}}
	s.begin()
	if err := s.file.Close(); err != nil { // as good as gone
		t.Fatal(err)
	}
	s.add(rules)
	if err := s.encodeCopy(Document{}, io.Discard); err == nil {
		t.Error("encodeCopy = nil, want that the file is closed")
	}
	var data bytes.Buffer
	s.begin()
	s.add(rules)
	if err := s.encodeCopy(Document{}, &data); err != nil {
		t.Fatal(err)
	}
	if got, _, err := decodeCopy(&data, nil); err != nil || !reflect.DeepEqual(got.Rules, rules) {
		t.Errorf("the copy has %v, %v, want %v", got.Rules, err, rules)
	}
}

// drafting is a Streamer whose documents are a test's.
type drafting struct {
	rules []Rule
	cut   error // after the rules
}

func (d *drafting) Version(context.Context) (string, error) { return "", nil }

func (d *drafting) Load(ctx context.Context) (Document, string, error) { return d.LoadInto(ctx, nil) }

func (d *drafting) LoadInto(_ context.Context, draft *Draft) (Document, string, error) {
	left := draft.Begin(Document{}, len(d.rules))
	for _, r := range d.rules {
		left = draft.Read(append(left, r))
	}
	return Document{Rules: left}, "", d.cut
}

// The file of a spool, which nobody sees and which is as large as the copy, is there only while it is needed.
func TestSpoolTakesDiskOnlyForACopy(t *testing.T) {
	sound := []Rule{{Endpoint: Default, Limit: 1}, {Endpoint: UnknownEndpoint, Limit: 1}}
	source := &drafting{}
	s := &draftSource{Source: source, kept: 2, inForce: func() *Set { return nil },
		options: func(*Set) CompileOptions { return CompileOptions{} },
		spool:   &spool{copy: filepath.Join(t.TempDir(), "copy")}}
	for _, step := range []struct {
		what    string
		rules   []Rule
		cut     error
		spooled bool
	}{
		{"a good one", sound, nil, true},
		{"a cut one", sound, io.ErrUnexpectedEOF, false},
		{"a good one", sound, nil, true},
		{"a small one", sound[:1], nil, false},
		{"a good one", sound, nil, true},
		{"an empty one", nil, nil, false},
		{"one that is refused", append(sound[:2:2], Rule{Endpoint: Default}), nil, false},
		{"one of which rules are looked at", append(sound[:2:2], Rule{Endpoint: All, Project: "a",
			Limit: 1}, Rule{Endpoint: All, Project: "a", Mode: Block}), nil, false},
		{"a good one again, which is kept", sound, nil, false},
		{"a good one", sound, nil, true},
	} {
		source.rules, source.cut = step.rules, step.cut
		loaded, _, err := s.Load(t.Context())
		if err != step.cut || loaded.spool != nil != step.spooled || s.spool.file != nil != step.spooled {
			t.Errorf("%s: Load = %v, spooled %v and on the disk %v, want %v", step.what, err, loaded.spool != nil,
				s.spool.file != nil, step.spooled)
		}
	}
}
