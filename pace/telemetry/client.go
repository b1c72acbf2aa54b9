package telemetry

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Options configures a Client. Addr, Quota, and Secret or Key are required.
type Options struct {
	Addr  string // of the aggregator, by UDP: "telemetry.internal:8125"
	Quota string // see CheckQuota

	// Secret is that of the aggregator. Each Client then draws a number of its own.
	Secret []byte

	// Key is the ClientKey of the client numbered ID, in place of Secret.
	Key []byte
	ID  uint64

	// Heard, if set, is told of every answer that [Client.Latest] returns from then on.
	// It must not block.
	Heard func(Aggregate)

	// Now reads the clock. Default time.Now.
	Now func() time.Time
}

// State is what a Client reports.
type State struct {
	Sent, Accepted, Refused uint64 // since the client began
	Queue                   int    // requests that wait
	Congested               bool   // refused since the last report
}

// Client reports to an aggregator by UDP, and keeps its latest answer. It never blocks:
// what is lost is lost. It is safe for concurrent use.
type Client struct {
	o       Options
	reports chan State
	stop    context.CancelFunc
	done    chan struct{}

	mu     sync.Mutex
	number uint64            // guarded by mu, as all below
	sent   [remembered]asked //
	silent int               // reports since the last answer
	since  time.Time         // the first of them was sent
	latest Aggregate
	heard  bool
}

// asked is a report that may still be answered.
type asked struct {
	number uint64
	at     time.Time
}

// remembered is how many of the last reports may still be answered.
const remembered = 16

// After so many reports without an answer, and so long, the name of the aggregator is
// looked up again. An answer that is under way would be lost by it.
const (
	patience = 3
	overdue  = 5 * time.Second
)

// New starts a Client. [Client.Close] ends it.
func New(o Options) (*Client, error) {
	var faults []error
	if _, _, err := net.SplitHostPort(o.Addr); err != nil {
		faults = append(faults, fmt.Errorf("telemetry: Addr is %q, want HOST:PORT", o.Addr))
	}
	if err := CheckQuota(o.Quota); err != nil {
		faults = append(faults, fmt.Errorf("telemetry: %w", err))
	}
	if (len(o.Secret) == 0) == (len(o.Key) == 0) {
		faults = append(faults, errors.New("telemetry: want Secret or Key, and not both"))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.Secret) > 0 {
		var id [8]byte
		_, _ = rand.Read(id[:]) // never fails
		o.ID = binary.BigEndian.Uint64(id[:])
		o.Key = ClientKey(o.Secret, o.Quota, o.ID)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{
		o:       o,
		reports: make(chan State, 4),
		stop:    stop,
		done:    make(chan struct{}),
		number:  uint64(o.Now().UnixMilli()),
	}
	go c.run(ctx)
	return c, nil
}

// Report sends s, and does not wait for it. Counters go on from report to report, so it
// does no harm when one is dropped.
func (c *Client) Report(s State) {
	select {
	case c.reports <- s:
	default: // the network is slower than the reports
	}
}

// Latest returns the newest answer, and whether there was any. Whether it still counts
// is for the caller to say, by its Received.
func (c *Client) Latest() (Aggregate, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest, c.heard
}

// Close reports an empty queue, if s is the last state, and ends the Client.
func (c *Client) Close(s State) {
	s.Queue = 0
	c.Report(s)
	c.stop()
	<-c.done
}

// run sends reports, each at most once.
func (c *Client) run(ctx context.Context) {
	defer close(c.done)
	var conn net.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	first := true
	send := func(s State) {
		if conn == nil {
			if conn = c.dial(ctx); conn == nil {
				return
			}
		}
		// UDP: an error tells of a report before, at best.
		if _, err := conn.Write(c.next(s, first)); err == nil {
			first = false
		}
		if c.unanswered() {
			_ = conn.Close()
			conn = nil
		}
	}
	for {
		select {
		case s := <-c.reports:
			send(s)
		case <-ctx.Done():
			for len(c.reports) > 0 {
				s := <-c.reports
				if conn != nil {
					send(s)
				}
			}
			return
		}
	}
}

func (c *Client) dial(ctx context.Context) net.Conn {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "udp", c.o.Addr)
	if err != nil {
		return nil // the next report tries again
	}
	go c.read(conn)
	return conn
}

// next numbers a report and signs it.
func (c *Client) next(s State, first bool) []byte {
	c.mu.Lock()
	c.number++
	number, now := c.number, c.o.Now()
	c.sent[number%remembered] = asked{number, now}
	c.mu.Unlock()
	r := Report{
		Quota: c.o.Quota, Client: c.o.ID, Number: number, First: first, Congested: s.Congested, Time: now,
		Sent: uint32(s.Sent), Accepted: uint32(s.Accepted), Refused: uint32(s.Refused), Queue: max(0, s.Queue),
	}
	return r.Append(nil, c.o.Key)
}

// unanswered counts a report, and says whether there were too many without an answer.
func (c *Client) unanswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent == 0 {
		c.since = c.o.Now()
	}
	c.silent++
	if c.silent <= patience || c.o.Now().Sub(c.since) < overdue {
		return false
	}
	c.silent = 0
	return true
}

// read takes answers until conn is closed.
func (c *Client) read(conn net.Conn) {
	var b [Size + 1]byte // one more, so that what is too long is not taken for right
	for failures := 0; failures < remembered; {
		n, err := conn.Read(b[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // nobody listens there, says the answer to a report
			failures++
			continue
		}
		failures = 0
		a, err := ReadAggregate(b[:n], c.o.Key)
		if err == nil && c.answer(&a) && c.o.Heard != nil {
			c.o.Heard(a)
		}
	}
}

// answer takes an aggregate that answers one of the last reports, once, and not one that
// is older than the newest.
func (c *Client) answer(a *Aggregate) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := &c.sent[a.Number%remembered]
	if a.Quota != c.o.Quota || a.Client != c.o.ID || at.number != a.Number || a.Number == 0 ||
		c.heard && a.Number <= c.latest.Number {
		return false
	}
	*at = asked{}
	a.Received = c.o.Now()
	c.latest, c.heard, c.silent = *a, true, 0
	return true
}
