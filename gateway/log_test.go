package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/internal/livelog"
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
	var log livelog.Text
	var failed atomic.Int64
	base := newGateway(t, api, func(o *gateway.Options) {
		o.Log, o.Failed = slog.New(slog.NewTextHandler(&log, nil)), func(int) { failed.Add(1) }
	}).URL
	if got := send(t, base, "GET", "/v1/items/1", "Connection", "Upgrade", "Upgrade",
		"\xff"+long).StatusCode; got != http.StatusOK || failed.Load() != 0 {
		t.Errorf("an offer that is no name is answered %d, %d failures; want 200 and none", got, failed.Load())
	}
	if got := send(t, base, "GET", "/v1/items/1", "Connection", "Upgrade", "Upgrade", "a"+long, "X-Switch",
		"1").StatusCode; got != http.StatusBadGateway {
		t.Errorf("an answer with another protocol than was asked for gets %d, want 502", got)
	}
	if log.Len() == 0 || log.Len() > 1000 {
		t.Errorf("the log has %d bytes, want a line of at most 1000", log.Len())
	}
}

// TestBadBodiesAreNoFailuresOfTheAPI: what a client writes must not look like
// an outage.
func TestBadBodiesAreNoFailuresOfTheAPI(t *testing.T) {
	api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	var log livelog.Text
	var failed atomic.Int64
	base := newGateway(t, api, func(o *gateway.Options) {
		o.Log, o.Failed = slog.New(slog.NewTextHandler(&log, nil)), func(int) { failed.Add(1) }
	}).URL
	for _, chunks := range []string{"1\r\nxyz", "zz\r\n", "1;" + strings.Repeat("x", 10_000) + "\r\nx\r\n0\r\n\r\n",
		"1\r\nx\r\n0\r\nno trailer\r\n\r\n"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /v1/items HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n\r\n%s", chunks)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || response.StatusCode != http.StatusBadRequest {
			t.Errorf("chunks %.20q are answered %v, %v; want 400", chunks, response, err)
		}
		conn.Close()
	}
	if failed.Load() != 0 || log.Len() != 0 {
		t.Errorf("%d failures of the API, and the log says %q; want none", failed.Load(), log.String())
	}
}
