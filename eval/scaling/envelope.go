package main

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/rate"
)

// allScopes are those that are measured, in the order of the page.
var allScopes = []string{"local", "split", "lease", "sync", "strict", "gossip"}

var scopes = map[string]bucket.Scope{
	"local":  bucket.Local,
	"split":  bucket.Split,
	"lease":  bucket.Lease,
	"sync":   bucket.Sync,
	"strict": bucket.Strict,
	"gossip": bucket.Gossip,
}

// exact are the scopes that count in one place, as the peers do.
var exact = map[string]bool{"lease": true, "sync": true, "strict": true}

// leaseFree is how many percent of limits of scope lease are free, as gateways have it.
const leaseFree = 20

// syncInterval is how long limits of scope sync wait to be told to the store, as gateways have it.
const syncInterval = 100 * time.Millisecond

// gossipHeard is within which time gateways hear of each other, or presume it.
const gossipHeard = 250 * time.Millisecond

// promise is what Headgate publishes for a limit in a scope, with so many replicas: a limit of
// burst and rate, and tokens beyond it.
func promise(l rate.Limit, scope string, replicas int) (shape rate.Shape, extra int64, err error) {
	e := bucket.Sharing{
		Replicas: replicas,
		TTL:      lease.Terms{}.Complete().TTL,
		Free:     leaseFree,
		Interval: syncInterval,
		Heard:    gossipHeard,
	}.Envelope(l, scopes[scope])
	shape, err = rate.Compile(rate.Limit{Tokens: e.Tokens, Per: e.Per, Burst: e.Burst})
	return shape, e.Excess, err
}

// late is how many tokens the way from a decision to the API may add: what was admitted over a
// longer time arrives in a shorter one if the first of it took longer than the last.
func late(sh rate.Shape, longest time.Duration) int64 { return sh.Drained(longest)/sh.Unit + 1 }
