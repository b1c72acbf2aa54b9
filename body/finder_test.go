package body_test

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/internal/race"
)

func TestFindJSON(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		text  string
		want  string
		fault body.Fault
	}{
		{text: `{"user":{"email":"Alice@Example.org"}}`, want: "alice@example.org"},
		{text: " {\"x\":[{\"user\":{\"email\":\"no\"}}],\r\n\t\"user\":{\"id\":1,\"email\":\"yes\"}} ", want: "yes"},
		{text: `{"email":"outside","user":{"email":"inside"}}`, want: "inside"},
		{text: `{"\u0075ser":{"em\u0061il":"al\u0069ce\ud83d\ude00"}}`, want: "alice\U0001F600"},
		{text: `{"user":{"email":12345}}`, want: "12345"},
		{text: `{"user":{"email":-7}}`, want: "-7"},
		{text: `{"user":{"email":"a"},"x":{"user":{"email":"b","email":"c"}}}`, want: "a"},
		{text: `{"x":1,"x":2,"user":{"email":"a"}}`, want: "a"}, // says nothing of the field

		{text: ``, fault: body.Empty},
		{text: ` `, fault: body.Syntax},
		{text: "\ufeff" + `{"user":{"email":"a"}}`, fault: body.Kind},
		{text: `{"user":{"email":"a"}}x`, fault: body.Syntax},
		{text: `{"user":{"email":"a"}}{}`, fault: body.Syntax},
		{text: `{"user":{"email":"a"},}`, fault: body.Syntax},
		{text: `{"user":{"email":"a"},"x":NaN}`, fault: body.Syntax},
		{text: `{"user":{"email":"a"},"x":01}`, fault: body.Syntax},
		{text: `{"user":{"email":"a"},"x":"\ud800"}`, fault: body.Syntax},
		{text: `{"user":{"email":"a"},"x":"\udc00\ud800"}`, fault: body.Syntax},
		{text: "{\"user\":{\"email\":\"a\"},\"x\":\"\xff\"}", fault: body.Syntax},
		{text: `{"user":{"email":"a"}} // comment`, fault: body.Syntax},
		{text: `{'user':{'email':'a'}}`, fault: body.Syntax},
		{text: `[{"user":{"email":"a"}}]`, fault: body.Kind},
		{text: `"user"`, fault: body.Kind},
		{text: `{"user":{"email":null}}`, fault: body.Kind},
		{text: `{"user":{"email":true}}`, fault: body.Kind},
		{text: `{"user":{"email":["a"]}}`, fault: body.Kind},
		{text: `{"user":{"email":{"a":"b"}}}`, fault: body.Kind},
		{text: `{"user":"a"}`, fault: body.Kind},
		{text: `{"user":[{"email":"a"}]}`, fault: body.Kind},
		{text: `{"user":{"email":1e4}}`, fault: body.Kind},
		{text: `{"user":{"email":1.0}}`, fault: body.Kind},
		{text: `{"user":{"email":-0}}`, fault: body.Kind},
		{text: `{"user":{"email":9007199254740992}}`, fault: body.Kind},
		{text: `{"user":{"name":"a"}}`, fault: body.Missing},
		{text: `{"user":{}}`, fault: body.Missing},
		{text: `{}`, fault: body.Missing},
		{text: `{"user.email":"a"}`, fault: body.Missing},
		{text: `{"user":{"email":"a","email":"b"}}`, fault: body.Twice},
		{text: `{"user":{"email":"a","\u0065mail":"b"}}`, fault: body.Twice},
		{text: `{"user":{"email":"a"},"user":{"email":"b"}}`, fault: body.Twice},
		{text: `{"user":{"email":"a"},"user":null}`, fault: body.Twice},
		{text: `{"user":{"Email":"a"}}`, fault: body.Alike},
		{text: `{"user":{"email":"a","EMAIL":"b"}}`, fault: body.Alike},
		{text: `{"user":{"email":"a"},"u\u017fer":{"email":"b"}}`, fault: body.Alike},
		{text: `{"user":{"email":"a","email\u0000":"b"}}`, fault: body.Alike},
		{text: `{"user":{"email":"` + long + `"}}`, fault: body.Length},
		{text: `{"user":{"email":"` + strings.Repeat(long, 5) + `"}}`, fault: body.Length},
		{text: `{"user":{"email":""}}`, fault: body.Length},
		{text: `{"user":{"email":" \u200b "}}`, fault: body.Length},
		{text: `{"user":{"email":"a\u0000b"}}`, fault: body.Text},
		{text: `{"user":{"email":"a\nb"}}`, fault: body.Text},
		{text: `{"user":{"email":"a"},"x":[[[[[[[1]]]]]]]}`, want: "a"},
		{text: `{"user":{"email":"a"},"x":[[[[[[[[1]]]]]]]]}`, fault: body.Depth},
	} {
		f := newFinder(t, body.Field{Name: "user.email"})
		got, fault := f.Find([]byte("before:"), body.JSON, "", []byte(c.text))
		if string(got) != "before:"+c.want || fault != c.fault {
			t.Errorf("Find(%q) = %q, %v, want %q, %v", c.text, got, fault, "before:"+c.want, c.fault)
		}
	}
}

