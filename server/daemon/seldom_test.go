package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/server/config"
)

// TestSettlementsDoNotFillTheLog: requests that outlast settle.timeout fail to
// settle, as many as clients send.
func TestSettlementsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		failed := settlement(config.Settle{Header: "X-Cost"}, slog.New(slog.NewTextHandler(&log, nil))).Failed
		for range 1000 {
			failed(errors.New("too late"))
		}
		time.Sleep(time.Second)
		failed(errors.New("too late"))
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "not_logged=999") {
			t.Errorf("the log says\n%swant two lines, the second with not_logged=999", got)
		}
	})
}
