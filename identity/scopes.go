package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Scopes are the endpoints at which an API key counts. The empty Scopes are
// all of them. Each scope is a line:
//
//	GET                      every endpoint with this method
//	/v1/items/{id}           every method of this template
//	GET /v1/items/{id}       this endpoint
//
// A scope names the template that a request was matched to, never its path,
// so no spelling of a target changes what a key is good for. Names of
// parameters do not matter.
type Scopes string

// Endpoint is the template that a request was matched to. Path holds the query
// parameters that the template names: /rpc?action=login.
type Endpoint struct{ Method, Path string }

// Bounds of Scopes.
const (
	maxScopes = 64
	maxScope  = 1024 // bytes
)

// ParseScopes returns the Scopes of a list, sorted and without doubles. The
// error names every scope that is none.
func ParseScopes(list []string) (Scopes, error) {
	var errs []error
	if len(list) > maxScopes {
		errs = append(errs, fmt.Errorf("there are %d scopes, want at most %d", len(list), maxScopes))
	}
	for i, scope := range list {
		if !isScope(scope) {
			errs = append(errs,
				fmt.Errorf(
					"scopes[%d] is %.80q, want a method, a template, or both: GET, /v1/items/{id}, GET "+
						"/v1/items/{id}", i, scope))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return Scopes(strings.Join(slices.Compact(list), "\n")), nil
}

func isScope(s string) bool {
	method, path := cutScope(s)
	switch {
	case len(s) > maxScope, strings.ContainsFunc(method,
		func(c rune) bool { return (c < 'A' || 'Z' < c) && c != '-' && c != '_' }):
		return false
	case path == "":
		return method != "" && s == method
	case method != "" && s != method+" "+path:
		return false
	}
	return !strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c >= 0x7f })
}

// cutScope cuts a scope into its method and its path; either may be empty.
func cutScope(s string) (method, path string) {
	if at := strings.IndexByte(s, '/'); at >= 0 {
		return strings.TrimSuffix(s[:at], " "), s[at:]
	}
	return s, ""
}

// List returns the scopes one by one; none for the empty Scopes.
func (s Scopes) List() []string {
	if s == "" {
		return nil
	}
	return strings.Split(string(s), "\n")
}

// Allow reports whether a key with these scopes counts at an endpoint. nil
// stands for no endpoint, where only keys without scopes count. It does not
// allocate.
func (s Scopes) Allow(at *Endpoint) bool {
	if s == "" {
		return true
	}
	if at == nil {
		return false
	}
	for rest, more := string(s), true; more; {
		var scope string
		scope, rest, more = strings.Cut(rest, "\n")
		method, path := cutScope(scope)
		if (method == "" || method == at.Method) && (path == "" || sameTemplate(path, at.Path)) {
			return true
		}
	}
	return false
}

// sameTemplate reports whether two templates differ in nothing but the names of
// parameters.
func sameTemplate(a, b string) bool {
	for {
		i, j := strings.IndexByte(a, '{'), strings.IndexByte(b, '{')
		if i < 0 || j < 0 {
			return a == b
		}
		if a[:i] != b[:j] {
			return false
		}
		var inA, inB string
		inA, a, _ = strings.Cut(a[i:], "}")
		inB, b, _ = strings.Cut(b[j:], "}")
		if strings.HasSuffix(inA, "...") != strings.HasSuffix(inB, "...") {
			return false
		}
	}
}

// MarshalJSON writes the scopes as a list.
func (s Scopes) MarshalJSON() ([]byte, error) {
	list := s.List()
	if list == nil {
		list = []string{}
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads a list, and refuses one that holds anything but scopes.
func (s *Scopes) UnmarshalJSON(data []byte) error {
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return errors.New("scopes are no list of texts")
	}
	scopes, err := ParseScopes(list)
	if err == nil {
		*s = scopes
	}
	return err
}
