package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/envoy"
)

// service is a rate limit service whose clock stands.
type service struct {
	ratelimit.RateLimitServiceClient
	conn   *grpc.ClientConn
	server *envoy.Server
	now    atomic.Int64
	told   *faults
	counts atomic.Int64
}

func newService(t testing.TB, config string, change ...func(*envoy.Descriptors)) *service {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	limits, err := descriptor.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	s, hasher := &service{}, key.NewHasher()
	s.now.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	d := envoy.Descriptors{
		Limits: func() *descriptor.Limits { return limits }, Buckets: buckets, Now: s.now.Load,
		Name: func(domain string, subject []byte) (key.Key, uint16) {
			return hasher.Key(0, 0, append([]byte(domain+"\x00"), subject...)), 0
		},
		Observe: func(*descriptor.Limit, bool) { s.counts.Add(1) },
	}
	for _, c := range change {
		c(&d)
	}
	s.conn, s.told, s.server = startServer(t, netip.Addr.IsLoopback, &d)
	s.RateLimitServiceClient = ratelimit.NewRateLimitServiceClient(s.conn)
	return s
}

// of makes a descriptor of key=value, separated by spaces. Behind a + at the end are its hits,
// behind a - those that it gives back.
func of(text string) *wire.RateLimitDescriptor {
	d := &wire.RateLimitDescriptor{}
	for part := range strings.SplitSeq(text, " ") {
		if hits, ok := strings.CutPrefix(part, "+"); ok {
			d.HitsAddend = wrapperspb.UInt64(parse(hits))
			continue
		}
		if hits, ok := strings.CutPrefix(part, "-"); ok {
			d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(parse(hits)), true
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		d.Entries = append(d.Entries, &wire.RateLimitDescriptor_Entry{Key: name, Value: value})
	}
	return d
}

func parse(text string) (n uint64) {
	if _, err := fmt.Sscan(text, &n); err != nil {
		panic(err)
	}
	return n
}

// ask says what a question is answered: a letter for all, and for each descriptor one with what remains, such as
// "ok: ok 4, over 0 in 20s".
func (s *service) ask(t testing.TB, domain string, hits uint32, descriptors ...string) string {
	t.Helper()
	q := &ratelimit.RateLimitRequest{Domain: domain, HitsAddend: hits}
	for _, d := range descriptors {
		q.Descriptors = append(q.Descriptors, of(d))
	}
	answer, err := s.ShouldRateLimit(t.Context(), q)
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	word := map[ratelimit.RateLimitResponse_Code]string{
		ratelimit.RateLimitResponse_OK:         "ok",
		ratelimit.RateLimitResponse_OVER_LIMIT: "over",
	}
	var parts []string
	for _, s := range answer.GetStatuses() {
		text := word[s.GetCode()]
		switch {
		case s.GetLimitRemaining() == math.MaxUint32:
			text += " unlimited"
		case s.GetCurrentLimit() == nil:
			text += " -"
		default:
			text += fmt.Sprintf(" %d", s.GetLimitRemaining())
			if s.GetCode() == ratelimit.RateLimitResponse_OVER_LIMIT && s.GetDurationUntilReset().AsDuration() > 0 {
				text += " in " + s.GetDurationUntilReset().AsDuration().String()
			}
		}
		parts = append(parts, text)
	}
	text := word[answer.GetOverallCode()] + ": " + strings.Join(parts, ", ")
	if h := answer.GetResponseHeadersToAdd(); len(h) > 0 {
		text += "; " + h[0].GetKey() + " " + h[0].GetValue()
	}
	return text
}

const shop = `
domain: shop
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: user, value: root}
- {key: user, value: free, rate_limit: {unlimited: true}}
- {key: user, value: banned, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: path, rate_limit: {name: path, unit: hour, requests_per_unit: 4}}
- {key: tried, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: gold, rate_limit: {unit: hour, requests_per_unit: 10, replaces: [{name: path}]}}
- {key: part, value: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: part, value: b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
`

func TestShouldRateLimit(t *testing.T) {
	type step struct {
		hits        uint32
		descriptors []string
		want        string
	}
	one := func(want string, descriptors ...string) step { return step{0, descriptors, want} }
	for name, steps := range map[string][]step{
		"one after the other": {one("ok: ok 2", "user=u"), one("ok: ok 1", "user=u"), one("ok: ok 2", "user=v"),
			one("ok: ok 0", "user=u"), one("over: over 0 in 20s; retry-after 20", "user=u")},
		"hits": {{2, []string{"user=u"}, "ok: ok 1"},
			{2, []string{"user=u"}, "over: over 1 in 20s; retry-after 20"}, {1, []string{"user=u"}, "ok: ok 0"}},
		"hits of its own": {{2, []string{"user=u +1", "user=v"}, "ok: ok 2, ok 1"}},
		"0 only looks": {
			one("ok: ok 3", "user=u +0"), one("ok: ok 2", "user=u"), one("ok: ok 2", "user=u +0"),
			one("ok: ok 2, ok 3", "user=u +0", "path=/a"), one("ok: ok 0", "user=u +2"),
			one("over: over 0 in 20s; retry-after 20", "user=u +0"),
			one("over: over 0 in 20s, ok 3; retry-after 20", "user=u +0", "path=/a"),
			one("over: over 0 in 20s, over 0 in 20s; retry-after 20", "user=u +0", "user=u"),
			one("ok: ok 2", "path=/a"), one("over: over 2, ok 4", "path=/a +5", "path=/b +0"),
		},
		"hits that are told once they were had": { // each of 5 beside a limit of 3 a minute
			one("ok: ok 3", "user=u +0"), one("over: over 0", "user=u +5"),
			one("over: over 0 in 1m0s; retry-after 60", "user=u +0"),
			one("over: over 0", "user=u +100"), // it owes six at most, twice what it holds
			one("over: over 0 in 1m20s; retry-after 80", "user=u +0"),
		},
		"nothing is more than a limit": {one("ok: ok 0", "user=u +3"),
			one("over: over 0, over 0 in 20s, ok 4; retry-after 20", "user=banned", "user=u", "path=/a")},
		"more than it holds": {one("over: over 3", "user=u +4"), one("over: over 3", "user=u +18446744073709551615")},
		"all or none": {
			one("ok: ok 0, ok 3", "user=u +3", "path=/a"),
			one("over: over 0 in 20s, ok 3; retry-after 20", "user=u", "path=/a"), one("ok: ok 2", "path=/a"),
		},
		"nothing fits": {one("ok: ok -, ok -, ok -", "other=x", "user=u more=y", "user=root")},
		"unlimited":    {one("ok: ok unlimited", "user=free")},
		"nothing at all": {one("over: over 0", "user=banned"),
			one("over: over 0, ok 3", "user=banned", "user=u"), one("ok: ok 2", "user=u")},
		"shadow": {one("ok: ok 0", "tried=x"), one("ok: ok 0, ok 2", "tried=x", "user=u"),
			one("ok: ok 1", "user=u")},
		"replaced": {one("ok: ok 9, ok -", "gold=x", "path=/a"), one("ok: ok 3", "path=/a")},
		"twice the same": {one("ok: ok 1, ok 1", "user=u", "user=u"),
			one("over: over 1 in 20s, over 1 in 20s; retry-after 20", "user=u", "user=u")},
		"given back": {one("ok: ok 0", "user=u +3"), one("ok: ok 2", "user=u -2"),
			one("ok: ok 1", "user=u"), one("ok: ok 3", "user=u -100"), one("ok: ok 3", "user=u -1")},
		"quotas refuse together": {one("ok: ok 0, ok 1, ok 2", "part=a", "part=b", "user=u"),
			one("ok: over 0 in 1h0m0s, ok 0, ok 1", "part=a", "part=b", "user=u"),
			one("over: over 0 in 1h0m0s, over 0 in 30m0s, ok 1; retry-after 1800", "part=a", "part=b", "user=u"),
			one("ok: ok 0", "user=u")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, shop)
			for i, step := range steps {
				if got := s.ask(t, "shop", step.hits, step.descriptors...); got != step.want {
					t.Errorf("%d, %v: %s, want %s", i, step.descriptors, got, step.want)
				}
			}
		})
	}
}

