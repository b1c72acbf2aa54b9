package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// serviceAccount is where a pod finds what it needs to speak to the API server.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// Bounds of what an API server is believed.
const (
	pageSize   = 250
	maxObjects = 10_000
	maxAnswer  = 32 << 20 // bytes of a page, or of one event of a watch
	maxList    = 64 << 20 // bytes of the specs of all objects

	callTimeout = 10 * time.Second
)

// Config says which objects, and of which server.
type Config struct {
	Namespace string
	Server    string // https://HOST:PORT; empty is the one of the pod that this runs in
	TokenFile string // read again with each call: tokens end within an hour; empty for none beside Server
	CAFile    string // who signs the certificate of Server; empty for the system's
}

// ParseDSN reads "kubernetes:NAMESPACE", behind which may stand ?server=URL&token_file=PATH&ca_file=PATH for a process
// outside of a pod.
func ParseDSN(dsn string) (Config, error) {
	const want = "kubernetes:NAMESPACE, or kubernetes:NAMESPACE?server=https://HOST:PORT&token_file=PATH&ca_file=PATH"
	rest, ok := strings.CutPrefix(dsn, "kubernetes:")
	space, text, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(text)
	if !ok || err != nil || !IsName(space) {
		return Config{}, fmt.Errorf("database is %q, want %s", dsn, want)
	}
	c := Config{Namespace: space}
	for name, lines := range values {
		to := map[string]*string{"server": &c.Server, "token_file": &c.TokenFile, "ca_file": &c.CAFile}[name]
		if to == nil || len(lines) != 1 || lines[0] == "" {
			return Config{}, fmt.Errorf("database is %q: its parameter %q is not known, empty or there twice, want %s",
				dsn, name, want)
		}
		*to = lines[0]
	}
	if c.Server == "" {
		if c.TokenFile+c.CAFile != "" {
			return Config{}, fmt.Errorf("database is %q: token_file and ca_file go with server, want %s", dsn, want)
		}
		return c, nil
	}
	u, err := url.Parse(c.Server)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && (u.Scheme != "http" || c.TokenFile != "") {
		return Config{}, fmt.Errorf("database is %q: its server is no https://HOST:PORT; http only without a token",
			dsn)
	}
	return c, nil
}

// client asks an API server.
type client struct {
	base      string // with the namespace
	events    string
	tokenFile string
	http      *http.Client
	patience  time.Duration // with one call
}

func newClient(c Config) (*client, error) {
	if c.Server == "" {
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			return nil, errors.New("rules are to come from Kubernetes, but this is no pod: KUBERNETES_SERVICE_HOST " +
				"is not set; want db: kubernetes:NAMESPACE?server=https://HOST:PORT&token_file=PATH&ca_file=PATH")
		}
		c.Server = "https://" + net.JoinHostPort(host, port)
		c.TokenFile, c.CAFile = serviceAccount+"/token", serviceAccount+"/ca.crt"
	}
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: callTimeout,
		MaxIdleConns:          4,
		IdleConnTimeout:       90 * time.Second,
		ForceAttemptHTTP2:     true,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the CA of the API server: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the CA of the API server: %s holds no certificate in PEM", c.CAFile)
		}
	}
	server := strings.TrimSuffix(c.Server, "/")
	return &client{
		base:      server + "/apis/" + group + "/" + version + "/namespaces/" + c.Namespace + "/" + plural,
		events:    server + "/apis/events.k8s.io/v1/namespaces/" + c.Namespace + "/events",
		tokenFile: c.TokenFile,
		http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // with a token, nowhere else
		}},
		patience: callTimeout,
	}, nil
}

// statusError is a refusal of the API server.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the API server answers %d: %s", e.code, e.message)
}

// gone reports whether what a watch asked for is no longer kept, so that a list is due.
func gone(err error) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == http.StatusGone
}

