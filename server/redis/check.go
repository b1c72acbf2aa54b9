package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Check says all that is wrong with the servers for keeping buckets, and what to change. It is for
// the start, before a request depends on it. Members of a cluster that cannot be reached are
// nothing wrong while others can.
func (c *Client) Check(ctx context.Context) error {
	var errs, away []error
	nodes := c.client.Nodes()
	for _, address := range slices.Sorted(maps.Keys(nodes)) {
		info, err := c.info(ctx, nodes[address])
		if err == nil {
			err = c.checkInfo(info)
		}
		switch {
		case err == nil:
		case c.options.Cluster && Away(err):
			away = append(away, fmt.Errorf("redis %s: %w", address, advise(err, c.options)))
		default:
			errs = append(errs, fmt.Errorf("redis %s: %w", address, advise(err, c.options)))
		}
	}
	if len(away) == len(nodes) {
		errs = append(errs, away...)
	}
	if len(errs) == 0 {
		errs = append(errs, c.checkScripts(ctx))
	}
	return errors.Join(errs...)
}

// infoPatience is how long one server may take to tell of itself.
const infoPatience = 2 * time.Second

func (c *Client) info(ctx context.Context, node rueidis.Client) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, infoPatience)
	defer cancel()
	text, err := node.Do(ctx, node.B().Info().Build()).ToString()
	return parseInfo(text), err
}

