package endpoint_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/race"
)

func TestCanonical(t *testing.T) {
	strict := endpoint.Profile{}
	decode := endpoint.Profile{EncodedSlash: endpoint.DecodeEncodedSlash}
	keep := endpoint.Profile{Params: endpoint.KeepParams}
	fold := endpoint.Profile{CaseInsensitive: true}
	double := endpoint.Profile{AllowDoubleEncoding: true}
	inside := endpoint.Profile{EncodedSlash: endpoint.KeepEncodedSlash}
	strip := endpoint.Profile{Params: endpoint.StripParams}
	stripAndDecode := endpoint.Profile{Params: endpoint.StripParams, EncodedSlash: endpoint.DecodeEncodedSlash}
	stripAndKeep := endpoint.Profile{Params: endpoint.StripParams, EncodedSlash: endpoint.KeepEncodedSlash}
	stripNoEmpty := endpoint.Profile{Params: endpoint.StripParams, Refuse: endpoint.RefuseRepeatedSlashes}
	stripNoDots := endpoint.Profile{Params: endpoint.StripParams, Refuse: endpoint.RefuseDotSegments}
	noEmpty := endpoint.Profile{Refuse: endpoint.RefuseRepeatedSlashes}
	noSlash := endpoint.Profile{Refuse: endpoint.RefuseTrailingSlash}
	noDots := endpoint.Profile{Refuse: endpoint.RefuseDotSegments}
	needed := endpoint.Profile{Refuse: endpoint.RefuseUnreservedEscapes}
	utf := endpoint.Profile{Refuse: endpoint.RefuseBadUTF8}
	tests := []struct {
		profile endpoint.Profile
		target  string
		path    string
		fault   endpoint.Fault
	}{
		// 1. The target starts with / and holds only what a request line can carry.
		{strict, "/", "/", 0},
		{strict, "/v1/items", "/v1/items", 0},
		{strict, "", "", endpoint.NotAbsolute},
		{strict, "*", "", endpoint.NotAbsolute},
		{strict, "v1/items", "", endpoint.NotAbsolute},
		{strict, "http://example.com/v1", "", endpoint.NotAbsolute},
		{strict, "%2fv1", "", endpoint.NotAbsolute},
		{strict, "/a b", "", endpoint.RawByte},
		{strict, "/a\tb", "", endpoint.RawByte},
		{strict, "/a\x00", "", endpoint.RawByte},
		{strict, "/a\x7f", "", endpoint.RawByte},
		{strict, "/a#b", "", endpoint.RawByte},
		{strict, "/caf\u00e9", "", endpoint.RawByte},
		{strict, "/a\xff", "", endpoint.RawByte},
		{strict, "/a?q=\u00e9", "", endpoint.RawByte},
		{strict, "/a?q#b", "", endpoint.RawByte},
		{strict, "/%zz?q#b", "", endpoint.RawByte},

		// 2. The path ends at the first ?.
		{strict, "/a?b=/../c", "/a", 0},
		{strict, "/a??%zz", "/a", 0},
		{strict, "/?", "/", 0},
		{strict, "/a/?x", "/a", 0},
		{strict, "/a%3Fb", "/a%3Fb", 0},
		{strict, "/a%3fb?c", "/a%3Fb", 0},

		// 3. Escapes are well formed and stand for no control byte.
		{strict, "/a%", "", endpoint.BadEscape},
		{strict, "/a%4", "", endpoint.BadEscape},
		{strict, "/a%4?1", "", endpoint.BadEscape},
		{strict, "/a%4g", "", endpoint.BadEscape},
		{strict, "/%u002e%u002e/a", "", endpoint.BadEscape},
		{strict, "/a%00", "", endpoint.ControlByte},
		{strict, "/a%0d%0ab", "", endpoint.ControlByte},
		{strict, "/a%1F", "", endpoint.ControlByte},
		{strict, "/a%7f", "", endpoint.ControlByte},
		{strip, "/a;b=%zz", "", endpoint.BadEscape},
		{strip, "/a;b=%00", "", endpoint.ControlByte},

		// 4. One decode; what cannot stand for itself stays escaped, in upper case.
		{strict, "/%61%2Db%5f%7E", "/a-b_~", 0},
		{strict, "/%21%24%26%27%28%29%2A%2B%2C%3D%3A%40", "/!$&'()*+,=:@", 0},
		{strict, "/%22%3C%3E%5B%5D%5E%60%7C", "/\"<>[]^`|", 0},
		{strict, "/a%20b", "/a%20b", 0},
		{strict, "/a%23b", "/a%23b", 0},
		{strict, "/caf%c3%a9", "/caf%C3%A9", 0},
		{strict, "/%c0%af", "/%C0%AF", 0},
		{strict, "/a{b}", "/a%7Bb%7D", 0},
		{strict, "/a%7bb%7d", "/a%7Bb%7D", 0},
		{strict, "/a%2fb", "", endpoint.EscapedSlash},
		{strict, "/a%5Cb", "", endpoint.EscapedSlash},
		{strict, `/a\b`, "", endpoint.Backslash},
		{strict, `/a\%zz`, "", endpoint.Backslash},
		{decode, "/a%2Fb", "/a/b", 0},
		{decode, "/a%2f%2f/b%2f", "/a/b", 0},
		{decode, "/x%2f..%2fadmin", "", endpoint.DotsAndSlash},
		{decode, "/public/a%2fb/../../v1/admin", "", endpoint.DotsAndSlash},
		{decode, "/a%2Fb/%2e/c", "", endpoint.DotsAndSlash},
		{decode, "/a/../b", "/b", 0},
		{decode, "/a%5Cb", "", endpoint.Backslash},
		{stripAndDecode, "/a;v%2Fb", "", endpoint.EscapedSlash},
		{stripAndDecode, "/public/a;x%2fb/../../v1/admin", "", endpoint.EscapedSlash},

		// 5. and 6. Slashes merge, dot segments go.
		{strict, "//a///b//", "/a/b", 0},
		{strict, "/a/./b/.", "/a/b", 0},
		{strict, "/a/b/../c", "/a/c", 0},
		{strict, "/a//b/../c", "/a/c", 0},
		{strict, "/a/b/..", "/a", 0},
		{strict, "/a/..", "/", 0},
		{strict, "/../../a", "/a", 0},
		{strict, "/a/../../../b", "/b", 0},
		{strict, "/%2e%2E/a/%2e/b/.%2e/c", "/a/c", 0},
		{strict, "/.../..a/.b/c./d..", "/.../..a/.b/c./d..", 0},
		{strict, "/.well-known/x", "/.well-known/x", 0},
		{strict, "/.?x", "/", 0},
		{strict, "/..?x", "/", 0},
		{strict, "//../a", "/a", 0},
		{strip, "/;x/../a", "/a", 0},
		{strict, "/a//../b", "", endpoint.AmbiguousDots},
		{strict, "/a//b/../../c", "", endpoint.AmbiguousDots},
		{strict, "/a//b/c/../../d", "/a/d", 0},
		{strict, "/a/./../b", "/b", 0},
		{strip, "/a/;x/../b", "", endpoint.AmbiguousDots},
		{keep, "/a/;x/../b", "", endpoint.AmbiguousDots},
		{keep, "/;x/../b", "/b", 0},

		// 7. Parameters.
		{strip, "/a;v=1", "/a", 0},
		{strip, "/a;v=1;w=2/b;x?q", "/a/b", 0},
		{strip, "/a%3bv=1", "", endpoint.EscapedParams},
		{strip, "/a;v=%3bw", "/a", 0},
		{strict, "/a;v=1", "", endpoint.Parameters},
		{strict, "/a/%3Bv", "", endpoint.Parameters},
		{strip, "/a;v=1%2f", "", endpoint.EscapedSlash},
		{strip, "/a/;x", "/a", 0},
		{strip, "/a/..;/b", "", endpoint.DotParams},
		{strip, "/a/.;x/b", "", endpoint.DotParams},
		{strip, "/a/%2e%2e%3bx/b", "", endpoint.EscapedParams},
		{strip, "/a/...;/b", "/a/.../b", 0},
		{strip, "/..;", "", endpoint.DotParams},
		{keep, "/a;v=1/b", "/a;v=1/b", 0},
		{keep, "/a%3Bv=%31/b", "/a;v=1/b", 0},
		{keep, "/a/;x/b", "/a/;x/b", 0},
		{keep, "/a/..;/b", "", endpoint.DotParams},

		// 8. and 9. Trailing slash and case.
		{strict, "/a/", "/a", 0},
		{strict, "/A/b", "/A/b", 0},
		{fold, "/A/bC%44%c3", "/a/bcd%C3", 0},
		{fold, "/a/b", "/a/b", 0},

		// 10. An escape that is left.
		{strict, "/%2561", "", endpoint.DoubleEncoded},
		{strict, "/%25%36%31", "", endpoint.DoubleEncoded},
		{strict, "/%252", "/%252", 0},
		{strict, "/%25zz", "/%25zz", 0},
		{strict, "/%25%2561", "", endpoint.DoubleEncoded},
		{strict, "/%252%zz", "", endpoint.BadEscape},
		{strict, "/100%25", "/100%25", 0},
		{strip, "/a;%2561", "", endpoint.DoubleEncoded},
		{double, "/%2561", "/%2561", 0},
		{double, "/%25%36%31", "/%2561", 0},
		{double, "/x%252f..", "/x%252f..", 0},

		// An encoded slash within a segment, as in GitLab's projects and npm's packages.
		{inside, "/projects/group%2fname/issues", "/projects/group%2Fname/issues", 0},
		{inside, "/%40scope%2Fname", "/@scope%2Fname", 0},
		{inside, "/a%2F%2Fb", "", endpoint.EscapedDots},
		{inside, "/%2F", "", endpoint.EscapedDots},
		{stripAndKeep, "/a%2F;v/b", "", endpoint.EscapedDots},
		{inside, "/a%2Fb%2fc", "/a%2Fb%2Fc", 0},
		{inside, "/a%5Cb", "", endpoint.Backslash},
		{inside, "/x%2f..%2fadmin", "", endpoint.EscapedDots},
		{inside, "/x%2F.", "", endpoint.EscapedDots},
		{inside, "/..%2Fadmin", "", endpoint.EscapedDots},
		{stripAndKeep, "/x%2F%2e%2e;v/y", "", endpoint.EscapedDots},
		{stripAndKeep, "/a;v=..%2Fx", "", endpoint.EscapedSlash},
		{stripAndKeep, "/;v%2Fx", "", endpoint.EscapedSlash},
		{stripAndKeep, "/a;v=x%2F..", "", endpoint.EscapedSlash},
		{inside, "/x%2F.../y", "/x%2F.../y", 0},
		{inside, "/a%2Fb/../c", "/c", 0},

		// Refusals beyond the default.
		{strict, "/a;v=1", "", endpoint.Parameters},
		{strict, "/a%3Bv=1", "", endpoint.Parameters},
		{strict, "/a/..;/b", "", endpoint.Parameters},
		{noEmpty, "/a//b", "", endpoint.RepeatedSlash},
		{noEmpty, "//a", "", endpoint.RepeatedSlash},
		{noEmpty, "//", "", endpoint.RepeatedSlash},
		{noEmpty, "/a//", "", endpoint.RepeatedSlash},
		{stripNoEmpty, "/a/;x", "", endpoint.RepeatedSlash},
		{noEmpty, "/a/", "/a", 0},
		{noEmpty, "/", "/", 0},
		{noEmpty, "/a?b=//", "/a", 0},
		{noSlash, "/a/", "", endpoint.TrailingSlash},
		{noSlash, "/a/?b", "", endpoint.TrailingSlash},
		{noSlash, "/a//", "", endpoint.TrailingSlash},
		{noSlash, "/a/.", "", endpoint.TrailingSlash},
		{noSlash, "/a/b/..", "", endpoint.TrailingSlash},
		{noSlash, "/", "/", 0},
		{noSlash, "/a/..", "/", 0},
		{noSlash, "/a?/", "/a", 0},
		{inside, "/a%2Fb/{x}", "", endpoint.EscapedSlash},
		{inside, "/a%2Fb/%7Bx%7D", "/a%2Fb/%7Bx%7D", 0},
		{noDots, "/a/./b", "", endpoint.DotSegment},
		{noDots, "/a/%2e%2e/b", "", endpoint.DotSegment},
		{stripNoDots, "/a/..;/b", "", endpoint.DotParams},
		{noDots, "/a/...", "/a/...", 0},
		{needed, "/%61dmin", "", endpoint.NeedlessEscape},
		{needed, "/a%2Eb", "", endpoint.NeedlessEscape},
		{needed, "/a%7eb", "", endpoint.NeedlessEscape},
		{needed, "/a%20b%40c%C3%A9", "/a%20b@c%C3%A9", 0},
		{utf, "/caf%C3%A9", "/caf%C3%A9", 0},
		{utf, "/%F0%9F%8D%A9", "/%F0%9F%8D%A9", 0},
		{utf, "/%EF%BF%BD", "/%EF%BF%BD", 0},
		{utf, "/..%c0%afadmin", "", endpoint.BadUTF8},
		{utf, "/%C3/%A9", "", endpoint.BadUTF8},
		{utf, "/a%ff", "", endpoint.BadUTF8},
		{utf, "/%ED%A0%80", "", endpoint.BadUTF8},
	}
	for _, tt := range tests {
		path, fault := tt.profile.Canonical(tt.target)
		if path != tt.path || fault != tt.fault {
			t.Errorf("%+v.Canonical(%q) = %q, %v, want %q, %v", tt.profile, tt.target, path, fault, tt.path, tt.fault)
		}
		checkCanonical(t, tt.profile, tt.target)
	}
}

