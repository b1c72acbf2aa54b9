// Package telemetry lets clients of one quota that do not share a process learn how
// many of them there are, how much they want and whether any of them is refused. Each
// reports to an aggregator, `headgate telemetry`, which answers what it heard of all.
//
// A message is [Size] bytes, by UDP or as the body of a POST, whichever way it goes, so
// that an answer is never longer than what asked for it. Integers are big-endian; bytes
// that are not named are zero.
//
//	report                              aggregate
//	 0  4  "HGT1"                        0  4  "HGT1"
//	 4  1  1                             4  1  2
//	 5  1  1: was refused since the      5  1  1: a whole window was observed
//	       last report, 2: the first            2: the capacity is configured
//	       of this client
//	 8 24  the quota, zeros after it     8 24  the quota
//	32  8  the client                   32  8  the client
//	40  8  number of the report         40  8  number of the report
//	48  4  sent, in all                 48  4  sent within the window, by all
//	52  4  accepted                     52  4  accepted
//	56  4  refused                      56  4  refused
//	60  4  requests that wait           60  4  requests that wait
//	64  8  Unix time, milliseconds      64  8  Unix time, milliseconds
//	                                    72  4  clients that reported within the window
//	                                    76  4  of them, clients that were refused
//	                                    80  4  milliseconds since the last refusal,
//	                                           2^32-1: none is known
//	                                    84  8  capacity, in millionths of a request a
//	                                           second; 0: unknown
//	                                    92  4  window, milliseconds
//	112 16  the first half of HMAC-SHA-256 over the bytes before it
//
// The key of the HMAC is [ClientKey], of the aggregator's secret, the quota and the
// client: whoever has it speaks for this client alone. Counters are those since the
// client began, so that a report that is lost takes nothing with it. The number of a
// report is above that of every report before it, and begins at the time in
// milliseconds, so that a client that starts anew continues.
package telemetry

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Size is the length of a message in bytes.
const Size = 128

// MaxQuota is the length of the name of a quota in bytes.
const MaxQuota = 24

// MaxQueue is the most requests that a client can say it has waiting: a client that lies
// gets no more weight.
const MaxQueue = 10_000

const (
	magic     = "HGT1"
	signedTo  = 112 // the bytes that the HMAC is made of
	never     = math.MaxUint32
	kindAsk   = 1
	kindReply = 2
)

// Report is what one client says of itself.
type Report struct {
	Quota     string
	Client    uint64
	Number    uint64    // of the report
	First     bool      // of this client: its counters began at 0
	Congested bool      // refused since its last report
	Sent      uint32    // since it began, modulo 2^32, as are the next two
	Accepted  uint32    //
	Refused   uint32    //
	Queue     int       // requests that wait, at most MaxQueue
	Time      time.Time // to the millisecond
}

// Aggregate is what the clients of a quota said together.
type Aggregate struct {
	Quota  string
	Client uint64 // that asked
	Number uint64 // of the report that it answers

	// Warm says that the aggregator has listened for a whole window. Before, no
	// refusal means nothing.
	Warm bool

	Sent, Accepted, Refused int           // within the window
	Queue                   int           // requests that wait
	Active                  int           // clients that reported within the window
	Refusing                int           // of them, clients that were refused
	SinceRefusal            time.Duration // since the last refusal; negative: none is known
	Capacity                float64       // requests a second; 0: unknown
	Configured              bool          // Capacity is, and was not measured
	Window                  time.Duration
	Time                    time.Time // by the clock of the aggregator, to the millisecond

	// Received is when a Client received it, by its own clock. It is not sent.
	Received time.Time
}

// ErrForged is a message whose HMAC is not by the key it should be.
var ErrForged = errors.New("telemetry: the HMAC is not right")

var errMalformed = errors.New("telemetry: malformed message")

// CheckQuota says what is wrong with the name of a quota: want 1 to [MaxQuota] bytes of
// a-z, 0-9, dots, underscores and hyphens.
func CheckQuota(name string) error {
	ok := name != "" && len(name) <= MaxQuota
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if !ok {
		return fmt.Errorf("quota is %.40q, want 1 to %d of a-z, 0-9, dot, underscore and hyphen", name, MaxQuota)
	}
	return nil
}

// ClientKey is the key of one client at one quota.
func ClientKey(secret []byte, quota string, client uint64) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("headgate telemetry 1\x00"))
	mac.Write(binary.BigEndian.AppendUint64(nil, client))
	mac.Write([]byte(quota))
	return mac.Sum(nil)
}

// Append appends r to b, signed by key.
func (r Report) Append(b, key []byte) []byte {
	var m [Size]byte
	begin(&m, kindAsk, flag(r.Congested, 1)|flag(r.First, 2), r.Quota, r.Client, r.Number, r.Time)
	binary.BigEndian.PutUint32(m[48:], r.Sent)
	binary.BigEndian.PutUint32(m[52:], r.Accepted)
	binary.BigEndian.PutUint32(m[56:], r.Refused)
	put(m[60:], int64(min(r.Queue, MaxQueue)))
	return append(b, sign(&m, key)...)
}

