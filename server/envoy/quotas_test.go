package envoy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	quotas "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/server/envoy"
	"github.com/headgate-io/headgate/server/quota"
)

const quotaLimits = `
domain: shop
descriptors:
- {key: user, rate_limit: {unit: hour, requests_per_unit: 20}}
- {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
- key: path
  descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 4}}
`

func newQuotas(t testing.TB, change ...func(*quota.Options)) *service {
	t.Helper()
	return newService(t, quotaLimits, func(d *envoy.Descriptors) {
		o := quota.Options{Limits: d.Limits, Buckets: d.Buckets, Name: d.Name, Now: d.Now}
		for _, c := range change {
			c(&o)
		}
		var err error
		if d.Quotas, err = quota.New(o); err != nil {
			t.Fatal(err)
		}
	})
}

type reportStream = grpc.BidiStreamingClient[quotas.RateLimitQuotaUsageReports, quotas.RateLimitQuotaResponse]

func (s *service) stream(t testing.TB) reportStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	stream, err := quotas.NewRateLimitQuotaServiceClient(s.conn).StreamRateLimitQuotas(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// usage makes a report of a bucket, of key=value separated by spaces, with +allowed and -denied.
func usage(text string) *quotas.RateLimitQuotaUsageReports_BucketQuotaUsage {
	u := &quotas.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: &quotas.BucketId{Bucket: map[string]string{}}}
	for part := range strings.SplitSeq(text, " ") {
		switch {
		case strings.HasPrefix(part, "+"):
			u.NumRequestsAllowed = parse(part[1:])
		case strings.HasPrefix(part, "-"):
			u.NumRequestsDenied = parse(part[1:])
		default:
			name, value, _ := strings.Cut(part, "=")
			u.BucketId.Bucket[name] = value
		}
	}
	return u
}

func reportsOf(domain string, usages ...string) *quotas.RateLimitQuotaUsageReports {
	r := &quotas.RateLimitQuotaUsageReports{Domain: domain}
	for _, text := range usages {
		r.BucketQuotaUsages = append(r.BucketQuotaUsages, usage(text))
	}
	return r
}

