package gateway_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/gateway"
)

// frame makes a frame in the shortest way, masked with a key of zeros.
func frame(first byte, payload int, masked bool) []byte {
	f := []byte{first}
	mask := byte(0)
	if masked {
		mask = 0x80
	}
	switch {
	case payload < 126:
		f = append(f, mask|byte(payload))
	case payload < 1<<16:
		f = binary.BigEndian.AppendUint16(append(f, mask|126), uint16(payload))
	default:
		f = binary.BigEndian.AppendUint64(append(f, mask|127), uint64(payload))
	}
	if masked {
		f = append(f, 0, 0, 0, 0)
	}
	return append(f, bytes.Repeat([]byte{'x'}, payload)...)
}

// slowly reads a whole stream in the obvious way: what of it goes on, how many messages
// begin in that, and whether it ends in a fault. Of a message as long as it is allowed
// to be at most, nothing is known here.
func slowly(stream []byte, masked bool) (on []byte, messages int, fault bool) {
	open := false
	for at := 0; ; {
		on = stream[:at]
		p := stream[at:]
		if len(p) < 2 {
			return on, messages, false
		}
		need, length := 2, uint64(p[1]&0x7f)
		extra := map[uint64]int{126: 2, 127: 8}[length]
		need += extra
		if p[1]&0x80 != 0 {
			need += 4
		}
		if len(p) < need {
			return on, messages, false
		}
		if extra > 0 {
			length = 0
			for _, b := range p[2 : 2+extra] {
				length = length<<8 | uint64(b)
			}
			if extra == 2 && length < 126 || extra == 8 && (length <= 0xffff || length >= 1<<63) {
				return on, messages, true
			}
		}
		opcode, final := p[0]&0x0f, p[0]&0x80 != 0
		isControl := opcode >= 8
		switch {
		case (p[1]&0x80 != 0) != masked,
			opcode > 2 && opcode < 8 || opcode > 10,
			isControl && (!final || length > 125),
			!isControl && (opcode == 0) != open:
			return on, messages, true
		}
		if !isControl {
			if !open {
				messages++
			}
			open = !final
		}
		if uint64(len(p)-need) < length {
			return stream, messages, false // the rest is payload
		}
		at += need + int(length)
		if opcode == 8 {
			return stream[:at], messages, false
		}
	}
}

// pipe is an API's connection: it remembers what is written, and says what it is given.
type pipe struct {
	io.Reader
	got bytes.Buffer
}

func (p *pipe) Write(b []byte) (int, error) { return p.got.Write(b) }
func (p *pipe) Close() error                { return nil }

// FuzzFrames writes streams of frames in pieces, in both directions. What goes on, and
// what counts, is what a slow reader of the whole stream finds.
func FuzzFrames(f *testing.F) {
	for _, masked := range []bool{true, false} {
		f.Add(append(frame(0x81, 3, masked), frame(0x82, 300, masked)...), uint8(1), masked)
		f.Add(append(frame(0x01, 0, masked), append(frame(0x89, 5, masked),
			append(frame(0x00, 2, masked), frame(0x80, 1, masked)...)...)...), uint8(3), masked)
		f.Add(append(frame(0xc1, 70000, masked), frame(0x88, 2, masked)...), uint8(200), masked)
		f.Add(append(frame(0x88, 2, masked), frame(0x81, 1, masked)...), uint8(7), masked)
		f.Add(frame(0x80, 1, masked), uint8(1), masked)
		f.Add([]byte{0x81, 0xfe, 0, 5, 1, 2, 3, 4, 5}, uint8(2), masked)
		f.Add([]byte{0x81, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, uint8(2), masked)
	}
	of := gateway.WebSocket{Send: gateway.Messages, Receive: gateway.Messages, MaxMessage: -1}
	counted, denied := 0, 0
	lim := newLimiter(f, withChat(f, "default 1000000/s burst 1000000000", "UNKNOWN 1/s"), func(o *headgate.Options) {
		o.Observe = func(_ *headgate.Request, d *headgate.Decision) {
			if counted++; !d.Allowed {
				denied++
			}
		}
	})
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8, masked bool) {
		counted, denied = 0, 0
		wantOn, wantMessages, fault := slowly(stream, masked)
		if bytes.Count(stream, []byte{0x89})+bytes.Count(stream, []byte{0x8a}) > 50 {
			return // there may be more control frames than are free
		}
		size := int(piece) + 1
		var got []byte
		if masked {
			api := &pipe{Reader: bytes.NewReader(nil)}
			tunnel := gateway.NewTunnel(lim, of, "/chat", api)
			for rest := stream; len(rest) > 0; {
				n := min(size, len(rest))
				if _, err := tunnel.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			got = api.got.Bytes()
		} else {
			tunnel := gateway.NewTunnel(lim, of, "/chat", &pipe{Reader: bytes.NewReader(stream)})
			buffer := make([]byte, size)
			for !fault || len(got) <= len(wantOn) { // a Close frame follows, and then a wait
				n, err := tunnel.Read(buffer)
				got = append(got, buffer[:n]...)
				if err != nil {
					break
				}
			}
		}
		if fault && len(got) > len(wantOn) && got[len(wantOn)] == 0x88 {
			got = got[:len(wantOn)] // and our Close frame
		}
		if !bytes.Equal(got, wantOn) || counted != wantMessages || denied > 0 {
			t.Errorf("in pieces of %d, %x went on with %d messages, %d denied; want %x with %d", size, got, counted,
				denied, wantOn, wantMessages)
		}
	})
}
