package memory

import "github.com/headgate-io/headgate/bucket"

// accepts says whether t, which found its leaky bucket in state, accepts the wait that units of it cost.
func accepts(t *bucket.Take, now int64, state bucket.State, units int64) bool {
	return units == 0 || t.Excess(state.Wait(now, &t.Shape)) == 0
}

func ifAllowed(allowed bool, units int64) int64 {
	if !allowed {
		return 0
	}
	return units
}

// reportWait completes the outcome of a take of a leaky bucket. Nobody waits for a decision that
// was denied as a whole, nor for nothing.
func (c *claim) reportWait(o *bucket.Outcome, now int64, shadow, all bool) {
	wanted, own := c.units, ifAllowed(c.shadowAllowed, c.shadow)
	if shadow {
		wanted = c.shadow
	} else {
		own += c.units // shadows came after
	}
	switch {
	case wanted <= 0 || o.Allowed && !all:
	case !all || shadow && !c.shadowAllowed:
		c.take.ReportWait(o, c.state, now, 0)
	default:
		c.take.ReportWait(o, c.state, now, own)
	}
}