func TestAppendCanonicalKeepsWhatIsThere(t *testing.T) {
	for target, want := range map[string]string{
		"/%61//b": "key:/a/b",
		"/..":     "key:/",
		"/%zz":    "key:",
		"x":       "key:",
		"/a b":    "key:",
	} {
		if got, _ := (endpoint.Profile{}).AppendCanonical([]byte("key:"), target); string(got) != want {
			t.Errorf("AppendCanonical(%q, %q) = %q, want %q", "key:", target, got, want)
		}
	}
}

func TestFaultsSpeak(t *testing.T) {
	seen := make(map[string]bool)
	for f := endpoint.NoFault; f <= endpoint.AmbiguousQuery; f++ {
		if text := f.String(); text == "is invalid" || seen[text] {
			t.Errorf("Fault(%d).String() = %q, want a text of its own", f, text)
		} else {
			seen[text] = true
		}
	}
	if got := endpoint.Fault(200).String(); got != "is invalid" {
		t.Errorf("Fault(200).String() = %q, want %q", got, "is invalid")
	}
}

// profiles are the 36 that say how to read, with the 32 ways to refuse more beside some of them.
func profiles() (all []endpoint.Profile) {
	for i := range 36 {
		all = append(all, endpoint.Profile{
			EncodedSlash:        endpoint.EncodedSlash(i % 3),
			Params:              endpoint.Params(i / 3 % 3),
			CaseInsensitive:     i/9&1 != 0,
			AllowDoubleEncoding: i/18&1 != 0,
		})
	}
	for i := range 32 {
		p := all[i*7%36]
		p.Refuse = endpoint.Refusal(i)
		all = append(all, p)
	}
	return all
}

