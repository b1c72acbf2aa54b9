package redis_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	buckets "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/redis"
)

// bareSource is as little as a token bucket of one key can be: floats, a limit that never changes, one answer.
const bareSource = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, at = tonumber(held[1]) or burst, tonumber(held[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
local allowed = 0
if tokens >= cost then
  tokens, allowed = tokens - cost, 1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil((burst - tokens) / rate / 1000) + 1)
return allowed
`

// plainSource is less than that: the clock is the caller's, and nothing expires.
const plainSource = `
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local rate, burst, cost, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local tokens, at = tonumber(held[1]) or burst, tonumber(held[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
local allowed = 0
if tokens >= cost then
  tokens, allowed = tokens - cost, 1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
return allowed
`

const benchKeys = 10_000

// perServer runs decisions from many goroutines at once, and reports what one costs the server.
func perServer(b *testing.B, decide decider) {
	server := redistest.Start(b)
	client := dial(b, redis.Options{Addresses: []string{server.Socket}})
	if err := decide(client, rand.New(rand.NewPCG(1, 1))); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(32)
	before := server.CPU()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
		for pb.Next() {
			if err := decide(client, rng); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric((server.CPU()-before)*1e6/float64(b.N), "server-us/op")
}

func BenchmarkBareScript(b *testing.B)  { benchScript(b, bareSource) }
func BenchmarkPlainScript(b *testing.B) { benchScript(b, plainSource) }

func benchScript(b *testing.B, source string) { perServer(b, scripted(source)) }

// decider makes one decision.
type decider func(client *redis.Client, rng *rand.Rand) error

func scripted(source string) decider {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	var known atomic.Bool
	return func(client *redis.Client, rng *rand.Rand) error {
		keys := []string{"bare:" + strconv.Itoa(10_000_000+rng.IntN(benchKeys))}
		args := []string{"0.00001", "1000", "1", strconv.FormatInt(time.Now().UnixMicro(), 10)}
		command, script := "EVALSHA", sha
		if !known.Swap(true) {
			command, script = "EVAL", source
		}
		_, err := client.Eval(context.Background(), command, script, keys, args)
		return err
	}
}

func BenchmarkOneBucket(b *testing.B)    { benchTakes(b, 1) }
func BenchmarkThreeBuckets(b *testing.B) { benchTakes(b, 3) }

func benchTakes(b *testing.B, n int) { perServer(b, taking(b, n)) }

func taking(b *testing.B, n int) decider {
	shape, err := rate.Compile(rate.Limit{Tokens: 10, Per: time.Second, Burst: 1000})
	if err != nil {
		b.Fatal(err)
	}
	var once sync.Once
	var store *buckets.Store
	return func(client *redis.Client, rng *rand.Rand) error {
		var err error
		if once.Do(func() { store, err = client.Buckets("") }); err != nil {
			return err
		}
		takes, outs := make([]bucket.Take, n), make([]bucket.Outcome, n)
		for i := range takes {
			takes[i] = bucket.Take{Key: buckettest.Key(rng.Uint64N(benchKeys)), Shape: shape, Cost: 1}
			takes[i].Key.Hi += uint64(i)
		}
		_, err = store.TryConsume(context.Background(), 0, takes, outs)
		return err
	}
}

// BenchmarkAgainstOtherScripts has a decision over one bucket and the two scripts take turns, each
// on a server of its own, and reports how many decisions a second of the server's work buys, as a
// part of what each script makes of it: the median of all turns, as other work on the machine tells
// on single ones.
func BenchmarkAgainstOtherScripts(b *testing.B) {
	const turns, decisions, callers = 61, 12_800, 64
	names := []string{"bare", "plain"}
	deciders := []decider{scripted(bareSource), scripted(plainSource), taking(b, 1)}
	servers, clients := make([]*redistest.Server, 3), make([]*redis.Client, 3)
	for i, decide := range deciders {
		servers[i] = redistest.Start(b)
		clients[i] = dial(b, redis.Options{Addresses: []string{servers[i].Socket}})
		if err := decide(clients[i], rand.New(rand.NewPCG(1, 1))); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		var ratios [2][]float64
		for range turns {
			var cost [3]float64
			for i, decide := range deciders {
				before := servers[i].CPU()
				var wg sync.WaitGroup
				for caller := range uint64(callers) {
					wg.Go(func() {
						rng := rand.New(rand.NewPCG(rand.Uint64(), caller))
						for range decisions / callers {
							if err := decide(clients[i], rng); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				cost[i] = servers[i].CPU() - before
			}
			for i := range ratios {
				ratios[i] = append(ratios[i], cost[i]/cost[2])
			}
		}
		for i, name := range names {
			slices.Sort(ratios[i])
			b.ReportMetric(ratios[i][turns/2], "of-"+name)
		}
	}
}

// BenchmarkBytesPerBucket fills a server with a million buckets in debt, of four limits. The
// server's tables are nearly full then: they double with one more in 1,048,576, and a bucket takes
// 16 bytes more.
func BenchmarkBytesPerBucket(b *testing.B) {
	const buckets = 1_000_000
	server := redistest.Start(b)
	s := store(b, dial(b, redis.Options{Addresses: []string{server.Socket}}))
	var shapes []rate.Shape
	for _, l := range []rate.Limit{
		{Tokens: 5, Per: time.Minute, Burst: 100, Algorithm: rate.LeakyBucket},
		{Tokens: 100, Per: time.Hour, Burst: 100},
		{Tokens: 1, Per: time.Second, Burst: 1_000},
		{Tokens: 1_000_003, Per: 24 * time.Hour, Burst: 1_000_003},
	} {
		shape, err := rate.Compile(l)
		if err != nil {
			b.Fatal(err)
		}
		shapes = append(shapes, shape)
	}
	for b.Loop() {
		server.Do("FLUSHALL", "SYNC")
		before := memory(b, server)
		var wg sync.WaitGroup
		for caller := range uint64(64) {
			wg.Go(func() {
				for n := caller; n < buckets; n += 64 {
					take := bucket.Take{Key: buckettest.Key(n), Tag: uint16(n), Shape: shapes[n%4],
						Cost: shapes[n%4].Burst()}
					if _, err := s.TryConsume(context.Background(), 0, []bucket.Take{take},
						make([]bucket.Outcome, 1)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if size := server.Do("DBSIZE"); size != int64(buckets) {
			b.Fatalf("there are %v buckets, want %d", size, buckets)
		}
		b.ReportMetric(float64(memory(b, server)-before)/buckets, "B/bucket")
	}
}

func memory(b *testing.B, server *redistest.Server) int {
	for line := range strings.Lines(server.Do("INFO", "memory").(string)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			n, err := strconv.Atoi(value)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("the server does not say how much memory it uses")
	return 0
}