func TestFindForm(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       string
		fault      body.Fault
	}{
		{name: "email", text: "password=x&email=Alice%40example.org", want: "alice@example.org"},
		{name: "email", text: "&&email=a&", want: "a"},
		{name: "email", text: "%65mail=a", want: "a"},
		{name: "email", text: "email=a+b&x=%26email%3Dc", want: "a b"},
		{name: "email", text: "email=a%2540b", want: "a%40b"}, // decoded once
		{name: "user[email]", text: "user%5Bemail%5D=a&remember=1", want: "a"},

		{name: "email", text: "email=a&email=b", fault: body.Twice},
		{name: "email", text: "email=a&%65mail=b", fault: body.Twice},
		{name: "email", text: "email", fault: body.Length},
		{name: "email", text: "mail=a", fault: body.Missing},
		{name: "email", text: "x=1;email=a&email=b", fault: body.Syntax},
		{name: "email", text: "email=a;b", fault: body.Syntax},
		{name: "email", text: "email=a&x=%", fault: body.Syntax},
		{name: "email", text: "email=a&x=%u0041", fault: body.Syntax},
		{name: "email", text: "email=a&x=%4", fault: body.Syntax},
		{name: "email", text: "email=é", fault: body.Syntax},
		{name: "email", text: "email=a\r\n", fault: body.Syntax},
		{name: "email", text: "email=%e9", fault: body.Text},
		{name: "email", text: "email=a%00", fault: body.Text},
		{name: "email", text: "email=a&Email=b", fault: body.Alike},
		{name: "email", text: "email=a&email[]=b", fault: body.Alike},
		{name: "email", text: "email=a&email%5B0%5D=b", fault: body.Alike},
		{name: "email", text: "email=a&+email=b", fault: body.Alike},
		{name: "email", text: "email=a&email%00x=b", fault: body.Alike},
		{name: "user.email", text: "user.email=a&user_email=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&user=b", fault: body.Alike},

		// A form of Rails: other members are other fields.
		{
			name: "user[email]",
			text: "authenticity_token=t&user%5Bemail%5D=a&user%5Bpassword%5D=x&user%5Bremember_me%5D=1&commit=Log+in",
			want: "a",
		},
		{name: "user[email]", text: "user[email]=a&user[Email]=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&USER[email]=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&user[+email]=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&user[email%00]=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&user[email][]=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&user[email]x=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&user[]=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&user[password=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&[user][email]=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&user][email]=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&user[[email]]=b", fault: body.Alike},

		// Rack 2 drops brackets in front and behind; so does qs those around.
		{name: "email", text: "email=a&[email]=b", fault: body.Alike},
		{name: "email", text: "email=a&%5Bemail%5D=b", fault: body.Alike},
		{name: "email", text: "email=a&[email=b", fault: body.Alike},
		{name: "email", text: "email=a&email]=b", fault: body.Alike},

		// qs drops what follows closed brackets.
		{name: "email", text: "email=a&[email]x=b", fault: body.Alike},
		{name: "email", text: "email=a&[email]x[0]=b", fault: body.Alike},
		{name: "email", text: "email=a&[email].=b", fault: body.Alike},
		{name: "email", text: "email=a&" + strings.Repeat("%5B", 300) + "email=b", fault: body.Alike},
		{name: "user[email]", text: "user[email]=a&[user]x[email]=b", fault: body.Alike},
		{name: "email", text: "email=a&]]email]=b", fault: body.Alike},
		{name: "email", text: "email=a&[email][]=b", fault: body.Alike},
		{name: "email", text: "email=a&[mail]=b", want: "a"},
	} {
		f := newFinder(t, body.Field{Name: c.name, Format: body.Form})
		got, fault := f.Find(nil, body.Form, "", []byte(c.text))
		if string(got) != c.want || fault != c.fault {
			t.Errorf("Find(%q) for %s = %q, %v, want %q, %v", c.text, c.name, got, fault, c.want, c.fault)
		}
	}
}

