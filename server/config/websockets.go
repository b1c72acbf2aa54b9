package config

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/headgate-io/headgate/gateway"
)

// WebSocket says what counts on the WebSockets of one endpoint after they were opened, or in the
// gRPC calls of one method.
type WebSocket struct {
	// Send is what of the messages that clients send counts, by rules for WS-SEND and the path, or
	// GRPC-SEND: messages (default), bytes, or none.
	Send string `yaml:"send"`

	// Receive is the same of those that the API sends, by rules for WS-RECEIVE or GRPC-RECEIVE.
	// Default none.
	Receive string `yaml:"receive"`

	// BytesPerToken makes a token of so many bytes, where bytes count. Default 1KiB.
	BytesPerToken Bytes `yaml:"bytes_per_token"`

	// MaxMessage is the longest message that a client may send. Default 1MiB.
	MaxMessage Bytes `yaml:"max_message"`
}

var messageUnits = map[string]gateway.Unit{
	"none":     gateway.Uncounted,
	"messages": gateway.Messages,
	"bytes":    gateway.Bytes,
}

// Counted is s, which is complete, as the gateway has it.
func (s WebSocket) Counted() gateway.WebSocket {
	return gateway.WebSocket{
		Send: messageUnits[s.Send], Receive: messageUnits[s.Receive], BytesPerToken: int64(s.BytesPerToken),
		MaxMessage: int64(s.MaxMessage),
	}
}

// messages checks what counts on connections and in calls, and fills in what is left out; whether
// the registry has the endpoints is found when it is built.
func (c *checker) messages(conf *Config) {
	conf.WebSockets = c.counted(conf, "websockets", conf.WebSockets, "no WebSocket is passed on")
	conf.GRPCStreams = c.counted(conf, "grpc_streams", conf.GRPCStreams, "no call is passed on")
}

func (c *checker) counted(conf *Config, setting string, given map[string]WebSocket,
	nothing string) map[string]WebSocket {
	complete := make(map[string]WebSocket, len(given))
	for _, endpoint := range slices.Sorted(maps.Keys(given)) {
		s := given[endpoint]
		field := func(name string) string { return fmt.Sprintf("%s[%s].%s", setting, endpoint, name) }
		fill(&s.Send, "messages")
		fill(&s.Receive, "none")
		fill(&s.BytesPerToken, 1<<10)
		fill(&s.MaxMessage, 1<<20)
		c.oneOf(field("send"), s.Send, "messages", "bytes", "none")
		c.oneOf(field("receive"), s.Receive, "messages", "bytes", "none")
		c.size(field("bytes_per_token"), s.BytesPerToken, 1, math.MaxInt64)
		c.between(field("max_message"), int64(s.MaxMessage), 128, 1<<40)
		if s.Send == "none" && s.Receive == "none" {
			c.wrong(field("receive"), "none", "messages or bytes, or send to be so: nothing would count")
		}
		complete[endpoint] = s
	}
	if len(complete) == 0 {
		return given
	}
	if !conf.Gateway() {
		c.wrong(setting, fmt.Sprintf("%d endpoints", len(complete)), "nothing: with listen none, "+nothing)
	}
	return complete
}
