package spoe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Types of frames (HAProxy, doc/SPOE.txt section 3.2).
const (
	haproxyHello      = 1
	haproxyDisconnect = 2
	notify            = 3
	agentHello        = 101
	agentDisconnect   = 102
	ack               = 103
)

// Types of values (section 3.1), in the lower four bits of their first byte.
const (
	typeNull = iota
	typeBool
	typeInt32
	typeUint32
	typeInt64
	typeUint64
	typeIPv4
	typeIPv6
	typeString
	typeBinary
)

const (
	flagFinal = 1      // in the flags of a frame: nothing follows that belongs to it
	flagTrue  = 1 << 4 // in the first byte of a bool
)

// fault is what an agent says when it ends a connection (section 3.2.9).
type fault struct {
	code uint64
	text string
}

func (f *fault) Error() string { return f.text }

var (
	errTooBig      = &fault{3, "the frame is too big"}
	errInvalid     = &fault{4, "the frame is invalid"}
	errNoVersion   = &fault{5, "supported-versions is missing"}
	errNoSize      = &fault{6, "max-frame-size is missing"}
	errVersion     = &fault{8, "supported-versions has no 2.0"}
	errSize        = &fault{9, "max-frame-size is below 256"}
	errFragmented  = &fault{10, "fragmentation is not supported"}
	errUnavailable = &fault{13, "no more connections are taken"}
	errUntrusted   = &fault{99, "this address may not ask"}
)

// frame is one that was received.
type frame struct {
	kind          byte
	flags         uint32
	stream, frame uint64
	payload       []byte
}

// readFrame reads what stands behind the length of a frame.
func readFrame(b []byte) (f frame, err error) {
	if len(b) < 7 {
		return f, errInvalid
	}
	r := reader{b: b[5:]}
	f = frame{kind: b[0], flags: binary.BigEndian.Uint32(b[1:5]), stream: r.varint(), frame: r.varint(), payload: r.b}
	switch {
	case r.bad:
		return f, errInvalid
	case f.flags&flagFinal == 0:
		return f, errFragmented
	}
	return f, nil
}

// reader takes values off b. Once it met one that is none, bad is true, and it
// returns zeros.
type reader struct {
	b   []byte
	bad bool
}

// varint reads a number of one to ten bytes (section 3.1): the first holds four
// bits where more follow, and each other one seven.
func (r *reader) varint() uint64 {
	if r.bad || len(r.b) == 0 {
		r.bad = true
		return 0
	}
	n := uint64(r.b[0])
	if n < 240 {
		r.b = r.b[1:]
		return n
	}
	for i, shift := 1, 4; i < len(r.b) && shift < 64; i, shift = i+1, shift+7 {
		c := uint64(r.b[i])
		if c<<shift>>shift != c || n+c<<shift < n {
			break // it does not fit
		}
		if n += c << shift; c < 128 {
			r.b = r.b[i+1:]
			return n
		}
	}
	r.bad = true
	return 0
}

func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// text reads a length and so many bytes.
func (r *reader) text() string { return string(r.bytes(r.varint())) }

// value is of one type: nil, bool, int64, uint64, netip.Addr, string, or binary.
type value any

type binaryValue []byte

func (r *reader) value() value {
	first := r.bytes(1)
	if r.bad {
		return nil
	}
	switch first[0] & 0x0F {
	case typeNull:
		return nil
	case typeBool:
		return first[0]&flagTrue != 0
	case typeInt32, typeInt64:
		return int64(r.varint())
	case typeUint32, typeUint64:
		return r.varint()
	case typeIPv4:
		addr, _ := netip.AddrFromSlice(r.bytes(4))
		return addr
	case typeIPv6:
		addr, _ := netip.AddrFromSlice(r.bytes(16))
		return addr
	case typeString:
		return r.text()
	case typeBinary:
		return binaryValue(r.bytes(r.varint()))
	}
	r.bad = true
	return nil
}

// named reads a name and its value.
func (r *reader) named() (string, value) {
	name := r.text()
	return name, r.value()
}

// headers reads what HAProxy's req.hdrs_bin holds: names and values, and an empty
// pair at the end.
func headers(b []byte) (map[string][]string, error) {
	r, all := reader{b: b}, map[string][]string{}
	for !r.bad {
		name, value := r.text(), r.text()
		if r.bad {
			break
		}
		if name == "" && value == "" {
			if len(r.b) > 0 {
				break
			}
			return all, nil
		}
		all[name] = append(all[name], value)
	}
	return nil, errors.New("headers is none of HAProxy's lists, want req.hdrs_bin")
}

func appendVarint(b []byte, n uint64) []byte {
	if n < 240 {
		return append(b, byte(n))
	}
	b = append(b, byte(n)|240)
	for n = (n - 240) >> 4; n >= 128; n = (n - 128) >> 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}

func appendText(b []byte, s string) []byte {
	return append(appendVarint(b, uint64(len(s))), s...)
}

func appendString(b []byte, s string) []byte { return appendText(append(b, typeString), s) }

func appendUint32(b []byte, n uint64) []byte { return appendVarint(append(b, typeUint32), n) }

func appendBool(b []byte, is bool) []byte {
	if is {
		return append(b, typeBool|flagTrue)
	}
	return append(b, typeBool)
}

// appendFrame appends a frame with its length. The payload is what write appends.
func appendFrame(b []byte, kind byte, stream, frame uint64, write func([]byte) []byte) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0, kind, 0, 0, 0, flagFinal)
	b = write(appendVarint(appendVarint(b, stream), frame))
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// appendVariable appends an action that sets a variable of the transaction.
func appendVariable(b []byte, name string) []byte {
	const setVar, arguments, transaction = 1, 3, 2
	return appendText(append(b, setVar, arguments, transaction), name)
}

func appendDisconnect(b []byte, f *fault) []byte {
	return appendFrame(b, agentDisconnect, 0, 0, func(b []byte) []byte {
		b = appendUint32(appendText(b, "status-code"), f.code)
		return appendString(appendText(b, "message"), f.text)
	})
}

// kindOf names the type of a value, for people.
func kindOf(v value) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case bool:
		return "a bool"
	case int64, uint64:
		return "a number"
	case netip.Addr:
		return "an address"
	case string:
		return "a text"
	}
	return fmt.Sprintf("%T", v)
}
