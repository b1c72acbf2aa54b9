package pace

import "time"

// Auto obeys what the server says, like [HATB]. Where it says nothing that can be
// relied on, and there is an aggregator, Auto shares the quota with others, like
// [XATB]. Without either it is [AP].
type Auto struct {
	// Pause is used where nothing else is known. It counts unless those of Hints and
	// Share do.
	Pause AP

	Hints HATB
	Share XATB
}

// Start implements [Algorithm].
func (a Auto) Start(now time.Duration, random func() float64) Pacer {
	if a.Share.Pause == (AP{}) {
		a.Share.Pause = a.Pause
	}
	share := a.Share.Start(now, random).(*xatb)
	return &auto{hatb: a.Hints.over(share, now, random), share: share}
}

// auto is hatb over xatb: what the aggregator says goes to the latter.
type auto struct {
	*hatb
	share *xatb
}

func (p *auto) Queue(now time.Duration, requests int)      { p.share.Queue(now, requests) }
func (p *auto) NextReport(now time.Duration) time.Duration { return p.share.NextReport(now) }
func (p *auto) Report(now time.Duration) (Report, bool)    { return p.share.Report(now) }
func (p *auto) Told(now time.Duration, a Aggregate)        { p.share.Told(now, a) }

var _ Sharer = (*auto)(nil)
