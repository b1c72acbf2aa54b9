package envoy_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/envoy"
)

// The integration cases of envoyproxy/ratelimit, as facts: what its configurations answer to which questions, by
// test/integration/integration_test.go and integration-test/scripts at the commit that
// ../descriptor/testdata/ORIGIN.md names (Apache-2.0). Where this service answers otherwise the step says why.
//
// Not here, as there is nothing that they could ask: its Redis by TLS, with a password, in a cluster and behind
// Sentinel (bucket/redis has tests of its own), memcached, its local cache, and its metrics by StatsD.
func TestCasesOfEnvoyproxyRatelimit(t *testing.T) {
	const debt = "a request that is refused costs nothing"
	type step struct {
		after       time.Duration
		domain      string
		descriptors []string // separated by commas
		want        string   // a rest that the other one tells too, and a wait that is of a bucket
		theirs      string   // what it answers, where that differs: without waits, which are of its windows
		why         string
	}
	ask := func(domain, descriptors, want string) step {
		return step{domain: domain, descriptors: strings.Split(descriptors, ","), want: want}
	}
	differs := func(s step, theirs, why string) step {
		s.theirs, s.why = theirs, why
		return s
	}
	later := func(s step, after time.Duration) step { s.after = after; return s }
	times := func(n int, s step) []step { return slices.Repeat([]step{s}, n) }
	var a, b, shared, apart []step
	for left := 19; left >= 0; left-- {
		a = append(a, ask("another", "key2=7", fmt.Sprint("ok: ok ", left)))
	}
	a = append(a, times(5, ask("another", "key2=7", "over: over 0 in 3s; retry-after 3"))...)
	for i, left := range []string{"9", "8", "7", "6", "5", "4", "3", "2", "1", "0"} {
		b = append(b, ask("another", "key2=7,key3=7", "ok: ok 1"+left+", ok "+left))
		shared = append(shared, ask("share-threshold-test", "files=files/a.pdf", "ok: ok "+left))
		one := "files_no_share=files_no_share/" + string(rune('a'+i))
		apart = append(apart, ask("share-threshold-test", one, "ok: ok 9"))
	}
	for _, left := range []string{"9", "8", "7", "6", "5"} {
		b = append(b, differs(ask("another", "key2=7,key3=7", "over: ok 10, over 0 in 6m0s; retry-after 360"),
			"over: ok "+left+", over 0", debt+", as there with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"))
	}
	shared = append(shared, ask("share-threshold-test", "files=files/b.csv", "over: over 0 in 6m0s; retry-after 360"))
	quota := func(want string) step { return ask("rl", "service=service_1,service=service_2", want) }
	for name, steps := range map[string][]step{
		"a domain that there is not": {ask("foo", "hello=world", "ok: ok -")},
		"a limit of a second":        {ask("basic", "key1=foo", "ok: ok 49")},
		"a limit of a minute":        a,
		"two limits":                 b,
		"a threshold that is shared": shared,
		"one that is not":            apart,
		"over the limit": {ask("rl", "foo=pelle baz=not-so-shady", "ok: ok 2"),
			ask("rl", "foo=pelle baz=not-so-shady", "ok: ok 1"), ask("rl", "foo=pelle baz=not-so-shady", "ok: ok 0"),
			ask("rl", "foo=pelle baz=not-so-shady", "over: over 0 in 20s; retry-after 20")},
		"shadow mode": {ask("rl", "foo=pelle baz=shady", "ok: ok 2"), ask("rl", "foo=pelle baz=shady", "ok: ok 1"),
			ask("rl", "foo=pelle baz=shady", "ok: ok 0"), ask("rl", "foo=pelle baz=shady", "ok: ok 0"),
			ask("rl", "foo=pelle baz=shady", "ok: ok 0")},
		"unlimited": {ask("rl", "qux=a", "ok: ok unlimited"), ask("rl", "foo=a bay=b", "ok: ok unlimited")},
		"detailed_metric": {ask("rl", "unspec=a", "ok: ok 1"), ask("rl", "unspec=a", "ok: ok 0"),
			ask("rl", "unspec=a", "over: over 0 in 30s; retry-after 30")},
		"quota mode": {quota("ok: ok 0, ok 1"), quota("ok: over 0 in 1m0s, ok 0"),
			quota("over: over 0 in 1m0s, over 0 in 30s; retry-after 30"), later(quota("ok: ok 0, ok 1"), time.Minute)},
		// What has been used is told once a response ended, with a question of its own.
		"quota that is told later": {ask("rl", "service=service_2 +0", "ok: ok 2"),
			ask("rl", "service=service_2 +1", "ok: ok 1"),
			ask("rl", "service=service_2 +0", "ok: ok 1"), ask("rl", "service=service_2 +1", "ok: ok 0"),
			differs(ask("rl", "service=service_2 +0", "over: over 0 in 30s; retry-after 30"), "ok: ok 0",
				"nothing is left; there one more passes, until the counter stands above the limit"),
			later(ask("rl", "service=service_2 +0", "ok: ok 2"), time.Minute)},
		"quotas of two services": {ask("rl", "service=service_1 +0,service=service_2 +0", "ok: ok 1, ok 2"),
			ask("rl", "service=service_1 +1", "ok: ok 0"),
			ask("rl", "service=service_1 +0,service=service_2 +0", "ok: over 0 in 1m0s, ok 2"),
			ask("rl", "service=service_2 +1", "ok: ok 1"), ask("rl", "service=service_2 +1", "ok: ok 0"),
			ask("rl", "service=service_1 +0,service=service_2 +0",
				"over: over 0 in 1m0s, over 0 in 30s; retry-after 30")},
		"replaces raises a limit": {ask("rl", "foo=bkthomps bar=banned", "over: over 0"),
			ask("rl", "foo=bkthomps bar=banned,source_cluster=proxy destination_cluster=mock", "over: over 0, ok 1"),
			ask("rl", "foo=bkthomps bar=banned,source_cluster=proxy destination_cluster=override", "ok: ok -, ok 1"),
			ask("rl", "foo=bkthomps bar=banned,source_cluster=proxy destination_cluster=override", "ok: ok -, ok 0"),
			ask("rl", "foo=bkthomps bar=banned,source_cluster=proxy destination_cluster=override",
				"over: ok -, over 0 in 30s; retry-after 30")},
		"replaces leaves the other limit": {
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=bkthomps", "ok: ok -, ok 1"),
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=bkthomps", "ok: ok -, ok 0"),
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=bkthomps",
				"over: ok -, over 0 in 30s; retry-after 30"),
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=not_bkthomps",
				"ok: ok 0, ok -"),
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=not_bkthomps",
				"over: over 0 in 1m0s, ok -; retry-after 60"),
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=bkthomps",
				"over: ok -, over 0 in 30s; retry-after 30")},
		"replaces several": {
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=fake,category=account",
				"ok: ok -, ok -, ok 3"),
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=fake,category=account",
				"ok: ok -, ok -, ok 2"),
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=fake,category=account",
				"ok: ok -, ok -, ok 1"),
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=fake,category=account",
				"ok: ok -, ok -, ok 0"),
			ask("rl", "foo=my_foo bar=bkthomps,source_cluster=proxy destination_cluster=fake,category=account",
				"over: ok -, ok -, over 0 in 15s; retry-after 15"),
			ask("rl", "foo=foo_2 bar=bkthomps", "ok: ok 0"),
			ask("rl", "foo=foo_2 bar=bkthomps", "over: over 0 in 1m0s; retry-after 60"),
			ask("rl", "foo=foo_3 bar=bar_3,source_cluster=proxy destination_cluster=fake", "ok: ok 2, ok 1"),
			ask("rl", "foo=foo_3 bar=bar_3,source_cluster=proxy destination_cluster=fake", "ok: ok 1, ok 0"),
			differs(ask("rl", "foo=foo_3 bar=bar_3,source_cluster=proxy destination_cluster=fake",
				"over: ok 1, over 0 in 30s; retry-after 30"), "over: ok 0, over 0", debt)},
	} {
		t.Run(name, func(t *testing.T) {
			limits := read(t, "another", "basic", "share_threshold", "example")
			s := newService(t, shop, func(d *envoy.Descriptors) {
				d.Limits = func() *descriptor.Limits { return limits }
			})
			for i, step := range steps {
				s.now.Add(int64(step.after))
				got := s.ask(t, step.domain, 1, step.descriptors...)
				if got != step.want || step.theirs != "" && strings.HasPrefix(got, step.theirs+";") {
					t.Errorf("%d, %v: %s, want %s; envoyproxy/ratelimit says %q, as %s", i, step.descriptors, got,
						step.want, step.theirs, step.why)
				}
			}
		})
	}
}

