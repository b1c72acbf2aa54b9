package gateway

import (
	"encoding/binary"
	"time"

	"github.com/headgate-io/headgate/internal/clip"
)

// Frames of WebSocket (RFC 6455 section 5) begin with a head of 2 to 14 bytes:
//
//	FIN, RSV1-3, opcode (4 bits) · MASK, length (7 bits) · longer length (0, 2 or 8 bytes) · masking key (0 or 4)
//
// A head is read as strictly as the RFC has it: one that an API might read in
// another way would carry messages that nobody counts. The payload is never
// looked at, so compression and other extensions by RSV bits pass as they are.

// maxHead is the longest head, in bytes.
const maxHead = 14

// The opcodes.
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

// head is the beginning of a frame.
type head struct {
	opcode byte
	final  bool // the last frame of its message
	masked bool
	bytes  int   // of the head itself
	length int64 // of the payload behind it, in bytes
}

func (h *head) control() bool { return h.opcode >= opClose }

// readHead reads the head at the beginning of p. If p does not hold all of it,
// more is how many bytes it takes to go on.
func readHead(p []byte) (h head, more int, why fault) {
	if len(p) < 2 {
		return h, 2, 0
	}
	h.final, h.opcode, h.masked, h.bytes = p[0]&0x80 != 0, p[0]&0x0f, p[1]&0x80 != 0, 2
	length := p[1] & 0x7f
	switch length {
	case 126:
		h.bytes += 2
	case 127:
		h.bytes += 8
	}
	if h.masked {
		h.bytes += 4
	}
	if len(p) < h.bytes {
		return h, h.bytes, 0
	}
	switch length {
	case 126:
		h.length = int64(binary.BigEndian.Uint16(p[2:]))
		if h.length < 126 {
			return h, 0, badLength
		}
	case 127:
		n := binary.BigEndian.Uint64(p[2:])
		if n <= 0xffff || n > 1<<63-1 {
			return h, 0, badLength
		}
		h.length = int64(n)
	default:
		h.length = int64(length)
	}
	return h, 0, 0
}

// fault is why a tunnel ends.
type fault uint8

const (
	badLength fault = iota + 1
	badMask
	badOpcode
	badControl
	badOrder
	tooLong
	tooManyControls
)

var faults = [...]struct {
	code   uint16 // RFC 6455 section 7.4
	reason string
}{
	badLength:       {protocolError, "The length of a frame is not written in the shortest way."},
	badMask:         {protocolError, "A frame of a client is not masked, or one of a server is."},
	badOpcode:       {protocolError, "A frame has an opcode that does not exist."},
	badControl:      {protocolError, "A control frame is fragmented or longer than 125 bytes."},
	badOrder:        {protocolError, "A frame continues no message, or begins one within another."},
	tooLong:         {messageTooBig, "A message is longer than is allowed here."},
	tooManyControls: {policyViolation, "Too many control frames."},
}

// The codes of Close frames that are sent.
const (
	goingAway       = 1001
	protocolError   = 1002
	policyViolation = 1008
	messageTooBig   = 1009
	tryAgainLater   = 1013
)

// messages is what is known of the frames of one direction.
type messages struct {
	masked bool  // as all frames of a client are
	most   int64 // bytes of a message, with the heads of its frames; 0 is no bound

	open     bool  // a message has begun and has not ended
	size     int64 // its bytes so far
	closed   bool  // a Close frame has passed
	controls controls
}

// next takes the next head. It says what is wrong with it, and whether a message
// begins.
func (m *messages) next(h head, now time.Time) (begins bool, why fault) {
	switch {
	case h.masked != m.masked:
		return false, badMask
	case h.opcode > opBinary && h.opcode < opClose || h.opcode > opPong:
		return false, badOpcode
	case h.control():
		m.closed = h.opcode == opClose
		switch {
		case h.length > 125 || !h.final:
			return false, badControl
		case m.masked && !m.controls.take(now):
			return false, tooManyControls
		}
		return false, 0
	case (h.opcode == opContinuation) != m.open:
		return false, badOrder
	}
	if begins = !m.open; begins {
		m.size = 0
	}
	// The heads count, or a message could be of endlessly many empty frames.
	if m.most > 0 && (h.length > m.most || m.size+h.length+int64(h.bytes) > m.most) {
		return begins, tooLong
	}
	m.open = !h.final
	m.size += h.length + int64(h.bytes)
	return begins, 0
}

// controls bounds the control frames of a client, which cost no tokens, and each
// of which an API may have to answer: a hundred at once, and ten a second.
type controls struct {
	left time.Duration
	last time.Time
}

const (
	controlEvery = 100 * time.Millisecond
	controlBurst = 100
)

func (c *controls) take(now time.Time) bool {
	if c.last.IsZero() {
		c.left = controlBurst * controlEvery
	} else if passed := now.Sub(c.last); passed > 0 {
		c.left = min(c.left+passed, controlBurst*controlEvery)
	}
	c.last = now
	if c.left < controlEvery {
		return false
	}
	c.left -= controlEvery
	return true
}

// closeFrame makes a Close frame (RFC 6455 section 5.5.1). With a masking key of
// zero, which is as good as any for what a gateway writes, its payload stands as
// it is.
func closeFrame(code uint16, reason string, masked bool) []byte {
	const most = 125 - 2
	if len(reason) > most {
		reason = clip.To(reason, most-len(clip.Mark))
	}
	f := []byte{0x80 | opClose, byte(2 + len(reason))}
	if masked {
		f[1] |= 0x80
		f = append(f, 0, 0, 0, 0)
	}
	return append(binary.BigEndian.AppendUint16(f, code), reason...)
}