// checkCanonical checks what must hold for every target.
func checkCanonical(t *testing.T, p endpoint.Profile, target string) {
	t.Helper()
	path, fault := p.Canonical(target)
	if slow, slowFault := slowCanonical(p, target); path != slow || (fault == 0) != (slowFault == "") {
		t.Fatalf("%+v.Canonical(%q) = %q, %v, want %q, %q", p, target, path, fault, slow, slowFault)
	}
	appended, appendedFault := p.AppendCanonical(nil, target)
	if string(appended) != path || appendedFault != fault {
		t.Fatalf("%+v: AppendCanonical(%q) = %q, %v, but Canonical says %q, %v", p, target, appended,
			appendedFault, path, fault)
	}
	if fault != endpoint.NoFault {
		return
	}
	// Beside a kept slash these bytes have to be escaped in a target, and are not in its canonical form.
	respelled := p.EncodedSlash == endpoint.KeepEncodedSlash && strings.Contains(path, "%2F") &&
		strings.ContainsAny(path, "\"<>^`{|}")
	if again, fault := p.Canonical(path); !respelled && (again != path || fault != 0) {
		t.Fatalf("%+v.Canonical(%q) = %q, but Canonical of that = %q, %v", p, target, path, again, fault)
	}
	if len(path) > len(target)+2*strings.Count(target, "{")+2*strings.Count(target, "}") {
		t.Fatalf("%+v.Canonical(%q) = %q, which is longer", p, target, path)
	}
	if template, err := endpoint.ParseTemplate("GET " + path); err == nil && template.Path() != path {
		t.Fatalf("%+v.Canonical(%q) = %q, which is read as template %q", p, target, path, template)
	}
}

