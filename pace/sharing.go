package pace

import (
	"time"

	"github.com/headgate-io/headgate/pace/telemetry"
)

// share is what a line tells others of its quota.
type share struct {
	pacer    Sharer
	client   *telemetry.Client
	sleeping func() bool // ends the wait for the next report, nil if there is none
}

// newShare returns nil where there is nothing to share, or nowhere.
func newShare(l *line) *share {
	pacer, ok := l.pacer.(Sharer)
	if !ok || l.of.options.Telemetry == nil || l.of.closed {
		return nil
	}
	o, ok := l.of.options.Telemetry(l.quota)
	if !ok {
		return nil
	}
	if o.Now == nil {
		o.Now = l.of.options.Clock.Now
	}
	heard := o.Heard
	o.Heard = func(a telemetry.Aggregate) {
		l.told(a)
		if heard != nil {
			heard(a)
		}
	}
	client, err := telemetry.New(o)
	if err != nil {
		return nil // what can be wrong is checked by New
	}
	return &share{pacer: pacer, client: client}
}

// close ends the telemetry of a line. Nothing of it is under way when it returns.
func (l *line) close() {
	l.mu.Lock()
	s, state := l.share, l.counters(Report{})
	l.share = nil
	if s != nil && s.sleeping != nil {
		s.sleeping()
	}
	l.mu.Unlock()
	if s != nil {
		s.client.Close(state)
	}
}

// counters is a report with the counts since the line began.
func (l *line) counters(r Report) telemetry.State {
	return telemetry.State{
		Sent: l.accepted + l.refused, Accepted: l.accepted, Refused: l.refused,
		Queue: r.Waiting, Congested: r.Congested,
	}
}

// queued tells the pacer how many requests are not served, and sends what report is due.
// The caller holds mu.
func (l *line) queued() {
	if l.share == nil {
		return
	}
	now := l.of.now()
	l.share.pacer.Queue(now, l.users)
	l.report(now)
}

// report sends what is due, and sees to the next one. The caller holds mu.
func (l *line) report(now time.Duration) {
	s := l.share
	if s.pacer.NextReport(now) <= now {
		if r, due := s.pacer.Report(now); due {
			s.client.Report(l.counters(r))
		}
	}
	next := s.pacer.NextReport(now)
	if next == never {
		return
	}
	if s.sleeping != nil {
		s.sleeping()
	}
	s.sleeping = l.of.options.Clock.AfterFunc(max(time.Millisecond, next-now), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.share != nil {
			l.report(l.of.now())
		}
	})
}

// told passes on what the aggregator answered.
func (l *line) told(a telemetry.Aggregate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.share == nil {
		return
	}
	now := l.of.now()
	l.share.pacer.Told(now, Aggregate{
		Sent: int64(a.Sent), Active: a.Active, Refusals: int64(a.Refused), Refused: a.Refusing,
		Waiting: int64(a.Queue), LastRefusal: a.SinceRefusal, PerSecond: a.Capacity, Partial: !a.Warm,
	})
	l.dispatch(now)
}
