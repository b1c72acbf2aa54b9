package endpoint

// Methods of endpoints that are no requests but messages: on a WebSocket that was opened by GET on the
// same path, or of a gRPC call, which is a POST on it, or in the body of one, of the Model Context Protocol. So rules
// can be for them: "WS-SEND /v1/chat", "MCP /mcp/tools/call/search". Who sends a request with such a method has not
// sent a message: a Limiter refuses it.
const (
	Send    = "WS-SEND"    // messages that clients send
	Receive = "WS-RECEIVE" // messages that clients receive

	SendCall    = "GRPC-SEND"    // messages that clients send in a call
	ReceiveCall = "GRPC-RECEIVE" // messages that clients receive in a call

	MCP = "MCP" // messages that clients send by POST, each a request by itself
)

// OfMessages reports whether a method is one of those.
func OfMessages(method string) bool {
	switch method {
	case Send, Receive, SendCall, ReceiveCall, MCP:
		return true
	}
	return false
}
