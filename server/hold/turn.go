package hold

import (
	"sync/atomic"
	"time"
)

// turn is when what a client sends may be read. Most may always. A client whose
// requests are refused for being too many is read more slowly: to refuse one takes
// the processors a while, and by HTTP/2 thousands fit into a few packets. What is
// not read stays with the client.
//
// It is a bucket: each refused request fills it by what it costs, and it drains by
// time. Above its brim one connection of the client is read at a time.
type turn struct {
	start time.Time    // what times are counted from
	until atomic.Int64 // when it will be empty; 0 if no request was ever refused
}

const (
	costOfRefusal = 200 * time.Microsecond // so that a client keeps a tenth of a processor busy with it, or less
	costOfRead    = 5 * time.Millisecond   // while others of the client wait
	brim          = 50 * time.Millisecond  // 250 refused requests
	longest       = time.Minute            // until it is empty
	slice         = 50 * time.Millisecond  // after which who waits looks whether it still may
)

// refused notes that a request was refused.
func (t *turn) refused() {
	for now := int64(time.Since(t.start)); ; {
		until := t.until.Load()
		if t.until.CompareAndSwap(until, min(max(until, now)+int64(costOfRefusal), now+int64(longest))) {
			return
		}
	}
}

// wait waits until the client may be read, and reports false if that is no longer of use.
func (t *turn) wait(mayWait func() bool) bool {
	for {
		until := t.until.Load()
		if until == 0 {
			return true
		}
		now := int64(time.Since(t.start))
		over := until - now - int64(brim)
		if over <= -int64(brim) {
			return true
		}
		if over <= 0 {
			if t.until.CompareAndSwap(until, until+int64(costOfRead)) {
				return true
			}
			continue
		}
		if !mayWait() {
			return false
		}
		time.Sleep(min(time.Duration(over), slice))
	}
}
