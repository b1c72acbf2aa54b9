package daemon

import (
	"context"
	"time"

	buckets "github.com/headgate-io/headgate/bucket/redis"
)

// byThrottle makes what is kept on a server that is asked by CL.THROTTLE, and runs no script.
func (s *shared) byThrottle() error {
	strict, err := buckets.NewThrottle(s.calls, s.conf.Prefix)
	if err != nil {
		return err
	}
	s.strict, s.mended = strict, func() uint64 { return 0 }
	s.members = &presumed{
		replicas: s.conf.Replicas, every: s.conf.MemberTTL / 3,
		ask: func(ctx context.Context) error { return s.link.Try(ctx, 0) },
	}
	return nil
}

// presumed is as many replicas as the configuration says, where there is no list of them. Instead
// of saying a word, it looks whether the server answers.
type presumed struct {
	replicas int
	every    time.Duration
	ask      func(ctx context.Context) error
}

func (p *presumed) Replicas() int                  { return p.replicas }
func (p *presumed) Count() int                     { return p.replicas }
func (p *presumed) Strangers() int                 { return 0 }
func (p *presumed) Beat(ctx context.Context) error { return p.ask(ctx) }

// Run asks again and again until ctx ends.
func (p *presumed) Run(ctx context.Context, heard func(error)) {
	every(ctx, p.every, func() {
		within, cancel := context.WithTimeout(ctx, p.every)
		err := p.ask(within)
		cancel()
		if ctx.Err() == nil {
			heard(err)
		}
	})
}
