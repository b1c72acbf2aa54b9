package telemetry_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/pace/telemetry"
)

var (
	secret = []byte("a secret of the tests alone, 32 bytes and more")
	at     = time.UnixMilli(1795348800123)
)

func exampleReport() telemetry.Report {
	return telemetry.Report{
		Quota: "api", Client: 0xfedcba9876543210, Number: 1795348800001, First: true, Congested: true,
		Sent: 7, Accepted: 5, Refused: 2, Queue: 31, Time: at,
	}
}

func exampleAggregate() telemetry.Aggregate {
	return telemetry.Aggregate{
		Quota: "api", Client: 0xfedcba9876543210, Number: 1795348800001, Warm: true, Configured: true,
		Sent: 700, Accepted: 500, Refused: 200, Queue: 310, Active: 12, Refusing: 3,
		SinceRefusal: 250 * time.Millisecond,
		Capacity:     4.0 / 3, Window: 30 * time.Second, Time: at,
	}
}

func TestRoundTrip(t *testing.T) {
	r := exampleReport()
	key := telemetry.ClientKey(secret, r.Quota, r.Client)
	b := r.Append(nil, key)
	if got, err := telemetry.ReadReport(b); err != nil || got != r || !telemetry.Verify(b, key) {
		t.Errorf("ReadReport = %+v, %v; want %+v, signed", got, err, r)
	}
	a := exampleAggregate()
	for _, since := range []time.Duration{250 * time.Millisecond, -1, 0} {
		a.SinceRefusal = since
		b = a.Append(nil, key)
		got, err := telemetry.ReadAggregate(b, key)
		a.Capacity = got.Capacity // to the millionth
		if err != nil || got != a || got.Capacity < 1.333333 || got.Capacity > 1.333334 || len(b) != telemetry.Size {
			t.Errorf("ReadAggregate = %+v, %v; want %+v", got, err, a)
		}
	}
}

// Any bit that is changed on the way is found, and a report is not an answer to itself.
func TestEveryBitCounts(t *testing.T) {
	r := exampleReport()
	key := telemetry.ClientKey(secret, r.Quota, r.Client)
	report, answer := r.Append(nil, key), exampleAggregate().Append(nil, key)
	for bit := range 8 * telemetry.Size {
		changed := bytes.Clone(report)
		changed[bit/8] ^= 1 << (bit % 8)
		if telemetry.Verify(changed, key) {
			t.Errorf("a report with bit %d changed verifies", bit)
		}
		changed = bytes.Clone(answer)
		changed[bit/8] ^= 1 << (bit % 8)
		if _, err := telemetry.ReadAggregate(changed, key); err == nil {
			t.Errorf("an answer with bit %d changed is read", bit)
		}
	}
	if _, err := telemetry.ReadAggregate(report, key); err == nil {
		t.Error("a report that was sent back is read as an answer")
	}
	for _, other := range [][]byte{telemetry.ClientKey(secret, "api", 1),
		telemetry.ClientKey(secret, "other", r.Client), secret} {
		if telemetry.Verify(report, other) {
			t.Error("a report verifies by the key of another")
		}
	}
}

func TestCheckQuota(t *testing.T) {
	for name, ok := range map[string]bool{
		"api": true, "a.b_c-9": true, strings.Repeat("q", 24): true,
		"": false, strings.Repeat("q", 25): false, "API": false, "a b": false, "a\x00b": false, "ä": false,
	} {
		if err := telemetry.CheckQuota(name); (err == nil) != ok {
			t.Errorf("CheckQuota(%q) = %v, want it fine: %v", name, err, ok)
		}
	}
}

var write = flag.Bool("write", false, "write testdata/messages.json")

// vector is a message and what it says, for clients in other languages.
type vector struct {
	Secret, Quota, Client, Key string `json:",omitempty"`
	Report                     string
	Aggregate                  string
}

// TestVectors holds the messages to testdata/messages.json, which the packages for
// JavaScript and Python read too.
func TestVectors(t *testing.T) {
	r, a := exampleReport(), exampleAggregate()
	key := telemetry.ClientKey(secret, r.Quota, r.Client)
	want := vector{
		Secret: string(secret), Quota: r.Quota, Client: "fedcba9876543210", Key: hex.EncodeToString(key),
		Report: hex.EncodeToString(r.Append(nil, key)), Aggregate: hex.EncodeToString(a.Append(nil, key)),
	}
	path := filepath.Join("testdata", "messages.json")
	if *write {
		text, err := json.MarshalIndent(want, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got vector
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("testdata/messages.json is\n%+v, want\n%+v (go test ./pace/telemetry -run TestVectors -write)", got,
			want)
	}
}

// Whatever arrives, what is read is within its bounds and is written as it was read.
func FuzzReadReport(f *testing.F) {
	key := telemetry.ClientKey(secret, "api", 1)
	f.Add(exampleReport().Append(nil, key))
	f.Add(exampleAggregate().Append(nil, key))
	f.Add([]byte(`{"type":"stat","id":1,"sent":3}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := telemetry.ReadReport(b)
		if err != nil {
			return
		}
		if r.Queue < 0 || r.Queue > telemetry.MaxQueue || telemetry.CheckQuota(r.Quota) != nil {
			t.Errorf("%+v is out of bounds", r)
		}
		if again := r.Append(nil, key); !bytes.Equal(again[:112], b[:112]) {
			t.Errorf("%x is written as %x", b, again)
		}
	})
}

func FuzzReadAggregate(f *testing.F) {
	key := telemetry.ClientKey(secret, "api", 1)
	f.Add(exampleAggregate().Append(nil, key)[:112])
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := telemetry.ReadAggregate(telemetry.Sign(b, key), key)
		if err != nil {
			return
		}
		if a.Refusing > a.Active || a.SinceRefusal < -1 || a.Capacity < 0 || a.Capacity > 1e9 || a.Window < 0 ||
			min(a.Sent, a.Accepted, a.Refused, a.Queue, a.Active, a.Refusing) < 0 {
			t.Errorf("%+v is out of bounds", a)
		}
	})
}
