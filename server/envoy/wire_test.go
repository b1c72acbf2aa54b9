package envoy

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	wire "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/server/descriptor"
)

func whole() *ratelimit.RateLimitRequest {
	entry := func(key, value string) *wire.RateLimitDescriptor_Entry {
		return &wire.RateLimitDescriptor_Entry{Key: key, Value: value}
	}
	return &ratelimit.RateLimitRequest{Domain: "shop", HitsAddend: 7, Descriptors: []*wire.RateLimitDescriptor{
		{Entries: []*wire.RateLimitDescriptor_Entry{entry("remote_address", "192.0.2.7"), entry("path", "/\u00e9")}},
		{
			Entries: []*wire.RateLimitDescriptor_Entry{entry("user", "")}, HitsAddend: wrapperspb.UInt64(0),
			IsNegativeHits: true,
			Limit: &wire.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: 3,
				Unit:            types.RateLimitUnit_HOUR,
				UnitMultiplier:  wrapperspb.UInt32(30),
			},
		},
		{Entries: []*wire.RateLimitDescriptor_Entry{entry("user", "x")}, HitsAddend: wrapperspb.UInt64(math.MaxUint64)},
	}}
}

func marshalled(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzQuestion: what is read by hand is what generated code reads, of any bytes.
func FuzzQuestion(f *testing.F) {
	message := marshalled(f, whole())
	f.Add(message)
	f.Add(message[:len(message)-3])
	f.Add(append(message, message...)) // twice the same: the last counts, and more descriptors
	field := func(number protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
	}
	override := func(b ...byte) []byte { return field(2, field(2, b)) }
	// merged
	f.Add(append(override(0x08, 5), field(2,
		append(field(2, []byte{0x10, 2}), field(2, []byte{0x1a, 2, 0x08, 9, 0x1a, 0})...))...))
	f.Add(field(2, append(append(field(3, []byte{0x08, 9}), field(3, nil)...), 0x20, 0x80, 0x02)))
	f.Add([]byte{0x0a, 0x02, 0xff, 0xfe}) // no UTF-8
	// of other kinds
	f.Add([]byte{0x08, 1, 0x15, 1, 2, 3, 4, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x18, 5})
	f.Add([]byte{0x7b, 0x0a, 1, 'x', 0x7c}) // a group
	// a group that does not end
	f.Add([]byte{0x7b, 0x7b, 0x7c})
	f.Add([]byte{0x7c})       // an end alone
	f.Add([]byte{0x00, 0x00}) // no number
	// more than a number
	f.Add([]byte{0xfa, 0xff, 0xff, 0xff, 0x7f, 0x00})
	// more than 64 bits
	f.Add([]byte{0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02})
	// longer than there is
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add(override(0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x08, 0x80, 0x00)) // a unit of -1
	for n := range 3 {
		many := []byte{}
		for range maxDescriptors - 1 + n {
			many = append(many, field(2, field(1, nil))...)
		}
		f.Add(many)
		entries := []byte{}
		for range maxEntries - 1 + n {
			entries = append(entries, field(1, nil)...)
		}
		f.Add(field(2, entries))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var q question
		err := q.read(message)
		var want ratelimit.RateLimitRequest
		wantErr := proto.Unmarshal(message, &want)
		if q.excess != nil {
			most := len(want.GetDescriptors()) > maxDescriptors
			for _, d := range want.GetDescriptors() {
				most = most || len(d.GetEntries()) > maxEntries
			}
			if wantErr == nil && !most {
				t.Fatalf("%v, of %d descriptors", q.excess, len(want.GetDescriptors()))
			}
			return
		}
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("%x: %v, want %v", message, err, wantErr)
		}
		if err != nil {
			return
		}
		got := &ratelimit.RateLimitRequest{Domain: q.domain, HitsAddend: q.hits}
		for i := range q.descriptors {
			d := &q.descriptors[i]
			one := &wire.RateLimitDescriptor{IsNegativeHits: d.back}
			for _, e := range q.of(d) {
				one.Entries = append(one.Entries, &wire.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
			}
			if d.counted {
				one.HitsAddend = wrapperspb.UInt64(d.hits)
			}
			if d.limited {
				one.Limit = &wire.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: d.limit.requests,
					Unit:            types.RateLimitUnit(d.limit.unit),
				}
				if other := want.GetDescriptors()[i].GetLimit(); other.GetUnitMultiplier() != nil {
					one.Limit.UnitMultiplier = wrapperspb.UInt32(d.limit.units) // one of 0 is none
				}
			}
			got.Descriptors = append(got.Descriptors, one)
		}
		forget(&want)
		if !proto.Equal(got, &want) {
			t.Fatalf("%x:\n%v\nwant\n%v", message, got, &want)
		}
	})
}

