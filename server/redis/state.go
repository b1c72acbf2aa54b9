package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// State is what the servers of a store tell of themselves while they are in use. It may be another
// one than at the start: settings are changed, and replicas promoted.
type State struct {
	Faults []string // by which buckets are lost now, one a server
	Risks  []string // by which a failover may admit a limit twice, one a server

	// Offset is by how much the clock of this machine is ahead of that of the server that differs
	// most, Within how far that may be wrong.
	Offset, Within time.Duration

	// Trip is how long the slowest server takes to answer: the least of a few times, with nothing
	// else under way for it.
	Trip time.Duration
}

// looks is how often a server is asked for the time, of which the quickest answer counts.
const looks = 10

// State asks all servers. Those that do not answer are not among those told of; if none does, it is an error.
func (c *Client) State(ctx context.Context) (state State, err error) {
	answered := false
	nodes := c.client.Nodes()
	for _, address := range slices.Sorted(maps.Keys(nodes)) {
		info, failed := c.info(ctx, nodes[address])
		if failed != nil {
			err = failed
			continue
		}
		answered = true
		if fault := evicts(info); fault != "" {
			state.Faults = append(state.Faults, fmt.Sprintf("redis %s: %s", address, fault))
		}
		if info["role"] != "master" {
			continue
		}
		if wrong := c.unguarded(ctx, nodes[address], info); wrong != "" {
			state.Risks = append(state.Risks, fmt.Sprintf("redis %s: %s; "+
				"want min-replicas-to-write 1 and min-replicas-max-lag %d (CONFIG SET), on it and its replicas",
				address, wrong, maxLag))
		}
		state.measure(ctx, nodes[address])
	}
	if answered {
		err = nil
	}
	return state, err
}

// evicts says why a server throws away buckets, or "".
func evicts(info map[string]string) string {
	policy := info["maxmemory_policy"]
	if policy == "noeviction" || policy == "" || info["maxmemory"] == "0" {
		return ""
	}
	return fmt.Sprintf("maxmemory-policy is %s: it throws away the buckets of those who are over their limit, "+
		"which fills them; want noeviction, or a server of its own (CONFIG SET maxmemory-policy noeviction)", policy)
}

// maxLag is for how many seconds a primary that hears of no replica may go on: Redis tells that in
// whole seconds, and replicas speak once in each.
const maxLag = 2

// unguarded says why a primary that is replaced by a replica would go on, or "". A server tells how
// many good replicas it has only if it wants some. After how long it misses them it tells those
// alone who may read its settings.
func (c *Client) unguarded(ctx context.Context, node rueidis.Client, info map[string]string) string {
	replicas := info["connected_slaves"] != "" && info["connected_slaves"] != "0"
	if c.options.Sentinel == "" && !(c.options.Cluster && replicas) {
		return ""
	}
	if _, guarded := info["min_slaves_good_slaves"]; !guarded {
		return "it goes on alone when it is cut off from its replicas, while one of them is promoted: both admit " +
			"the whole limit until that ends"
	}
	if lag := c.lag(ctx, node); lag > maxLag {
		return fmt.Sprintf("min-replicas-max-lag is %d: when it is cut off from its replicas it goes on for so "+
			"many seconds, and if one is promoted before, "+
			"both admit the whole limit until then", lag)
	}
	return ""
}

// lag is min-replicas-max-lag of a server, or 0 if it does not tell. One that refuses is not asked
// again: it may write down each refusal.
func (c *Client) lag(ctx context.Context, node rueidis.Client) (seconds int) {
	const setting = "min-replicas-max-lag"
	if c.secretive.Load() {
		return 0
	}
	within, cancel := context.WithTimeout(ctx, infoPatience)
	defer cancel()
	set, err := node.Do(within, node.B().ConfigGet().Parameter(setting).Build()).AsStrMap()
	if _, refused := rueidis.IsRedisErr(err); refused {
		c.secretive.Store(true)
	}
	seconds, _ = strconv.Atoi(set[setting])
	return seconds
}

// measure compares the clock of a server with this machine's.
func (s *State) measure(ctx context.Context, node rueidis.Client) {
	best := State{Trip: -1}
	for range looks {
		within, cancel := context.WithTimeout(ctx, infoPatience)
		sent := time.Now()
		answer, err := node.Do(within, node.B().Time().Build()).AsStrSlice()
		trip := time.Since(sent)
		cancel()
		at, ok := serverTime(answer)
		if err != nil || !ok {
			return
		}
		if best.Trip < 0 || trip < best.Trip {
			best = State{Offset: sent.Add(trip / 2).Sub(at), Within: trip/2 + time.Microsecond, Trip: trip}
		}
	}
	s.Trip = max(s.Trip, best.Trip)
	if best.Offset.Abs() >= s.Offset.Abs() {
		s.Offset, s.Within = best.Offset, best.Within
	}
}

// serverTime reads what TIME answers: seconds and microseconds.
func serverTime(answer []string) (time.Time, bool) {
	if len(answer) != 2 {
		return time.Time{}, false
	}
	var seconds, micros int64
	if n, err := fmt.Sscan(strings.Join(answer, " "), &seconds, &micros); n != 2 || err != nil {
		return time.Time{}, false
	}
	return time.Unix(seconds, micros*1000), true
}

// lookAgain is the time between two looks at the servers.
const lookAgain = 10 * time.Second

// Watch looks at the servers again and again until ctx ends: so a setting that is changed, or a
// replica that is promoted, is noticed soon. Saw hears of each look.
func (l *Link) Watch(ctx context.Context, saw func(State, error)) {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		if client := l.client.Load(); client != nil {
			if state, err := client.State(ctx); ctx.Err() == nil {
				saw(state, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// State is Client.State of a Link that has connected; else it tells nothing.
func (l *Link) State(ctx context.Context) (State, error) {
	if client := l.client.Load(); client != nil {
		return client.State(ctx)
	}
	return State{}, errNotYet
}
