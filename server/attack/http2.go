package attack

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
)

// HTTP2 speaks HTTP/2 frame by frame (RFC 9113): what it sends is what no client
// library would, such as requests whose answers it never lets come.
type HTTP2 struct {
	net.Conn
	frames *bufio.Reader
}

// Frame is one frame as it arrived.
type Frame struct {
	Type, Flags byte
	Stream      uint32
	Payload     []byte
}

// The frames that are told apart here (RFC 9113 section 6), and the flags.
const (
	FrameData      = 0x0
	FrameHeaders   = 0x1
	FrameRSTStream = 0x3
	FrameSettings  = 0x4
	FrameGoAway    = 0x7

	frameWindowUpdate = 0x8
	flagEnd           = 0x1
	flagAck           = 0x1
	flagEndHeaders    = 0x4
)

// NewHTTP2 begins HTTP/2 on c, on which TLS has agreed to it. Answers may be so
// many bytes long before more is granted: 0 holds back all of their bodies.
func NewHTTP2(c net.Conn, window uint32) (*HTTP2, error) {
	h := &HTTP2{Conn: c, frames: bufio.NewReader(c)}
	const initialWindowSize = 4
	settings := binary.BigEndian.AppendUint16(nil, initialWindowSize)
	settings = binary.BigEndian.AppendUint32(settings, window)
	_, err := c.Write(appendFrame([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), FrameSettings, 0, 0, settings))
	return h, err
}

func appendFrame(to []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	to = append(to, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return append(binary.BigEndian.AppendUint32(to, stream), payload...)
}

// Request sends the header of a request; whole says that it has no body. Fields
// are given as names and values in turn, none longer than 126 bytes.
func (h *HTTP2) Request(stream uint32, method, path string, whole bool, fields ...string) error {
	var block []byte
	fields = append([]string{":method", method, ":scheme", "https", ":path", path, ":authority", "api.example"},
		fields...)
	for i := 0; i < len(fields); i += 2 { // literal, not indexed, a new name: RFC 7541 section 6.2.2
		block = append(append(block, 0, byte(len(fields[i]))), fields[i]...)
		block = append(append(block, byte(len(fields[i+1]))), fields[i+1]...)
	}
	flags := byte(flagEndHeaders)
	if whole {
		flags |= flagEnd
	}
	_, err := h.Write(appendFrame(nil, FrameHeaders, flags, stream, block))
	return err
}

// Body sends a part of the body of a request.
func (h *HTTP2) Body(stream uint32, part []byte, last bool) error {
	flags := byte(0)
	if last {
		flags = flagEnd
	}
	_, err := h.Write(appendFrame(nil, FrameData, flags, stream, part))
	return err
}

// Grant lets so many bytes more of an answer come; stream 0 is the connection.
func (h *HTTP2) Grant(stream, bytes uint32) error {
	_, err := h.Write(appendFrame(nil, frameWindowUpdate, 0, stream, binary.BigEndian.AppendUint32(nil, bytes)))
	return err
}

// Next returns the next frame. Settings are acknowledged.
func (h *HTTP2) Next() (Frame, error) {
	var head [9]byte
	if _, err := io.ReadFull(h.frames, head[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Type: head[3], Flags: head[4], Stream: binary.BigEndian.Uint32(head[5:]) & 0x7fffffff}
	f.Payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(h.frames, f.Payload); err != nil {
		return Frame{}, err
	}
	if f.Type == FrameSettings && f.Flags&flagAck == 0 {
		if _, err := h.Write(appendFrame(nil, FrameSettings, flagAck, 0, nil)); err != nil {
			return Frame{}, err
		}
	}
	return f, nil
}

// Ends reports whether f ends its stream.
func (f Frame) Ends() bool {
	return f.Type == FrameRSTStream || (f.Type == FrameData || f.Type == FrameHeaders) && f.Flags&flagEnd != 0
}
