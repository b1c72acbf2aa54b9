package envoy_test

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	wire "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/envoy"
)

// obeyed has a service take limits of questions, and count them.
func obeyed(told *[2]int) func(*envoy.Descriptors) {
	return func(d *envoy.Descriptors) {
		d.MayOverride = netip.Addr.IsLoopback
		d.Overridden = func(obeyed bool) {
			if obeyed {
				told[1]++
			} else {
				told[0]++
			}
		}
	}
}

// limited is a descriptor with a limit of its own.
func limited(text string, requests uint32, unit types.RateLimitUnit, units ...uint32) *wire.RateLimitDescriptor {
	d := of(text)
	d.Limit = &wire.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	for _, n := range units {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(n)
	}
	return d
}

// answered is what a question is answered, short: codes and rests, or the error.
func (s *service) answered(t testing.TB, domain string, descriptors ...*wire.RateLimitDescriptor) (string,
	*ratelimit.RateLimitResponse) {
	t.Helper()
	answer, err := s.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{Domain: domain, Descriptors: descriptors})
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message(), nil
	}
	var parts []string
	for _, s := range answer.GetStatuses() {
		text := fmt.Sprintf("%v %d", s.GetCode(), s.GetLimitRemaining())
		if l := s.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" of %d/%v", l.GetRequestsPerUnit(), l.GetUnit())
			if l.GetUnitMultiplier() != nil {
				text += fmt.Sprintf("x%d", l.GetUnitMultiplier().GetValue())
			}
			if l.GetName() != "" {
				text += " " + l.GetName()
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", "), answer
}

func TestLimitsInQuestions(t *testing.T) {
	const second, minute, hour, day = types.RateLimitUnit_SECOND, types.RateLimitUnit_MINUTE, types.RateLimitUnit_HOUR,
		types.RateLimitUnit_DAY
	type step struct {
		d    *wire.RateLimitDescriptor
		want string
	}
	for name, steps := range map[string][]step{
		"in place of the file's": {
			{limited("user=u", 5, hour), "OK 4 of 5/HOUR"}, {limited("user=u +4", 5, hour), "OK 0 of 5/HOUR"},
			{limited("user=u", 5, hour), "OVER_LIMIT 0 of 5/HOUR"},
		},
		"of the same counter": {{of("user=u +3"), "OK 0 of 3/MINUTE"},
			{limited("user=u", 3, minute), "OVER_LIMIT 0 of 3/MINUTE"}},
		"and back": {{limited("user=u +3", 3, minute), "OK 0 of 3/MINUTE"},
			{of("user=u"), "OVER_LIMIT 0 of 3/MINUTE"}},
		"where there is none": {{limited("other=x", 1, day), "OK 0 of 1/DAY"},
			{limited("other=x", 1, day), "OVER_LIMIT 0 of 1/DAY"}, {limited("other=y", 1, day), "OK 0 of 1/DAY"}},
		"several units": {{limited("user=u +2", 2, second, 30), "OK 0 of 2/SECONDx30"},
			{limited("user=u", 2, second, 30), "OVER_LIMIT 0 of 2/SECONDx30"}},
		"one unit": {{limited("user=u", 2, second, 1), "OK 1 of 2/SECOND"},
			{limited("user=u", 2, second, 0), "OK 0 of 2/SECOND"}},
		"0 refuses": {{limited("user=u", 0, minute), "OVER_LIMIT 0 of 0/MINUTE"},
			{of("user=u"), "OK 2 of 3/MINUTE"}},
		"without its modes and name": {{limited("tried=x", 1, hour), "OK 0 of 1/HOUR"},
			{limited("tried=x", 1, hour), "OVER_LIMIT 0 of 1/HOUR"}, {limited("path=/a", 2, hour), "OK 1 of 2/HOUR"}},
		"instead of unlimited": {{of("user=free"), "OK 4294967295"}, {limited("user=free", 1, hour),
			"OK 0 of 1/HOUR"}, {limited("user=free", 1, hour), "OVER_LIMIT 0 of 1/HOUR"}},
		"looks, and gives back": {{limited("user=u +2", 2, hour), "OK 0 of 2/HOUR"},
			{limited("user=u +0", 2, hour), "OVER_LIMIT 0 of 2/HOUR"},
			{limited("user=u -1", 2, hour), "OK 1 of 2/HOUR"}, {limited("user=u +0", 2, hour), "OK 1 of 2/HOUR"}},
		"no unit": {{limited("user=u", 2, types.RateLimitUnit_UNKNOWN),
			"InvalidArgument: unit of a limit is 0, want 1 to 7"}},
		"no such unit": {{limited("user=u", 2, 8), "InvalidArgument: unit of a limit is 8, want 1 to 7"},
			{limited("user=u", 2, 257), "InvalidArgument: unit of a limit is 257, want 1 to 7"},
			{limited("user=u", 2, math.MinInt32), "InvalidArgument: unit of a limit is -2147483648, want 1 to 7"}},
		"a week": {{limited("user=u", 2, 7), "OK 1 of 2/WEEK"}},
		"longer than can be counted": {{limited("user=u", 2, types.RateLimitUnit_YEAR, math.MaxUint32),
			"InvalidArgument: unit_multiplier of a limit is 4294967295, want 292 at most of such a unit"}},
	} {
		t.Run(name, func(t *testing.T) {
			var told [2]int
			s := newService(t, shop, obeyed(&told))
			for i, step := range steps {
				if got, _ := s.answered(t, "shop", step.d); got != step.want {
					t.Errorf("%d: %s, want %s", i, got, step.want)
				}
			}
			if told[0] != 0 || told[1] == 0 {
				t.Errorf("told of %d ignored and %d obeyed limits", told[0], told[1])
			}
		})
	}
}