// Servers that merge the query into the form could be told two names.
func TestQueryMayNotNameTheField(t *testing.T) {
	f := newFinder(t, body.Field{Name: "email", Format: body.Any})
	for query, want := range map[string]body.Fault{
		"": body.None, "next=/home": body.None, "x=email": body.None, "e=%zz": body.None,
		"email=b": body.Alike, "a=1&EMAIL=b": body.Alike, "a=1;email=b": body.Alike, "%65mail=b": body.Alike,
		"email[]=b": body.Alike, "[email]=b": body.Alike, "email": body.Alike, "%zz=1": body.Alike,
		"a=" + strings.Repeat("x", 4000) + "&email=b": body.Alike,
	} {
		if _, fault := f.Find(nil, body.JSON, query, []byte(`{"email":"a"}`)); fault != want {
			t.Errorf("query %q: %v, want %v", query, fault, want)
		}
		if _, fault := f.Find(nil, body.Form, query, []byte(`email=a`)); fault != want {
			t.Errorf("query %q of a form: %v, want %v", query, fault, want)
		}
	}
}

func TestWants(t *testing.T) {
	for _, c := range []struct {
		format   body.Format
		types    []string
		encoding string
		want     body.Format
		fault    body.Fault
	}{
		{format: body.JSON, types: []string{"application/json"}, want: body.JSON},
		{format: body.JSON, types: []string{"Application/JSON ; charset=\"UTF-8\""}, want: body.JSON},
		{format: body.JSON, types: []string{"application/vnd.api+json"}, want: body.JSON},
		{format: body.JSON, types: []string{"application/json"}, encoding: "identity", want: body.JSON},
		{format: body.Form, types: []string{"application/x-www-form-urlencoded;charset=utf-8"}, want: body.Form},
		{format: body.Any, types: []string{"application/x-www-form-urlencoded"}, want: body.Form},
		{format: body.Any, types: []string{"application/json"}, want: body.JSON},

		{format: body.JSON, fault: body.Media},
		{format: body.JSON, types: []string{""}, fault: body.Media},
		{format: body.JSON, types: []string{"text/json"}, fault: body.Media},
		{format: body.JSON, types: []string{"application/+json"}, fault: body.Media},
		{format: body.JSON, types: []string{"application/json, text/plain"}, fault: body.Media},
		{format: body.JSON, types: []string{"application/json", "application/json"}, fault: body.Media},
		{format: body.JSON, types: []string{"application/x-www-form-urlencoded"}, fault: body.Media},
		{format: body.Form, types: []string{"application/json"}, fault: body.Media},
		{format: body.Any, types: []string{"multipart/form-data; boundary=x"}, fault: body.Media},
		{format: body.JSON, types: []string{"application/json; charset=utf-16"}, fault: body.Charset},
		{format: body.JSON, types: []string{"application/json; charset=utf-8; charset=utf-7"}, fault: body.Charset},
		{format: body.JSON, types: []string{"application/json;"}, fault: body.Charset},
		{format: body.JSON, types: []string{"application/json; odata=verbose"}, fault: body.Charset},
		{format: body.JSON, types: []string{"application/json"}, encoding: "gzip", fault: body.Encoding},
		{format: body.JSON, types: []string{"application/json"}, encoding: "identity, br", fault: body.Encoding},
	} {
		f := newFinder(t, body.Field{Name: "email", Format: c.format})
		header := http.Header{}
		if c.types != nil {
			header["Content-Type"] = c.types
		}
		if c.encoding != "" {
			header.Set("Content-Encoding", c.encoding)
		}
		if got, fault := f.Wants(header); got != c.want || fault != c.fault {
			t.Errorf("%v: Wants(%v) = %v, %v, want %v, %v", c.format, header, got, fault, c.want, c.fault)
		}
	}
}

