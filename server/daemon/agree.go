package daemon

import (
	"context"
	"log/slog"
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
	var known heard
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
		known.say(s.log, s.adaptive.Hear(s.now(), others), len(others))
	})
}

// heard is what was wrong with what other gateways said, when they were last heard.
type heard struct{ unread, crowded bool }

// say logs what is wrong from now on.
func (h *heard) say(to *slog.Logger, unread, others int) {
	if unread > 0 && !h.unread {
		to.Warn("adaptive: what some gateways say of the API cannot be read: want one version at all",
			"gateways", unread)
	}
	// Of more than so many some are heard, each second others. No rate rises above its rule by any of them.
	if crowded := others >= adaptive.MaxVoices; crowded != h.crowded {
		if h.crowded = crowded; crowded {
			to.Warn("adaptive: as many gateways as can be heard say something of the API: what more of them say is "+
				"left out, and rates of shared buckets go by the others", "gateways", others)
		}
	}
	h.unread = unread > 0
}
