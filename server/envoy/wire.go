package envoy

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate-io/headgate/server/descriptor"
)

// A question by descriptors comes with each request of an Envoy, and most of what it costs is to read and
// write messages. So those of ShouldRateLimit are read and written by hand, into memory that is used again.
// All others go through the codec that gRPC has.

// codec is gRPC's own, but for calls of ShouldRateLimit.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal also ends a call, whose memory is for another one from then on.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	call, ok := v.(*call)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	buffer := mem.DefaultBufferPool().Get(pooled)
	*buffer = append((*buffer)[:0], call.answer...)
	call.end()
	return mem.BufferSlice{mem.NewBuffer(buffer, mem.DefaultBufferPool())}, nil
}

// pooled is a size that gRPC takes back: it leaves smaller ones to the garbage collector.
const pooled = 2 << 10

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	call, ok := v.(*call)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return call.question.read(buffer.ReadOnlyData())
}

// question is a RateLimitRequest (envoy.service.ratelimit.v3).
type question struct {
	domain      string
	hits        uint32 // hits_addend
	descriptors []described
	entries     []descriptor.Entry // of all descriptors, one after the other
	excess      error              // there is more of something than may be: the rest was not read
}

// described is a RateLimitDescriptor (envoy.extensions.common.ratelimit.v3).
type described struct {
	first, end int    // its part of the entries of the question
	hits       uint64 // hits_addend, if counted
	counted    bool   // it has one of its own
	back       bool   // is_negative_hits
	limited    bool   // it has a limit
	limit      ownLimit
}

// ownLimit is a RateLimitOverride.
type ownLimit struct {
	requests uint32
	unit     int32
	units    uint32 // unit_multiplier
}

func (q *question) of(d *described) []descriptor.Entry { return q.entries[d.first:d.end] }

var (
	errMalformed = errors.New("the message is malformed")
	errText      = errors.New("a text is not UTF-8")
)

// read reads a message as generated code does: what is not known is passed over, of what stands there twice
// the last counts, and of a message in it that does what each of them says.
func (q *question) read(message []byte) error {
	// Texts are parts of one copy: the message is gone when it was read.
	return part{message, string(message)}.fields(func(number protowire.Number, f field) error {
		switch {
		case q.excess != nil:
		case number == 1 && f.kind == protowire.BytesType:
			q.domain = f.text
			return f.checkText()
		case number == 2 && f.kind == protowire.BytesType:
			return q.readDescriptor(f.part)
		case number == 3 && f.kind == protowire.VarintType:
			q.hits = uint32(f.value)
		}
		return nil
	})
}

func (q *question) readDescriptor(message part) error {
	if len(q.descriptors) == maxDescriptors {
		q.excess = errManyDescriptors
		return nil
	}
	q.descriptors = append(q.descriptors, described{first: len(q.entries), end: len(q.entries)})
	d := &q.descriptors[len(q.descriptors)-1]
	return message.fields(func(number protowire.Number, f field) error {
		switch {
		case q.excess != nil:
		case number == 1 && f.kind == protowire.BytesType:
			return q.readEntry(d, f.part)
		case number == 2 && f.kind == protowire.BytesType:
			d.limited = true
			return d.limit.read(f.part)
		case number == 3 && f.kind == protowire.BytesType:
			d.counted = true
			return f.part.unwrap(&d.hits)
		case number == 4 && f.kind == protowire.VarintType:
			d.back = f.value != 0
		}
		return nil
	})
}

func (q *question) readEntry(d *described, message part) error {
	if d.end-d.first == maxEntries {
		q.excess = errManyEntries
		return nil
	}
	d.end++
	q.entries = append(q.entries, descriptor.Entry{})
	e := &q.entries[len(q.entries)-1]
	return message.fields(func(number protowire.Number, f field) error {
		switch {
		case number == 1 && f.kind == protowire.BytesType:
			e.Key = f.text
			return f.checkText()
		case number == 2 && f.kind == protowire.BytesType:
			e.Value = f.text
			return f.checkText()
		}
		return nil
	})
}

func (l *ownLimit) read(message part) error {
	return message.fields(func(number protowire.Number, f field) error {
		switch {
		case number == 1 && f.kind == protowire.VarintType:
			l.requests = uint32(f.value)
		case number == 2 && f.kind == protowire.VarintType:
			l.unit = int32(f.value)
		case number == 3 && f.kind == protowire.BytesType:
			units := uint64(l.units)
			err := f.part.unwrap(&units)
			l.units = uint32(units)
			return err
		}
		return nil
	})
}

// part is a message, or a piece of it, and the same as a text that outlives it.
type part struct {
	bytes []byte
	text  string
}

func (p part) cut(from, to int) part { return part{p.bytes[from:to], p.text[from:to]} }

// field is one of a message: of a varint its value, of bytes the part.
type field struct {
	part
	kind  protowire.Type
	value uint64
}

func (f field) checkText() error {
	if !utf8.Valid(f.bytes) {
		return errText
	}
	return nil
}

// unwrap reads a UInt32Value or UInt64Value.
func (p part) unwrap(value *uint64) error {
	return p.fields(func(number protowire.Number, f field) error {
		if number == 1 && f.kind == protowire.VarintType {
			*value = f.value
		}
		return nil
	})
}

// fields calls each with the fields of a message, in order, until there is an error.
func (p part) fields(each func(protowire.Number, field) error) error {
	for len(p.bytes) > 0 {
		number, kind, n := protowire.ConsumeTag(p.bytes)
		if n < 0 || number > protowire.MaxValidNumber {
			return errMalformed
		}
		f := field{kind: kind}
		length := 0
		switch kind {
		case protowire.VarintType:
			f.value, length = protowire.ConsumeVarint(p.bytes[n:])
		case protowire.BytesType:
			var inner []byte
			if inner, length = protowire.ConsumeBytes(p.bytes[n:]); length >= 0 {
				f.part = p.cut(n+length-len(inner), n+length)
			}
		default: // no known field is of another kind
			length = protowire.ConsumeFieldValue(number, kind, p.bytes[n:])
		}
		if length < 0 {
			return errMalformed
		}
		p = p.cut(n+length, len(p.bytes))
		if err := each(number, f); err != nil {
			return err
		}
	}
	return nil
}

// Messages are written from the inside to the outside, as their length stands before them. As in generated
// code nothing is written of what is zero.

func appendNumber(b []byte, number protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
}

func appendText(b []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func appendMessage(b []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), message)
}
