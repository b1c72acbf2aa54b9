package gateway

import (
	"net/http"
	"strings"
)

// dropUpgrades leaves out an offer to go over to another version of HTTP, or to
// TLS. An API that took it would answer any number of requests on a connection
// of which the limiter saw one (what became known as h2c smuggling); without
// the offer it answers the one. Other protocols, such as WebSocket, pass. What
// is no name of a protocol is left out too, else the proxy would call it a
// failure of the API.
func dropUpgrades(h http.Header) {
	for _, line := range h["Upgrade"] {
		for offer := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(offer)), "/")
			if name == "http" || name == "tls" || strings.HasPrefix(name, "h2") ||
				strings.ContainsFunc(name, notPrintable) {
				delete(h, "Upgrade")
				delete(h, "Http2-Settings")
				return
			}
		}
	}
}

func notPrintable(r rune) bool { return r < ' ' || r > '~' }
