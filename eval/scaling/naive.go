package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// naiveScript is the token bucket that is found in many places: as numbers with a fraction, at the
// time that the caller says it is.
var naiveScript = rueidis.NewLuaScript(`
local rate, burst, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'time')
local tokens, time = tonumber(bucket[1]) or burst, tonumber(bucket[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - time) * rate)
local allowed = 0
if tokens >= 1 then
  tokens, allowed = tokens - 1, 1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'time', now)
redis.call('EXPIRE', KEYS[1], 60)
return allowed`)

// skew is how far the clocks of the naive callers are apart, which is little for machines that set
// theirs by the network.
const skew = 5 * time.Millisecond

// naive measures callers of that script, each with a clock of its own.
func (f *field) naive(k int) ([]Cell, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{f.store.address}, DisableCache: true})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	name, limit := "naive"+strconv.Itoa(int(rand.Uint32())), strconv.FormatInt(f.limit, 10)
	path := "/naive"
	var ways []way
	for i := range k {
		ahead := skew * time.Duration(i) / time.Duration(max(1, k-1))
		ways = append(ways, func() (bool, error) {
			now := strconv.FormatFloat(float64(time.Now().Add(ahead).UnixMicro())/1e6, 'f', 6, 64)
			allowed, err := naiveScript.Exec(context.Background(), client, []string{name},
				[]string{limit, limit, now}).AsInt64()
			if err != nil || allowed == 0 {
				return false, err
			}
			return get(f.client, f.api.URL+path)
		})
	}
	cell, err := f.cell("naive script", ways, traffics[0], path, nil)
	if err != nil {
		return nil, fmt.Errorf("naive script with %d callers: %w", k, err)
	}
	return []Cell{cell}, nil
}
