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
	return func() {
		p.watch.Use(warnings.Marks{
			CallerPercent: c.CallerPercent,
			CallerFill:    c.CallerFill,
			DeniedPercent: c.DeniedPercent,
			DeniedFor:     c.DeniedFor,
			SlowerPercent: c.SlowerPercent,
			SlowerFor:     c.SlowerFor,
		})
		if c.On() { // else those who were told hear that it is over
			p.hook.Use(to)
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
	if !p.watch.On() {
		return w, false
	}
	w.Stats = p.watch.Stats()
	if p.hook.On() {
		sent := p.hook.Stats()
		w.Sent = map[string]uint64{"delivered": sent.Delivered, "failed": sent.Failed, "dropped": sent.Dropped}
	}
	return w, true
}
