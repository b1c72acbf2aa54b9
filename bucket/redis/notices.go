package redis

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// NoticesOptions configures Notices. Every zero value is a safe default.
type NoticesOptions struct {
	// Replica is what this process is called. Two with one name would be heard as one. Default a
	// random one.
	Replica uint64

	// TTL is how long what a replica said is heard. Each is to say it several times in that time.
	// 100 ms to 1 h; default 3 s.
	TTL time.Duration

	// Longest is how many bytes one may say. 1 to 4,096; default 4,096.
	Longest int

	// Now tells the time, in Unix nanoseconds, to a Store with Options.CallersClock. Others ask the
	// server, and need none.
	Now func() int64
}

const (
	longestNotice = 4096

	// mostHeard is how many others are heard: what they say is a megabyte at most.
	mostHeard = 256
)

// Notices is what those who share the buckets of a Store tell each other: a few bytes of each, which
// are heard for a few seconds by the server's clock. Who may write to the server may say anything
// under any name. It is safe for concurrent use.
type Notices struct {
	speaker
	longest int
	key     string
}

// NewNotices makes Notices, or says everything that is wrong with o.
func NewNotices(s *Store, o NoticesOptions) (*Notices, error) {
	self, errSpeaker := newSpeaker(s, o.Replica, o.TTL, o.Now)
	if o.Longest == 0 {
		o.Longest = longestNotice
	}
	var errLongest error
	if o.Longest < 1 || o.Longest > longestNotice {
		errLongest = fmt.Errorf("Longest is %d, want 1 to %d", o.Longest, longestNotice)
	}
	if err := errors.Join(errSpeaker, errLongest); err != nil {
		return nil, fmt.Errorf("redis notices: %w", err)
	}
	return &Notices{speaker: self, longest: o.Longest, key: s.prefix + "{notices}"}, nil
}

// Exchange says something in place of what this replica said before, or takes that back if it is
// nothing; and hears what others said within TTL: nothing in the place of more than Longest, as another
// version may say. An error is an *Error, or that it is too long.
func (n *Notices) Exchange(ctx context.Context, said []byte) (others [][]byte, err error) {
	if len(said) > n.longest {
		return nil, fmt.Errorf("a notice has %d bytes, want %d at most", len(said), n.longest)
	}
	arg := append(n.says(int64(n.longest), mostHeard), said...)
	answer, err := n.store.run(ctx, noticesScript, []string{n.key}, []string{string(arg)})
	if err != nil {
		return nil, err
	}
	if n, ok := number(answer[1]); !ok || int(n) != len(answer)-2 {
		return nil, unreadable(answer)
	}
	for _, one := range answer[2:] {
		text, ok := one.(string)
		if !ok {
			return nil, unreadable(answer)
		}
		others = append(others, []byte(text))
	}
	return others, nil
}
