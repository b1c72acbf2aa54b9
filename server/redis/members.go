package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate-io/headgate/bucket/redis"
)

// members is which members of a cluster have the buckets. Each has a number, which it keeps while
// it has any; one that takes over all of another's, as a replica does that is promoted, takes over
// its number. One server alone is number 0.
type members struct {
	of atomic.Pointer[[redis.Slots]uint16] // numbers by slot; nil for one server alone

	mu    sync.Mutex
	names []string // guarded by mu; addresses by number, "" for those that have no buckets any more
}

// most bounds the members that are told apart: clusters have up to a thousand.
const most = 1 << 10

// slots is a range of slots, and who has it.
type slots struct {
	first, last int
	address     string
}

// number is that of the member which has a slot.
func (m *members) number(slot uint16) int {
	if of := m.of.Load(); of != nil {
		return int(of[slot%redis.Slots])
	}
	return 0
}

// tag is one whose buckets a member has: 0 for one server alone.
func (m *members) tag(number int) uint16 {
	for tag := range uint16(1<<16 - 1) {
		if m.number(redis.Slot(tag)) == number {
			return tag
		}
	}
	return 0
}

// known are the addresses of all members by number.
func (m *members) known() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.names)
}

// learn takes in how a cluster is divided now, and reports the numbers of those that have nothing any more.
func (m *members) learn(ranges []slots) (retired []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	owners := map[string]bool{}
	for _, r := range ranges {
		owners[r.address] = true
	}
	before := m.of.Load()
	for _, r := range ranges {
		if slices.Contains(m.names, r.address) {
			continue
		}
		at := -1
		if before != nil {
			if heir := int(before[r.first]); !owners[m.names[heir]] {
				at = heir
			}
		}
		m.name(at, r.address)
	}
	var of [redis.Slots]uint16
	if before != nil {
		of = *before // of slots that nobody has at the moment
	}
	var had [redis.Slots]bool
	for _, r := range ranges {
		n := uint16(max(0, slices.Index(m.names, r.address)))
		for slot := r.first; slot <= r.last; slot++ {
			of[slot], had[slot] = n, true
		}
	}
	nobodys := -1
	for slot, n := range of {
		if had[slot] || len(m.names) == 0 || !owners[m.names[n]] {
			continue
		}
		if nobodys < 0 {
			nobodys = m.nobodys()
		}
		of[slot] = uint16(nobodys)
	}
	for n, name := range m.names {
		if name != "" && !owners[name] && !slices.Contains(of[:], uint16(n)) {
			m.names[n] = ""
			retired = append(retired, n)
		}
	}
	m.of.Store(&of)
	return retired
}

// name gives a member a number: that of another one, or the first free one with -1.
func (m *members) name(at int, address string) {
	if at < 0 {
		at = slices.Index(m.names, "")
	}
	switch {
	case at >= 0:
		m.names[at] = address
	case len(m.names) < most:
		m.names = append(m.names, address)
	}
}

// nobody is what has the slots that no member has, while whoever had them has others. They fail,
// and by a number of their own: nobody is to take a member for lost for their sake, and the library
// fails a whole batch for one of them.
const nobody = "nobody"

func (m *members) nobodys() int {
	if !slices.Contains(m.names, nobody) {
		m.name(-1, nobody)
	}
	return max(0, slices.Index(m.names, nobody))
}

// look asks a member that answers how the cluster is divided.
func (c *Client) look(ctx context.Context) ([]slots, error) {
	nodes := c.client.Nodes()
	if len(nodes) == 0 { // the library knows of those that have slots
		return nil, fmt.Errorf("redis %s: %w", strings.Join(c.options.Addresses, ", "), errNoSlots)
	}
	var errs []error
	for address, node := range nodes {
		within, cancel := context.WithTimeout(ctx, lookPatience)
		answer, err := node.Do(within, node.B().ClusterSlots().Build()).ToArray()
		cancel()
		var ranges []slots
		if err == nil {
			ranges, err = readSlots(answer, address)
		}
		if err == nil && len(ranges) > 0 {
			return ranges, nil
		}
		if err == nil {
			err = errNoSlots
		}
		errs = append(errs, fmt.Errorf("redis %s: %w", address, advise(err, c.options)))
	}
	return nil, errors.Join(errs...)
}

var errNoSlots = errors.New(
	"no member of the cluster has any buckets: want one that is set up (redis-cli --cluster create)")

// lookPatience is how long one member may take to tell of the others; lookEvery is how often one is asked.
const (
	lookPatience = 500 * time.Millisecond
	lookEvery    = time.Second
)

// readSlots reads what CLUSTER SLOTS answers: for each range the first and the last slot, and the
// servers, the primary first.
func readSlots(answer []rueidis.RedisMessage, asked string) (ranges []slots, err error) {
	for _, entry := range answer {
		fields, err := entry.ToArray()
		if err != nil || len(fields) < 3 {
			return nil, errOddSlots
		}
		first, err1 := fields[0].AsInt64()
		last, err2 := fields[1].AsInt64()
		primary, err3 := fields[2].ToArray()
		if errors.Join(err1, err2, err3) != nil || len(primary) < 2 || first < 0 || last < first ||
			last >= redis.Slots {
			return nil, errOddSlots
		}
		host, _ := primary[0].ToString() // nil is whoever was asked
		port, err := primary[1].AsInt64()
		if err != nil {
			return nil, errOddSlots
		}
		if host == "" || host == "?" {
			host, _, _ = net.SplitHostPort(asked)
		}
		ranges = append(ranges, slots{int(first), int(last), net.JoinHostPort(host, strconv.FormatInt(port, 10))})
	}
	return ranges, nil
}

var errOddSlots = errors.New("CLUSTER SLOTS answers what no cluster does")

// divide learns how the cluster is divided, if it is one.
func (c *Client) divide(ctx context.Context) (retired []int, err error) {
	if !c.options.Cluster {
		return nil, nil
	}
	ranges, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	return c.members.learn(ranges), nil
}

// alone is what a server that is no cluster is called.
func (o *Options) alone() string {
	if o.Sentinel != "" {
		return o.Sentinel
	}
	return strings.Join(o.Addresses, ",")
}
