package identity

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Verified tokens are remembered, because checking a signature costs more than
// everything else that a request goes through (RSA 30 µs, ECDSA 60 µs).
//
// The cache knows a token by a keyed hash of its text, and never holds the
// text. The hash decides whose budget is spent, so it must be infeasible to
// find another text with the hash of a token that is cached. It is GMAC
// (AES-256-GCM without plaintext) under a key and a nonce drawn at start: for
// whoever knows neither, two texts of up to MaxTokenLength bytes collide with
// probability 513/2^128 at most, because GHASH is a universal hash, and no hash
// ever leaves the process. That GCM breaks when a nonce is used twice needs
// tags that an attacker can see. It takes 140 ns for a token of 600 bytes,
// where HMAC-SHA-256 takes 600.
//
// Only tokens that were verified are kept. Invented ones enter nothing, so they
// drive nothing out.
//
// A set has four places, each a pointer to an entry that never changes: readers
// take no lock, and an entry written twice at once is merely written twice.

const (
	defaultTokenCache = 8192
	defaultTokenTTL   = 30 * time.Second
	maxTokenCache     = 1 << 22
	maxTokenTTL       = 5 * time.Minute

	cacheWays      = 4
	maxCachedClaim = 1 << 10 // bytes of all claims together
)

type tokenCache struct {
	ttl    time.Duration
	start  time.Time // entries count from here, so that a stepped clock does not prolong them
	hashes sync.Pool // of *tokenHash
	sets   [][cacheWays]atomic.Pointer[verifiedToken]
	counts [16]cacheCount
}

// cacheCount has a line of its own in the processors' caches.
type cacheCount struct {
	hits, misses atomic.Uint64
	_            [48]byte
}

type tokenSum [16]byte

// verifiedToken is what is remembered of a token.
type verifiedToken struct {
	sum    tokenSum
	until  time.Duration // after tokenCache.start
	claims Claims
}

// TokenCacheStats is the state of the cache of verified tokens.
type TokenCacheStats struct {
	Entries  int // tokens that are remembered and still good
	Capacity int // tokens that can be
	Hits     uint64
	Misses   uint64
}

func newTokenCache(size int, ttl time.Duration, now time.Time) (*tokenCache, error) {
	sets := 1
	for sets*cacheWays < size {
		sets *= 2
	}
	newHash, err := newTokenHash()
	if err != nil {
		return nil, err
	}
	c := &tokenCache{ttl: ttl, start: now, sets: make([][cacheWays]atomic.Pointer[verifiedToken], sets)}
	c.hashes.New = func() any { return newHash() }
	return c, nil
}

// find returns what is remembered of the token, or nil, and its hash.
func (c *tokenCache) find(text string, now time.Time) (*Claims, tokenSum) {
	sum := c.sum(text)
	set, counts := c.set(&sum), &c.counts[sum[4]%16]
	at := now.Sub(c.start)
	for i := range set {
		if e := set[i].Load(); e != nil && e.sum == sum && at < e.until {
			counts.hits.Add(1)
			return &e.claims, sum
		}
	}
	counts.misses.Add(1)
	return nil, sum
}

// size is how many bytes the texts of claims take.
func (c *Claims) size() int {
	n := len(c.Subject) + len(c.Project) + len(c.Tier) + len(c.Key)
	for _, o := range c.Other {
		n += len(o.Name) + len(o.Value)
	}
	return n
}

// put remembers the claims of a token, at most until they say.
func (c *tokenCache) put(sum tokenSum, claims Claims, now time.Time) {
	life := min(c.ttl, claims.Until.Sub(now))
	if claims.Until.IsZero() || life <= 0 || claims.size() > maxCachedClaim {
		return
	}
	at := now.Sub(c.start)
	set := c.set(&sum)
	victim, soonest := 0, time.Duration(1<<63-1)
	for way := range set {
		i := (way + int(sum[5])) % cacheWays // of equals not always the same one
		e := set[i].Load()
		if e == nil || e.until <= at || e.sum == sum {
			victim = i
			break
		}
		if e.until < soonest {
			victim, soonest = i, e.until
		}
	}
	set[victim].Store(&verifiedToken{sum: sum, until: at + life, claims: claims})
}

func (c *tokenCache) set(sum *tokenSum) *[cacheWays]atomic.Pointer[verifiedToken] {
	word := uint(sum[0]) | uint(sum[1])<<8 | uint(sum[2])<<16 | uint(sum[3])<<24
	return &c.sets[word&uint(len(c.sets)-1)]
}

func (c *tokenCache) stats(now time.Time) TokenCacheStats {
	s := TokenCacheStats{Capacity: len(c.sets) * cacheWays}
	at := now.Sub(c.start)
	for i := range c.sets {
		for j := range c.sets[i] {
			if e := c.sets[i][j].Load(); e != nil && at < e.until {
				s.Entries++
			}
		}
	}
	for i := range c.counts {
		s.Hits += c.counts[i].hits.Load()
		s.Misses += c.counts[i].misses.Load()
	}
	return s
}

func (c *tokenCache) sum(text string) tokenSum {
	h := c.hashes.Get().(*tokenHash)
	n := copy(h.text[:], text)
	if h.gcm != nil {
		h.gcm.Seal(h.out[:0], h.nonce[:], nil, h.text[:n])
	} else {
		h.mac.Reset()
		h.mac.Write(h.text[:n])
		h.mac.Sum(h.out[:0])
	}
	clear(h.text[:n]) // no token outlives its request here
	sum := tokenSum(h.out[:len(tokenSum{})])
	c.hashes.Put(h)
	return sum
}

// tokenHash is the working memory of one hash. gcm or mac is set.
type tokenHash struct {
	gcm   cipher.AEAD
	mac   hash.Hash
	nonce [12]byte
	out   [sha256.Size]byte
	text  [MaxTokenLength]byte
}

// newTokenHash draws a key. Where a program may use GCM only in the ways that
// FIPS 140 approves of, the hash is HMAC-SHA-256, cut to its length.
func newTokenHash() (func() *tokenHash, error) {
	var key [32]byte
	var nonce [12]byte
	for _, secret := range [][]byte{key[:], nonce[:]} {
		if _, err := io.ReadFull(rand.Reader, secret); err != nil {
			return nil, fmt.Errorf("draw the key of the token cache: %w", err)
		}
	}
	if block, err := aes.NewCipher(key[:]); err == nil {
		if gcm, err := cipher.NewGCM(block); err == nil {
			return func() *tokenHash { return &tokenHash{gcm: gcm, nonce: nonce} }, nil
		}
	}
	return func() *tokenHash { return &tokenHash{mac: hmac.New(sha256.New, key[:])} }, nil
}
