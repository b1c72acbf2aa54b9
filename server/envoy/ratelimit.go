package envoy

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wire "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/quota"
)

// Descriptors say how requests of Envoy's rate limit filter are answered, which
// names what it asks about by descriptors in place of a request.
type Descriptors struct {
	// Limits returns those in force.
	Limits func() *descriptor.Limits

	// Buckets keeps the counters, where Reach says.
	Buckets bucket.Store
	Reach   bucket.Reach

	// Name names the counter of a subject in a domain, and tells what the counters
	// of a domain are kept together by (bucket.Take.Tag).
	Name func(domain string, subject []byte) (key.Key, uint16)

	// Now is the time in Unix nanoseconds.
	Now func() int64

	// Observe, if set, is told of each descriptor that met a limit.
	Observe func(limit *descriptor.Limit, over bool)

	// Quotas lends to Envoys that decide by themselves. Nil has none do that.
	Quotas *quota.Book
}

// Bounds of one question.
const (
	maxDescriptors = 100
	maxEntries     = 50
)

// rateLimiting is the service that the filter calls (envoy.service.ratelimit.v3).
type rateLimiting struct {
	ratelimit.UnimplementedRateLimitServiceServer
	Descriptors
	failed func(decisions.Fault, error)
}

// asked is a descriptor of a question.
type asked struct {
	limit *descriptor.Limit // nil if none counts
	take  int               // which of the takes is its; -1 if it has none
	back  bool              // its hits are given back
}

