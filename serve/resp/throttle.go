package resp

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/serve/decisions"
)

// throttle answers CL.THROTTLE key max_burst count period [quantity], as
// redis-cell documents it: the bucket of a key holds max_burst + 1 tokens and is
// filled by count in period seconds. The reply is 0, or 1 if the action is limited;
// max_burst + 1; what remains; the seconds until it should be tried again, -1 if it
// was allowed or never will be; and those until the bucket is full. Seconds are
// rounded up. A quantity of 0 only looks.
func (c *client) throttle(b []byte, args [][]byte) []byte {
	if len(args) != 4 && len(args) != 5 {
		return wrongCount(b, "cl.throttle")
	}
	numbers := [4]int64{3: 1}
	for i, text := range args[1:] {
		least := int64(1)
		if i == 0 || i == 3 {
			least = 0
		}
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || n < least {
			return appendError(b, "ERR "+[...]string{"max_burst", "count per period", "period", "quantity"}[i]+
				" is not a whole number of "+strconv.FormatInt(least, 10)+" or more")
		}
		numbers[i] = n
	}
	burst, count, period, quantity := numbers[0], numbers[1], numbers[2], numbers[3]
	if burst == math.MaxInt64 || period > math.MaxInt64/int64(time.Second) {
		return appendError(b, "ERR the limit is larger than can be counted")
	}
	s := c.server
	limit := rate.Limit{Tokens: count, Per: time.Duration(period) * time.Second, Burst: burst + 1}
	if limit != c.limit {
		shape, err := s.shapes.of(limit)
		if err != nil {
			return appendError(b, "ERR the limit cannot be counted: "+err.Error())
		}
		c.limit, c.shape = limit, shape
	}
	take, out := &c.takes[0], &c.outs[0]
	*take, *out = bucket.Take{Shape: c.shape, Cost: quantity, Reach: s.options.Reach}, bucket.Outcome{}
	take.Key, take.Tag = s.options.Name(args[0])
	allowed, err := s.options.Buckets.TryConsume(context.Background(), s.options.Now(), c.takes[:], c.outs[:])
	if err != nil {
		return appendError(b, "UNAVAILABLE the limits cannot be checked at the moment")
	}
	limited, retry := int64(0), int64(-1)
	if !allowed {
		limited = 1
		if !out.Never {
			retry = rate.Seconds(out.RetryAfter)
		}
	}
	b = appendLength(b, '*', 5)
	b = appendInt(appendInt(appendInt(b, limited), burst+1), out.Remaining)
	return appendInt(appendInt(b, retry), rate.Seconds(out.ResetAfter))
}

// shapes remembers limits that were compiled, which programs repeat.
type shapes struct {
	keeps func(rate.Shape) error

	mu  sync.RWMutex
	all map[rate.Limit]rate.Shape // guarded by mu
}

// maxShapes bounds what is remembered.
const maxShapes = 4096

func (s *shapes) of(l rate.Limit) (rate.Shape, error) {
	s.mu.RLock()
	shape, ok := s.all[l]
	s.mu.RUnlock()
	if ok {
		return shape, nil
	}
	shape, err := rate.Compile(l)
	if err == nil {
		err = s.keeps(shape)
	}
	if err != nil {
		return rate.Shape{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= maxShapes {
		s.all = make(map[rate.Limit]rate.Shape)
	}
	s.all[l] = shape
	return shape, nil
}

// check answers HG.CHECK method target client [COST n] [IDENTIFIER text] [HEADER
// name value]..., about a request as decisions.Question describes it. The reply
// begins as that of CL.THROTTLE does, of the rule that binds, and is followed by the
// status to answer the client with and the name of that rule: without one, the four
// numbers are -1 and the name is empty. The second is what was asked for, in tokens.
func (c *client) check(b []byte, args [][]byte) []byte {
	if len(args) < 3 {
		return wrongCount(b, "hg.check")
	}
	q := decisions.Question{
		Method: string(args[0]),
		Target: string(args[1]),
		Client: string(args[2]),
		Header: map[string]decisions.Lines{},
	}
	for rest := args[3:]; len(rest) > 0; {
		switch option := strings.ToUpper(string(rest[0][:min(len(rest[0]), 16)])); {
		case option == "COST" && len(rest) >= 2:
			n, err := strconv.ParseInt(string(rest[1]), 10, 64)
			if err != nil || n < 0 {
				return appendError(b, "ERR COST is not a whole number of 0 or more")
			}
			q.Cost, rest = n, rest[2:]
		case option == "IDENTIFIER" && len(rest) >= 2:
			q.Identifier, rest = string(rest[1]), rest[2:]
		case option == "HEADER" && len(rest) >= 3:
			name := string(rest[1])
			q.Header[name] = append(q.Header[name], string(rest[2]))
			rest = rest[3:]
		default:
			return appendError(b, "ERR syntax error, want COST n, IDENTIFIER text or HEADER name value")
		}
	}
	if err := q.Check(); err != nil {
		return appendError(b, "ERR "+err.Error())
	}
	a := c.server.options.Check(context.Background(), &q)
	limited := int64(1)
	if a.Allowed {
		limited = 0
	}
	numbers := [4]int64{a.Cost, -1, -1, -1}
	if a.Remaining != nil {
		numbers[1] = *a.Remaining
		if !a.Allowed && *a.RetryAfter > 0 {
			numbers[2] = int64(math.Ceil(*a.RetryAfter))
		}
		numbers[3] = int64(math.Ceil(*a.ResetAfter))
	}
	b = appendInt(appendLength(b, '*', 7), limited)
	for _, n := range numbers {
		b = appendInt(b, n)
	}
	return appendBulk(appendInt(b, int64(a.Status)), a.Rule)
}
