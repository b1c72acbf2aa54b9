package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Health asks servers how they are, by GET. An answer from 200 to 399 says that one is well.
type Health struct {
	// Path is what is asked for, such as /healthz. Empty: nothing is.
	Path string

	// Host is the Host field of the question. Default the server's address.
	Host string

	// Every is the time between two questions, Timeout how long an answer may take. Defaults 5 s and 2 s.
	Every, Timeout time.Duration

	// Rise and Fall are how many answers in a row it takes to send a server requests again, and to
	// stop it. Defaults 2 and 3.
	Rise, Fall int
}

func (h *Health) complete() error {
	if h.Path == "" {
		return nil
	}
	if !ValidPath(h.Path) || !visible(h.Host) {
		return fmt.Errorf("Health.Path is %q, want a path such as /healthz", h.Path)
	}
	if h.Every < 0 || h.Timeout < 0 || h.Rise < 0 || h.Fall < 0 {
		return errors.New("Health has a number below 0, want 0 or more")
	}
	for _, d := range []struct {
		at *time.Duration
		or time.Duration
	}{{&h.Every, 5 * time.Second}, {&h.Timeout, 2 * time.Second}} {
		if *d.at == 0 {
			*d.at = d.or
		}
	}
	for _, n := range []struct {
		at *int
		or int
	}{{&h.Rise, 2}, {&h.Fall, 3}} {
		if *n.at == 0 {
			*n.at = n.or
		}
	}
	return nil
}

// ValidPath reports whether a text may be Health.Path.
func ValidPath(text string) bool { return text != "" && text[0] == '/' && visible(text) }

// visible reports whether a text has nothing but visible ASCII, so that it may stand in a request line.
func visible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] >= 0x7F {
			return false
		}
	}
	return true
}

// askAboutHealth begins to ask all servers, until Close.
func (p *Pool) askAboutHealth() {
	var ctx context.Context
	ctx, p.end = context.WithCancel(context.Background())
	if p.o.Health.Path == "" {
		return
	}
	for _, s := range p.servers {
		p.healthy.Go(func() {
			every := time.NewTicker(p.o.Health.Every)
			defer every.Stop()
			for {
				p.note(s, p.askOnce(ctx, s))
				select {
				case <-ctx.Done():
					return
				case <-every.C:
				}
			}
		})
	}
}

// askOnce asks a server on a connection of its own, since it is to be known whether it takes new ones.
func (p *Pool) askOnce(ctx context.Context, s *server) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Health.Timeout)
	defer cancel()
	c, err := p.dial(ctx, s)
	if err != nil {
		if errors.Is(err, ErrHTTP2) {
			return nil // it answers, and whoever speaks HTTP/2 asks no more
		}
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	host := p.o.Health.Host
	if host == "" {
		host = "localhost"
		if s.network == "tcp" {
			host = s.address
			if name, _, err := net.SplitHostPort(host); err == nil && p.o.TLS != nil {
				host = name
			}
		}
	}
	if _, err := fmt.Fprintf(c.Conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: headgate\r\nConnection: close\r\n\r\n",
		p.o.Health.Path, host); err != nil {
		return err
	}
	var h head
	for {
		if err := c.fill(); err != nil {
			return err
		}
		whole, err := h.more(c.unused(), false)
		switch {
		case err != nil:
			return err
		case whole && h.status >= 200 && h.status < 400:
			return nil
		case whole:
			return fmt.Errorf("it answers %d", h.status)
		case len(c.unused()) >= maxHead:
			return malformed("its head has more than %d bytes", maxHead)
		}
	}
}

// note takes down the answer to a question, and changes what is thought of the server after some of the same kind.
func (p *Pool) note(s *server, why error) {
	p.mu.Lock()
	down := s.down
	s.passed++
	most := p.o.Health.Fall
	if down {
		most = p.o.Health.Rise
	}
	if down == (why != nil) {
		s.passed = 0 // nothing new
	}
	changes := s.passed >= most
	if changes {
		s.down, s.passed = !down, 0
	}
	p.mu.Unlock()
	if changes {
		p.o.Changed(s.Address, down, why)
	}
}