// ShouldRateLimit answers one question: all its descriptors have room, and are
// charged, or none is. What is no question is an error of the call, and so is a
// store that cannot be asked.
func (s *rateLimiting) ShouldRateLimit(ctx context.Context, question *ratelimit.RateLimitRequest) (response *ratelimit.RateLimitResponse, err error) {
	defer recovered(s.failed, &err)
	if err := check(question); err != nil {
		s.failed(decisions.Incomplete, err)
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	all, takes, refunds := s.plan(question)
	outs := make([]bucket.Outcome, len(takes))
	allowed, err := s.decide(ctx, all, takes, outs, refunds)
	if err != nil {
		return nil, grpcstatus.Error(codes.Unavailable, "the limits cannot be checked at the moment")
	}
	return s.reply(all, outs, allowed), nil
}

func check(q *ratelimit.RateLimitRequest) error {
	switch n := len(q.GetDescriptors()); {
	case q.GetDomain() == "":
		return errors.New("domain is missing")
	case n == 0:
		return errors.New("descriptors is empty, want one or more")
	case n > maxDescriptors:
		return errors.New("descriptors has more than " + strconv.Itoa(maxDescriptors) + ", want that many at most")
	}
	for _, d := range q.GetDescriptors() {
		if n := len(d.GetEntries()); n == 0 || n > maxEntries {
			return errors.New("a descriptor has " + strconv.Itoa(n) + " entries, want 1 to " + strconv.Itoa(maxEntries))
		}
	}
	return nil
}

// plan finds the limit of each descriptor and what is to be taken. Descriptors
// that have one counter take from it together.
func (s *rateLimiting) plan(q *ratelimit.RateLimitRequest) (all []asked, takes, refunds []bucket.Take) {
	limits := s.Limits()
	all = make([]asked, len(q.GetDescriptors()))
	entries := make([][]descriptor.Entry, len(all))
	for i, d := range q.GetDescriptors() {
		for _, e := range d.GetEntries() {
			entries[i] = append(entries[i], descriptor.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		all[i] = asked{limit: limits.Find(q.GetDomain(), entries[i]), take: -1, back: d.GetIsNegativeHits()}
	}
	for i := range all {
		if all[i].limit != nil && replaced(all, all[i].limit) {
			all[i].limit = nil
		}
	}
	for i := range all {
		limit := all[i].limit
		if limit == nil || limit.Unlimited || limit.Nothing {
			continue
		}
		take := bucket.Take{
			Shape: limit.Shape, Since: limit.Since, Before: limit.Before,
			Cost: hits(q, q.GetDescriptors()[i]), Shadow: limit.Shadow || limit.Quota, Reach: s.Reach,
		}
		take.Key, take.Tag = s.Name(q.GetDomain(), limit.Subject(nil, entries[i]))
		if all[i].back {
			back := take
			back.Cost = min(back.Cost, limit.Shape.Burst()) // there is no more to give back
			refunds = append(refunds, back)
			take.Cost = 0 // and the answer says what is there
		}
		all[i].take = slices.IndexFunc(takes, func(t bucket.Take) bool { return t.Key == take.Key })
		if at := all[i].take; at >= 0 {
			takes[at].Cost = min(takes[at].Cost, math.MaxInt64-take.Cost) + take.Cost
			continue
		}
		all[i].take = len(takes)
		takes = append(takes, take)
	}
	return all, takes, refunds
}

// replaced reports whether another descriptor's limit stands in place of this one.
func replaced(all []asked, limit *descriptor.Limit) bool {
	return limit.Name != "" && slices.ContainsFunc(all, func(a asked) bool {
		return a.limit != nil && a.limit != limit && slices.Contains(a.limit.Replaces, limit.Name)
	})
}

// hits is what a descriptor costs: what it says itself, and then 0 only looks; or
// what the question says, in which 0 is 1.
func hits(q *ratelimit.RateLimitRequest, d *wire.RateLimitDescriptor) int64 {
	if own := d.GetHitsAddend(); own != nil {
		return int64(min(own.GetValue(), math.MaxInt64))
	}
	return int64(max(1, q.GetHitsAddend()))
}

// decide takes what is asked for, and gives back what is given back.
func (s *rateLimiting) decide(ctx context.Context, all []asked, takes []bucket.Take, outs []bucket.Outcome, refunds []bucket.Take) (allowed bool, err error) {
	now := s.Now()
	refused := slices.ContainsFunc(all, func(a asked) bool { return a.limit != nil && a.limit.Nothing && !a.limit.Shadow })
	if !refused {
		if err := s.giveBack(ctx, now, 0, refunds); err != nil {
			return false, err
		}
	}
	switch {
	case len(takes) == 0:
		return !refused, nil
	case refused: // nothing is charged for what does not pass
		if _, err = s.Buckets.Peek(ctx, now, takes, outs); err == nil {
			stay(takes, outs)
		}
		return false, err
	}
	if allowed, err = s.Buckets.TryConsume(ctx, now, takes, outs); err != nil || !allowed || !exhausted(all, outs) {
		return allowed, err
	}
	// The others' room was for a request that does not pass.
	charged := slices.DeleteFunc(slices.Clone(takes), func(t bucket.Take) bool { return t.Shadow || t.Cost == 0 })
	if err = s.giveBack(ctx, now, now, charged); err == nil {
		for i := range outs {
			if !takes[i].Shadow {
				stay(takes[i:i+1], outs[i:i+1])
			}
		}
	}
	return false, err
}

// giveBack returns what takes cost to their counters. It was taken at charged; 0 stands for nobody knows when.
func (s *rateLimiting) giveBack(ctx context.Context, now, charged int64, takes []bucket.Take) error {
	changes := make([]bucket.Change, len(takes))
	for i := range takes {
		t := &takes[i]
		units, _ := t.Shape.Units(t.Cost) // which is no more than its burst
		changes[i] = bucket.Change{
			Key: t.Key, Shape: t.Shape, Tag: t.Tag, Reach: t.Reach, Since: t.Since, Before: t.Before,
			Units: -units, Charged: charged,
		}
	}
	return s.Buckets.Correct(ctx, now, changes, make([]int64, len(changes)))
}

// stay turns what would be left into what is there.
func stay(takes []bucket.Take, outs []bucket.Outcome) {
	for i := range outs {
		if outs[i].Allowed && !outs[i].Unknown {
			outs[i].Remaining += takes[i].Cost
		}
	}
}

// exhausted reports whether there are limits that refuse only together, and all do.
func exhausted(all []asked, outs []bucket.Outcome) bool {
	quotas := 0
	for _, a := range all {
		if a.take < 0 || !a.limit.Quota || a.limit.Shadow {
			continue
		}
		if outs[a.take].Allowed {
			return false
		}
		quotas++
	}
	return quotas > 0
}

// reply says what became of each descriptor.
func (s *rateLimiting) reply(all []asked, outs []bucket.Outcome, allowed bool) *ratelimit.RateLimitResponse {
	response := &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK, Statuses: make([]*ratelimit.RateLimitResponse_DescriptorStatus, len(all))}
	if !allowed {
		response.OverallCode = ratelimit.RateLimitResponse_OVER_LIMIT
	}
	var wait time.Duration
	for i, a := range all {
		status := &ratelimit.RateLimitResponse_DescriptorStatus{Code: ratelimit.RateLimitResponse_OK}
		response.Statuses[i] = status
		if a.limit == nil {
			continue
		}
		over := a.limit.Nothing
		switch {
		case a.limit.Unlimited:
			status.LimitRemaining = math.MaxUint32
			continue
		case a.take >= 0:
			out := &outs[a.take]
			over = !out.Allowed
			status.LimitRemaining = uint32(min(out.Remaining, math.MaxUint32))
			reset := out.ResetAfter
			if over {
				reset = out.RetryAfter
			}
			status.DurationUntilReset = durationpb.New(reset)
			if over && !a.limit.Shadow {
				wait = max(wait, out.RetryAfter)
			}
		}
		status.CurrentLimit = &ratelimit.RateLimitResponse_RateLimit{
			Name: a.limit.Name, RequestsPerUnit: a.limit.Requests, Unit: ratelimit.RateLimitResponse_RateLimit_Unit(a.limit.Unit),
		}
		if over && !a.limit.Shadow {
			status.Code = ratelimit.RateLimitResponse_OVER_LIMIT
		}
		if s.Observe != nil {
			s.Observe(a.limit, over)
		}
	}
	if !allowed && wait > 0 {
		response.ResponseHeadersToAdd = []*core.HeaderValue{{Key: "retry-after", Value: strconv.FormatInt(rate.Seconds(wait), 10)}}
	}
	return response
}