// whole are the members of a cluster that answer nothing as soon as the buckets of any member have
// no owner. Those that do not tell are not among them.
func (c *Client) whole(ctx context.Context) (addresses []string) {
	nodes := c.client.Nodes()
	for _, address := range slices.Sorted(maps.Keys(nodes)) {
		within, cancel := context.WithTimeout(ctx, infoPatience)
		set, err := nodes[address].Do(within, nodes[address].B().ConfigGet().Parameter("cluster-require-full-coverage").
			Build()).AsStrMap()
		cancel()
		if err == nil && set["cluster-require-full-coverage"] == "yes" {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// checkInfo reads what a server says about itself. Replicas of a cluster are only asked whether they evict.
func (c *Client) checkInfo(info map[string]string) error {
	var errs []error
	if fault := evicts(info); fault != "" {
		errs = append(errs, errors.New(fault))
	}
	if version := info["redis_version"]; older(version, oldest) && !c.options.Throttles {
		errs = append(errs, fmt.Errorf("it is version %s: want Redis %d or later, or Valkey", version, oldest))
	}
	member := info["cluster_enabled"] == "1"
	if member && !c.options.Cluster {
		errs = append(errs,
			errors.New("it is a member of a cluster, where one script reaches the buckets of one tag only: want "+
				"store.cluster: true"))
	}
	if !member && c.options.Cluster {
		errs = append(errs, errors.New("it is no member of a cluster: want store.cluster: false"))
	}
	if info["role"] == "slave" && !member {
		errs = append(errs,
			errors.New("it is a replica, which takes no writes: want the address of the primary, or sentinels and "+
				"the name that they watch it by"))
	}
	return errors.Join(errs...)
}

// oldest is the first major version that speaks as we do, and lets scripts look at the clock before they write.
const oldest = 6

// older reports whether a version is known and before a major one.
func older(version string, major int) bool {
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	return err == nil && n < major
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// checkScripts takes from a bucket that nobody has: from one of each member of a cluster.
func (c *Client) checkScripts(ctx context.Context) error {
	var errs, away []error
	asked := 0
	for server, name := range c.members.known() {
		if name == "" || name == nobody {
			continue
		}
		asked++
		err := c.checkScript(ctx, c.members.tag(server))
		switch {
		case err == nil:
		case c.options.Cluster && Away(err):
			away = append(away, err)
		default:
			errs = append(errs, err)
		}
	}
	if len(away) == asked {
		errs = append(errs, away...)
	}
	return errors.Join(errs...)
}

func (c *Client) checkScript(ctx context.Context, tag uint16) error {
	if c.options.Throttles {
		return c.checkThrottle(ctx)
	}
	store, err := c.Buckets(c.options.Prefix)
	if err != nil {
		return err
	}
	if c.options.Cluster {
		within, cancel := context.WithTimeout(ctx, infoPatience)
		defer cancel()
		ctx = within
	}
	// It is written, as requests do, and forgotten after a millisecond or two.
	place := bucket.Take{Key: key.Key{Hi: 1}, Cost: 1, Tag: tag, Place: 1,
		Shape: rate.Shape{Drain: 1, Unit: 1, Capacity: 1, Tick: int64(time.Second), Algorithm: rate.SlidingLog}}
	nobody := []bucket.Take{{Shape: rate.Shape{Drain: 1, Unit: 1, Capacity: 1, Tick: 1000}, Cost: 1, Tag: tag}, place}
	_, err = store.TryConsume(ctx, 0, nobody, make([]bucket.Outcome, len(nobody)))
	if err == nil {
		given := bucket.Change{Key: place.Key, Shape: place.Shape, Tag: tag, Units: bucket.Fill}
		back := given
		back.Place, back.Units = place.Place, -1
		err = store.Correct(ctx, 0, []bucket.Change{back, given}, make([]int64, 2))
	}
	if err != nil {
		return fmt.Errorf("redis %s: it does not run the script that decides: %w",
			strings.Join(c.options.Addresses, ", "), advise(err, c.options))
	}
	return nil
}

// checkThrottle takes from a bucket that nobody has by CL.THROTTLE. It is full again within a second.
func (c *Client) checkThrottle(ctx context.Context) error {
	store, err := redis.NewThrottle(c, c.options.Prefix)
	if err != nil {
		return err
	}
	nobody := []bucket.Take{{Shape: rate.Shape{Drain: 1, Unit: 1, Capacity: 1, Tick: int64(time.Millisecond)}, Cost: 1}}
	if _, err := store.TryConsume(ctx, 0, nobody, make([]bucket.Outcome, 1)); err != nil {
		return fmt.Errorf("redis %s: it does not answer CL.THROTTLE: %w", strings.Join(c.options.Addresses, ", "),
			advise(err, c.options))
	}
	return nil
}

// needed are the commands that a user of the store has to be allowed.
const needed = "INFO, EVAL, EVALSHA, TIME, GET, SET, DEL, HGET, HGETALL, HSET, HDEL, PEXPIRE, ZADD, ZCOUNT, ZREM, " +
	"ZREMRANGEBYRANK, ZREMRANGEBYSCORE, ZREVRANGE and ZSCORE"

// advice is what to change when a server, or the way to it, says something. The first that fits is given.
var advice = []struct{ said, change string }{
	{"CL.THROTTLE", "want a Redis with the module redis-cell (MODULE LIST tells), Dragonfly, or store.kind: " +
		"scripts; and a user who may run it"},
	{"WRONGPASS", "want the user and the password that the server has (ACL LIST tells the users)"},
	{"NOAUTH", "the server wants a password, and none is configured: want store.password_file"},
	{"access one of the keys",
		"the user needs all keys that begin with the prefix: want ~PREFIX* in its ACL, or another store.prefix"},
	{"NOPERM", "the user needs the commands " + needed + "; in a cluster CLUSTER SLOTS too"},
	{"unknown command 'SENTINEL'", "it is no sentinel: want the addresses of sentinels, or store.sentinel left out"},
	{"can't run this command",
		"the user needs the commands " + needed},
	{"can't access at least one of the keys",
		"the user needs all keys that begin with the prefix: want ~PREFIX* in its ACL, or another store.prefix"},
	{"out of range", "the server has no database of this number: want store.database below its setting databases"},
	{"unknown command", "the server needs the commands INFO, EVAL and EVALSHA: want Redis 6 or later, or Valkey"},
	{"cluster support disabled", "it is no member of a cluster: want store.cluster: false"},
	{"signed by unknown authority", "want store.tls.ca_file, the certificate of whoever signed the server's"},
	{"certificate is valid for", "want store.tls.server_name, or an address, that the server's certificate is for"},
	{"certificate is not valid for any names",
		"want store.tls.server_name, or an address, that the server's certificate is for"},
	{"doesn't contain any IP SANs", "want store.tls.server_name, the name that the server's certificate is for"},
	{"certificate has expired", "want a new certificate of the server, and right clocks"},
	{"certificate required",
		"the server wants a certificate of this gateway: want store.tls.cert_file and store.tls.key_file"},
	{"remote error: tls:", "the server does not take the certificate of this gateway: want one in " +
		"store.tls.cert_file that the server's authority has signed"},
	{errPlain.Error(), "the server speaks no TLS there: want store.tls.enabled: false, or its tls-port"},
	{"connection refused", "nobody listens there: want the address of a server that runs"},
	{"no such file", "there is no socket of this name: want the server's unixsocket, or host:port"},
	{"no such host", "nobody knows this host"},
	{"i/o timeout", "nobody answers there: want an address that this machine can reach"},
	{"deadline exceeded", "nobody answered in time"},
	{"No such master", "sentinels know no server of this name: want the name of their \"sentinel monitor\" line"},
	{"EOF", "the server ended the connection: if it speaks TLS there, want store.tls.enabled: true"},
	{"connection reset", "the server ended the connection: if it speaks TLS there, want store.tls.enabled: true"},
}

// unnumbered is an error of the network without the port at this end. That is another one each
// time, and what is said once for as long as it is the same would be said again and again.
type unnumbered struct {
	error
	text string
}

func (e *unnumbered) Error() string { return e.text }
func (e *unnumbered) Unwrap() error { return e.error }

// advise adds what to change.
func advise(err error, o Options) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Source != nil {
		err = &unnumbered{err, strings.ReplaceAll(err.Error(), op.Source.String()+"->", "")}
	}
	text := err.Error()
	if o.Password != "" && strings.Contains(text, o.Password) {
		err = errors.New(strings.ReplaceAll(text, o.Password, "(the password)"))
	}
	for _, a := range advice {
		if strings.Contains(text, a.said) {
			return fmt.Errorf("%w: %s", err, a.change)
		}
	}
	return err
}