// A bucket fills all the time, and never admits twice its limit around the end of a window.
func TestLimitsFill(t *testing.T) {
	s := newService(t, shop)
	for _, step := range []struct {
		after time.Duration
		want  string
	}{
		{0, "ok: ok 2"}, {0, "ok: ok 1"}, {0, "ok: ok 0"}, {19 * time.Second, "over: over 0 in 1s; retry-after 1"},
		{time.Second, "ok: ok 0"},
		{0, "over: over 0 in 20s; retry-after 20"}, {time.Minute, "ok: ok 2"},
	} {
		s.now.Add(int64(step.after))
		if got := s.ask(t, "shop", 0, "user=u"); got != step.want {
			t.Errorf("%v later: %s, want %s", step.after, got, step.want)
		}
	}
}

func TestQuestionsThatAreNone(t *testing.T) {
	s := newService(t, shop)
	for _, c := range []struct {
		domain      string
		descriptors []string
		want        string
	}{
		{"", []string{"user=u"}, "InvalidArgument: domain is missing"},
		{"shop", nil, "InvalidArgument: descriptors is empty, want one or more"},
		{"shop", []string{"+1"}, "InvalidArgument: a descriptor has 0 entries, want 1 to 50"},
		{"shop", []string{"user=u", strings.Repeat("user=u ", 50) + "user=u"},
			"InvalidArgument: a descriptor has more than 50 entries, want 1 to 50"},
		{"shop", strings.Split(strings.Repeat("user=u,", 100)+"user=u", ","),
			"InvalidArgument: descriptors has more than 100, want that many at most"},
		{"other", []string{"user=u"}, "ok: ok -"},
	} {
		if got := s.ask(t, c.domain, 0, c.descriptors...); got != c.want {
			t.Errorf("%q, %d descriptors: %s, want %s", c.domain, len(c.descriptors), got, c.want)
		}
	}
	if got := s.ask(t, "shop", 0, "user=u"); got != "ok: ok 2" || len(s.told.list()) != 5 {
		t.Errorf("after them: %s, told of %v, want one hit charged and 5 faults", got, s.told.list())
	}
}