// Of all that a limit may be, each is counted or refused, and leaves the counter as bounded as it was.
func TestAnyLimitInAQuestion(t *testing.T) {
	var told [2]int
	s := newService(t, shop, obeyed(&told))
	for _, requests := range []uint32{0, 1, 2, 1 << 31, math.MaxUint32} {
		for unit := types.RateLimitUnit(-1); unit < 10; unit++ {
			for _, units := range []uint32{0, 1, 292, 293, 1 << 31, math.MaxUint32} {
				got, _ := s.answered(t, "shop", limited("user=u", requests, unit, units))
				if !strings.HasPrefix(got, "OK ") && !strings.HasPrefix(got, "OVER_LIMIT ") &&
					!strings.HasPrefix(got, "InvalidArgument: ") {
					t.Errorf("%d in %d of %v: %s", requests, units, unit, got)
				}
			}
		}
	}
	s.now.Add(int64(time.Minute))
	if got, _ := s.answered(t, "shop", of("user=u +3"), of("user=v")); got != "OK 0 of 3/MINUTE, OK 2 of 3/MINUTE" &&
		got != "OVER_LIMIT 0 of 3/MINUTE, OK 3 of 3/MINUTE" {
		t.Errorf("afterwards: %s", got)
	}
}

func TestLimitsInQuestionsThatDoNotCount(t *testing.T) {
	day := types.RateLimitUnit_DAY
	t.Run("of whoever may not set them", func(t *testing.T) {
		var told [2]int
		s := newService(t, shop, obeyed(&told),
			func(d *envoy.Descriptors) { d.MayOverride = func(a netip.Addr) bool { return !a.IsLoopback() } })
		if got, _ := s.answered(t, "shop", limited("user=u", 100, day),
			limited("user=v", 7, 99)); got != "OK 2 of 3/MINUTE, OK 2 of 3/MINUTE" || told != [2]int{2, 0} {
			t.Errorf("%s, told %v", got, told)
		}
	})
	t.Run("unless somebody may", func(t *testing.T) {
		s := newService(t, shop)
		if got, _ := s.answered(t, "shop", limited("user=u", 100, day)); got != "OK 2 of 3/MINUTE" {
			t.Error(got)
		}
	})
	t.Run("of a domain that nobody knows", func(t *testing.T) {
		s := newService(t, shop, obeyed(new([2]int)))
		if got, _ := s.answered(t, "other", limited("user=u", 1, day)); got != "OK 0" {
			t.Error(got)
		}
	})
	t.Run("two for one counter", func(t *testing.T) {
		s := newService(t, shop, obeyed(new([2]int)))
		for _, second := range []*wire.RateLimitDescriptor{limited("user=u", 2, day), of("user=u")} {
			if got, _ := s.answered(t, "shop", limited("user=u", 1, day),
				second); got !=
				"InvalidArgument: descriptors with the same entries have different limits, want one of them" {
				t.Error(got)
			}
		}
		if got, _ := s.answered(t, "shop", limited("user=u", 3, day),
			limited("user=u", 3, day)); got != "OK 1 of 3/DAY, OK 1 of 3/DAY" {
			t.Error(got)
		}
	})
	t.Run("that no counter can have", func(t *testing.T) {
		s := newService(t, shop, obeyed(new([2]int)), func(d *envoy.Descriptors) {
			d.Keeps = func(shape rate.Shape) error {
				if shape.Burst() > 1000 {
					return errors.New("too large")
				}
				return nil
			}
		})
		if got, _ := s.answered(t, "shop", limited("user=u", 1001,
			day)); got != "InvalidArgument: a limit of 1001 in 24h0m0s cannot be kept: too large" {
			t.Error(got)
		}
	})
}

