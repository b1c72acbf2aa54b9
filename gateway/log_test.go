package gateway_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/gateway"
)

// TestClientsDoNotFillTheLog: neither an unusable offer is a failure of the
// API, nor is a line as long as what somebody sent.
func TestClientsDoNotFillTheLog(t *testing.T) {
	long := strings.Repeat("x", 30_000)
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Switch") != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", long)
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	})
	var log bytes.Buffer
	var failed atomic.Int64
	base := newGateway(t, api, func(o *gateway.Options) {
		o.Log, o.Failed = slog.New(slog.NewTextHandler(&log, nil)), func(int) { failed.Add(1) }
	}).URL
	if got := send(t, base, "GET", "/v1/items/1", "Connection", "Upgrade", "Upgrade", "\xff"+long).StatusCode; got != http.StatusOK || failed.Load() != 0 {
		t.Errorf("an offer that is no name is answered %d, %d failures; want 200 and none", got, failed.Load())
	}
	if got := send(t, base, "GET", "/v1/items/1", "Connection", "Upgrade", "Upgrade", "a"+long, "X-Switch", "1").StatusCode; got != http.StatusBadGateway {
		t.Errorf("an answer with another protocol than was asked for gets %d, want 502", got)
	}
	if log.Len() == 0 || log.Len() > 1000 {
		t.Errorf("the log has %d bytes, want a line of at most 1000", log.Len())
	}
}
