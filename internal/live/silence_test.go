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
		{"silent in its middle", []time.Duration{20 * s, 20 * s, time.Hour, s}, 70 * s, "-",
			"texts: load: nothing came for 30s"},
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

// A load rests for as long as it works while a value is in force, and never before;
// the end of whoever asks ends the rest too.
func TestLaterLoadsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		source := fixed("", "1")
		work := []time.Duration{}
		source.load = func(ctx context.Context) (string, string, error) {
			for _, d := range work {
				time.Sleep(d)
				live.Progress(ctx)
			}
			return "loaded", "1", ctx.Err()
		}
		v := value(t, options(source))
		for _, tt := range []struct {
			name string
			load func(context.Context) error
			work []time.Duration
			took time.Duration
		}{
			{"first", v.Start, []time.Duration{ms, 3 * ms, ms}, 5 * ms},
			{"later", v.Reload, []time.Duration{ms, 3 * ms, ms}, 5*ms + 3*ms},
			{"in small pieces", v.Reload, []time.Duration{ms / 4, ms / 4, ms / 4, ms / 4, ms / 2}, 3*ms/2 + ms},
			{"later, of a slow source", v.Reload, []time.Duration{20 * time.Second, 29 * time.Second},
				49*time.Second + 2*ms},
		} {
			work = tt.work
			began := time.Now()
			if err := tt.load(t.Context()); err != nil || time.Since(began) != tt.took {
				t.Errorf("%s: %v after %v, want it loaded after %v", tt.name, err, time.Since(began), tt.took)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		work = []time.Duration{ms}
		time.AfterFunc(ms+ms/2, stop)
		began := time.Now()
		if err := v.Reload(ctx); err == nil || time.Since(began) != ms+ms/2 {
			t.Errorf("stopped while it rests: %v after %v, want an error after 1.5ms", err, time.Since(began))
		}
	})
}
