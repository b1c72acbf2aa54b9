package endpoint_test

import (
	"regexp"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

func TestDisguised(t *testing.T) {
	for target, want := range map[string]bool{
		"/": false, "/v1/items/7": false, "/v1/items/7/": false, "/v1/items?x=//../%61": false, "": false, "*": false,
		"/a%20b": false, "/%C3%A9": false, "/%c3%a9": false, "/a%2Cb": false, "/%7Eann": false, "/~ann": false,
		"/.well-known/x": false, "/..a": false, "/a.": false, "/a..": false, "/.%C3%A9": false, "/a%2Fb": false,
		"/A": false, "/a;b": false, "/%": false, "/%4": false,
		"//": true, "//a": true, "/a//b": true, "/a//": true, "/./a": true, "/a/.": true, "/a/..": true,
		"/a/../b": true, "/%61": true, "/%2e%2e/a": true, "/.%2e/a": true, "/a%2Db": true, "/a?": false, "/..?": true,
	} {
		if got := endpoint.Disguised(target); got != want {
			t.Errorf("Disguised(%q) = %v, want %v", target, got, want)
		}
	}
}

var disguises = regexp.MustCompile(`(?i)^[^?]*(//|/\.\.?(/|\?|$)|%(3[0-9]|[46][1-9a-f]|[57][0-9a]|2[de]|5f))`)

// FuzzDisguised compares with what can be read in one line, and with the canonical form: what has one, and is not
// disguised, differs from it in escapes that are needed, or in a slash at the end.
func FuzzDisguised(f *testing.F) {
	for _, target := range []string{"/a//b", "/%61/..", "/a%2", "/.?//", "/x/./", "/%7e%5f"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		got := endpoint.Disguised(target)
		if want := disguises.MatchString(target); got != want {
			t.Errorf("Disguised(%q) = %v, want %v", target, got, want)
		}
		path, fault := endpoint.Profile{}.Canonical(target)
		if fault == endpoint.NoFault && endpoint.Disguised(path) {
			t.Errorf("the canonical form %q of %q is disguised", path, target)
		}
	})
}

func BenchmarkDisguised(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		endpoint.Disguised("/v1/customers/cus_4711/sources/src_42?limit=10")
	}
}