const routes = `
domain: shop
descriptors:
- {key: model, value: a, quota_mode: true, metadata: {backend: a, weights: [1, 2.5], nested: {on: true, off: null}}, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: model, value: b, quota_mode: true, metadata: {backend: b}, rate_limit: {unit: hour, requests_per_unit: 5, name: model-b}}
- {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}
`

// What Envoy is told of descriptors, as envoyproxy/ratelimit's tests name the fields.
func TestMetadata(t *testing.T) {
	s := newService(t, routes, func(d *envoy.Descriptors) { d.Metadata = true })
	for i, want := range []string{
		`{"domain": "shop", "metadata": {"backend": "a", "weights": [1, 2.5], "nested": {"on": true, "off": null}}, "descriptors": [
			{"entries": ["model=a"], "code": "OK", "limitKey": "shop/model=a", "limit": {"requestsPerUnit": 1, "unit": "HOUR"}},
			{"entries": ["model=b"], "code": "OK", "limitKey": "shop/model=b", "limit": {"requestsPerUnit": 5, "unit": "HOUR"}},
			{"entries": ["other=x", "more="], "code": "OK", "hitsAddend": 2}]}`,
		`{"domain": "shop", "metadata": {"backend": "b"}, "descriptors": [
			{"entries": ["model=a"], "code": "OVER_LIMIT", "limitKey": "shop/model=a", "limit": {"requestsPerUnit": 1, "unit": "HOUR"}},
			{"entries": ["model=b"], "code": "OK", "limitKey": "shop/model=b", "limit": {"requestsPerUnit": 5, "unit": "HOUR"}},
			{"entries": ["other=x", "more="], "code": "OK", "hitsAddend": 2}]}`,
	} {
		_, answer := s.answered(t, "shop", of("model=a"), of("model=b"), of("other=x more= +2"))
		var wanted structpb.Struct
		if err := protojson.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if got := answer.GetDynamicMetadata().AsMap(); fmt.Sprint(got) != fmt.Sprint(wanted.AsMap()) {
			t.Errorf("%d: %v, want %v", i, got, wanted.AsMap())
		}
	}
	answer, err := s.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{
		Domain:      "shop",
		HitsAddend:  3,
		Descriptors: []*wire.RateLimitDescriptor{of("user=u")},
	})
	if err != nil || answer.GetDynamicMetadata().AsMap()["hitsAddend"] != 3.0 {
		t.Errorf("%v, %v", answer.GetDynamicMetadata(), err)
	}
	if _, answer := newService(t, routes).answered(t, "shop", of("model=a")); answer.GetDynamicMetadata() != nil {
		t.Errorf("nobody asked for %v", answer.GetDynamicMetadata())
	}
}

// Clients are told as at other doors.
func TestFields(t *testing.T) {
	s := newService(t, shop+"- {key: \"odd\\\"\u00e9\", rate_limit: {unit: hour, requests_per_unit: 2}}\n",
		func(d *envoy.Descriptors) { d.Fields = func() *httplimit.Options { return &httplimit.Options{} } })
	for _, c := range []struct{ descriptors, want string }{
		{"user=u +2", `ratelimit: "user";r=1;t=20 | ratelimit-policy: "user";q=3;w=60`},
		{"user=u +2", `retry-after: 20 | ratelimit: "user";r=1;t=20 | ratelimit-policy: "user";q=3;w=60`},
		{"user=v,path=/a", `ratelimit: "user";r=2;t=20, "path";r=3;t=900 | ratelimit-policy: "user";q=3;w=60, "path";q=4;w=3600`},
		{"user=w,user=w", `ratelimit: "user";r=1;t=20 | ratelimit-policy: "user";q=3;w=60`},
		{"user=banned", `ratelimit: "user=banned";r=0 | ratelimit-policy: "user=banned";q=0;w=86400`},
		{"tried=x,user=free,other=x", ``},
		{"odd\"\u00e9=1", `ratelimit: "odd\"%C3%A9";r=1;t=1800 | ratelimit-policy: "odd\"%C3%A9";q=2;w=3600`},
	} {
		var all []*wire.RateLimitDescriptor
		for text := range strings.SplitSeq(c.descriptors, ",") {
			all = append(all, of(text))
		}
		_, answer := s.answered(t, "shop", all...)
		var got []string
		for _, h := range answer.GetResponseHeadersToAdd() {
			got = append(got, h.GetKey()+": "+h.GetValue())
		}
		if strings.Join(got, " | ") != c.want {
			t.Errorf("%s: %s, want %s", c.descriptors, strings.Join(got, " | "), c.want)
		}
	}
}
