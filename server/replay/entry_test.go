package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate-io/headgate/internal/trial"
)

func TestFormats(t *testing.T) {
	at := func(text string) int64 {
		when, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return when.UnixNano()
	}
	client := netip.MustParseAddr("192.0.2.7")
	for name, test := range map[string]struct {
		format, line string
		fields       map[string]string
		want         Entry
		fault        string
	}{
		"combined": {line: `192.0.2.7 - - [17/May/2015:10:05:03 +0200] "GET /v1/items/7?x=1 HTTP/1.1" 200 203023 "http://h/" "Mozilla/5.0 (X; \"Y\")"`,
			want: Entry{at("2015-05-17T10:05:03+02:00"), client, "GET", "/v1/items/7?x=1", "", 200, nil}},
		"common, with a user": {line: `192.0.2.7 - alice [17/May/2015:10:05:03 +0000] "DELETE /a HTTP/1.0" 204 -`,
			want: Entry{at("2015-05-17T10:05:03Z"), client, "DELETE", "/a", "alice", 204, nil}},
		"a user with a space": {line: `192.0.2.7 - alice b [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.0" 204 -`,
			want: Entry{at("2015-05-17T10:05:03Z"), client, "GET", "/a", "alice b", 204, nil}},
		"escapes of nginx": {
			line: `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /\x22a\xC3\xA9 HTTP/1.1" 400 5 "-" "-"`,
			want: Entry{at("2015-05-17T10:05:03Z"), client, "GET", "/\"a\u00e9", "", 400, nil}},
		"escapes of Apache": {line: `2001:db8::7 - - [17/May/2015:10:05:03 +0000] "GET /\"a\\ HTTP/1.1" 400 5`,
			want: Entry{at("2015-05-17T10:05:03Z"), netip.MustParseAddr("2001:db8::7"), "GET", `/"a\`, "", 400, nil}},
		"a target with a space": {line: `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a b HTTP/1.1" 400 5`,
			want: Entry{at("2015-05-17T10:05:03Z"), client, "GET", "/a b", "", 400, nil}},
		"no HTTP at all": {
			line:  `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "\x16\x03\x01" 400 5`,
			fault: "want METHOD TARGET PROTOCOL",
		},
		"a name": {
			line:  `h.example - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5`,
			fault: `client is "h.example", want an address`,
		},
		"a time": {
			line:  `192.0.2.7 - - [17/Mai/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5`,
			fault: `time is "17/Mai/2015:10:05:03 +0000"`,
		},
		"an end too early": {line: `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /`, fault: "ends too early"},
		"no status":        {line: `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" -`, fault: "status is"},
		"envoy": {line: `[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28, 192.0.2.7" "nsq2http" "cc21" "locations" "tcp://10.0.2.1:80"`,
			want: Entry{at("2016-04-15T20:17:00.31Z"), client, "POST", "/api/v1/locations", "", 204, nil}},
		"envoy without a client": {
			line:  `[2016-04-15T20:17:00.310Z] "GET / HTTP/2" 204 - 154 0 226 100 "-" "x" "y" "z" "w"`,
			fault: `client is "-"`,
		},
		"alb": {line: `https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/a?b HTTP/1.1" "curl/7.46.0" ECDHE TLSv1.2 arn`,
			want: Entry{
				at("2018-07-02T22:23:00.186641Z"), client, "GET", "https://www.example.com:443/a?b", "", 200, nil,
			}},
		"alb with IPv6": {line: `h2 2018-07-02T22:23:00.1Z app/x/5 2001:db8::7:2817 10.0.0.1:80 0 0 0 200 200 0 57 "GET https://h/ HTTP/2.0" "-" - - -`,
			want: Entry{
				at("2018-07-02T22:23:00.1Z"), netip.MustParseAddr("2001:db8::7"), "GET", "https://h/", "", 200, nil,
			}},
		"json": {line: `{"ts": "2026-11-23T10:05:03.25Z", "client_ip": "192.0.2.7:999", "method": "GET", "path": "/a", "status": 429, "user_id": "u7"}`,
			want: Entry{at("2026-11-23T10:05:03.25Z"), client, "GET", "/a", "u7", 429, nil}},
		"json of nginx": {line: `{"time": "1779530703.250", "remote_addr": "192.0.2.7", "request": "GET /a HTTP/1.1", "status": "200"}`,
			want: Entry{1779530703250 * 1e6, client, "GET", "/a", "", 200, nil}},
		"json by names": {line: `{"when": 1779530703250, "peer": {"ip": "192.0.2.7"}, "m": "PUT", "u": "/b"}`,
			fields: map[string]string{"time": "when", "client": "peer.ip", "method": "m", "target": "u"},
			want:   Entry{1779530703250 * 1e6, client, "PUT", "/b", "", 0, nil}},
		"json without parts": {
			line:  `{"ts": 1, "method": "GET"}`,
			fault: "it has no client and no target: name the member with --field, such as client=NAME",
		},
		"json that is none": {format: "json", line: `192.0.2.7 - -`, fault: "it is no JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			format := test.format
			if format == "" {
				format = Detect(test.line)
			}
			f, err := ParseFormat(format, test.fields)
			if err != nil {
				t.Fatal(err)
			}
			var got Entry
			err = f.reader()(test.line, &got)
			switch {
			case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
				t.Errorf("as %s: %v, want %s", format, err, test.fault)
			case test.fault == "" && (err != nil || got != test.want):
				t.Errorf("as %s: %+v, %v, want %+v", format, got, err, test.want)
			}
		})
	}
}

