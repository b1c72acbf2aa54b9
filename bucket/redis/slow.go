package redis

import (
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// slowness is how the rate of a take's limit was lowered of late, as slow.lua reads it. The zero value is not at all.
type slowness struct {
	part  int
	spans []rate.Span
}

// slownessOf is how a take's rate was lowered of late, at a moment of Options.Now. Spans are appended to dst. What a
// queue has told those who wait would not hold, so its rate stays.
func slownessOf(dst []rate.Span, t *bucket.Take, moment int64) slowness {
	l := t.Slower()
	if l == nil {
		return slowness{}
	}
	s := slowness{l.Part(), l.Spans(dst, moment)}
	for i := range s.spans {
		s.spans[i] = rate.Span{Age: micros(s.spans[i].Age), Counted: micros(s.spans[i].Counted)}
	}
	// Spans that are one in microseconds would be divided by nothing.
	kept, least := s.spans[:0], int64(0)
	for _, span := range s.spans {
		if span.Age > least {
			kept, least = append(kept, span), span.Age
		}
	}
	s.spans = kept
	return s
}

func (s slowness) code() int64 { return int64(s.part)*16 + int64(len(s.spans)) }

func (s slowness) appendTo(dst []byte) []byte {
	for _, span := range s.spans {
		dst = appendDoubles(dst, span.Age, span.Counted)
	}
	return dst
}
