package endpoint

// Methods of endpoints that are no requests but messages on a WebSocket that was opened by GET on the
// same path, so that rules can be for them: "WS-SEND /v1/chat". Who sends a request with such a method
// has not sent a message: a Limiter refuses it.
const (
	Send    = "WS-SEND"    // messages that clients send
	Receive = "WS-RECEIVE" // messages that clients receive
)

// OfMessages reports whether a method is one of those.
func OfMessages(method string) bool { return method == Send || method == Receive }
