package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// naiveScript is the token bucket that is found in many places: as numbers with a fraction, at the time that the caller says it is.
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

// skew is how far the clocks of the naive callers are apart, which is little for machines that set theirs by the network.
const skew = 5 * time.Millisecond

// naive measures k callers of that script, each with a clock of its own.
func (p plan) naive(store *redis, k int, spread traffic) (cell Cell, err error) {
	shape, err := rate.Compile(p.rule())
	if err != nil {
		return cell, err
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{store.address}, DisableCache: true})
	if err != nil {
		return cell, err
	}
	defer client.Close()
	ctx, name := context.Background(), "naive"+strconv.Itoa(int(rand.Uint32()))
	began := time.Now()
	var mu sync.Mutex
	var sent int64
	envelope := simulate.Envelope{Shape: shape}
	var all sync.WaitGroup
	for i := range k {
		each := p.over * float64(p.limit) * spread.share(i, k)
		ahead := time.Duration(0)
		if k > 1 {
			ahead = skew * time.Duration(i) / time.Duration(k-1)
		}
		all.Go(func() {
			for next := began; next.Sub(began) < p.span; next = next.Add(time.Duration(rand.ExpFloat64() / each * float64(time.Second))) {
				time.Sleep(time.Until(next))
				now := strconv.FormatFloat(float64(time.Now().Add(ahead).UnixMicro())/1e6, 'f', 6, 64)
				allowed, errEach := naiveScript.Exec(ctx, client, []string{name}, []string{strconv.FormatInt(p.limit, 10), strconv.FormatInt(p.limit, 10), now}).AsInt64()
				mu.Lock()
				sent++
				if errEach != nil {
					err = errEach
				}
				if allowed == 1 {
					envelope.Admit(time.Since(began), 1)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	return Cell{
		Scope: "naive script", Replicas: k, Traffic: spread.name, Excess: envelope.Excess(), Bound: -1, Sent: sent,
		Used: float64(envelope.Admitted) / (float64(p.limit) * (1 + took.Seconds())), Messages: float64(sent) / took.Seconds(),
	}, err
}
