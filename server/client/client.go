// Package client asks a running gateway's admin listener what the commands ask
// a database: rules, their history, tiers, requests for a higher limit, the
// audit and admin tokens. It asks for what the gateway alone knows, too: its
// buckets, and what it would answer a request.
//
// It takes and returns what package database does, so that commands need not
// know which of the two they ask. Other programs have clients/admin-go.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
)

// Client asks one gateway. It may be used concurrently.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client

	// wait is the time before attempt n of a question that is asked again.
	wait func(n int) time.Duration

	most int64 // bytes of an answer
}

const (
	// timeout bounds one answer. A gateway with a million rules takes seconds
	// to check a change of them.
	timeout = time.Minute

	attempts  = 3
	maxAnswer = 256 << 20
)

// New returns a Client of the admin listener at a URL such as
// http://127.0.0.1:8081. token may be empty: for a gateway that wants none.
func New(server, token string) (*Client, error) {
	base, err := url.Parse(server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil ||
		base.RawQuery != "" {
		if err == nil {
			server = base.Redacted()
		}
		return nil, fmt.Errorf("--server is %q, want a URL such as http://127.0.0.1:8081", server)
	}
	return &Client{
		base: base, token: token, most: maxAnswer,
		wait: func(n int) time.Duration { return time.Duration(n) * 200 * time.Millisecond },
		// Whoever answers with another address gets neither token nor change.
		http: &http.Client{
			Timeout:       timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Error is an answer that is no success.
type Error struct {
	Server string
	admin.Problem
	remedy string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s answers %d: %s", e.Server, e.Status, strings.TrimSuffix(e.Detail, "."))
	if e.remedy != "" {
		text += "; " + e.remedy
	}
	return text
}

// Is makes errors.Is find record.ErrNotFound and record.ErrTokenName, as in an
// error of the database.
func (e *Error) Is(target error) bool {
	switch e.kind() {
	case "not-found":
		return target == record.ErrNotFound
	case "name-taken":
		return target == record.ErrTokenName
	case "pages-moved":
		return target == errMoved
	}
	return false
}

func (e *Error) kind() string { return strings.TrimPrefix(e.Type, "urn:headgate:problem:") }

// ErrNobody is that nothing listens where the gateway should.
var ErrNobody = errors.New("no gateway answers")

var errMoved = errors.New("the rules changed between two pages")

var remedies = map[string]string{
	"unauthenticated": "name the file with the token by --token-file",
	"role-missing":    "`headgate admin token create` makes one with the role",
	"no-such-path":    "the gateway is of another version than this command, or that is not its admin listener",
}

// question is what is asked.
type question struct {
	method, path string
	query        url.Values
	ifMatch      string
	body         any    // sent as JSON
	text         []byte // or sent as it is, which is JSON
	looks        bool   // it changes nothing, though it is no GET
	once         string // or it is made once under this key, however often it is asked for
}

// ask asks, and reads the answer into answer, which may be nil. What changes
// nothing, or is made once, is asked again when nobody answers or the gateway
// cannot answer now.
func (c *Client) ask(ctx context.Context, q question, answer any) (header http.Header, err error) {
	for n := 1; ; n++ {
		header, err = c.once(ctx, q, answer)
		if err == nil || q.method != http.MethodGet && !q.looks && q.once == "" || n == attempts || !passing(err) {
			return header, err
		}
		select {
		case <-ctx.Done():
			return header, err
		case <-time.After(c.wait(n)):
		}
	}
}

// passing reports whether asking again may help.
func passing(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		return e.Status == http.StatusServiceUnavailable || e.Status == http.StatusBadGateway ||
			e.Status == http.StatusGatewayTimeout || e.kind() == "idempotency-key-in-use"
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return true // amid the answer
	}
	var sent *url.Error
	return errors.As(err, &sent) && !sent.Timeout() && !errors.Is(err, syscall.ECONNREFUSED)
}

func (c *Client) once(ctx context.Context, q question, answer any) (http.Header, error) {
	r, err := c.request(ctx, q)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(r)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w at %s: start `headgate serve`, or name its admin listener with --server",
			ErrNobody, c.base)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.base, err)
	}
	defer response.Body.Close()
	body := &io.LimitedReader{R: response.Body, N: c.most + 1}
	if parts, ok := answer.(interface{ read(*json.Decoder) error }); ok && response.StatusCode < 300 {
		if err := parts.read(json.NewDecoder(body)); body.N == 0 {
			return nil, c.tooLong()
		} else if err != nil {
			return nil, c.misread(err)
		}
		return response.Header, nil
	}
	text, err := io.ReadAll(body)
	if body.N == 0 {
		return nil, c.tooLong()
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.base, err)
	}
	if response.StatusCode >= 300 {
		return response.Header, c.problem(response, text)
	}
	if answer == nil {
		return response.Header, nil
	}
	if plain, ok := answer.(*[]byte); ok {
		*plain = text
		return response.Header, nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, c.misread(err)
	}
	return response.Header, nil
}

// tooLong is no error that passes: the answer is as long the next time.
func (c *Client) tooLong() error {
	return fmt.Errorf("ask %s: the answer has more than %d bytes, which are read at most", c.base, c.most)
}

// misread says of what answer is none, or why it ended too early.
func (c *Client) misread(err error) error {
	var sent net.Error
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &sent) {
		return fmt.Errorf("ask %s: %w", c.base, err)
	}
	return fmt.Errorf("ask %s: the answer is not one of a gateway's admin listener: %w", c.base, err)
}

func (c *Client) request(ctx context.Context, q question) (*http.Request, error) {
	at := c.base.JoinPath(q.path)
	at.RawQuery = q.query.Encode()
	if q.body != nil {
		var err error
		if q.text, err = json.Marshal(q.body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, q.method, at.String(), bytes.NewReader(q.text))
	if err != nil {
		return nil, err
	}
	if q.text != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if q.ifMatch != "" {
		r.Header.Set("If-Match", q.ifMatch)
	}
	if q.once != "" {
		r.Header.Set("Idempotency-Key", `"`+q.once+`"`)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	return r, nil
}

// problem makes an error of an answer that is no success.
func (c *Client) problem(response *http.Response, text []byte) error {
	var conflict admin.Conflict
	if response.Header.Get("Content-Type") != "application/problem+json" || json.Unmarshal(text, &conflict) != nil ||
		conflict.Type == "" {
		return &Error{Server: c.base.String(), Problem: admin.Problem{
			Status: response.StatusCode,
			Detail: "this is no answer of a gateway's admin listener",
		}}
	}
	if response.StatusCode == http.StatusPreconditionFailed {
		found := &record.Conflict{Current: record.Version{ID: conflict.Current}}
		for _, v := range conflict.Since {
			found.Since = append(found.Since, v.Version())
		}
		if len(found.Since) > 0 {
			found.Current = found.Since[0]
		}
		return found
	}
	e := &Error{Server: c.base.String(), Problem: conflict.Problem}
	if e.remedy = remedies[e.kind()]; e.Type == problem.Blank { // as the gateway's own listener answers, and no admin's
		e.remedy = "that is no admin listener: want the address of the setting admin, by default http://127.0.0.1:8081"
	}
	return e
}
