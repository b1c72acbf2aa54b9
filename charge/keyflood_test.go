package charge_test

import (
	"context"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// forge writes a key that nobody was given into dst: well formed, as an
// attacker makes it who has read the format, or not.
func forge(dst []byte, random *rand.Rand, wellFormed bool) []byte {
	dst = append(dst[:0], "hg_"...)
	for len(dst) < 46 {
		for bits, n := random.Uint64(), 0; n < 10 && len(dst) < 46; n++ {
			dst, bits = append(dst, base62[bits%62]), bits/62
		}
	}
	sum := crc32.ChecksumIEEE(dst)
	if !wellFormed {
		sum ^= 1 + random.Uint32N(1<<30)
	}
	var digits [6]byte
	for i := range digits {
		digits[5-i], sum = base62[sum%62], sum/62
	}
	return append(dst, digits[:]...)
}

// TestA5MadeUpKeysAllocateNoBucket sends a million keys that nobody was given,
// half of them with a right checksum, in every place where keys stand, from one
// address. They spend that address's budget and no other, in one bucket, and
// the heap does not grow. Under the race detector there are 200,000.
func TestA5MadeUpKeysAllocateNoBucket(t *testing.T) {
	const limit, burst = 5, 8 // a second
	template, err := endpoint.ParseTemplate("GET /v1/items/{id}")
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: policy.Default, Limit: limit, Burst: burst},
		{Endpoint: policy.Default, Limit: 1000, Project: "acme"},
	}}, policy.CompileOptions{Endpoints: table})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}
	digester, err := identity.NewDigester(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	ring := &identity.Keyring{}
	if err := ring.Replace([]identity.KeyRecord{{Digest: identity.Digest{1},
		Key: identity.Key{ID: "k", Project: "acme"}}}); err != nil {
		t.Fatal(err)
	}
	// The cache too, which a remote finder would have before it.
	cached, err := identity.NewCachedKeys(identity.CachedKeysOptions{Keys: ring, MaxUnknown: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for name, finder := range map[string]identity.KeyFinder{"keyring": ring, "cached": cached} {
		t.Run(name, func(t *testing.T) {
			who, err := identity.New(identity.Options{
				Keys: finder, Digester: digester, KeySources: identity.KeySources{Header: "X-Api-Key", Bearer: true,
					Query: "api_key"},
			})
			if err != nil {
				t.Fatal(err)
			}
			now := time.Unix(1_800_000_000, 0)
			began := now
			lim, err := headgate.New(headgate.Options{
				Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who,
				Now: func() time.Time { return now },
			})
			if err != nil {
				t.Fatal(err)
			}
			requests := race.Fewer(1_000_000)
			if name == "cached" {
				requests = race.Fewer(100_000) // each is a look-up on a goroutine of its own
			}
			random := rand.New(rand.NewPCG(21, 22))
			header, value := http.Header{}, make([]string, 1)
			address := netip.MustParseAddr("203.0.113.9")
			if name == "cached" {
				address = netip.MustParseAddr("203.0.113.10")
			}
			created := buckets.Stats(now.UnixNano()).Created
			admitted, heap := 0, uint64(0)
			var text []byte
			for i := range requests {
				if i == requests/10 {
					heap = liveHeap()
				}
				now = now.Add(10 * time.Microsecond)
				text = forge(text, random, i%2 == 0)
				r := headgate.Request{Method: "GET", Target: "/v1/items/7", Peer: address, Header: header}
				clear(header)
				switch i % 3 {
				case 0:
					value[0] = string(text)
					header["X-Api-Key"] = value
				case 1:
					value[0] = "Bearer " + string(text)
					header["Authorization"] = value
				case 2:
					r.Target += "?api_key=" + string(text)
				}
				d := lim.Check(context.Background(), r)
				if d.Allowed {
					admitted++
				}
				if d.Principal.Kind != identity.Address || d.Principal.Rejected == identity.NotRejected ||
					d.Principal.Rejected == identity.TooManyCredentials {
					t.Fatalf("a made-up key is %s", d.Principal)
				}
			}
			if most := burst + int(limit*now.Sub(began)/time.Second); admitted > most || admitted < burst {
				t.Errorf("%d made-up keys were admitted %d times in %v, want %d to %d", requests, admitted,
					now.Sub(began), burst, most)
			}
			if n := buckets.Stats(now.UnixNano()).Created - created; n != 1 {
				t.Errorf("%d buckets were created, want the address's one", n)
			}
			if grown := int64(liveHeap()) - int64(heap); grown > 256<<10 {
				t.Errorf("the heap grew by %d bytes over the last nine tenths, want next to none", grown)
			}
			var counted uint64
			for _, n := range who.Rejections() {
				counted += n
			}
			if counted != uint64(requests) {
				t.Errorf("%d rejections are counted, want %d", counted, requests)
			}
			runtime.KeepAlive(lim)
		})
	}
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
