package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/server/daemon"
)

// gatewayFlags say which running gateway is meant.
type gatewayFlags struct{ server, tokenFile string }

func (f *gatewayFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.server, "server", "http://127.0.0.1:8081", "admin listener of the running gateway")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the admin token, if the gateway wants one")
}

// ask sends a request to the admin listener and reads the answer. remedy is what
// else may be done when nobody is there.
func (f *gatewayFlags) ask(ctx context.Context, path string, request, answer any, remedy string) error {
	base, err := url.Parse(f.server)
	if err != nil || base.Host == "" {
		return usagef("--server is %q, want a URL such as http://127.0.0.1:8081", f.server)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if f.tokenFile != "" {
		token, err := daemon.ReadToken(f.tokenFile)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no gateway answers at %s: start `headgate serve`, %s", f.server, remedy)
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", f.server, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("ask %s: %w", f.server, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: %s: %s", f.server, response.Status, problemDetail(text))
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("ask %s: the answer is not one of a gateway's admin listener: %w", f.server, err)
	}
	return nil
}
