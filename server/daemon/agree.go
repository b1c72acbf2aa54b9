package daemon

import (
	"context"
	"time"

	"github.com/headgate-io/headgate/adaptive"
)

const (
	// noticed is how long gateways on the store hear what one said of the API, and told is how often each says it.
	noticed = 3 * time.Second
	told    = noticed / 3
)

// adapts has rates of shared buckets follow the API as well, if the store can lower them. It comes before run.
func (s *shared) adapts(to *adaptive.Table) {
	if s != nil {
		s.adaptive = to
		to.KeepShared = s.notices == nil
	}
}

// agree tells the other gateways on the store by how much this one lowers rates, and hears by how much they do, until
// ctx ends.
func (s *shared) agree(ctx context.Context) {
	if s.notices == nil {
		return
	}
	unread := 0
	every(ctx, told, func() {
		if !s.adaptive.Any() {
			return
		}
		within, cancel := context.WithTimeout(ctx, told)
		others, err := s.notices.Exchange(within, s.adaptive.Tell(s.now()))
		cancel()
		if err != nil {
			return // it is said elsewhere; and what was heard counts for a time, and then no more
		}
		before := unread
		if unread = s.adaptive.Hear(s.now(), others); unread > 0 && before == 0 {
			s.log.Warn("adaptive: what some gateways say of the API cannot be read: want one version at all",
				"gateways", unread)
		}
	})
}
