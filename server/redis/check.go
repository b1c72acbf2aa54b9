package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Check says all that is wrong with the servers for keeping buckets, and what to change. It is for the start, before a request depends on it.
func (c *Client) Check(ctx context.Context) error {
	var errs []error
	nodes := c.client.Nodes()
	for _, address := range slices.Sorted(maps.Keys(nodes)) {
		info, err := nodes[address].Do(ctx, nodes[address].B().Info().Build()).ToString()
		if err == nil {
			err = c.checkInfo(parseInfo(info))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("redis %s: %w", address, advise(err, c.options)))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, c.checkScript(ctx))
	}
	return errors.Join(errs...)
}

// checkInfo reads what a server says about itself. Replicas of a cluster are only asked whether they evict.
func (c *Client) checkInfo(info map[string]string) error {
	var errs []error
	if policy := info["maxmemory_policy"]; policy != "noeviction" && policy != "" && info["maxmemory"] != "0" {
		errs = append(errs, fmt.Errorf("maxmemory-policy is %s: it throws away the buckets of those who are over their limit, which fills them; want noeviction, or a server of its own (CONFIG SET maxmemory-policy noeviction)", policy))
	}
	member := info["cluster_enabled"] == "1"
	if member && !c.options.Cluster {
		errs = append(errs, errors.New("it is a member of a cluster, where one script reaches the buckets of one tag only: want cluster: true"))
	}
	if !member && c.options.Cluster {
		errs = append(errs, errors.New("it is no member of a cluster: want cluster: false"))
	}
	if info["role"] == "slave" && !member {
		errs = append(errs, errors.New("it is a replica, which takes no writes: want the address of the primary, or sentinels and the name that they watch it by"))
	}
	return errors.Join(errs...)
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

// checkScript looks at a bucket that nobody has.
func (c *Client) checkScript(ctx context.Context) error {
	store, err := c.Buckets("hg-check")
	if err != nil {
		return err
	}
	nobody := []bucket.Take{{Shape: rate.Shape{Drain: 1, Unit: 1, Capacity: 1, Tick: 1000}, Cost: 1}}
	if _, err := store.Peek(ctx, 0, nobody, make([]bucket.Outcome, 1)); err != nil {
		return fmt.Errorf("redis %s: it does not run the script that decides: %w", strings.Join(c.options.Addresses, ", "), advise(err, c.options))
	}
	return nil
}

// advice is what to change when a server says something.
var advice = []struct{ said, change string }{
	{"WRONGPASS", "want the user and the password that the server has (ACL LIST tells the users)"},
	{"NOAUTH", "the server wants a password, and none is configured"},
	{"NOPERM", "the user needs the commands INFO, EVAL, EVALSHA, TIME, GET, SET, DEL, HGET, HGETALL, HSET, HDEL and PEXPIRE, and all keys that begin with the prefix"},
	{"unknown command", "the server needs the commands INFO, EVAL and EVALSHA: want Redis 6 or later, or Valkey"},
	{"connection refused", "nobody listens there: want the address of a server that runs"},
	{"no such file", "there is no socket of this name: want the server's unixsocket, or host:port"},
	{"no such host", "nobody knows this host"},
	{"i/o timeout", "nobody answers there: want an address that this machine can reach"},
	{"deadline exceeded", "nobody answered in time"},
	{"No such master", "sentinels know no server of this name: want the name of their \"sentinel monitor\" line"},
}

// advise adds what to change.
func advise(err error, o Options) error {
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
