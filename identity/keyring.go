package identity

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

// Key is an API key without its Digest.
type Key struct {
	// ID is the stable name of the key: what its budget, logs and metrics are
	// named by. Required.
	ID      string
	Project string    // the tenant; empty if there are none
	Tier    string    // the tenant's tier; empty if the policy says
	Name    string    // for people
	Expires time.Time // from then on the key is refused; zero means never
	Revoked bool      // the key is refused
	Scopes  Scopes    `json:",omitzero"` // the endpoints where the key counts; empty means all
}

// KeyFinder finds API keys by their digest. Find must be safe for concurrent
// use; it returns ErrUnknownKey, possibly wrapped, if there is no such key,
// and any other error if it could not find out. It returns revoked and expired
// keys as they are.
type KeyFinder interface {
	Find(ctx context.Context, d Digest) (Key, error)
}

// ErrUnknownKey is what a KeyFinder returns if no key has the digest.
var ErrUnknownKey = errors.New("unknown API key")

// KeyRecord is a Key as a Keyring takes it.
type KeyRecord struct {
	Digest Digest
	Key    Key
}

// Keyring is a KeyFinder that holds all keys in memory. The zero value has
// none. It may be used concurrently; readers never wait.
type Keyring struct {
	index atomic.Pointer[keyIndex]
	tiers atomic.Bool // a key has a tier, or had one
}

var _ KeyFinder = (*Keyring)(nil)

// Replace makes records the keys of the ring, all at once. If any record is
// unusable (no ID, or the digest of another), the ring keeps the keys that it
// has and Replace reports every fault. It keeps no reference to records.
func (k *Keyring) Replace(records []KeyRecord) error {
	index := newKeyIndex(len(records))
	var faults []error
	tiers := false
	for i, record := range records {
		tiers = tiers || record.Key.Tier != ""
		if record.Key.ID == "" {
			faults = append(faults, fmt.Errorf("records[%d].Key.ID is empty, want the stable name of the key", i))
		}
		if other, taken := index.add(record); taken {
			faults = append(faults,
				fmt.Errorf("records[%d].Digest of key %q is that of key %q, want one record for a key", i,
					record.Key.ID, other.ID))
		}
	}
	if faults != nil {
		return errors.Join(faults...)
	}
	if tiers {
		k.tiers.Store(true)
	}
	k.index.Store(index)
	return nil
}

// NamesTiers reports whether any key has had a tier of its own since the ring
// was made: others may be given one.
func (k *Keyring) NamesTiers() bool { return k.tiers.Load() }

// Len returns the number of keys, including revoked and expired ones.
func (k *Keyring) Len() int {
	if index := k.index.Load(); index != nil {
		return len(index.records)
	}
	return 0
}

// Active returns how many of the keys are neither revoked nor expired at a time.
// It looks at all of them.
func (k *Keyring) Active(at time.Time) (n int) {
	if index := k.index.Load(); index != nil {
		for i := range index.records {
			key := &index.records[i].Key
			if !key.Revoked && (key.Expires.IsZero() || at.Before(key.Expires)) {
				n++
			}
		}
	}
	return n
}

// Find returns the key with the digest, or ErrUnknownKey.
func (k *Keyring) Find(_ context.Context, d Digest) (Key, error) {
	if index := k.index.Load(); index != nil {
		if record := index.find(&d); record != nil {
			return record.Key, nil
		}
	}
	return Key{}, ErrUnknownKey
}

// keyIndex finds records by digest: linear probing in a table at most half
// full. A digest is its own hash, and nobody without the secret can choose it.
// It is not written to once it is in a Keyring.
//
// A slot holds the number of a record, counted from 1, in its low half, and
// part of the digest in its high half, so that nearly every look-up touches
// one slot and one record. A look-up is mostly waiting for memory: with 100,000
// keys in turn, BenchmarkResolveKey takes 354 ns this way and 518 with a
// map[Digest]Key (medians of 15 alternating runs on a busy machine).
type keyIndex struct {
	slots   []uint64 // a power of two of them; 0 is free
	records []KeyRecord
}

func newKeyIndex(n int) *keyIndex {
	return &keyIndex{
		slots:   make([]uint64, 2<<bits.Len(uint(n))), // more than 2n
		records: make([]KeyRecord, 0, n),
	}
}

// add adds the record, or returns the key that has its digest already.
func (x *keyIndex) add(record KeyRecord) (other Key, taken bool) {
	at := x.probe(&record.Digest)
	if slot := x.slots[at]; slot != 0 {
		return x.records[uint32(slot)-1].Key, true
	}
	x.records = append(x.records, record)
	_, tag := split(&record.Digest)
	x.slots[at] = tag | uint64(uint32(len(x.records)))
	return Key{}, false
}

func (x *keyIndex) find(d *Digest) *KeyRecord {
	if slot := x.slots[x.probe(d)]; slot != 0 {
		return &x.records[uint32(slot)-1]
	}
	return nil
}

// probe returns the slot of the digest, or the free one where it would be.
func (x *keyIndex) probe(d *Digest) int {
	start, tag := split(d)
	mask := len(x.slots) - 1
	for at := int(start) & mask; ; at = (at + 1) & mask {
		slot := x.slots[at]
		if slot == 0 || slot>>32<<32 == tag && x.records[uint32(slot)-1].Digest == *d {
			return at
		}
	}
}

// split returns where to begin looking for the digest, and the high half of
// its slot.
func split(d *Digest) (start uint32, tag uint64) {
	word := binary.LittleEndian.Uint64(d[:])
	return uint32(word), word >> 32 << 32
}
