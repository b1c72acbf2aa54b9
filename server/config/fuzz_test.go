package config

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Whatever a file holds, reading it ends in a Config or in an error whose
// lines name the file, and what is accepted survives being written down.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "upstream: http://127.0.0.1:9000\nopenapi: [api.yaml]\n", "listen: 127.0.0.1:8080\nlisten: x\n",
		"--- {}\n--- {}\n",
		"upstream: &a http://h\nadmin: *a\n", "a: &a [*a]\n",
		"max_bytes: 64MiB\nsettle: {header: X-Cost, timeout: 5m}\n",
		"trusted_proxies: [10.0.0.0/8, ::ffff:10.0.0.1]\nipv6_prefix: 64\n",
		"costs: {GET /a: 3}\nlog: {level: debug}\n", "refresh: 1e9h\n",
		"? [a, b]\n: c\n", "!!binary aGk=: x\n", "\xff\xfe", "listen: \"\\u0000\"\n",
	} {
		f.Add(text)
	}
	if docs, err := os.ReadFile("../../docs/settings.md"); err == nil {
		for _, block := range strings.Split(string(docs), "```yaml\n")[1:] {
			text, _, _ := strings.Cut(block, "```")
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, _, err := parse("file.yaml", []byte(text))
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "config file.yaml: ") {
					t.Errorf("parse(%q) = %q, want lines that name the file", text, err)
				}
			}
			return
		}
		complete := c
		if complete.Complete() != nil {
			return
		}
		written, err := yaml.Marshal(c)
		if err != nil {
			t.Fatalf("what was read of %q cannot be written: %v", text, err)
		}
		again, _, err := parse("file.yaml", written)
		if err != nil {
			t.Fatalf("what was read of %q is written as %q: %v", text, written, err)
		}
		if !reflect.DeepEqual(normal(c), normal(again)) {
			t.Errorf("what was read of %q is written as %q, and reads as %+v, want %+v", text, written, again, c)
		}
	})
}

// normal is c through YAML once more, where empty lists and absent ones are
// the same.
func normal(c Config) string {
	text, err := yaml.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
