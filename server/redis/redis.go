// Package redis connects the buckets that replicas share to Redis, or a server that speaks its
// language: one, one with replicas that sentinels watch, or a cluster.
package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate-io/headgate/bucket/redis"
)

// Options says where the server is. Addresses is required.
type Options struct {
	// Addresses are host:port each, or one path of a unix socket. Of a cluster some of its members
	// suffice; with Sentinel they are those of sentinels.
	Addresses []string

	// Cluster says that they are members of a cluster.
	Cluster bool

	// Sentinel is the name under which sentinels watch the server. Empty means that there are none.
	Sentinel string

	// Username and Password are those of the server, for sentinels too. Without a Username it is
	// the server's default user.
	Username string
	Password string

	// Database is the number of the database, 0 in a cluster.
	Database int

	// Prefix is what the names begin with that Check looks at. Default "hg".
	Prefix string

	// Throttles says that buckets are asked for by CL.THROTTLE, and by no script: see redis.Throttle.
	// There is no cluster then.
	Throttles bool

	// TLS is how to talk to the server; nil is in the clear.
	TLS *tls.Config

	// ConnectTimeout bounds how long connecting may take, and how long a connection may stay silent
	// before it is made anew. Default 1 s. How long a decision may take is for its context to say.
	ConnectTimeout time.Duration
}

// Client is a connection to each server. It is safe for concurrent use, makes what breaks anew, and
// sends what is asked at the same time together (see gatherer).
type Client struct {
	client  rueidis.Client
	options Options
	members members
	ways    [most]way // by number of a member

	secretive atomic.Bool // the servers do not tell their settings
}

// way is how calls to one member fare.
type way struct {
	failing atomic.Bool  // the last call got no answer
	stuck   atomic.Int64 // calls on goroutines of their own
	gather  gatherer
}

var (
	_ redis.Evaler    = (*Client)(nil)
	_ redis.Throttler = (*Client)(nil)
)

// Dial connects to the server. An error says what to change.
func Dial(o Options) (*Client, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	client, err := rueidis.NewClient(o.client())
	if err != nil && o.TLS != nil && Away(err) {
		if why := o.refusal(); why != nil {
			err = why
		}
	}
	if err != nil {
		return nil, fmt.Errorf("redis %s: %w", strings.Join(o.Addresses, ", "), advise(err, o))
	}
	c := &Client{client: client, options: o}
	c.members.names = []string{o.alone()}
	if o.Cluster {
		c.members.names = nil
		_, err = c.divide(context.Background())
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return c, nil
}

func (o *Options) validate() error {
	var errs []error
	if len(o.Addresses) == 0 {
		errs = append(errs, errors.New("addresses is empty, want at least one host:port"))
	}
	for i, a := range o.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil && !(o.socket() && len(o.Addresses) == 1) {
			errs = append(errs, fmt.Errorf("addresses[%d] is %q, want host:port, or one path of a socket alone", i, a))
		}
	}
	if !o.Cluster && o.Sentinel == "" && len(o.Addresses) > 1 {
		errs = append(errs,
			fmt.Errorf(
				"addresses has %d servers, want one; or cluster: true, or the name that sentinels watch the server "+
					"by", len(o.Addresses)))
	}
	if o.Cluster && o.Sentinel != "" {
		errs = append(errs, errors.New("cluster and sentinel are both set, want one: a cluster watches itself"))
	}
	if o.Cluster && o.Throttles {
		errs = append(errs, errors.New("cluster is set, want one server: buckets are asked for by CL.THROTTLE"))
	}
	if o.Cluster && o.Database != 0 {
		errs = append(errs, fmt.Errorf("database is %d, want 0 in a cluster", o.Database))
	}
	return errors.Join(errs...)
}

func (o *Options) socket() bool {
	return len(o.Addresses) > 0 && strings.HasPrefix(o.Addresses[0], "/")
}

