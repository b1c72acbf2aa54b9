package descriptor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/descriptor"
)

func read(t testing.TB, paths ...string) *descriptor.Limits {
	t.Helper()
	l, err := descriptor.Read(paths...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// written reads a configuration that stands here.
func written(t testing.TB, text string) *descriptor.Limits {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return read(t, path)
}

// entries are written as key=value, or key.
func entries(text string) (all []descriptor.Entry) {
	for part := range strings.SplitSeq(text, " ") {
		key, value, _ := strings.Cut(part, "=")
		all = append(all, descriptor.Entry{Key: key, Value: value})
	}
	return all
}

// What envoyproxy/ratelimit's own tests say of its configurations.
func TestFind(t *testing.T) {
	basic, wild := read(t, "testdata/test-basic_config.yaml"), read(t, "testdata/test-wildcard.yaml")
	for _, c := range []struct {
		limits     *descriptor.Limits
		descriptor string
		want       string // the path of the limit; empty for none
	}{
		{basic, "key1=value1", ""},
		{basic, "key1=value1 subkey1=subvalue1", "test-domain/key1=value1/subkey1=subvalue1"},
		{basic, "key1=value1 subkey1=something", "test-domain/key1=value1/subkey1"},
		{basic, "key1=other subkey1=something", ""},
		{basic, "key1=value1 subkey1=something more=x", ""}, // deeper than the limit
		{basic, "subkey1=subvalue1", ""},
		{basic, "key2=value2", "test-domain/key2=value2"},
		{basic, "key2=value3", ""}, // set apart, so unlimited
		{basic, "key2=other", "test-domain/key2"},
		{basic, "key2", "test-domain/key2"},
		{basic, "key5=value5", "test-domain/key5=value5"},
		{basic, "key5=value5 subkey5=subvalue5", "test-domain/key5=value5/subkey5=subvalue5"},
		{basic, "key6=any", "test-domain/key6"},
		{basic, "nothing=x", ""},
		{wild, "wild=foo", "test-domain/wild=foo*"},
		{wild, "wild=foobar", "test-domain/wild=foo*"},
		{wild, "wild=fo", ""},
		{wild, "noWild=foobar", ""},
		{wild, "midWild=barab", "test-domain/midWild=bar*b"},
		{wild, "midWild=bar", ""},
		{wild, "midWild=bara", ""},
		{wild, "multiWild=foo1bar2baz", "test-domain/multiWild=foo*bar*baz"},
		{wild, "multiWild=foobaz", ""},
		{wild, "multiWild=foobarbarbaz", "test-domain/multiWild=foo*bar*baz"},
		{wild, "nestedWild=val1 wild=goober", "test-domain/nestedWild=val1/wild=goo*"},
	} {
		got := ""
		if l := c.limits.Find("test-domain", entries(c.descriptor)); l != nil {
			got = l.Path
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.descriptor, got, c.want)
		}
	}
	if basic.Find("other", entries("key2=value2")) != nil || basic.Find("test-domain", nil) != nil {
		t.Error("a domain that is not there, or no entry, has a limit")
	}
	l := basic.Find("test-domain", entries("key4=x"))
	if l.Name != "key4_rate_limit" || l.Unit != descriptor.Day || l.Requests != 1 || l.Shape.Burst() != 1 ||
		l.Shape.TimeToFull(l.Shape.Unit) != 24*time.Hour {
		t.Errorf("key4: %+v", l)
	}
	if l := basic.Find("test-domain", entries("key6=x")); !l.Unlimited || (l.Shape != rate.Shape{}) {
		t.Errorf("key6: %+v, want unlimited", l)
	}
}

// Configurations that run elsewhere are read, but for the one inside another document.
func TestReadWhatOthersRun(t *testing.T) {
	files, err := filepath.Glob("testdata/e*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if l, err := descriptor.Read(file); err != nil || len(l.All()) == 0 {
			t.Errorf("%s: %v, want limits", file, err)
		}
	}
	if l := read(t, "testdata/test-merge_domain_key1.yaml",
		"testdata/envoygateway-multiple-domains.yaml"); l.Find("test-domain", entries("key1=value1")) == nil {
		t.Error("of several files the first is not in force")
	}
}