// answered is an answer in words, such as "user=u: 10 for 5s, none=x: DENY_ALL for 5s".
func answered(r *quotas.RateLimitQuotaResponse) string {
	var parts []string
	for _, a := range r.GetBucketAction() {
		var pairs []string
		for k, v := range a.GetBucketId().GetBucket() {
			pairs = append(pairs, k+"="+v)
		}
		slices.Sort(pairs)
		text := strings.Join(pairs, " ") + ": "
		assigned := a.GetQuotaAssignmentAction()
		switch strategy := assigned.GetRateLimitStrategy().GetStrategy().(type) {
		case *envoytype.RateLimitStrategy_TokenBucket:
			text += fmt.Sprint(strategy.TokenBucket.GetMaxTokens())
		case *envoytype.RateLimitStrategy_BlanketRule_:
			text += strategy.BlanketRule.String()
		default:
			text += "abandon"
		}
		if assigned != nil {
			text += " for " + assigned.GetAssignmentTimeToLive().AsDuration().String()
		}
		// before a new assignment
		if n := len(parts); n > 0 && parts[n-1] == strings.Join(pairs, " ")+": DENY_ALL for 5s" {
			parts[n-1] = text + " anew"
			continue
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// tell sends a report, and returns the answer in words, or the error.
func tell(t testing.TB, stream reportStream, r *quotas.RateLimitQuotaUsageReports) string {
	t.Helper()
	if err := stream.Send(r); err != nil {
		_, err = stream.Recv() // which knows why
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	got, err := stream.Recv()
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	// a name is as it was reported, also without a value
	if err := got.ValidateAll(); err != nil && !strings.Contains(err.Error(), "Bucket[") {
		t.Errorf("an answer that Envoy would not take: %v", err)
	}
	return answered(got)
}

// Buckets share the counters of descriptors with the same entries, whatever their order; the domain
// is named once; and what nothing changes for is not mentioned.
func TestQuotas(t *testing.T) {
	s := newQuotas(t)
	stream := s.stream(t)
	for i, step := range []struct {
		domain string
		usages []string
		want   string
	}{
		{"shop", []string{"user=u -1"}, "user=u: 10 for 5s anew"},
		{"", []string{"user=v -1", "user=u +1", "none=x -1"}, "user=v: 10 for 5s anew, none=x: DENY_ALL for 5s"},
		{"shop", []string{"user=u path=/a -1", "other=x +1"},
			"path=/a user=u: 2 for 5s anew, other=x: ALLOW_ALL for 5s"},
	} {
		if got := tell(t, stream, reportsOf(step.domain, step.usages...)); got != step.want {
			t.Errorf("%d: %s, want %s", i, got, step.want)
		}
	}
	if got := s.ask(t, "shop", 0, "user=u", "path=/a user=u"); got != "ok: ok 9, ok 1" {
		t.Errorf("the filter for rate limits is told %s, want what is left of the same counters", got)
	}
	s.now.Add(int64(3 * time.Second))
	first := tell(t, stream, reportsOf("", "user=u +1", "user=v"))
	if first != "user=u: 10 for 5s, user=v: 10 for 5s" {
		t.Errorf("%s, want both prolonged", first)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil || status.Code(err) != codes.Unknown && err.Error() != "EOF" {
		t.Errorf("the end: %v", err)
	}
}

// Envoy goes on with what is left of an assignment if the next one is the same to it, and fills it if it is another.
func TestAssignmentsAreToldApart(t *testing.T) {
	s := newQuotas(t)
	stream := s.stream(t)
	get := func(text string) *envoytype.TokenBucket {
		t.Helper()
		if err := stream.Send(reportsOf("shop", text)); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r.GetBucketAction()[len(r.GetBucketAction())-1].GetQuotaAssignmentAction().GetRateLimitStrategy().
			GetTokenBucket()
	}
	one := get("user=u -1")
	s.now.Add(int64(3 * time.Second))
	same := get("user=u")
	other := get("user=u +10")
	if !proto.Equal(one, same) {
		t.Errorf("%v is prolonged as %v, want the same", one, same)
	}
	if other.GetFillInterval().GetNanos() == one.GetFillInterval().GetNanos() {
		t.Errorf("%v follows %v, want other nanoseconds", other, one)
	}
	if one.GetTokensPerFill().GetValue() != 1 || one.GetFillInterval().GetSeconds() != 365*24*60*60 {
		t.Errorf("%v, want one that hardly fills", one)
	}
}

func TestReportsThatAreNone(t *testing.T) {
	many := &quotas.RateLimitQuotaUsageReports{
		Domain: "shop",
		BucketQuotaUsages: slices.Repeat([]*quotas.RateLimitQuotaUsageReports_BucketQuotaUsage{usage("user=u")},
			50_001),
	}
	big := reportsOf("shop", "user="+strings.Repeat("x", 1<<20)+" -1")
	for _, c := range []struct {
		messages []*quotas.RateLimitQuotaUsageReports
		want     string // the last answer
	}{
		{[]*quotas.RateLimitQuotaUsageReports{reportsOf("", "user=u")},
			"InvalidArgument: domain is missing, want it in the first report"},
		{[]*quotas.RateLimitQuotaUsageReports{reportsOf("shop", "user=u -1"), reportsOf("other", "user=u -1")},
			`InvalidArgument: domain is "other" after "shop", want one for each stream`},
		{[]*quotas.RateLimitQuotaUsageReports{{Domain: "shop",
			BucketQuotaUsages: []*quotas.RateLimitQuotaUsageReports_BucketQuotaUsage{{}}}},
			"InvalidArgument: bucket_quota_usages[0].bucket_id is empty, want one pair or more"},
		{[]*quotas.RateLimitQuotaUsageReports{reportsOf("shop", "user=u", "=u")},
			"InvalidArgument: bucket_quota_usages[1].bucket_id has an empty key, want none"},
		{[]*quotas.RateLimitQuotaUsageReports{{Domain: strings.Repeat("x", 1025)}},
			"InvalidArgument: domain has 1025 bytes, want 1024 at most"},
		{[]*quotas.RateLimitQuotaUsageReports{many},
			"InvalidArgument: bucket_quota_usages has 50001 reports, want 50000 at most"},
		{[]*quotas.RateLimitQuotaUsageReports{reportsOf("shop", "user= -1")}, "user=: 10 for 5s anew"},
	} {
		s := newQuotas(t)
		stream, got := s.stream(t), ""
		for _, m := range c.messages {
			got = tell(t, stream, m)
		}
		if got != c.want {
			t.Errorf("%.100v: %s, want %s", c.messages, got, c.want)
		}
		if strings.HasPrefix(c.want, "Invalid") && len(s.told.list()) != 1 {
			t.Errorf("%s: told of %v, want one fault", c.want, s.told.list())
		}
		if got := tell(t, s.stream(t), reportsOf("shop", "user=w -1")); got != "user=w: 10 for 5s anew" {
			t.Errorf("another stream after %s: %s", c.want, got)
		}
	}
	s := newQuotas(t)
	if got := tell(t, s.stream(t), big); !strings.HasSuffix(got, ": DENY_ALL for 5s") {
		t.Errorf("a name of a megabyte: %.80s, want it denied", got)
	}
	huge := reportsOf("shop", "user="+strings.Repeat("x", 5<<20))
	if got := tell(t, s.stream(t), huge); !strings.HasPrefix(got, codes.ResourceExhausted.String()) {
		t.Errorf("a message of 5 MiB: %s, want ResourceExhausted", got)
	}
}

// A peer beyond the bound, a mistake and the end of the process are UNAVAILABLE: Envoy comes again.
func TestQuotasUnavailable(t *testing.T) {
	mistake := true
	s := newQuotas(t, func(o *quota.Options) {
		o.MaxBorrowers = 1
		name := o.Name
		o.Name = func(domain string, subject []byte) (key.Key, uint16) {
			if mistake {
				panic("a mistake")
			}
			return name(domain, subject)
		}
	})
	if got := tell(t, s.stream(t), reportsOf("shop", "user=u -1")); got != "Unavailable: the decision cannot be made" {
		t.Errorf("%s, want Unavailable", got)
	}
	mistake = false
	first := s.stream(t)
	if got := tell(t, first, reportsOf("shop", "user=u -1")); got != "user=u: 10 for 5s anew" {
		t.Errorf("after it: %s", got)
	}
	if got := tell(t, s.stream(t), reportsOf("shop", "user=u -1")); got != "Unavailable: there are too many borrowers" {
		t.Errorf("a second peer of one: %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		t.Errorf("the server waits for streams: %v", err)
	}
	if _, err := first.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends with %v, want Unavailable", err)
	}
}

// Nobody else is held up by a peer that never reads its answers.
func TestAPeerThatDoesNotRead(t *testing.T) {
	s := newQuotas(t)
	mute := s.stream(t)
	id := strings.Repeat("x", 1000)
	var usages []string
	for i := range 2000 {
		usages = append(usages, fmt.Sprintf("user=%s%d -1", id[:900], i))
	}
	all := reportsOf("shop", usages...)
	go func() {
		for mute.Send(all) == nil && mute.Context().Err() == nil { // until nothing more fits
			s.now.Add(int64(3 * time.Second))
		}
	}()
	for i := range 20 {
		if got := tell(t, s.stream(t), reportsOf("shop", fmt.Sprintf("user=u%d -1", i))); got != fmt.Sprintf(
			"user=u%d: 10 for 5s anew", i) {
			t.Errorf("another peer: %s", got)
		}
	}
}

// FuzzStreamRateLimitQuotas: any two messages of a stream are answered, or an error of it; an
// answer is one that Envoy takes, of buckets that were reported; and no more is lent of the counter
// that they may name than there is.
func FuzzStreamRateLimitQuotas(f *testing.F) {
	for _, usages := range [][]string{{"user=u -1"}, {"user=u +3", "user=v -2"}, {"path=/a user=u -1"}, {"none=x"},
		{"a=b c=d +1"}} {
		message, err := proto.Marshal(reportsOf("shop", usages...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message, message)
		f.Add(message, message[:len(message)-2])
	}
	s := newQuotas(f)
	f.Fuzz(func(t *testing.T, one, two []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas", grpc.ForceCodecV2(raw{}))
		if err != nil {
			t.Fatal(err)
		}
		reported := map[string]bool{}
		for _, message := range [][]byte{one, two} {
			var r quotas.RateLimitQuotaUsageReports
			if proto.Unmarshal(message, &r) == nil {
				for _, u := range r.GetBucketQuotaUsages() {
					reported[fmt.Sprint(u.GetBucketId().GetBucket())] = true
				}
			}
			_ = stream.SendMsg(message)
		}
		_ = stream.CloseSend()
		for {
			var response quotas.RateLimitQuotaResponse
			err := stream.RecvMsg(&response)
			if err != nil {
				if code := status.Code(err); err.Error() != "EOF" && code != codes.InvalidArgument &&
					code != codes.Internal {
					t.Fatal(err)
				}
				break
			}
			for _, a := range response.GetBucketAction() {
				if !reported[fmt.Sprint(a.GetBucketId().GetBucket())] {
					t.Fatalf("an answer about %v, which was not reported", a.GetBucketId())
				}
				if got := a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket().
					GetMaxTokens(); got > 20 {
					t.Fatalf("%d tokens of a limit of 20", got)
				}
			}
		}
		s.now.Add(int64(time.Second))
	})
}
