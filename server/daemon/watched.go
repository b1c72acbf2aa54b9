package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/warnings"
)

// told is what tells people of callers and denials, nil where nothing is watched.
type told struct {
	watch *warnings.Watch
	hook  *warnings.Hook // nil: nothing is sent
}

// newWatch returns what watches, or nil.
func newWatch(c config.Warnings, gateway string, caller func(*identity.Principal) string,
	log *slog.Logger) (*told, error) {
	if !c.On() {
		return nil, nil
	}
	t := &told{}
	o := warnings.Options{
		CallerPercent: c.CallerPercent, CallerFill: c.CallerFill, DeniedPercent: c.DeniedPercent,
		DeniedFor: c.DeniedFor,
		Gateway:   gateway, Caller: caller, Log: log,
	}
	if c.URL != "" {
		if _, err := hookSecret(c.SecretFile); err != nil { // now, so that a fault is told at the start
			return nil, err
		}
		address, err := url.Parse(c.URL)
		if err != nil {
			return nil, fmt.Errorf("warnings.url is no URL") // the checks of the configuration have seen it
		}
		t.hook = warnings.NewHook(warnings.HookOptions{
			URL:    address,
			Secret: func() ([]byte, error) { return hookSecret(c.SecretFile) },
			Log:    log,
		})
		o.Send = t.hook.Send
	}
	t.watch = warnings.New(o)
	return t, nil
}

// leastHookSecret is the shortest secret that signs anything, in bytes.
const leastHookSecret = 16

// hookSecret reads the secret, without the end of its line.
func hookSecret(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("warnings.secret_file: %w", err)
	}
	if text = bytes.TrimSpace(text); len(text) < leastHookSecret {
		return nil, fmt.Errorf("warnings.secret_file %s holds %d bytes, want %d or more", path, len(text),
			leastHookSecret)
	}
	return text, nil
}

// run watches and sends until ctx ends.
func (t *told) run(ctx context.Context) {
	if t == nil {
		return
	}
	if t.hook != nil {
		go t.hook.Run(ctx)
	}
	t.watch.Run(ctx)
}

// active lists the warnings that are not over, and is nil where nothing is watched.
func (t *told) active() func(most int) ([]warnings.Event, int) {
	if t == nil {
		return nil
	}
	return t.watch.Active
}

// reporter tells metrics of it, and is nil where nothing is watched.
func (t *told) reporter() func() metrics.Warnings {
	if t == nil {
		return nil
	}
	return func() metrics.Warnings {
		w := metrics.Warnings{Stats: t.watch.Stats()}
		if t.hook != nil {
			sent := t.hook.Stats()
			w.Sent = map[string]uint64{"delivered": sent.Delivered, "failed": sent.Failed, "dropped": sent.Dropped}
		}
		return w
	}
}
