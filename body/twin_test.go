package body_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/internal/race"
)

func newFinder(t testing.TB, f body.Field) *body.Finder {
	t.Helper()
	finder, err := body.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return finder
}

// vectors are the files of JSONTestSuite by name.
func vectors(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/test_parsing/*.json")
	if err != nil || len(files) != 149 {
		t.Fatalf("%d vectors, %v, want 149", len(files), err)
	}
	found := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(file)] = text
	}
	return found
}

// twin is the slow, obvious reading of a JSON body: encoding/json's, token by
// token, and beside it what that takes for granted or lets pass.
func twin(text []byte, path []string, maxDepth int) (value string, ok bool) {
	if !utf8.Valid(text) || !json.Valid(text) || hasHalfPair(text) {
		return "", false
	}
	w := &walker{tokens: json.NewDecoder(bytes.NewReader(text)), most: maxDepth}
	w.tokens.UseNumber()
	if first, _ := w.tokens.Token(); first != json.Delim('{') {
		return "", false
	}
	w.object(path, 1)
	return w.value, w.found && !w.wrong
}

var (
	backslash = regexp.MustCompile(`\\\\`)
	pair      = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	half      = regexp.MustCompile(`\\u[dD][89a-fA-F]`)
	plain     = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
)

func hasHalfPair(text []byte) bool {
	text = backslash.ReplaceAll(text, []byte("--"))
	return half.Match(pair.ReplaceAll(text, nil))
}

type walker struct {
	tokens       *json.Decoder
	most         int
	value        string
	found, wrong bool
}

func (w *walker) next() json.Token {
	token, err := w.tokens.Token()
	if err != nil {
		panic(err) // json.Valid has read it
	}
	return token
}

// object reads on behind a "{". path is what is looked for inside, nil nothing.
func (w *walker) object(path []string, depth int) {
	w.wrong = w.wrong || depth > w.most
	seen := 0
	for w.tokens.More() {
		name := w.next().(string)
		if path == nil {
			w.any(nil, false, depth)
			continue
		}
		cut, _, _ := strings.Cut(name, "\x00")
		switch {
		case name == path[0]:
			seen++
			w.wrong = w.wrong || seen > 1
			w.any(path[1:], true, depth)
			continue
		case strings.EqualFold(cut, path[0]):
			w.wrong = true
		}
		w.any(nil, false, depth)
	}
	w.next()
}

// any reads a value. mine says that it is the field, or if path is not empty
// that it leads there.
func (w *walker) any(path []string, mine bool, depth int) {
	token := w.next()
	if token == json.Delim('[') {
		w.wrong = w.wrong || mine || depth+1 > w.most
		for w.tokens.More() {
			w.any(nil, false, depth+1)
		}
		w.next()
		return
	}
	if token == json.Delim('{') {
		if !mine {
			path = nil
		}
		w.wrong = w.wrong || mine && len(path) == 0
		if len(path) == 0 {
			path = nil
		}
		w.object(path, depth+1)
		return
	}
	if !mine {
		return
	}
	switch v := token.(type) {
	case string:
		w.value = v
	case json.Number:
		n, err := strconv.ParseInt(string(v), 10, 64)
		w.wrong = w.wrong || err != nil || !plain.MatchString(string(v)) || n > 1<<53-1 || n < -(1<<53-1)
		w.value = string(v)
	default:
		w.wrong = true
	}
	w.found, w.wrong = true, w.wrong || len(path) > 0
}

// exact is a Finder that changes nothing of what it finds.
func exact(t testing.TB, name string) *body.Finder {
	return newFinder(t, body.Field{Name: name, Spellings: body.Exact, MaxLength: body.MostLength,
		MaxBytes: body.MostBytes})
}

// agrees compares a Finder with the twin: the same value, or none.
func agrees(t *testing.T, f *body.Finder, name string, text []byte) {
	t.Helper()
	want, ok := twin(text, strings.Split(name, "."), body.DefaultDepth)
	if len(text) > body.MostBytes || want == "" || len(want) > body.MostLength ||
		strings.ContainsFunc(want, isControl) {
		ok = false
	}
	got, fault := f.Find(nil, body.JSON, "", text)
	if ok != (fault == body.None) || ok && string(got) != want {
		t.Errorf("Find(%q) for %s = %q, %v, want %q, %v", text, name, got, fault, want, ok)
	}
}

func isControl(r rune) bool { return r < 0x20 || 0x7f <= r && r < 0xa0 }

// Every vector, for every name it has at its top, and inside of a login.
func TestJSONVectorsAgreeWithTheTwin(t *testing.T) {
	user, nested := exact(t, "user"), exact(t, "v.user")
	for _, text := range vectors(t) {
		var top map[string]any
		_ = json.Unmarshal(text, &top)
		for field := range top {
			if field != "" && !strings.ContainsAny(field, ".\x00") && len(field) < 60 {
				agrees(t, exact(t, field), field, text)
			}
		}
		agrees(t, user, "user", text)
		agrees(t, user, "user", fmt.Appendf(nil, `{"user":"alice","v":%s}`, text))
		agrees(t, user, "user", fmt.Appendf(nil, `{"v":%s,"user":"alice"}`, text))
		agrees(t, nested, "v.user", fmt.Appendf(nil, `{"v":{"user":%s}}`, text))
		agrees(t, nested, "v.user", fmt.Appendf(nil, `{"v":%s}`, text))
	}
}

// What the names of the vectors promise: what is JSON is read around a login
// name, what is not makes a body unreadable, and of the rest all but numbers is
// refused.
func TestJSONVectorsHaveTheirResult(t *testing.T) {
	user := exact(t, "user")
	for name, text := range vectors(t) {
		want := name[0] == 'y' || strings.HasPrefix(name, "i_number_")
		_, fault := user.Find(nil, body.JSON, "", fmt.Appendf(nil, `{"user":"alice","v":%s}`, text))
		if (fault == body.None) != want {
			t.Errorf("%s inside of a login: %v, want none: %v", name, fault, want)
		}
		if name[0] != 'y' {
			if _, fault := user.Find(nil, body.JSON, "", text); fault == body.None {
				t.Errorf("%s: an identifier, want none", name)
			}
		}
	}
}

func TestRandomJSONAgreesWithTheTwin(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	finders := map[string]*body.Finder{
		"user":     exact(t, "user"),
		"a.user":   exact(t, "a.user"),
		"a.a.user": exact(t, "a.a.user"),
	}
	found := 0
	for range race.Fewer(30000) {
		text := []byte(randomValue(random, 0))
		for range random.IntN(3) {
			text = mutate(random, text)
		}
		for name, f := range finders {
			agrees(t, f, name, text)
			if _, fault := f.Find(nil, body.JSON, "", text); fault == body.None {
				found++
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if found < race.Fewer(100) {
		t.Errorf("%d identifiers found, want the generator to make more", found)
	}
}

var pieces = []string{`"user"`, `"User"`, `"a"`, `"us\u0065r"`, `"user\u0000x"`, `"\ud83d\ude00"`, `"\ud83d"`,
	`"u\u017fer"`, `""`, `"x\"y\\"`, "\"é\""}

func randomValue(random *rand.Rand, depth int) string {
	kind := random.IntN(8)
	if depth == 0 {
		kind = 0
	}
	space := []string{"", "", "", " ", "\n\t\r "}[random.IntN(5)]
	switch {
	case kind <= 2 && depth < 10:
		var members []string
		for range 1 + random.IntN(3) {
			members = append(members, pieces[random.IntN(4+random.IntN(len(pieces)-3))]+space+":"+
				randomValue(random, depth+1))
		}
		return space + "{" + strings.Join(members, ",") + "}" + space
	case kind == 3 && depth < 10:
		var members []string
		for range random.IntN(3) {
			members = append(members, randomValue(random, depth+1))
		}
		return "[" + space + strings.Join(members, space+",") + "]"
	case kind == 4:
		return []string{"0", "-0", "12345", "-7", "9007199254740991", "9007199254740992", "1.0", "1e3", "-1E+2",
			"99999999999999999999"}[random.IntN(10)]
	case kind == 5:
		return []string{"true", "false", "null"}[random.IntN(3)]
	}
	return pieces[random.IntN(len(pieces))]
}

// mutate changes, removes or doubles a byte.
func mutate(random *rand.Rand, text []byte) []byte {
	const bytes = "{}[]\",:\\u0eE+-.1 x\xff\x00\xef"
	if len(text) == 0 {
		return text
	}
	at := random.IntN(len(text))
	switch random.IntN(3) {
	case 0:
		text[at] = bytes[random.IntN(len(bytes))]
	case 1:
		return append(text[:at:at], text[at+1:]...)
	default:
		return append(text[:at:at], text[max(0, at-1):]...)
	}
	return text
}

// formTwin is the slow reading of a form: net/url's.
func formTwin(text, name string) (string, bool) {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] >= 0x7f {
			return "", false
		}
	}
	values, err := url.ParseQuery(text)
	if err != nil || len(values[name]) != 1 {
		return "", false
	}
	for key := range values {
		if key != name && (strings.EqualFold(beforeNUL(key), name) || mayBe(php(key), name) || mayBe(rack(key), name) ||
			mayBe(qs(key), name)) {
			return "", false
		}
	}
	return values[name][0], true
}

// mayBe reports whether a variable with members may hold the field.
func mayBe(key, name string) bool {
	members := regexp.MustCompile(`^([^\[]*)(?:\[([^\[\]]+)\].*)?`)
	is, want := members.FindStringSubmatch(key), members.FindStringSubmatch(php(name))
	if !strings.EqualFold(beforeNUL(is[1]), want[1]) {
		return false
	}
	member, wanted := strings.TrimSpace(is[2]), want[2]
	return member == "" || wanted == "" || strings.EqualFold(beforeNUL(member), wanted)
}

// php is how PHP names a variable.
func php(name string) string {
	name = strings.TrimLeft(name, " ")
	members := ""
	if at := strings.LastIndex(name[:min(1, len(name))], "["); at < 0 {
		if at = strings.IndexByte(name, '['); at > 0 {
			name, members = name[:at], name[at:]
		}
	} else if next := strings.IndexByte(name[1:], '['); next >= 0 {
		name, members = name[:next+1], name[next+1:]
	}
	return strings.NewReplacer(" ", "_", ".", "_", "[", "_").Replace(name) + members
}

// rack is how Rack 2 names a parameter (normalize_params).
func rack(name string) string {
	m := regexp.MustCompile(`^[\[\]]*([^\[\]]+)\]*`).FindStringSubmatchIndex(name)
	if m == nil {
		return ""
	}
	variable, after := name[m[2]:m[3]], name[m[1]:]
	switch {
	case after == "" || after == "[" || strings.HasPrefix(after, "[]"):
		return variable
	}
	members, more, _ := strings.Cut(rack(after), "[")
	if more != "" {
		more = "[" + more
	}
	return variable + "[" + members + "]" + more
}

// qs is how qs, and so Express, names a parameter (parseKeys): the text before the first closed brackets and the texts
// within all of them, whatever stands between.
func qs(name string) string {
	groups := regexp.MustCompile(`\[[^\[\]]*\]`).FindAllStringIndex(name, -1)
	if groups == nil {
		return name
	}
	path := name[:groups[0][0]]
	for i, g := range groups {
		if i == 0 && path == "" {
			path = name[g[0]+1 : g[1]-1]
			continue
		}
		path += name[g[0]:g[1]]
	}
	return path
}

func beforeNUL(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}

func formAgrees(t *testing.T, f *body.Finder, name, text string) {
	t.Helper()
	want, ok := formTwin(text, name)
	if !utf8.ValidString(want) || want == "" || len(want) > body.MostLength || strings.ContainsFunc(want, isControl) ||
		len(text) > body.MostBytes {
		ok = false
	}
	got, fault := f.Find(nil, body.Form, "", []byte(text))
	if ok && fault == body.Alike && strings.ContainsAny(text, "[] +.%") {
		return // more is refused than is known to be taken for the field
	}
	if ok != (fault == body.None) || ok && string(got) != want {
		t.Errorf("Find(%q) for %s = %q, %v, want %q, %v", text, name, got, fault, want, ok)
	}
}

func TestRandomFormsAgreeWithTheTwin(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 2))
	names := []string{"user", "user", "pw", "User", "+user", "user[]", "us%65r", "user%00x", "u.ser", "x%5Buser%5D", "",
		"%", "_user", "[user]", "user]", "[user]x", "[user]x[0]", "[x]y[user]", "x]y[user]", "[x][user]y", "x[pw]",
		"[x][user]", "x[user", "x]user]", "x[]", "x.[user]", "[[user", "x[ user]"}
	values := []string{"alice", "a%40b", "a+b", "", "%e9", "%c3%a9", "%0", "a;b", "a=b", "%00"}
	finders := map[string]*body.Finder{
		"user": newFinder(t, body.Field{Name: "user", Format: body.Form, Spellings: body.Exact,
			MaxLength: body.MostLength}),
		"x[user]": newFinder(t, body.Field{Name: "x[user]", Format: body.Form, Spellings: body.Exact,
			MaxLength: body.MostLength}),
		"u.ser": newFinder(t, body.Field{Name: "u.ser", Format: body.Form, Spellings: body.Exact,
			MaxLength: body.MostLength}),
	}
	for range race.Fewer(30000) {
		var pairs []string
		for range 1 + random.IntN(3) {
			p := names[random.IntN(len(names))]
			if random.IntN(8) > 0 {
				p += "=" + values[random.IntN(len(values))]
			}
			pairs = append(pairs, p)
		}
		for name, f := range finders {
			formAgrees(t, f, name, strings.Join(pairs, "&"))
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzFindJSON(f *testing.F) {
	for _, text := range vectors(f) {
		if len(text) < 1<<10 {
			f.Add(text)
			f.Add(fmt.Appendf(nil, `{"user":"alice","v":%s}`, text))
			f.Add(fmt.Appendf(nil, `{"v":{"user":%s}}`, text))
		}
	}
	user, nested := exact(f, "user"), exact(f, "v.user")
	f.Fuzz(func(t *testing.T, text []byte) {
		agrees(t, user, "user", text)
		agrees(t, nested, "v.user", text)
	})
}

func FuzzFindForm(f *testing.F) {
	for _, text := range []string{"user=alice&pw=x", "user=a%40b+c", "user=a&user=b", "User=a&user=b",
		"user[]=a&user=b", "us%65r=a", "a;user=b", "user=%", "user%00=a&user=b", "+user=a&user=b"} {
		f.Add(text)
	}
	finder := newFinder(f, body.Field{Name: "user", Format: body.Form, Spellings: body.Exact,
		MaxLength: body.MostLength})
	f.Fuzz(func(t *testing.T, text string) { formAgrees(t, finder, "user", text) })
}