func TestReadNamesEveryFault(t *testing.T) {
	for file, want := range map[string]string{
		"bad_limit_unit.yaml":   `:6: unit is "foo", want second, minute, hour, day, week, month or year`,
		"bad_yaml.yaml":         `: line 2: found unexpected end of stream`,
		"duplicate_key.yaml":    `:6: key is "key1" with the value "value1", as at testdata/test-duplicate_key.yaml:3, want each once`,
		"empty_domain.yaml":     `:1: domain is missing, want the one that Envoy's filter names`,
		"empty_key.yaml":        `:3: key is missing, want the one of an entry that Envoy sends`,
		"misspelled_key.yaml":   `:5: "ratelimit" is no field of a descriptor, want one of key, value, rate_limit, descriptors, shadow_mode, quota_mode, detailed_metric, value_to_metric, share_threshold, metadata`,
		"misspelled_key2.yaml":  `:7: "requestsperunit" is no field of a rate_limit, want one of name, replaces, unit, requests_per_unit, unlimited`,
		"non_map_list.yaml":     `:3: a descriptor is "a", want a mapping`,
		"non_string_key.yaml":   `:1: "0.25" is no field of a domain, want one of name, domain, descriptors`,
		"replaces_empty.yaml":   `:10: name is "", want that of another limit`,
		"duplicate_domain.yaml": ``,
	} {
		_, err := descriptor.Read("testdata/test-" + file)
		if want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), "testdata/test-"+file+want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	_, err := descriptor.Read("testdata/test-basic_config.yaml", "testdata/test-duplicate_domain.yaml",
		"testdata/none.yaml")
	if err == nil || !strings.Contains(err.Error(),
		`test-duplicate_domain.yaml:1: domain is "test-domain", which stands at testdata/test-basic_config.yaml:2 too, want each once`) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("Read = %v, want both faults", err)
	}
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	for _, text := range []string{"", "\n", "# nothing yet\n"} {
		if err := os.WriteFile(empty, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := descriptor.Read(empty); err == nil ||
			!strings.HasSuffix(err.Error(), "empty.yaml is empty, want a domain") {
			t.Errorf("%q: %v, want that it is empty", text, err)
		}
	}
	for text, want := range map[string]string{
		"a: {unit: day, requests_per_unit: -1}":                  `requests_per_unit is "-1", want 0 to 4294967295`,
		"a: {unit: day}":                                         `requests_per_unit is "", want 0 to`,
		"a: {unit: day, unlimited: true}":                        `unit is "day" beside unlimited, want one of both`,
		"a: {unit: day, requests_per_unit: 1, unlimited: maybe}": `there is "maybe", want true or false`,
		"a: []": `a rate_limit is a list, want a mapping`,
	} {
		path := filepath.Join(t.TempDir(), "x.yaml")
		if err := os.WriteFile(path, []byte("domain: d\ndescriptors:\n- key: k\n  rate_limit: "+strings.TrimPrefix(text,
			"a: ")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := descriptor.Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestReadFolder(t *testing.T) {
	dir := t.TempDir()
	if _, err := descriptor.Read(dir); err == nil || !strings.Contains(err.Error(), "has no .yaml file") {
		t.Errorf("an empty folder: %v", err)
	}
	for name, domain := range map[string]string{"a.yaml": "a", "b.yml": "b", "c.txt": "c", ".hidden.yaml": "d"} {
		if err := os.WriteFile(filepath.Join(dir, name),
			[]byte("domain: "+domain+"\ndescriptors: [{key: k, rate_limit: {unit: SECOND, requests_per_unit: 1}}]\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(read(t, dir).All()); got != 2 {
		t.Errorf("%d limits, want those of a.yaml and b.yml", got)
	}
}

// Two descriptors share a counter where the configuration says so, and nowhere else.
func TestSubject(t *testing.T) {
	l := written(t, `
domain: d
descriptors:
- {key: ip, rate_limit: {unit: second, requests_per_unit: 1}}
- {key: path, value: /a/*, rate_limit: {unit: second, requests_per_unit: 1}}
- {key: path, value: /b/*, share_threshold: true, rate_limit: {unit: second, requests_per_unit: 1}, descriptors: [{key: ip, rate_limit: {unit: second, requests_per_unit: 1}}]}
`)
	subject := func(text string) string {
		e := entries(text)
		return string(l.Find("d", e).Subject(nil, e))
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"ip=1", "ip=2", false}, {"ip=1", "ip=1", true}, {"path=/a/1", "path=/a/2", false},
		{"path=/b/1", "path=/b/2", true},
		{"path=/b/1 ip=1", "path=/b/2 ip=1", true}, {"path=/b/1 ip=1", "path=/b/1 ip=2", false},
		{"path=/b/1", "path=/b/*", true}, {"path=/a/1", "path=/a/*", false},
	} {
		if got := subject(c.a) == subject(c.b); got != c.same {
			t.Errorf("%s and %s share a counter: %v, want %v", c.a, c.b, got, c.same)
		}
	}
}

// A limit whose numbers change takes effect then, and remembers what was before.
func TestFollow(t *testing.T) {
	config := func(a, b int) *descriptor.Limits {
		text := "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: " +
			string(rune('0'+a)) + "}}\n- {key: b, rate_limit: {unit: hour, requests_per_unit: " +
			string(rune('0'+b)) + "}}\n"
		return written(t, text)
	}
	first, second := config(5, 5), config(5, 2)
	settled, changed := second.Follow(first, 1000)
	a, b := second.Find("d", entries("a=x")), second.Find("d", entries("b=x"))
	if !changed || a.Since != 0 || a.Before != nil || b.Since != 1000 || b.Before == nil ||
		b.Before.Shape != first.Find("d", entries("b=x")).Shape {
		t.Errorf("after a change: %v, %+v, %+v", changed, a, b)
	}
	if least := int64(time.Hour); settled < 1000+least || settled > 1000+2*least+int64(time.Minute) {
		t.Errorf("settled at %v, want about an hour or two later", time.Duration(settled))
	}
	third := config(5, 2)
	if _, changed := third.Follow(second, 2000); changed || third.Find("d", entries("b=x")).Since != 1000 {
		t.Error("a configuration that is read anew and says the same changes something")
	}
}

// FuzzRead: a configuration is read, or refused in words.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := descriptor.Read(path)
		if err != nil {
			return
		}
		for _, limit := range l.All() {
			if !limit.Unlimited && !limit.Nothing && limit.Shape.Burst() != int64(limit.Requests) {
				t.Fatalf("%s: holds %d, want %d", limit.Path, limit.Shape.Burst(), limit.Requests)
			}
		}
	})
}

// A domain that stands in several files has the descriptors of all, where that is asked for.
func TestReadMerged(t *testing.T) {
	files := []string{"testdata/test-merge_domain_key1.yaml", "testdata/test-merge_domain_key2.yaml",
		"testdata/envoygateway-multiple-domains.yaml"}
	if _, err := descriptor.Read(files...); err == nil || !strings.Contains(err.Error(),
		`domain is "test-domain", which stands at testdata/test-merge_domain_key1.yaml:2 too`) {
		t.Errorf("Read = %v, want that the domain stands there twice", err)
	}
	limits, err := descriptor.ReadMerged(files...)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"key1=value1", "key2=value2"} {
		if limits.Find("test-domain", entries(text)) == nil {
			t.Errorf("%s has no limit", text)
		}
	}
	_, err = descriptor.ReadMerged(files[0], "testdata/test-basic_config.yaml", files[0])
	if err == nil || !strings.Contains(err.Error(),
		`key is "key1" with the value "value1", as at testdata/test-merge_domain_key1.yaml:5, want each once`) {
		t.Errorf("ReadMerged of a file twice = %v, want where each stands", err)
	}
}

func TestMetadata(t *testing.T) {
	l := written(t, "domain: d\ndescriptors:\n- {key: a, metadata: {name: x, n: 7, big: 18446744073709551615, f: "+
		"0.5, on: true, none: null, list: [a, {b: c}]}, rate_limit: {unit: day, requests_per_unit: 1}}\n")
	if got := fmt.Sprint(l.Find("d", entries("a")).Metadata); got !=
		"map[big:1.8446744073709552e+19 f:0.5 list:[a map[b:c]] n:7 name:x none:<nil> on:true]" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		"[a]":                   "metadata is a list, want a mapping",
		"x":                     `metadata is "x", want a mapping`,
		"{a: .nan}":             "metadata has a value that is neither",
		"{a: 2026-01-02}":       "metadata has a value that is neither",
		"{a: {1: b}}":           "metadata has a value that is neither",
		"{a: !!binary gICA}":    "metadata has a value that is neither",
		"{a: [b, {c: [.inf]}]}": "metadata has a value that is neither",
	} {
		path := filepath.Join(t.TempDir(), "x.yaml")
		if err := os.WriteFile(path, []byte("domain: d\ndescriptors:\n- {key: a, metadata: "+text+
			", rate_limit: {unit: day, requests_per_unit: 1}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := descriptor.Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
