package envoy

import (
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// metadata is what Envoy may keep of an answer beside the request, as a Struct: its domain and descriptors, as
// envoyproxy/ratelimit writes them with RESPONSE_DYNAMIC_METADATA, and besides the code of each and
// the place of its limit in the configuration. The metadata of the configuration is that of the first
// limit that has some and has room, so that a route can be chosen by it.
func (c *call) metadata() []byte {
	descriptors := make([]any, len(c.descriptors))
	top := map[string]any{"domain": c.domain, "descriptors": descriptors}
	if c.hits > 0 {
		top["hitsAddend"] = c.hits
	}
	for i := range c.descriptors {
		d, a := &c.descriptors[i], &c.all[i]
		entries := make([]any, 0, d.end-d.first)
		for _, e := range c.of(d) {
			entries = append(entries, e.Key+"="+e.Value)
		}
		one := map[string]any{"entries": entries, "code": a.code().String()}
		descriptors[i] = one
		if d.counted {
			one["hitsAddend"] = d.hits
		}
		if a.limit == nil {
			continue
		}
		one["limitKey"] = a.limit.Path
		if !a.limit.Unlimited {
			told := map[string]any{
				"requestsPerUnit": a.limit.Requests,
				"unit":            ratelimit.RateLimitResponse_RateLimit_Unit(a.limit.Unit).String(),
			}
			if a.limit.Units > 1 {
				told["unitMultiplier"] = a.limit.Units
			}
			one["limit"] = told
		}
		if top["metadata"] == nil && a.limit.Metadata != nil && a.code() == ratelimit.RateLimitResponse_OK {
			top["metadata"] = a.limit.Metadata
		}
	}
	// Texts of the question are UTF-8, which codec has seen to, and what the configuration has can be written in
	// JSON, which its reader has: nothing here is refused.
	told, _ := structpb.NewStruct(top)
	message, _ := proto.Marshal(told)
	return message
}
