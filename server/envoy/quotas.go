package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	quotas "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/quota"
)

// Bounds of one report.
const (
	maxReported = 50_000 // buckets
	maxDomain   = 1 << 10

	// slowest is how long a peer may take to read an answer.
	slowest = 30 * time.Second
)

// quotaService is the service that the filter rate_limit_quota reports to
// (envoy.service.rate_limit_quota.v3): a stream for each Envoy.
type quotaService struct {
	quotas.UnimplementedRateLimitQuotaServiceServer
	book    *quota.Book
	failed  func(decisions.Fault, error)
	leaving <-chan struct{}
}

type quotaStream = grpc.BidiStreamingServer[quotas.RateLimitQuotaUsageReports, quotas.RateLimitQuotaResponse]

// reports is what came of reading a stream.
type reports struct {
	*quotas.RateLimitQuotaUsageReports
	err error
}

// StreamRateLimitQuotas answers reports until the peer leaves, or this process does.
func (s *quotaService) StreamRateLimitQuotas(stream quotaStream) (err error) {
	defer recovered(s.failed, &err)
	came := make(chan reports)
	go func() {
		for {
			r, err := stream.Recv() // which ends when StreamRateLimitQuotas does
			select {
			case came <- reports{r, err}:
			case <-stream.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	var borrower *quota.Borrower
	defer func() {
		if borrower != nil {
			borrower.Close()
		}
	}()
	domain := ""
	turn := time.NewTicker(quota.Turn)
	defer turn.Stop()
	for {
		var r reports
		select {
		case <-turn.C:
			if borrower != nil {
				if err := s.send(stream, s.push(stream.Context(), borrower)); err != nil {
					return err
				}
			}
			continue
		case <-s.leaving:
			return grpcstatus.Error(codes.Unavailable, "shutting down")
		case r = <-came:
		}
		switch {
		case errors.Is(r.err, io.EOF):
			return nil
		case r.err != nil:
			return r.err
		}
		if err := checkReports(r.RateLimitQuotaUsageReports, domain); err != nil {
			s.failed(decisions.Incomplete, err)
			return grpcstatus.Error(codes.InvalidArgument, err.Error())
		}
		if borrower == nil {
			domain = r.GetDomain()
			if borrower, err = s.book.Open(domain); err != nil {
				return grpcstatus.Error(codes.Unavailable, err.Error())
			}
		}
		if err := s.send(stream, s.answer(stream.Context(), borrower, r.RateLimitQuotaUsageReports)); err != nil {
			return err
		}
	}
}

// send sends what there is to do, and gives up a peer that does not read it.
func (s *quotaService) send(stream quotaStream, response *quotas.RateLimitQuotaResponse) error {
	if len(response.GetBucketAction()) == 0 {
		return nil
	}
	sent := make(chan error, 1)
	go func() { sent <- stream.Send(response) }()
	late := time.NewTimer(slowest)
	defer late.Stop()
	select {
	case err := <-sent:
		return err
	case <-late.C:
		return grpcstatus.Error(codes.Unavailable, "the answer was not read in time")
	case <-s.leaving:
		return grpcstatus.Error(codes.Unavailable, "shutting down")
	}
}

// checkReports says what is wrong with a message of a stream about a domain, "" for the first one.
func checkReports(r *quotas.RateLimitQuotaUsageReports, domain string) error {
	switch said := r.GetDomain(); {
	case domain == "" && said == "":
		return errors.New("domain is missing, want it in the first report")
	case len(said) > maxDomain:
		return errors.New("domain has " + strconv.Itoa(len(said)) + " bytes, want " +
			strconv.Itoa(maxDomain) + " at most")
	case domain != "" && said != "" && said != domain:
		return fmt.Errorf("domain is %.100q after %.100q, want one for each stream", said, domain)
	case len(r.GetBucketQuotaUsages()) > maxReported:
		return fmt.Errorf("bucket_quota_usages has %d reports, want %d at most",
			len(r.GetBucketQuotaUsages()), maxReported)
	}
	for i, u := range r.GetBucketQuotaUsages() {
		pairs := u.GetBucketId().GetBucket()
		if len(pairs) == 0 {
			return fmt.Errorf("bucket_quota_usages[%d].bucket_id is empty, want one pair or more", i)
		}
		if _, nameless := pairs[""]; nameless {
			return fmt.Errorf("bucket_quota_usages[%d].bucket_id has an empty key, want none", i)
		}
	}
	return nil
}

// answer is what to do with each bucket of a report that has to do something else than before.
func (s *quotaService) answer(ctx context.Context, borrower *quota.Borrower,
	r *quotas.RateLimitQuotaUsageReports) *quotas.RateLimitQuotaResponse {
	response := &quotas.RateLimitQuotaResponse{}
	var entries []descriptor.Entry
	for _, u := range r.GetBucketQuotaUsages() {
		entries = entries[:0]
		for k, v := range u.GetBucketId().GetBucket() {
			entries = append(entries, descriptor.Entry{Key: k, Value: v})
		}
		slices.SortFunc(entries, func(a, b descriptor.Entry) int { return cmp.Compare(a.Key, b.Key) })
		got := borrower.Report(ctx, quota.Usage{
			Bucket:  entries,
			Allowed: u.GetNumRequestsAllowed(),
			Denied:  u.GetNumRequestsDenied(),
		})
		add(response, u.GetBucketId(), got)
	}
	return response
}

// push is what buckets have to do between two reports.
func (s *quotaService) push(ctx context.Context, borrower *quota.Borrower) *quotas.RateLimitQuotaResponse {
	response := &quotas.RateLimitQuotaResponse{}
	borrower.Turns(ctx, func(entries []descriptor.Entry, a quota.Assignment) {
		id := &quotas.BucketId{Bucket: make(map[string]string, len(entries))}
		for _, e := range entries {
			id.Bucket[e.Key] = e.Value
		}
		add(response, id, a)
	})
	return response
}

// add adds what a bucket has to do. A new assignment comes behind one that denies all: Envoy 1.40
// starts a bucket of tokens as full as the one was that it takes the place of, and only where it
// takes the place of something else, full. All of a message is obeyed at once.
func add(r *quotas.RateLimitQuotaResponse, id *quotas.BucketId, a quota.Assignment) {
	if a.Kind == quota.Tokens && !a.Again {
		deny := action(quota.Assignment{Kind: quota.DenyAll, TTL: a.TTL})
		deny.BucketId = id
		r.BucketAction = append(r.BucketAction, deny)
	}
	if action := action(a); action != nil {
		action.BucketId = id
		r.BucketAction = append(r.BucketAction, action)
	}
}

// year is the time in which a token is added to an assignment: the longest that Envoy knows. Its
// nanoseconds are the number of the assignment, as Envoy takes another one for the same, and goes
// on with what is left of it, if these and the numbers of tokens are equal.
const year = 365 * 24 * 60 * 60

// action says an assignment in the words of the protocol; nil for none.
func action(a quota.Assignment) *quotas.RateLimitQuotaResponse_BucketAction {
	var strategy *envoytype.RateLimitStrategy
	switch a.Kind {
	case quota.Tokens:
		strategy = &envoytype.RateLimitStrategy{
			Strategy: &envoytype.RateLimitStrategy_TokenBucket{TokenBucket: &envoytype.TokenBucket{
				MaxTokens: a.Tokens, TokensPerFill: wrapperspb.UInt32(1),
				FillInterval: &durationpb.Duration{Seconds: year, Nanos: int32(a.Number)},
			}}}
	case quota.AllowAll:
		strategy = &envoytype.RateLimitStrategy{
			Strategy: &envoytype.RateLimitStrategy_BlanketRule_{BlanketRule: envoytype.RateLimitStrategy_ALLOW_ALL}}
	case quota.DenyAll:
		strategy = &envoytype.RateLimitStrategy{
			Strategy: &envoytype.RateLimitStrategy_BlanketRule_{BlanketRule: envoytype.RateLimitStrategy_DENY_ALL}}
	case quota.Abandon:
		return &quotas.RateLimitQuotaResponse_BucketAction{
			BucketAction: &quotas.RateLimitQuotaResponse_BucketAction_AbandonAction_{
				AbandonAction: &quotas.RateLimitQuotaResponse_BucketAction_AbandonAction{},
			}}
	default:
		return nil
	}
	return &quotas.RateLimitQuotaResponse_BucketAction{
		BucketAction: &quotas.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
			QuotaAssignmentAction: &quotas.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
				AssignmentTimeToLive: durationpb.New(a.TTL), RateLimitStrategy: strategy,
			},
		}}
}