// read reads configurations of envoyproxy/ratelimit.
func read(t *testing.T, names ...string) *descriptor.Limits {
	t.Helper()
	var paths []string
	for _, name := range names {
		kind := "integration-"
		if name == "example" {
			kind = "example-"
		}
		paths = append(paths, "../descriptor/testdata/"+kind+name+".yaml")
	}
	limits, err := descriptor.Read(paths...)
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

// A file that comes brings its limits, and takes them along; those of the others keep their counters.
func TestReloadAsEnvoyproxyRatelimit(t *testing.T) {
	var limits atomic.Pointer[descriptor.Limits]
	limits.Store(read(t, "basic"))
	s := newService(t, shop, func(d *envoy.Descriptors) { d.Limits = limits.Load })
	for i, step := range []struct {
		files                    []string // read before it, if any
		domain, descriptor, want string
	}{
		{nil, "reload", "block=foo", "ok: ok -"},
		{nil, "basic", "key1=foo", "ok: ok 49"},
		{[]string{"basic", "reload"}, "reload", "key1=foo", "ok: ok 49"},
		{nil, "reload", "block=foo", "over: over 0"},
		{nil, "basic", "key1=foo", "ok: ok 48"},
		{[]string{"basic"}, "reload", "block=foo", "ok: ok -"},
		{nil, "basic", "key1=foo", "ok: ok 47"},
	} {
		if step.files != nil {
			limits.Store(read(t, step.files...))
		}
		if got := s.ask(t, step.domain, 1, step.descriptor); got != step.want {
			t.Errorf("%d, %s: %s, want %s", i, step.descriptor, got, step.want)
		}
	}
	if _, err := descriptor.Read("xds://127.0.0.1:18000"); err == nil {
		t.Error("CONFIG_TYPE=GRPC_XDS_SOTW has no counterpart, and no error")
	}
}

// The time that is told of a counter with room is until it is full again, so that it grows with every hit, where
// that of a window falls.
func TestResetIsWhenABucketIsFull(t *testing.T) {
	limits := read(t, "another")
	s := newService(t, shop, func(d *envoy.Descriptors) { d.Limits = func() *descriptor.Limits { return limits } })
	reset := func() time.Duration {
		_, answer := s.answered(t, "another", of("key4=durTest"))
		return answer.GetStatuses()[0].GetDurationUntilReset().AsDuration()
	}
	const refill = 24 * time.Hour / 20
	if got := reset(); got != refill {
		t.Errorf("after one hit: %v, want %v", got, refill)
	}
	s.now.Add(int64(2 * time.Second))
	if got, want := reset(), 2*refill-2*time.Second; got != want {
		t.Errorf("after another, two seconds later: %v, want %v", got, want)
	}
}
