package live_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/live"
)

// A load may take as long as it takes while it gets on, and is given up as soon
// as it has said nothing for Timeout.
func TestSilenceIsBoundedNotTheLoad(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		pause []time.Duration // before each Progress, and before the end
		took  time.Duration
		want  string
		error string
	}{
		{"quick", []time.Duration{s}, s, "loaded", ""},
		{"slow, and it gets on", []time.Duration{29 * s, 29 * s, 29 * s, 29 * s, 29 * s}, 145 * s, "loaded", ""},
		{"silent from the start", []time.Duration{time.Hour}, 30 * s, "-", "texts: load: nothing came for 30s"},
		{"silent in its middle", []time.Duration{20 * s, 20 * s, time.Hour, s}, 70 * s, "-", "texts: load: nothing came for 30s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := fixed("", "1")
				source.load = func(ctx context.Context) (string, string, error) {
					for _, pause := range tt.pause {
						select {
						case <-time.After(pause):
							live.Progress(ctx)
						case <-ctx.Done():
							return "", "", ctx.Err()
						}
					}
					return "loaded", "1", nil
				}
				v := value(t, options(source))
				began := time.Now()
				err := v.Start(t.Context())
				if took := time.Since(began); took != tt.took {
					t.Errorf("Start took %v, want %v", took, tt.took)
				}
				if got := get(v); got != tt.want {
					t.Errorf("%q is in force, want %q", got, tt.want)
				}
				if (err == nil) != (tt.error == "") || err != nil && err.Error() != tt.error {
					t.Errorf("Start = %v, want %q", err, tt.error)
				}
			})
		})
	}
}

// Whoever stops is told of that, and not of silence.
func TestStoppedLoadIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := fixed("", "1")
		source.load = func(ctx context.Context) (string, string, error) {
			<-ctx.Done()
			return "", "", ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := value(t, options(source)).Start(ctx)
		if want := "texts: load: context deadline exceeded"; err == nil || err.Error() != want {
			t.Errorf("Start = %v, want %s", err, want)
		}
	})
}
