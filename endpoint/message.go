package endpoint

// Methods of endpoints that are no requests but messages: on a WebSocket that was opened by GET on the
// same path, or of a gRPC call, which is a POST on it, or in the body of one, of the Model Context Protocol or to a
// language model. So rules can be for them: "WS-SEND /v1/chat", "MCP /mcp/tools/call/search", "MODEL
// /v1/messages/large". Who sends a request with such a method has not sent a message: a Limiter refuses it.
const (
	Send    = "WS-SEND"    // messages that clients send
	Receive = "WS-RECEIVE" // messages that clients receive

	SendCall    = "GRPC-SEND"    // messages that clients send in a call
	ReceiveCall = "GRPC-RECEIVE" // messages that clients receive in a call

	MCP   = "MCP"   // messages that clients send by POST, each a request by itself
	Model = "MODEL" // requests that clients send by POST, each for the model that its body names
)

// OfMessages reports whether a method is one of those.
func OfMessages(method string) bool {
	switch method {
	case Send, Receive, SendCall, ReceiveCall:
		return true
	}
	return OfBodies(method)
}

// OfBodies reports whether a method is one of those whose messages are the bodies of requests: each is a request by
// itself, and not one more of a request that is under way.
func OfBodies(method string) bool { return method == MCP || method == Model }