// Each row is one account: its spellings give one identifier.
func TestSpellings(t *testing.T) {
	for _, c := range []struct {
		spellings body.Spelling
		want      string
		of        []string
	}{
		{body.DefaultSpellings, "alice@x.org", []string{
			"alice@x.org", "Alice@X.ORG", " alice@x.org\u00a0", "ａｌｉｃｅ＠ｘ．ｏｒｇ", "alice@x.org.", "alice@x.org. .",
			"alice@x。org",
			"al\u200bice@x.org", "al\u00adice@x.org", "\ufeffalice@x.org", "al\u0131ce@x.org", "al\u0130ce@x.org",
			"alice\u202e@x.org", "alice@x.org\u3000"}},
		{body.DefaultSpellings, "kiss", []string{"KISS", "\u212aiss", "kis\u017f", "\uff2biss"}},
		{body.DefaultSpellings, "é", []string{"É", "é"}},
		{body.DefaultSpellings | body.PlusTag, "a@gmx.com", []string{"a+1@gmx.com", "a+@gmx.com", "A＋x+y@gmx.com"}},
		{body.DefaultSpellings | body.PlusTag, "+1@gmx.com", []string{"+1@gmx.com"}}, // nobody's name is empty
		{body.DefaultSpellings | body.Gmail, "alice@gmail.com",
			[]string{"a.l.ice@gmail.com", "alice+x.y@googlemail.com", "ALICE@GoogleMail.com."}},
		{body.DefaultSpellings | body.Gmail, "a.b+c@x.org", []string{"A.b+c@x.org"}},
		{body.Exact, " Alice.", []string{" Alice."}},
		{body.Trim, "Alice.", []string{" Alice. "}},
	} {
		f := newFinder(t, body.Field{Name: "x", Spellings: c.spellings})
		for _, text := range c.of {
			if got, fault := f.Normalise(nil, []byte(text)); string(got) != c.want || fault != body.None {
				t.Errorf("Normalise(%q) = %q, %v, want %q", text, got, fault, c.want)
			}
		}
	}
	ascii := newFinder(t, body.Field{Name: "x", Spellings: body.DefaultSpellings | body.ASCII})
	if got, fault := ascii.Normalise(nil, []byte("ａlice")); string(got) != "alice" || fault != body.None {
		t.Errorf("full-width letters under ASCII: %q, %v", got, fault)
	}
	if _, fault := ascii.Normalise(nil, []byte("\u0430lice")); fault != body.Text { // Cyrillic
		t.Errorf("Cyrillic letters under ASCII: %v, want text", fault)
	}
}

// The letters of one case pair meet, and none becomes longer: identifiers are
// joined in place.
func TestEveryLetterMeetsItsCases(t *testing.T) {
	f := newFinder(t, body.Field{Name: "x", Spellings: body.Case})
	step := rune(1)
	if race.Enabled {
		step = 7 // no matter which: one goroutine asks
	}
	for r := rune(' '); r <= unicode.MaxRune; r += step {
		if !utf8.ValidRune(r) || unicode.IsControl(r) {
			continue
		}
		got, fault := f.Normalise(nil, []byte(string(r)))
		if fault != body.None || len(got) > utf8.RuneLen(r) {
			t.Fatalf("%U becomes %q, %v", r, got, fault)
		}
		for _, other := range []rune{unicode.SimpleFold(r), unicode.ToLower(r), unicode.ToUpper(r)} {
			if also, _ := f.Normalise(nil, []byte(string(other))); !bytes.Equal(got, also) {
				t.Errorf("%U becomes %q and %U %q, want one", r, got, other, also)
			}
		}
	}
}

func FuzzNormalise(f *testing.F) {
	for _, text := range []string{"Alice@x.org. ", " a+b@gmail.com", "ａ＠ｂ", "\u0130\u212a\u023a", "a.@gmail.com", "+@x",
		".@gmail.com", "@", "a@b+c@d"} {
		f.Add(text, uint16(body.DefaultSpellings|body.PlusTag|body.Gmail))
	}
	f.Fuzz(func(t *testing.T, text string, spellings uint16) {
		finder, err := body.New(body.Field{Name: "x", Spellings: body.Spelling(spellings)})
		if err != nil {
			return // no union of spellings
		}
		got, fault := finder.Normalise(nil, []byte(text))
		if fault != body.None {
			return
		}
		again, fault := finder.Normalise(nil, got)
		if fault != body.None || !bytes.Equal(got, again) {
			t.Errorf("Normalise(%q) = %q, of which it makes %q, %v", text, got, again, fault)
		}
		if len(got) == 0 || len(got) > body.DefaultLength || !utf8.Valid(got) {
			t.Errorf("Normalise(%q) = %q", text, got)
		}
	})
}

// login is a JSON body of about size bytes, the field last.
func login(size int) []byte {
	return fmt.Appendf(nil, `{"client":"web","token":"%s","tags":["a",1,true,{"x":null}],"user":{"password":"secret","email":"Alice@Example.org"}}`,
		strings.Repeat("0123456789abcdef", size/16-7))
}

