// Package reservation remembers costs that were taken before they were known,
// until they are settled or forgotten; see headgate.Limiter.Reserve.
package reservation

import (
	"encoding/hex"
	"errors"
	"math"
	"time"
)

const (
	// DefaultOutstanding is how many may be outstanding at once where nobody says,
	// and MostOutstanding the most that can be asked for.
	DefaultOutstanding = 1 << 16
	MostOutstanding    = 1 << 24

	// DefaultTimeout stands for a timeout of 0.
	DefaultTimeout = time.Minute

	// MaxTimeout bounds how long a reservation holds its place.
	MaxTimeout = 24 * time.Hour
)

// UntilSettled is the timeout of a reservation that is settled for certain, as by a defer. It does not
// expire, and once it is settled it is forgotten.
const UntilSettled time.Duration = math.MinInt64

// Timeout is the timeout that is asked for, within those bounds.
func Timeout(asked time.Duration) time.Duration {
	if asked <= 0 {
		return DefaultTimeout
	}
	return min(asked, MaxTimeout)
}

// ID names a reservation: 128 random bits, in which nothing of the client can
// be read. Whoever knows one can settle it, so it is as confidential as the
// answer to the request. The zero ID names nothing.
type ID [16]byte

// String returns 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes what String returns.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 32 hexadecimal digits.
func (id *ID) UnmarshalText(text []byte) error {
	var read ID
	wrong := errors.New("reservation ID is not 32 hexadecimal digits") // not repeated: it may be confidential
	if len(text) != 2*len(read) {
		return wrong
	}
	if _, err := hex.Decode(read[:], text); err != nil {
		return wrong
	}
	*id = read
	return nil
}

// Status says what became of a settlement.
type Status uint8

const (
	// Settled: the buckets were corrected.
	Settled Status = iota
	// AlreadySettled: an earlier call did that. Nothing was changed.
	AlreadySettled
	// Expired: it came after the reservation's timeout. The estimate stays
	// charged, and nothing was changed.
	Expired
	// None: there is none of that ID: it was never made, or settled or expired so
	// long ago that it is forgotten. Nothing was changed.
	None
	// NothingReserved: the ID is zero. Nothing was taken, so nothing was
	// changed.
	NothingReserved
)

var statusNames = [...]string{"settled", "already_settled", "reservation_expired", "no_reservation", "nothing_reserved"}

// String returns the status as metrics write it.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "unknown_status"
}

// Settlement is how a reservation was settled. For AlreadySettled it repeats the
// first call's Reserved and Actual.
type Settlement struct {
	Status Status

	Reserved int64 // tokens that the reservation held
	Actual   int64 // tokens that were spent in the end

	// Uncharged is how many of the tokens above the estimate some bucket did
	// not take on, because it would have owed more than twice its burst, or
	// because its rule applies no more. 0 in nearly every life.
	Uncharged int64
}

// ErrSettling is what a settlement ends with while another call settles the same
// reservation. Nothing is wrong; ask again to hear how it ended.
var ErrSettling = errors.New("another call is settling this reservation")

// Stats describes a Table. All but Outstanding, Capacity and Remembered only
// grow.
type Stats struct {
	Outstanding int // neither settled nor known to have expired
	Remembered  int // settled, and still known to be
	Capacity    int

	Made, Settled, Expired, Refused uint64
}