// forget leaves out what generated code keeps of fields that it does not know.
func forget(m proto.Message) {
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		if inner, ok := p.Index(-1).Value.Interface().(protoreflect.Message); ok {
			inner.SetUnknown(nil)
		}
		return nil
	})
}

// newDecider is a service without its listener.
func newDecider(t testing.TB) *rateLimiting {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path,
		[]byte("domain: shop\ndescriptors:\n- {key: remote_address, rate_limit: {unit: second, requests_per_unit: "+
			"4000000000}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	limits, err := descriptor.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	hasher := key.NewHasher()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	return &rateLimiting{
		Descriptors: Descriptors{
			Limits: func() *descriptor.Limits { return limits }, Buckets: buckets, Now: func() int64 { return now },
			Name: func(_ string, subject []byte) (key.Key, uint16) { return hasher.Key(0, 0, subject), 0 },
		},
		failed: func(decisions.Fault, error) {},
	}
}

// exchange is a call from the message to the answer, as gRPC would have it.
func (s *rateLimiting) exchange(ctx context.Context, message mem.BufferSlice) (mem.BufferSlice, error) {
	got, err := shouldRateLimit(s, ctx, func(v any) error { return newCodec().Unmarshal(message, v) }, nil)
	if err != nil {
		return nil, err
	}
	return newCodec().Marshal(got)
}

// short is a question as most are.
func short(t testing.TB) mem.BufferSlice {
	q := whole()
	q.Descriptors = q.Descriptors[:1]
	q.Descriptors[0].Entries = q.Descriptors[0].Entries[:1]
	return mem.BufferSlice{mem.SliceBuffer(marshalled(t, q))}
}

// A call is read, decided and answered in a few allocations: the texts of the question, and what gRPC takes.
func TestCallsAllocateLittle(t *testing.T) {
	if race.Enabled {
		return // which allocates on its own, and keeps little in pools
	}
	s, message := newDecider(t), short(t)
	got := testing.AllocsPerRun(1000, func() {
		answer, err := s.exchange(t.Context(), message)
		if err != nil {
			t.Fatal(err)
		}
		answer.Free()
	})
	if got > 5 {
		t.Errorf("a call allocates %v times, want 5 or fewer", got)
	}
}

// What calls leave behind is never of another call.
func TestCallsShareNothing(t *testing.T) {
	s := newDecider(t)
	for range 3 {
		for _, c := range []struct {
			message  *ratelimit.RateLimitRequest
			statuses int
		}{{whole(), 3}, {&ratelimit.RateLimitRequest{Domain: "other", Descriptors: whole().GetDescriptors()[2:]}, 1}} {
			sent, err := s.exchange(t.Context(), mem.BufferSlice{mem.SliceBuffer(marshalled(t, c.message))})
			if err != nil {
				t.Fatal(err)
			}
			var answer ratelimit.RateLimitResponse
			if err := proto.Unmarshal(sent.Materialize(), &answer); err != nil ||
				len(answer.GetStatuses()) != c.statuses || len(answer.ProtoReflect().GetUnknown()) > 0 {
				t.Fatalf("%v, %v, want %d statuses", &answer, err, c.statuses)
			}
			for _, s := range answer.GetStatuses() {
				if s.GetCurrentLimit() != nil {
					t.Errorf("%v has a limit of %v", c.message, s)
				}
			}
			sent.Free()
		}
		if _, err := s.exchange(t.Context(), mem.BufferSlice{mem.SliceBuffer("\x0a\xff")}); !errors.Is(err,
			errMalformed) {
			t.Errorf("a malformed message: %v", err)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	s, message := newDecider(b), short(b)
	b.ReportAllocs()
	for b.Loop() {
		answer, err := s.exchange(b.Context(), message)
		if err != nil {
			b.Fatal(err)
		}
		answer.Free()
	}
}