// call sends a request, and returns the answer if it is a yes. Close its body.
func (c *client) call(ctx context.Context, method, at, kind string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "headgate")
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if c.tokenFile != "" {
		token, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("the token for the API server: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	answer, err := c.http.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) { // without the whole URL
			err = u.Err
		}
		return nil, fmt.Errorf("the API server %s: %w", r.URL.Host, err)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 16<<10))
	var s struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &s) != nil || s.Message == "" {
		s.Message = http.StatusText(answer.StatusCode)
	}
	return nil, &statusError{answer.StatusCode, clipped(s.Message, 300)}
}

// clipped is s in one line of at most so many bytes.
func clipped(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// list reads all objects, and the version of the list.
func (c *client) list(ctx context.Context) (all []*object, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	more, size := "", 0
	for {
		query := url.Values{"limit": {fmt.Sprint(pageSize)}}
		if more != "" {
			query.Set("continue", more)
		}
		answer, err := c.call(ctx, http.MethodGet, c.base+"?"+query.Encode(), "", nil)
		if err != nil {
			return nil, "", err
		}
		var page struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []*object `json:"items"`
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
		_ = answer.Body.Close()
		if err == nil && len(text) > maxAnswer {
			err = fmt.Errorf("a page of objects is longer than %d bytes", maxAnswer)
		}
		if err == nil {
			err = json.Unmarshal(text, &page)
		}
		if err != nil {
			return nil, "", fmt.Errorf("the list of objects: %w", err)
		}
		for _, o := range page.Items {
			if o == nil {
				return nil, "", errors.New("the list of objects: one is null")
			}
			size += len(o.Spec)
		}
		all = append(all, page.Items...)
		if len(all) > maxObjects || size > maxList {
			return nil, "", fmt.Errorf("the namespace has more than %d objects or %d bytes of rules, want fewer",
				maxObjects, maxList)
		}
		if version = page.Metadata.ResourceVersion; version == "" {
			return nil, "", errors.New("the list of objects has no resourceVersion, want one to watch from")
		}
		if more = page.Metadata.Continue; more == "" {
			return all, version, nil
		}
	}
}

// event is a change of an object.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch calls changed with each event after a version, until the server ends the watch, which it is asked to after a
// time. opened is called once it has begun.
func (c *client) watch(ctx context.Context, version string, last time.Duration, opened func(),
	changed func(event) error) error {
	ctx, cancel := context.WithTimeout(ctx, last+c.patience)
	defer cancel()
	answer, err := c.call(ctx, http.MethodGet, c.base+"?"+url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {fmt.Sprint(int(last / time.Second))},
	}.Encode(), "", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	opened()
	body := &io.LimitedReader{R: answer.Body, N: maxAnswer}
	events := json.NewDecoder(body)
	for {
		var e event
		switch err := events.Decode(&e); {
		case err == io.EOF && body.N > 0:
			return nil
		case body.N <= 0:
			return fmt.Errorf("an event of the watch is longer than %d bytes", maxAnswer)
		case err != nil:
			return fmt.Errorf("the watch: %w", err)
		}
		body.N = maxAnswer
		if err := changed(e); err != nil {
			return err
		}
	}
}

// patch merges a status into that of an object.
func (c *client) patch(ctx context.Context, name string, s status) error {
	body, err := json.Marshal(map[string]any{"status": s})
	if err != nil {
		return err
	}
	at := c.base + "/" + url.PathEscape(name) + "/status"
	return c.send(ctx, http.MethodPatch, at, "application/merge-patch+json", body)
}

// tell creates an event. One of the same name is as good.
func (c *client) tell(ctx context.Context, body []byte) error {
	err := c.send(ctx, http.MethodPost, c.events, "application/json", body)
	var s *statusError
	if errors.As(err, &s) && s.code == http.StatusConflict {
		return nil
	}
	return err
}

func (c *client) send(ctx context.Context, method, at, kind string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	answer, err := c.call(ctx, method, at, kind, body)
	if err == nil {
		_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
		err = answer.Body.Close()
	}
	return err
}
