package daemon

import (
	"log/slog"

	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/server/config"
)

// newBuckets makes the bucket table, of the size that is given in buckets or in
// bytes.
func newBuckets(c config.Config) (*memory.Store, error) {
	o := memory.Options{MaxBuckets: c.MaxBuckets, RefuseNewcomers: c.RefuseNewcomers}
	if c.MaxBytes > 0 {
		o.MaxBuckets, o.MaxBytes = 0, int64(c.MaxBytes)
	}
	return memory.New(o)
}

// settlement is how requests pay afterwards, or nil if they do not.
func settlement(s config.Settle, log *slog.Logger) *httplimit.Reserve {
	if !s.On() {
		return nil
	}
	return &httplimit.Reserve{
		Field: s.Header, BytesPerToken: s.BytesPerToken, Timeout: s.Timeout,
		Failed: seldom(log, "a request was not settled and pays its estimate"),
	}
}