func TestWrongFormats(t *testing.T) {
	for _, test := range []struct {
		name   string
		fields map[string]string
		want   string
	}{
		{"clf", nil, `format is "clf", want combined, json, envoy, alb, decisions`},
		{"json", map[string]string{"ip": "x"}, `field is "ip", want time, client, method, target, user or status`},
		{"combined", map[string]string{"client": "x"}, `fields are named for format "combined", want json`},
	} {
		if _, err := ParseFormat(test.name, test.fields); err == nil || err.Error() != test.want {
			t.Errorf("ParseFormat(%q, %v) = %v, want %s", test.name, test.fields, err, test.want)
		}
	}
}

// FuzzLine: whatever a line is, it is an entry or an error.
func FuzzLine(f *testing.F) {
	f.Add(`192.0.2.7 - - [17/May/2015:10:05:03 +0200] "GET /v1/\x22?x=1 HTTP/1.1" 200 203023 "-" "-"`)
	f.Add(`[2016-04-15T20:17:00.310Z] "POST / HTTP/2" 204 - 154 0 226 100 "192.0.2.7" "n" "c" "l" "t"`)
	f.Add(
		`https 2018-07-02T22:23:00.186641Z app/x/5 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET / HTTP/1.1"`,
	)
	f.Add(`{"ts": 1e400, "client": "192.0.2.7", "method": "GET", "path": "/a"}`)
	f.Fuzz(func(t *testing.T, line string) {
		for _, name := range Formats {
			format, err := ParseFormat(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			var e Entry
			if err := format.reader()(line, &e); err == nil && !e.Client.IsValid() {
				t.Errorf("%s takes %q for %+v, without a client", name, line, e)
			}
		}
	})
}

// FuzzQuickly: a time that is read quickly is what package time makes of it.
func FuzzQuickly(f *testing.F) {
	for _, text := range []string{
		"17/May/2015:10:05:03 +0200", "28/Feb/2024:23:59:59 -1459", "31/Dec/1969:00:00:00 +0000",
		"1/May/2015:10:05:03 +0200", "17/Mai/2015:10:05:03 +0200", "17/May/2015:24:05:03 +0200",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := quickly(text)
		if !ok {
			return
		}
		want, err := time.Parse(combinedTime, text)
		if err != nil || want.UnixNano() != got {
			t.Errorf("quickly(%q) = %d, want %d, %v", text, got, want.UnixNano(), err)
		}
	})
}

// slowly finds what an object has under the first of some names, by package encoding/json.
func slowly(line string, names ...string) (string, bool, error) {
	var all map[string]any
	in := json.NewDecoder(strings.NewReader(line))
	in.UseNumber()
	if err := in.Decode(&all); err != nil {
		return "", false, err
	}
	for _, name := range names {
		var v any = all
		for _, step := range strings.Split(name, ".") {
			object, ok := v.(map[string]any)
			if !ok {
				v = nil
				break
			}
			v = object[step]
		}
		switch v := v.(type) {
		case string:
			return v, true, nil
		case json.Number:
			return v.String(), true, nil
		}
	}
	return "", false, nil
}

