package metrics

import "time"

// KeptStatus is what became of the file that keeps buckets over a restart.
type KeptStatus struct {
	Written  time.Time // zero if it was not yet
	Took     time.Duration
	Bytes    int64
	Failures uint64
}

var (
	descStateWritten = describe("state_written_timestamp_seconds",
		"When the buckets were last written to state_file, in Unix time; 0 if they were not yet.")
	descUsageWritten = describe("usage_written_timestamp_seconds",
		"When usage was last written to usage.file, in Unix time; 0 if it was not yet.")
	descStateTook     = describe("state_write_seconds", "How long that took.")
	descStateBytes    = describe("state_bytes", "Size of state_file.")
	descStateFailures = describe("state_write_failures_total", "Attempts to write state_file that failed.")
)

// keptGauges tells of the files; it has no series where there are none.
type keptGauges struct {
	status func() KeptStatus
	usage  func() time.Time
}

func (g *keptGauges) write(out series) {
	if g.usage != nil {
		out.gauge(descUsageWritten, unix(g.usage()))
	}
	if g.status == nil {
		return
	}
	s := g.status()
	out.gauge(descStateWritten, unix(s.Written))
	out.gauge(descStateTook, s.Took.Seconds())
	out.gauge(descStateBytes, float64(s.Bytes))
	out.count(descStateFailures, s.Failures)
}

func unix(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}