// Append appends a to b, signed by key.
func (a Aggregate) Append(b, key []byte) []byte {
	var m [Size]byte
	begin(&m, kindReply, flag(a.Warm, 1)|flag(a.Configured, 2), a.Quota, a.Client, a.Number, a.Time)
	for i, n := range []int{a.Sent, a.Accepted, a.Refused, a.Queue} {
		put(m[48+4*i:], int64(n))
	}
	put(m[72:], int64(a.Active))
	put(m[76:], int64(a.Refusing))
	binary.BigEndian.PutUint32(m[80:], never)
	if a.SinceRefusal >= 0 {
		put(m[80:], a.SinceRefusal.Milliseconds())
	}
	if micros := a.Capacity * 1e6; micros > 0 { // not NaN
		binary.BigEndian.PutUint64(m[84:], uint64(min(micros, 1e15)))
	}
	put(m[92:], a.Window.Milliseconds())
	return append(b, sign(&m, key)...)
}

// ReadReport reads a report without looking at its HMAC: [Verify] does, once the key is
// known by what the report says.
func ReadReport(b []byte) (Report, error) {
	flags, err := common(b, kindAsk)
	if err != nil || flags&^3 != 0 || !zero(b[72:signedTo]) {
		return Report{}, errMalformed
	}
	r := Report{
		Client: binary.BigEndian.Uint64(b[32:]), Number: binary.BigEndian.Uint64(b[40:]),
		Congested: flags&1 != 0, First: flags&2 != 0,
		Sent: binary.BigEndian.Uint32(b[48:]), Accepted: binary.BigEndian.Uint32(b[52:]),
		Refused: binary.BigEndian.Uint32(b[56:]),
		Queue:   get(b[60:]),
	}
	var ok bool
	if r.Quota, ok = quota(b); !ok || r.Queue > MaxQueue {
		return Report{}, errMalformed
	}
	r.Time, ok = millis(b[64:])
	if !ok {
		return Report{}, errMalformed
	}
	return r, nil
}

// ReadAggregate reads an answer, and verifies it by key.
func ReadAggregate(b, key []byte) (Aggregate, error) {
	flags, err := common(b, kindReply)
	if err != nil || flags&^3 != 0 || !zero(b[96:signedTo]) {
		return Aggregate{}, errMalformed
	}
	if !Verify(b, key) {
		return Aggregate{}, ErrForged
	}
	a := Aggregate{
		Client: binary.BigEndian.Uint64(b[32:]), Number: binary.BigEndian.Uint64(b[40:]),
		Warm: flags&1 != 0, Configured: flags&2 != 0,
		Sent: get(b[48:]), Accepted: get(b[52:]), Refused: get(b[56:]), Queue: get(b[60:]),
		Active: get(b[72:]), Refusing: get(b[76:]), SinceRefusal: -1,
		Capacity: float64(binary.BigEndian.Uint64(b[84:])) / 1e6,
		Window:   time.Duration(get(b[92:])) * time.Millisecond,
	}
	if ms := binary.BigEndian.Uint32(b[80:]); ms != never {
		a.SinceRefusal = time.Duration(ms) * time.Millisecond
	}
	var ok, timed bool
	a.Quota, ok = quota(b)
	a.Time, timed = millis(b[64:])
	if !ok || !timed || a.Refusing > a.Active || a.Capacity > 1e9 {
		return Aggregate{}, errMalformed
	}
	return a, nil
}

// Verify reports whether a message was signed by key.
func Verify(b, key []byte) bool {
	return len(b) == Size && hmac.Equal(b[signedTo:], mac(b[:signedTo], key))
}

func mac(b, key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return h.Sum(nil)[:Size-signedTo]
}

func begin(m *[Size]byte, kind, flags byte, quota string, client, number uint64, at time.Time) {
	copy(m[:], magic)
	m[4], m[5] = kind, flags
	copy(m[8:8+MaxQuota], quota)
	binary.BigEndian.PutUint64(m[32:], client)
	binary.BigEndian.PutUint64(m[40:], number)
	binary.BigEndian.PutUint64(m[64:], uint64(at.UnixMilli()))
}

func sign(m *[Size]byte, key []byte) []byte {
	copy(m[signedTo:], mac(m[:signedTo], key))
	return m[:]
}

// common checks what reports and aggregates begin with.
func common(b []byte, kind byte) (flags byte, err error) {
	if len(b) != Size || string(b[:4]) != magic || b[4] != kind || b[6] != 0 || b[7] != 0 {
		return 0, errMalformed
	}
	return b[5], nil
}

func quota(b []byte) (string, bool) {
	name := b[8 : 8+MaxQuota]
	n := 0
	for n < len(name) && name[n] != 0 {
		n++
	}
	return string(name[:n]), zero(name[n:]) && CheckQuota(string(name[:n])) == nil
}

// millis reads a time until the year 9999.
func millis(b []byte) (time.Time, bool) {
	ms := binary.BigEndian.Uint64(b)
	return time.UnixMilli(int64(ms & math.MaxInt64)), ms < 253402300800000
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

// put writes a number that is at most never-1.
func put(b []byte, n int64) { binary.BigEndian.PutUint32(b, uint32(max(0, min(n, never-1)))) }

// get reads a number that an int of 32 bits can hold too.
func get(b []byte) int { return int(min(binary.BigEndian.Uint32(b), math.MaxInt32)) }
