package engine

import (
	"net/url"
	"strings"
)

// readTarget makes u what net/http makes of a target in origin form.
func readTarget(u *url.URL, target string) bool {
	path, query, asked := strings.Cut(target, "?")
	for i := range len(path) {
		if c := path[i]; is[c]&inName == 0 && strings.IndexByte("/._~$&+,:=@", c) < 0 {
			made, err := url.ParseRequestURI(target)
			if err != nil {
				return false
			}
			*u = *made
			return true
		}
	}
	*u = url.URL{Path: path, RawQuery: query, ForceQuery: asked && query == ""}
	return true
}