// FuzzObject: what is read of an object is what package encoding/json reads, faults included, also with the object read
// before still at hand.
func FuzzObject(f *testing.F) {
	for _, line := range []string{
		`{"a":"1","b":{"c":2.5e3,"d":[1,{"c":"x"}]}}`, `{"b":{"c":"x"},"b":"y","a":null}`,
		`{"\u0061":"\ud83d\ude00\n","b":{"c":true}}`,
		"{\"a\":\"\xff\x80\"}", `null`, `[1]`, `{"a":01}`, `{"a":1}garbage`,
		`{"a":"x","a":{"c":1}}`, `{"b":{"c":1,"c":null}}`, `{"a" : -0.1E+7 , "z":[[],{},"\/"]}`,
		"{\"a\":\"\x01\"}", `{"a":"\u12"}`, `{"a":"\q"}`, `{`, `{"a":1,}`, `{"a":tru}`, `{"b":{"c":{"e":1}}}`,
	} {
		f.Add(line)
	}
	names := [][]string{{"a", "b.c"}, {"b.c", "a"}, {"b"}, {"b.c.e", "zz", "é"}}
	wanted := &object{}
	var find []func() (string, bool)
	for _, some := range names {
		find = append(find, wanted.first(some...))
	}
	f.Fuzz(func(t *testing.T, line string) {
		err := wanted.read(line)
		for i, some := range names {
			want, there, fault := slowly(line, some...)
			if (err != nil) != (fault != nil) {
				t.Fatalf("%q: %v, want %v", line, err, fault)
			}
			if got, ok := find[i](); err == nil && (got != want || ok != there) {
				t.Errorf("%q under %q: %q %v, want %q %v", line, some, got, ok, want, there)
			}
		}
	})
}

// TestLinesAllocateNothing: neither a line of the combined format nor an object costs an allocation.
func TestLinesAllocateNothing(t *testing.T) {
	for _, test := range []struct{ format, line string }{
		{"combined", `192.0.2.7 - alice [17/May/2015:10:05:03 +0200] "GET /v1/items/7?x=1 HTTP/1.1" 200 203023 "http://h/" "Mozilla/5.0 (X)"`},
		{"json", `{"ts": "2026-11-23T10:05:03.25Z", "client_ip": "192.0.2.7", "method": "GET", "path": "/a", "status": 429, "user_id": "u7", "x": {"y": [1, "\n"]}}`},
		{"envoy", `[2016-04-15T20:17:00.310Z] "POST / HTTP/2" 204 - 154 0 226 100 "192.0.2.7" "n" "c" "l" "t"`},
	} {
		f, err := ParseFormat(test.format, nil)
		if err != nil {
			t.Fatal(err)
		}
		read := f.reader()
		var e Entry
		if n := testing.AllocsPerRun(100, func() {
			if err := read(test.line, &e); err != nil {
				t.Fatal(err)
			}
		}); n >= trial.Allocations {
			t.Errorf("a line in %s allocates %v times, want 0", test.format, n)
		}
	}
}

// TestChunks: however a log falls into chunks, each line is read once, whole, in its order, with
// its number; one that is longer than any request is cut.
func TestChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 16))
	var log strings.Builder
	var want []string
	for range 20_000 {
		switch rng.IntN(20) {
		case 0:
			log.WriteString("\r\n")
			continue
		case 1:
			log.WriteString("\n")
			continue
		}
		target := "/" + strings.Repeat("x", rng.IntN(200))
		if rng.IntN(4000) == 0 {
			target += strings.Repeat("y", chunkBytes+rng.IntN(100))
		}
		want = append(want, target)
		fmt.Fprintf(&log, "192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET %s HTTP/1.1\" 200 5\n", target)
	}
	log.WriteString(strings.Repeat("z", 3*maxLine) + "\n")
	log.WriteString(
		`192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /last HTTP/1.1" 200 5`,
	) // without an end of the line
	want = append(want, "/last")
	last := fmt.Sprintf("log:%d: ", strings.Count(log.String(), "\n"))
	f, err := ParseFormat("combined", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, reader := range []io.Reader{
		strings.NewReader(log.String()), iotest.OneByteReader(strings.NewReader(log.String()[:100_000])),
		iotest.DataErrReader(strings.NewReader(log.String())),
	} {
		ahead, err := chunks(t.Context(), reader, "log", func(string) (*Format, error) { return &f, nil })
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		var unread int64
		var faults []error
		for c := range ahead {
			<-c.parsed
			for _, e := range c.entries {
				got = append(got, e.Target)
			}
			unread, faults = unread+c.unread, append(faults, c.faults...)
		}
		if len(got) < 100 {
			t.Fatalf("%d lines are read", len(got))
		}
		whole := len(got) == len(want) // the second log ends within a line
		if !slices.Equal(got, want[:len(got)]) {
			t.Error("the lines are not read as they are written")
		}
		if whole &&
			(unread != 1 || len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), last)) {
			t.Errorf("%d are not read: %.80v", unread, faults)
		}
	}
}
