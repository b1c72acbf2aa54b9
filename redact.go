package headgate

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// A Request holds credentials: in its header, in its query, and often in its
// identifier. It prints without them, so that a log line about a request is no
// leak.

// String shows the method, the path and the peer.
func (r Request) String() string {
	path, _, query := strings.Cut(r.Target, "?")
	if query {
		path += "?[redacted]"
	}
	return fmt.Sprintf("{%s %s from %s}", r.Method, path, r.Peer)
}

// Format shows the method, the path and the peer, whatever the verb.
func (r Request) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, r.String()) }

// LogValue shows the method, the path and the peer.
func (r Request) LogValue() slog.Value { return slog.StringValue(r.String()) }
