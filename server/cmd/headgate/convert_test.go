package main

import (
	"strings"
	"testing"
)

// What reads them gives the configurations of envoyproxy/ratelimit their names as well.
func TestConvertReadsDescriptors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "limits.yaml",
		"domain: shop\ndescriptors:\n  - key: path\n    rate_limit: {unit: second, requests_per_unit: 5}\n")
	for _, name := range []string{"envoy", "ratelimit", "envoyproxy/ratelimit"} {
		out := must(t, dir, "convert", name, "limits.yaml")
		if !strings.Contains(out, "# 1 limit: read as they are") || !strings.Contains(out, "[limits.yaml]") {
			t.Errorf("convert %s says %q", name, out)
		}
	}
}
