package warnings

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// SignatureField is the request field by which a receiver knows that an event comes from here, and is not an old one:
//
//	Headgate-Signature: t=1795176000,v1=5257a8…
//
// t is the time of the attempt in Unix seconds, v1 the HMAC-SHA-256 in hexadecimal, under the secret, of t, a full stop
// and the body, as Stripe signs its events (https://docs.stripe.com/webhooks#verify-manually).
const SignatureField = "Headgate-Signature"

// HookOptions says where events are sent. Secret is required where URL is set.
type HookOptions struct {
	URL    *url.URL               // nil: nowhere
	Secret func() ([]byte, error) // asked at each attempt

	// Wait is how long to wait before the second attempt; each further one waits four times as long. Default a second.
	Wait time.Duration

	Log       *slog.Logger      // default slog.Default
	Transport http.RoundTripper // default one that uses no proxy, and 10 s for an attempt
	Now       func() time.Time  // default time.Now
}

const (
	attempts  = 5
	mostQueue = 256
	perTry    = 10 * time.Second
	lastTries = 2 * time.Second // of all that wait when Run ends
)

// Hook sends events, one after the other. It never has more of them wait than mostQueue.
type Hook struct {
	o     atomic.Pointer[hookOptions]
	queue chan Event

	delivered, failed, dropped atomic.Uint64
}

// HookStats counts events by what became of them.
type HookStats struct {
	Delivered uint64
	Failed    uint64 // given up after all attempts
	Dropped   uint64 // there was no room to wait
}

// hookOptions are completed ones, with what sends by them.
type hookOptions struct {
	HookOptions
	client *http.Client
}

// NewHook returns a Hook, which sends while Run runs.
func NewHook(o HookOptions) *Hook {
	h := &Hook{queue: make(chan Event, mostQueue)}
	h.Use(o)
	return h
}

// Use has events sent to another place from now on, also those that wait.
func (h *Hook) Use(o HookOptions) {
	if o.Wait == 0 {
		o.Wait = time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.Proxy = nil
		own.MaxIdleConnsPerHost = 1
		o.Transport = own
	}
	before := h.o.Swap(&hookOptions{o, &http.Client{
		Transport: o.Transport,
		Timeout:   perTry,
		// Only where the configuration says.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if before != nil {
		before.client.CloseIdleConnections()
	}
}

// On reports whether events are sent anywhere.
func (h *Hook) On() bool { return h.o.Load().URL != nil }

// Send has an event sent, or drops it if too many wait. It does not block.
func (h *Hook) Send(e Event) {
	if !h.On() {
		return
	}
	select {
	case h.queue <- e:
	default:
		h.dropped.Add(1)
	}
}

// Stats counts events.
func (h *Hook) Stats() HookStats {
	return HookStats{h.delivered.Load(), h.failed.Load(), h.dropped.Load()}
}

// Run sends events until ctx ends, and then tries those that wait once more.
func (h *Hook) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			h.last()
			return
		case e := <-h.queue:
			if !h.deliver(ctx, e, attempts) {
				h.last(e)
				return
			}
		}
	}
}

// last tries events once more, and those that wait.
func (h *Hook) last(waiting ...Event) {
	for len(h.queue) > 0 { // nobody else takes from it
		waiting = append(waiting, <-h.queue)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastTries)
	defer cancel()
	for _, e := range waiting {
		h.deliver(ctx, e, 1)
	}
}

// deliver tries until somebody has heard the event, or so often. It reports false if ctx ended before.
func (h *Hook) deliver(ctx context.Context, e Event, most int) (done bool) {
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // an Event can be written
	}
	wait := h.o.Load().Wait
	for n := 1; ; n++ {
		o := h.o.Load()
		if o.URL == nil {
			h.dropped.Add(1)
			return true
		}
		if err = o.try(ctx, body); err == nil {
			h.delivered.Add(1)
			return true
		}
		if n < most && ctx.Err() != nil {
			return false
		}
		if n == most {
			h.failed.Add(1)
			o.Log.Error(
				"a warning could not be sent",
				"host",
				o.URL.Host,
				"id",
				e.ID,
				"kind",
				e.Kind,
				"attempts",
				n,
				"error",
				err,
			)
			return true
		}
		pause := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			pause.Stop()
			return false
		case <-pause.C:
		}
		wait *= 4
	}
}

// try sends a body once. Its errors name no path and no query, which may hold a secret.
func (o *hookOptions) try(ctx context.Context, body []byte) error {
	secret, err := o.Secret()
	if err != nil {
		return fmt.Errorf("the secret cannot be read: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is none that can be asked")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "headgate")
	r.Header.Set(SignatureField, Sign(secret, o.Now(), body))
	answer, err := o.client.Do(r)
	if err != nil {
		var named *url.Error
		if errors.As(err, &named) {
			err = named.Err
		}
		return err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 4096) // so that the connection is of use again
	_ = answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("it was answered with status %d, want one of 200 to 299", answer.StatusCode)
	}
	return nil
}

// Sign is the value of SignatureField for a body that is sent at a time.
func Sign(secret []byte, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: crypto/rand
	return hex.EncodeToString(id[:])
}