func (o *Options) client() rueidis.ClientOption {
	patience := o.ConnectTimeout
	if patience == 0 {
		patience = time.Second
	}
	c := rueidis.ClientOption{
		InitAddress: o.Addresses, Username: o.Username, Password: o.Password, SelectDB: o.Database, TLSConfig: o.TLS,
		ClientName: "headgate", DisableCache: true, AlwaysPipelining: true,
		DisableRetry:      true, // a take that is sent twice may be charged twice
		PipelineMultiplex: -1,   // one connection to a server: what is gathered shall stay together
		ConnWriteTimeout:  patience,
		Dialer:            net.Dialer{Timeout: patience, KeepAlive: patience},
		// What a single address is, is said and not guessed.
		ForceSingleClient: !o.Cluster && o.Sentinel == "",
	}
	if o.socket() {
		c.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
	}
	if o.Sentinel != "" {
		c.Sentinel = rueidis.SentinelOption{
			MasterSet:  o.Sentinel,
			Username:   o.Username,
			Password:   o.Password,
			TLSConfig:  o.TLS,
			ClientName: "headgate",
		}
	}
	return c
}

// Eval runs a script on the server that holds the keys. It returns when ctx is done, also while a
// connection is made anew.
func (c *Client) Eval(ctx context.Context, command, script string, keys, args []string) (any, error) {
	return c.call(ctx, c.client.B().Arbitrary(command, script, strconv.Itoa(len(keys))).Keys(keys...).
		Args(args...).Build())
}

// Throttle sends CL.THROTTLE. It returns when ctx is done, as Eval does.
func (c *Client) Throttle(ctx context.Context, key string, args ...string) (any, error) {
	answer, err := c.call(ctx, c.client.B().Arbitrary("CL.THROTTLE").Keys(key).Args(args...).Build())
	if said, ok := rueidis.IsRedisErr(err); ok && !codeAhead(said.Error()) {
		// the module has errors without a code, which are no faults of the network
		err = &redis.Error{Cause: redis.Refused, Err: err}
	}
	return answer, err
}

// codeAhead reports whether an error begins with a code, as those of servers do: a word in capitals.
func codeAhead(text string) bool {
	code, _, _ := strings.Cut(text, " ")
	return code != "" && strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// call sends a command to the server that has its keys.
func (c *Client) call(ctx context.Context, call rueidis.Completed) (any, error) {
	w := c.way(call)
	if !w.failing.Load() {
		return c.eval(ctx, call, w)
	}
	// The library lets calls wait for another one's attempt to connect, however long that may take
	// and however soon their own time is up.
	if w.stuck.Add(1) > mostStuck {
		w.stuck.Add(-1)
		return nil, errStuck
	}
	type outcome struct {
		answer any
		err    error
	}
	came := make(chan outcome, 1)
	go func() {
		defer w.stuck.Add(-1)
		answer, err := c.eval(ctx, call, w)
		came <- outcome{answer, err}
	}()
	select {
	case o := <-came:
		return o.answer, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// way is that to the member which a call is for. It gets a copy, as asking for the slot would have
// Eval's escape to the heap.
func (c *Client) way(call rueidis.Completed) *way {
	if !c.options.Cluster {
		return &c.ways[0]
	}
	return &c.ways[c.members.number(call.Slot())]
}

// mostStuck bounds the calls that nobody waits for any more.
const mostStuck = 1 << 12

var errStuck = &redis.Error{
	Cause: redis.Unreachable,
	Err:   errors.New("it does not answer, and too many calls wait for a connection"),
}

func (c *Client) eval(ctx context.Context, call rueidis.Completed, w *way) (any, error) {
	answer, err := w.gather.do(ctx, c.client, call).ToAny()
	if failing := err != nil && (Away(err) || errors.Is(err, rueidis.ErrNoSlot)); failing != w.failing.Load() {
		w.failing.Store(failing)
	}
	return answer, err
}

// Buckets are those that the servers keep.
func (c *Client) Buckets(prefix string) (*redis.Store, error) {
	return redis.New(redis.Options{Server: c, Prefix: prefix, Cluster: c.options.Cluster})
}

// Close ends all connections.
func (c *Client) Close() { c.client.Close() }