func TestFindAllocatesNothing(t *testing.T) {
	json := newFinder(t, body.Field{Name: "user.email"})
	form := newFinder(t, body.Field{Name: "email", Format: body.Form})
	dst := make([]byte, 0, body.DefaultLength)
	for _, c := range []struct {
		name   string
		finder *body.Finder
		format body.Format
		text   []byte
		fault  body.Fault
	}{
		{"a login", json, body.JSON, login(1 << 10), body.None},
		{"escapes", json, body.JSON, []byte(`{"\u0075ser":{"\u0065mail":"\u0061\ud83d\ude00"}}`), body.None},
		{"duplicates", json, body.JSON, []byte(`{"user":{"email":"a","email":"b"}}`), body.Twice},
		{"a long name", json, body.JSON, []byte(`{"` + strings.Repeat(`\u0041`, 1000) + `":1}`), body.Missing},
		{"a long value", json, body.JSON, []byte(`{"user":{"email":"` + strings.Repeat(`\u0041`, 1000) + `"}}`),
			body.Length},
		{"open arrays", json, body.JSON, []byte(`{"x":` + strings.Repeat("[", 8000)), body.Depth},
		{"a form", form, body.Form, []byte("password=x&email=Alice%40example.org"), body.None},
	} {
		if _, fault := c.finder.Find(dst, c.format, "a=b", c.text); fault != c.fault {
			t.Errorf("%s: %v, want %v", c.name, fault, c.fault)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = c.finder.Find(dst, c.format, "a=b", c.text) }); n != 0 {
			t.Errorf("%s: Find allocates %v times, want 0", c.name, n)
		}
	}
}

// JSONTestSuite's n_structure_100000_opening_arrays and _open_array_object.
func TestDeepBodiesAreRefusedInFlatMemory(t *testing.T) {
	f := newFinder(t, body.Field{Name: "user", MaxBytes: body.MostBytes, MaxDepth: body.MostDepth})
	for _, text := range [][]byte{
		[]byte(`{"user":` + strings.Repeat("[", 100_000)),
		[]byte(`{"user":` + strings.Repeat(`[{"":`, 50_000)),
		[]byte(strings.Repeat(`{"user":`, 50_000)),
	} {
		least := uint64(math.MaxUint64)
		for range 5 { // a collection that begins meanwhile allocates too
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, fault := f.Find(nil, body.JSON, "", text)
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
			if fault != body.Depth && fault != body.Kind {
				t.Errorf("%d bytes deep: %v, want depth", len(text), fault)
			}
		}
		if least > 1<<12 {
			t.Errorf("%d bytes deep: %d bytes allocated, want next to none", len(text), least)
		}
	}
	if _, fault := newFinder(t, body.Field{Name: "user"}).Find(nil, body.JSON, "",
		make([]byte, body.DefaultBytes+1)); fault != body.Long {
		t.Errorf("a byte too many: %v, want long", fault)
	}
}

func TestNewNamesEveryField(t *testing.T) {
	_, err := body.New(body.Field{
		Name:      "a..b",
		MaxBytes:  10,
		MaxDepth:  65,
		MaxLength: 5000,
		Spellings: body.Exact | body.Case,
	})
	for _, want := range []string{`Name is "a..b"`, "MaxBytes is 10, want 64 to 1048576",
		"MaxDepth is 65, want 1 to 64", "MaxLength is 5000", "Exact alone"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New says %v, want %s", err, want)
		}
	}
	for _, f := range []body.Field{{}, {Name: "a.b.c.d.e"}, {Name: "a.b", Format: body.Any}, {Name: "x", Format: 9},
		{Name: "\x00"}, {Name: strings.Repeat("x", 65)}} {
		if _, err := body.New(f); err == nil {
			t.Errorf("New(%+v) succeeds", f)
		}
	}
}

func BenchmarkFindJSON(b *testing.B) {
	f := newFinder(b, body.Field{Name: "user.email"})
	text := login(1 << 10)
	dst := make([]byte, 0, body.DefaultLength)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, fault := f.Find(dst, body.JSON, "", text); fault != body.None {
			b.Fatal(fault)
		}
	}
}

func BenchmarkFindForm(b *testing.B) {
	f := newFinder(b, body.Field{Name: "email", Format: body.Form})
	text := []byte("csrf=" + strings.Repeat("0123456789abcdef", 60) + "&password=secret&email=Alice%40Example.org")
	dst := make([]byte, 0, body.DefaultLength)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, fault := f.Find(dst, body.Form, "", text); fault != body.None {
			b.Fatal(fault)
		}
	}
}
