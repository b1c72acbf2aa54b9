package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// Source is a policy.Source over the RateLimitPolicies of a namespace. While Watch runs it knows them by a watch, and
// asks the API server nothing else; otherwise each look is a list. It is safe for concurrent use.
type Source struct {
	client *client
	title  string
	now    func() time.Time

	mu       sync.Mutex
	objects  map[string]*object // by name; guarded by mu, as are those below
	merged   *merged            // of objects; nil if they changed since
	until    time.Time          // they are taken for those of the API server
	failed   error              // of the last list
	failedAt time.Time
}

const (
	// watchFor is how long a watch lasts. That the next one begins is how objects that do not change are confirmed.
	watchFor = 30 * time.Second

	// fresh is for how long objects are taken for those of the API server after a sign of a watch that goes on, and
	// listed after a list.
	fresh  = watchFor + callTimeout + 20*time.Second
	listed = 2 * time.Second

	// resync is how often they are listed although there is a watch.
	resync = 10 * time.Minute

	// again is the shortest time from a list that failed to the next.
	again = 2 * time.Second
)

// New returns a Source. It asks the API server nothing: that may be away, and is then like any other source that fails.
func New(c Config) (*Source, error) {
	asks, err := newClient(c)
	if err != nil {
		return nil, err
	}
	return &Source{client: asks, title: "kubernetes:" + c.Namespace, now: time.Now}, nil
}

// Title is what messages call it.
func (s *Source) Title() string { return s.title }

// Version reports a text that differs after every change of a spec. It is an error if the API server has not vouched
// for what is known within a minute, and cannot be asked.
func (s *Source) Version(ctx context.Context) (string, error) {
	m, err := s.look(ctx)
	if err != nil {
		return "", err
	}
	return m.version, nil
}

// Load reads what all objects say together. An object that cannot be read is an error for all of them: its limits
// would be missing.
func (s *Source) Load(ctx context.Context) (policy.Document, string, error) {
	m, err := s.look(ctx)
	if err != nil {
		return policy.Document{}, "", err
	}
	if m.err != nil {
		return policy.Document{}, m.version, m.err
	}
	return m.doc, m.version, nil
}

// look returns what is known, and lists if that is not fresh.
func (s *Source) look(ctx context.Context) (*merged, error) {
	s.mu.Lock()
	now := s.now()
	if now.Before(s.until) {
		defer s.mu.Unlock()
		return s.mergedLocked(), nil
	}
	failed, since := s.failed, now.Sub(s.failedAt)
	s.mu.Unlock()
	if failed != nil && since < again {
		return nil, failed
	}
	if _, err := s.list(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mergedLocked(), nil
}

func (s *Source) mergedLocked() *merged {
	if s.merged == nil {
		all := make([]*object, 0, len(s.objects))
		for _, o := range s.objects {
			all = append(all, o)
		}
		s.merged = merge(s.title, all)
	}
	return s.merged
}

// list reads all objects, and returns the version to watch from.
func (s *Source) list(ctx context.Context) (version string, err error) {
	all, version, err := s.client.list(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed, s.failedAt = fmt.Errorf("%s: %w", s.title, err), s.now()
		return "", s.failed
	}
	s.objects = make(map[string]*object, len(all))
	for _, o := range all {
		s.objects[o.Metadata.Name] = o
	}
	s.merged, s.until, s.failed = nil, s.now().Add(listed), nil
	return version, nil
}

// Watch keeps up with the API server until ctx ends, and calls changed after changes. While that is away it tries
// again and again, after one to thirty seconds; what is known stays.
func (s *Source) Watch(ctx context.Context, changed func()) {
	version, last, failures := "", time.Time{}, 0
	for ctx.Err() == nil {
		err := error(nil)
		if version == "" || s.now().Sub(last) >= resync {
			if version, err = s.list(ctx); err == nil {
				last = s.now()
				changed()
			}
		}
		if err == nil {
			began, at := false, s.now()
			err = s.client.watch(ctx, version, watchFor, func() { began = true; s.confirm() }, func(e event) error {
				next, err := s.apply(e)
				if err != nil {
					return err
				}
				version = cmp.Or(next, version)
				s.confirm()
				if e.Type != "BOOKMARK" {
					changed()
				}
				return nil
			})
			if began && (err == nil || !gone(err)) {
				failures = 0
			}
			if err != nil {
				version = "" // whatever was missed is in the next list
				s.doubt()
			} else if s.now().Sub(at) < time.Second {
				err = errShort
			}
		}
		if err == nil {
			continue
		}
		failures = min(failures+1, 6)
		pause := min(time.Second<<(failures-1), 30*time.Second)
		if gone(err) && failures == 1 {
			pause = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2+time.Millisecond)):
		}
	}
}

// errShort is why a pause comes before the next watch: the server ends them at once.
var errShort = errors.New("the watch ended at once")

// doubt ends the trust in what is known: the next look asks the API server.
func (s *Source) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
}

func (s *Source) confirm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = s.now().Add(fresh)
}

// apply takes an event over, and returns its version.
func (s *Source) apply(e event) (version string, err error) {
	if e.Type == "ERROR" {
		var refusal struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		_ = json.Unmarshal(e.Object, &refusal) // without a code it is as much an error
		return "", &statusError{cmp.Or(refusal.Code, http.StatusInternalServerError), clipped(refusal.Message, 300)}
	}
	var o object
	if err := json.Unmarshal(e.Object, &o); err != nil {
		return "", fmt.Errorf("an event of the watch: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Type {
	case "ADDED", "MODIFIED":
		if len(s.objects) >= maxObjects && s.objects[o.Metadata.Name] == nil {
			return "", errors.New("there are too many objects")
		}
		s.objects[o.Metadata.Name], s.merged = &o, nil
	case "DELETED":
		delete(s.objects, o.Metadata.Name)
		s.merged = nil
	}
	return o.Metadata.ResourceVersion, nil
}
