package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket/redis"
)

// Link is a Client that need not be there yet: until the server can be reached and is in order,
// every script fails, and who depends on it does what it does when the server is away. It is safe
// for concurrent use.
type Link struct {
	options Options
	client  atomic.Pointer[Client] // nil before Connect
}

var (
	_ redis.Evaler    = (*Link)(nil)
	_ redis.Throttler = (*Link)(nil)
)

// NewLink makes a Link, or says what is wrong with o. It does not talk to the server.
func NewLink(o Options) (*Link, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return &Link{options: o}, nil
}

// Connect connects to the server and checks it, if that has not been done. An error says what to change; see Away.
func (l *Link) Connect(ctx context.Context) error {
	if l.client.Load() != nil {
		return nil
	}
	client, err := Dial(l.options)
	if err != nil {
		return err
	}
	if err := client.Check(ctx); err != nil {
		client.Close()
		return err
	}
	if !l.client.CompareAndSwap(nil, client) {
		client.Close() // another was quicker
	}
	return nil
}

// Connected reports whether Connect has succeeded.
func (l *Link) Connected() bool { return l.client.Load() != nil }

// again is the time between two attempts to connect, and patience how long one may take besides.
const (
	again    = time.Second
	patience = 5 * time.Second
)

// Run connects, and tries again until that succeeds or ctx ends. Tried hears how each attempt went.
// What breaks later is for the client to mend.
func (l *Link) Run(ctx context.Context, tried func(error)) {
	for l.client.Load() == nil && ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, patience)
		err := l.Connect(within)
		cancel()
		tried(err)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

var errNotYet = &redis.Error{Cause: redis.Unreachable, Err: errors.New("it was never connected to")}

// Eval runs a script, as Client.Eval does.
func (l *Link) Eval(ctx context.Context, command, script string, keys, args []string) (any, error) {
	client := l.client.Load()
	if client == nil {
		return nil, errNotYet
	}
	return client.Eval(ctx, command, script, keys, args)
}

// Throttle sends CL.THROTTLE, as Client.Throttle does.
func (l *Link) Throttle(ctx context.Context, key string, args ...string) (any, error) {
	client := l.client.Load()
	if client == nil {
		return nil, errNotYet
	}
	return client.Throttle(ctx, key, args...)
}

// Server is the number of the server that has the buckets of a tag: 0 but in a cluster.
func (l *Link) Server(tag uint16) int {
	if client := l.client.Load(); client != nil && client.options.Cluster {
		return client.members.number(redis.Slot(tag))
	}
	return 0
}

// Servers are the addresses of the servers by number, or what sentinels call theirs; "" for those
// that have no buckets any more.
func (l *Link) Servers() []string {
	if client := l.client.Load(); client != nil {
		return client.members.known()
	}
	return []string{l.options.alone()}
}

// Whole are the members of a cluster that answer nothing as soon as one member is gone, as far as they tell.
func (l *Link) Whole(ctx context.Context) []string {
	client := l.client.Load()
	if client == nil || !client.options.Cluster {
		return nil
	}
	return client.whole(ctx)
}

// Try takes from a bucket of a server that nobody has, as Check does.
func (l *Link) Try(ctx context.Context, server int) error {
	client := l.client.Load()
	if client == nil {
		return errNotYet
	}
	return client.checkScript(ctx, client.members.tag(server))
}

// Follow learns how a cluster is divided, until ctx ends. Looked hears whether any member told, and
// which servers have no buckets any more. For others than a cluster, and before Connect, it does
// nothing.
func (l *Link) Follow(ctx context.Context, looked func(retired []int, err error)) {
	client := l.client.Load()
	if client == nil || !client.options.Cluster {
		return
	}
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		retired, err := client.divide(ctx)
		if ctx.Err() == nil {
			looked(retired, err)
		}
	}
}

// Close ends all connections.
func (l *Link) Close() {
	if client := l.client.Load(); client != nil {
		client.Close()
	}
}

// Away reports whether an error of Dial or Check says that a server cannot be reached, or is not
// done with what it does, and nothing worse: waiting may help, and what to do meanwhile is known.
// With all others, waiting does not help.
func Away(err error) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			if !Away(e) {
				return false
			}
		}
		return true
	}
	for _, said := range []string{"tls: ", "x509: "} { // alerts of the other side look like faults of the network
		if strings.Contains(err.Error(), said) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var why *redis.Error
	if errors.As(err, &why) {
		return why.Cause == redis.Unreachable || why.Cause == redis.TimedOut || why.Cause == redis.Busy ||
			why.Cause == redis.OutOfMemory
	}
	if inner := errors.Unwrap(err); inner != nil && Away(inner) {
		return true
	}
	for _, said := range []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "EOF", "connection reset",
		"no such file"} {
		if strings.Contains(err.Error(), said) {
			return true
		}
	}
	return false
}
