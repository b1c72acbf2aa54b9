package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/pflag"
)

// doorFlags say at which gateway a developer asks, and with what credential.
type doorFlags struct {
	url, path          string
	keyFile, tokenFile string
	keyHeader          string
	allowHTTP          bool
}

func (f *doorFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "url", "", "URL of the API, such as https://api.example.com (needed)")
	flags.StringVar(&f.path, "path", "/.headgate", "where its gateway answers developers")
	flags.StringVar(&f.keyFile, "key-file", "", "file whose first line is your API key")
	flags.StringVar(&f.keyHeader, "key-header", "X-Api-Key", "header in which the API wants it")
	flags.StringVar(&f.tokenFile, "token-file", "", "file whose first line is your bearer token, in place of a key")
	flags.BoolVar(&f.allowHTTP, "allow-http", false, "send the credential over http:// beyond this machine too")
}

// base checks the flags and returns where the door is.
func (f *doorFlags) base() (*url.URL, error) {
	base, err := url.Parse(f.url)
	switch {
	case err != nil, base.Scheme != "http" && base.Scheme != "https", base.Host == "", base.RawQuery != "",
		base.Fragment != "", base.User != nil:
		return nil, usagef("--url is %q, want the URL of the API, such as https://api.example.com", f.url)
	case base.Scheme == "http" && !f.allowHTTP && !thisMachine(base.Hostname()):
		return nil, usagef("--url is %q, over which others can read the credential: want https://, or --allow-http",
			f.url)
	case (f.keyFile == "") == (f.tokenFile == ""):
		return nil, usagef("want --key-file or --token-file: budgets are those of a credential")
	case !strings.HasPrefix(f.path, "/"):
		return nil, usagef("--path is %q, want one that begins with a slash, such as /.headgate", f.path)
	}
	return base.JoinPath(f.path), nil
}

func thisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// credential reads the header that the flags mean.
func (f *doorFlags) credential() (name, value string, err error) {
	path := cmp.Or(f.keyFile, f.tokenFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", fmt.Errorf("read the credential: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSpace(line); line == "" || strings.ContainsFunc(line, unicode.IsControl) {
		return "", "", fmt.Errorf("read the credential: the first line of %s is none", path)
	}
	if f.tokenFile != "" {
		return "Authorization", "Bearer " + line, nil
	}
	return f.keyHeader, line, nil
}

// ask sends a request to the door and reads the answer. It follows no redirect,
// which would take the credential along.
func (f *doorFlags) ask(ctx context.Context, method, path string, query url.Values, request, answer any) error {
	base, err := f.base()
	if err != nil {
		return err
	}
	name, value, err := f.credential()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var body io.Reader
	if request != nil {
		text, err := json.Marshal(request)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	at := base.JoinPath(path)
	at.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return err
	}
	r.Header.Set(name, value)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &dns):
		return fmt.Errorf("nobody answers at %s: --url is that of the API as its callers reach it", f.url)
	case err != nil:
		return fmt.Errorf("ask %s: %w", f.url, err)
	}
	defer response.Body.Close()
	return f.read(response, answer)
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 4 << 20

func (f *doorFlags) read(response *http.Response, answer any) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch kind := response.Header.Get("Content-Type"); {
	case err != nil:
		return fmt.Errorf("ask %s: %w", f.url, err)
	case response.StatusCode == http.StatusNotFound && !strings.Contains(string(text), f.path):
		return fmt.Errorf("ask %s: 404: nothing answers developers at %s there; want --path, if its operator has "+
			"chosen another, or developers.path switched on by them", f.url, f.path)
	case response.StatusCode/100 != 2 && kind == "application/problem+json":
		return fmt.Errorf("ask %s: %s: %s", f.url, response.Status, plain(problemDetail(text)))
	case response.StatusCode/100 != 2:
		return fmt.Errorf("ask %s: %s", f.url, response.Status)
	case response.StatusCode == http.StatusNoContent || answer == nil:
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("ask %s: the answer is not one of a gateway's: %w", f.url, err)
	}
	return nil
}

func problemDetail(body []byte) string {
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &problem) == nil && problem.Detail != "" {
		return problem.Detail
	}
	return strings.TrimSpace(string(body[:min(len(body), 200)]))
}
