package config

import (
	"strings"
	"testing"
)

func TestDevelopersSettings(t *testing.T) {
	for path, good := range map[string]bool{
		"/.headgate": true, "/_/limits": true, "/a-b~c": true, "": true,
		"/": false, "headgate": false, "/a/": false, "//a": false, "/a/../b": false, "/.": false, "/..": false,
		"/a/./b": false,
		"/a b":   false, "/%2e": false, "/a?b": false, "/{x}": false, "/" + strings.Repeat("a", 64): false,
	} {
		c := Default()
		c.Upstream, c.Unknown, c.Developers.Path = "http://127.0.0.1:9", "limit", path
		if err := c.Complete(); (err == nil) != good ||
			err != nil && !strings.Contains(err.Error(), "developers.path is ") {
			t.Errorf("developers.path %q: %v", path, err)
		}
	}
	c := Default()
	c.Upstream, c.Unknown = "http://127.0.0.1:9", "limit"
	c.Developers.MaxRequests, c.Usage.MaxCallers = -1, 1_000_001
	err := c.Complete()
	if err == nil || !strings.Contains(err.Error(), `developers.max_requests is "-1", want 0 to 1000`) ||
		!strings.Contains(err.Error(), `usage.max_callers is "1000001", want 0 to 1000000`) {
		t.Errorf("Complete = %v, want both bounds", err)
	}
}