// away is a store that cannot be asked.
type away struct{ bucket.Store }

func (away) TryConsume(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool, error) {
	return false, errors.Join(bucket.ErrLost, errors.New("redis: secret"))
}

// Envoy's own setting says what happens to requests then.
func TestStoreAway(t *testing.T) {
	s := newService(t, shop, func(d *envoy.Descriptors) { d.Buckets = away{d.Buckets} })
	if got := s.ask(t, "shop", 0, "user=u"); got != codes.Unavailable.String()+
		": the limits cannot be checked at the moment" {
		t.Errorf("%s, want Unavailable and no word of the store", got)
	}
}

// A mistake ends one call, and somebody is told.
func TestAPanicEndsOneCall(t *testing.T) {
	mistake := true
	s := newService(t, shop, func(d *envoy.Descriptors) {
		name := d.Name
		d.Name = func(domain string, subject []byte) (key.Key, uint16) {
			if mistake {
				panic("a mistake")
			}
			return name(domain, subject)
		}
	})
	if got := s.ask(t, "shop", 0, "user=u"); got != codes.Unavailable.String()+": the decision cannot be made" {
		t.Errorf("%s, want Unavailable", got)
	}
	if told := s.told.list(); len(told) != 1 || !strings.HasPrefix(told[0], "panic: panic: a mistake") {
		t.Errorf("told of %q", told)
	}
	mistake = false
	if got := s.ask(t, "shop", 0, "user=u"); got != "ok: ok 2" {
		t.Errorf("after it: %s", got)
	}
}

// FuzzShouldRateLimit: of any two questions each is answered, or an error of its call; an answer has a status for
// each descriptor; and the counter that both may name never holds more than its limit.
func FuzzShouldRateLimit(f *testing.F) {
	s := newService(f, shop)
	for _, descriptors := range [][]string{{"user=u"}, {"user=u", "path=/a +7"}, {"user=u -5", "user=u"},
		{"part=a", "part=b"}, {"user=banned"}} {
		q := &ratelimit.RateLimitRequest{Domain: "shop"}
		for _, d := range descriptors {
			q.Descriptors = append(q.Descriptors, of(d))
		}
		message, err := proto.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message)
		f.Add(message[:len(message)-2])
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var q ratelimit.RateLimitRequest
		whole := proto.Unmarshal(message, &q) == nil
		var answer ratelimit.RateLimitResponse
		err := s.conn.Invoke(t.Context(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", message,
			&answer, grpc.ForceCodecV2(raw{}))
		switch code := status.Code(err); {
		case code == codes.OK && (!whole || len(answer.GetStatuses()) != len(q.GetDescriptors())):
			t.Fatalf("%d statuses for %d descriptors, of a message that is whole: %v", len(answer.GetStatuses()),
				len(q.GetDescriptors()), whole)
		case code != codes.OK && code != codes.InvalidArgument && code != codes.Internal:
			t.Fatal(err)
		}
		left := s.ask(t, "shop", 0, "user=u +0")
		if !strings.HasPrefix(left, "over: over 0 in ") && left != "ok: ok 1" && left != "ok: ok 2" &&
			left != "ok: ok 3" {
			t.Fatalf("the counter of user=u says %s, want 0 to 3 left", left)
		}
		s.now.Add(int64(time.Second))
	})
}