func TestCanonicalIsEqualForEveryEncoding(t *testing.T) {
	const path = "/v1/items-7/A.b_c~d/x"
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var spelled strings.Builder
		for _, c := range path {
			switch n := random.IntN(3); {
			case c == '/':
				spelled.WriteString(strings.Repeat("/", 1+n))
				spelled.WriteString([]string{"", "./", "%2e//"}[random.IntN(3)])
			case n == 0:
				fmt.Fprintf(&spelled, "%%%02x", c)
			case n == 1:
				fmt.Fprintf(&spelled, "%%%02X", c)
			default:
				spelled.WriteRune(c)
			}
		}
		spelled.WriteString([]string{"", "/", "?x=1", "?x=1;v=2"}[random.IntN(4)])
		if got, fault := (endpoint.Profile{}).Canonical(spelled.String()); got != path {
			t.Fatalf("Canonical(%q) = %q, %v, want %q", spelled.String(), got, fault, path)
		}
	}
}

// TestCanonicalOfRandomTargets strings fragments together that mean something to the profile.
func TestCanonicalOfRandomTargets(t *testing.T) {
	fragments := []string{"/", "/", "/", ".", "..", "a", "B", ";", "%2e", "%2F", "%5c", "%25", "%3b", "%3f", "?", "%6",
		"1", "\\", "{", "%c3", "#", "%0a", "~"}
	random := rand.New(rand.NewPCG(3, 4))
	for range race.Fewer(5000) {
		target := "/"
		for range random.IntN(12) {
			target += fragments[random.IntN(len(fragments))]
		}
		for _, p := range profiles() {
			checkCanonical(t, p, target)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, target := range []string{"/", "/a//b/../c%2fd;e?f", "/%252e%2e/x", "/%u002e", `/\`, "/a/..;/b", "*",
		"/caf%C3%A9/{x}", "/.%2e/%3b/.."} {
		f.Add(target, uint8(0))
	}
	f.Add("/0%2F%3C", uint8(17))
	for _, targets := range vectors(f) {
		for i, target := range targets {
			f.Add(target, uint8(i))
		}
	}
	all := profiles()
	f.Fuzz(func(t *testing.T, target string, profile uint8) {
		checkCanonical(t, all[int(profile)%len(all)], target)
	})
}

func TestCanonicalAllocatesNothing(t *testing.T) {
	targets := map[string]string{
		"clean":                    "/v1/customers/cus_123/sources",
		"query":                    "/v1/customers?limit=3&starting_after=x",
		"trailing slash":           "/v1/customers/",
		"canonical escapes":        "/v1/caf%C3%A9/x%20y",
		"parameters at the end":    "/v1/customers;v=1",
		"dots at the end":          "/v1/customers/./",
		"invalid":                  "/v1/%zz",
		"clean, beyond the buffer": "/" + strings.Repeat("segment/", 200),
	}
	for name, target := range targets {
		if n := testing.AllocsPerRun(100, func() { _, _ = endpoint.Profile{}.Canonical(target) }); n != 0 {
			t.Errorf("%s: Canonical(%q) allocates %v times, want 0", name, target, n)
		}
	}
}

func ExampleProfile_Canonical() {
	for _, target := range []string{"/v1/items/7", "/v1//x/../items/%37/?full=1", "/v1/items%2F7"} {
		path, fault := endpoint.Profile{}.Canonical(target)
		if fault != endpoint.NoFault {
			fmt.Printf("the request target %v\n", fault)
			continue
		}
		fmt.Println(path)
	}
	// Output:
	// /v1/items/7
	// /v1/items/7
	// the request target holds an encoded / or \
}

func BenchmarkCanonicalClean(b *testing.B) {
	const target = "/v1/customers/cus_1234567890/sources/ab1" // 40 bytes
	b.ReportAllocs()
	for b.Loop() {
		_, _ = endpoint.Profile{}.Canonical(target)
	}
}

func BenchmarkCanonicalCleanQuery(b *testing.B) {
	const target = "/v1/customers/cus_1234567890/sources/ab1?limit=100&starting_after=src_12345678901234"
	b.ReportAllocs()
	for b.Loop() {
		_, _ = endpoint.Profile{}.Canonical(target)
	}
}

func BenchmarkCanonicalDirty(b *testing.B) {
	const target = "/v1//x/../customers/%63us_1234567890/sources/"
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = endpoint.Profile{}.AppendCanonical(buf, target)
	}
}
