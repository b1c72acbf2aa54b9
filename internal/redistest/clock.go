//go:build unix

package redistest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Clock runs scripts on a server as if its clock told another time, by which buckets expire as
// well. The server's own clock cannot be set. It is safe for concurrent use.
type Clock struct {
	To *Conn

	// Now is the server's time, in Unix nanoseconds, asked for when a script begins to run.
	Now func() int64

	// Deliver, if set, hears of each message before the server does, and delivers it by run: later,
	// or more than once. The last answer is the caller's.
	Deliver func(source string, run func())

	mu sync.Mutex // held while a script runs

}

// clocked begins a script: what it asks of the server goes by the time under the name "clock".
const clocked = `
local server = redis
local clock = tonumber(server.call('GET', 'clock'))
local function as(call)
  return function(command, name, ...)
    if command == 'TIME' then return {0, clock} end
    local ends = server.call('HGET', 'expires', name)
    if ends and tonumber(ends) <= clock then
      server.call('DEL', name)
      server.call('HDEL', 'expires', name)
    end
    local value, unit, lasts = ...
    if command == 'PEXPIRE' then return 1 end
    if command == 'SET' or command == 'DEL' then server.call('HDEL', 'expires', name) end
    if command == 'SET' then
      if unit == 'PX' then server.call('HSET', 'expires', name, string.format('%.0f', clock + lasts * 1000)) end
      return call('SET', name, value)
    end
    return call(command, name, ...)
  end
end
local redis = {call = as(server.call), pcall = as(server.pcall)}
`

// Eval makes Clock what a bucket store asks.
func (c *Clock) Eval(ctx context.Context, command, script string, keys, args []string) (answer any, err error) {
	if command == "EVALSHA" {
		return nil, errors.New("NOSCRIPT want the source")
	}
	deliver := c.Deliver
	if deliver == nil {
		deliver = func(_ string, run func()) { run() }
	}
	deliver(script, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, err = c.To.Do(time.Now().Add(time.Minute), "SET", "clock",
			strconv.FormatInt(c.Now()/1000, 10)); err != nil {
			return
		}
		answer, err = c.To.Eval(context.WithoutCancel(ctx), "EVAL", clocked+strings.TrimSpace(script), keys, args)
	})
	return answer, err
}
