package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/warnings"
)

// prepareWatch reads what people are to be told of. use has them told of it, and says that what they are not told of
// any more is over.
func (p *parts) prepareWatch(c config.Warnings) (use func(), err error) {
	to := warnings.HookOptions{Log: p.log}
	if c.On() && c.URL != "" {
		if _, err := hookSecret(c.SecretFile); err != nil { // now, so that a fault is told
			return nil, err
		}
		if to.URL, err = url.Parse(c.URL); err != nil {
			return nil, errors.New("warnings.url is no URL") // the checks of the configuration have seen it
		}
		to.Secret = func() ([]byte, error) { return hookSecret(c.SecretFile) }
	}
	var next *warnings.Watch
	if c.On() {
		next = warnings.New(warnings.Options{
			CallerPercent: c.CallerPercent,
			CallerFill:    c.CallerFill,
			DeniedPercent: c.DeniedPercent,
			DeniedFor:     c.DeniedFor,
			Gateway:       p.name,
			Caller:        p.names.Hash,
			Log:           p.log,
			Send:          p.hook.Send,
		})
	}
	return func() {
		before := p.watch.get()
		if next == nil && before == nil {
			return
		}
		p.watch.put(next)
		if next == nil {
			before.End() // and those who were told hear of it
			return
		}
		p.hook.Use(to)
		if before != nil {
			next.Follow(before)
		}
	}, nil
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

// watchStats tells metrics of it, false where nothing is watched.
func (p *parts) watchStats() (w metrics.Warnings, on bool) {
	watch := p.watch.get()
	if watch == nil {
		return w, false
	}
	w.Stats = watch.Stats()
	if p.hook.On() {
		sent := p.hook.Stats()
		w.Sent = map[string]uint64{"delivered": sent.Delivered, "failed": sent.Failed, "dropped": sent.Dropped}
	}
	return w, true
}

// activeWarnings lists so many of the warnings that are not over, and says how many there are; nil where nothing is
// watched.
func (p *parts) activeWarnings(most int) ([]warnings.Event, int) {
	if watch := p.watch.get(); watch != nil {
		return watch.Active(most)
	}
	return nil, 0
}
