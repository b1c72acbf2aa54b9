package replay

import (
	"net/netip"
	"strings"
	"testing"
	"time"
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
			want: Entry{at("2015-05-17T10:05:03+02:00"), client, "GET", "/v1/items/7?x=1", "", 200}},
		"common, with a user": {line: `192.0.2.7 - alice [17/May/2015:10:05:03 +0000] "DELETE /a HTTP/1.0" 204 -`,
			want: Entry{at("2015-05-17T10:05:03Z"), client, "DELETE", "/a", "alice", 204}},
		"a user with a space": {line: `192.0.2.7 - alice b [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.0" 204 -`,
			want: Entry{at("2015-05-17T10:05:03Z"), client, "GET", "/a", "alice b", 204}},
		"escapes of nginx": {
			line: `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /\x22a\xC3\xA9 HTTP/1.1" 400 5 "-" "-"`,
			want: Entry{at("2015-05-17T10:05:03Z"), client, "GET", "/\"a\u00e9", "", 400}},
		"escapes of Apache": {line: `2001:db8::7 - - [17/May/2015:10:05:03 +0000] "GET /\"a\\ HTTP/1.1" 400 5`,
			want: Entry{at("2015-05-17T10:05:03Z"), netip.MustParseAddr("2001:db8::7"), "GET", `/"a\`, "", 400}},
		"a target with a space": {line: `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a b HTTP/1.1" 400 5`,
			want: Entry{at("2015-05-17T10:05:03Z"), client, "GET", "/a b", "", 400}},
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
			want: Entry{at("2016-04-15T20:17:00.31Z"), client, "POST", "/api/v1/locations", "", 204}},
		"envoy without a client": {
			line:  `[2016-04-15T20:17:00.310Z] "GET / HTTP/2" 204 - 154 0 226 100 "-" "x" "y" "z" "w"`,
			fault: `client is "-"`,
		},
		"alb": {line: `https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/a?b HTTP/1.1" "curl/7.46.0" ECDHE TLSv1.2 arn`,
			want: Entry{at("2018-07-02T22:23:00.186641Z"), client, "GET", "https://www.example.com:443/a?b", "", 200}},
		"alb with IPv6": {line: `h2 2018-07-02T22:23:00.1Z app/x/5 2001:db8::7:2817 10.0.0.1:80 0 0 0 200 200 0 57 "GET https://h/ HTTP/2.0" "-" - - -`,
			want: Entry{at("2018-07-02T22:23:00.1Z"), netip.MustParseAddr("2001:db8::7"), "GET",
				"https://h/", "", 200}},
		"json": {line: `{"ts": "2026-11-23T10:05:03.25Z", "client_ip": "192.0.2.7:999", "method": "GET", "path": "/a", "status": 429, "user_id": "u7"}`,
			want: Entry{at("2026-11-23T10:05:03.25Z"), client, "GET", "/a", "u7", 429}},
		"json of nginx": {line: `{"time": "1779530703.250", "remote_addr": "192.0.2.7", "request": "GET /a HTTP/1.1", "status": "200"}`,
			want: Entry{1779530703250 * 1e6, client, "GET", "/a", "", 200}},
		"json by names": {line: `{"when": 1779530703250, "peer": {"ip": "192.0.2.7"}, "m": "PUT", "u": "/b"}`,
			fields: map[string]string{"time": "when", "client": "peer.ip", "method": "m", "target": "u"},
			want:   Entry{1779530703250 * 1e6, client, "PUT", "/b", "", 0}},
		"json without parts": {
			line:  `{"ts": 1, "method": "GET"}`,
			fault: "it has no client and no target: name the member with --field, such as client=NAME",
		},
		"json that is none": {format: "json", line: `192.0.2.7 - -`, fault: "it is no JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			format := test.format
			if format == "" {
				format = Detect([]byte(test.line))
			}
			f, err := ParseFormat(format, test.fields)
			if err != nil {
				t.Fatal(err)
			}
			var got Entry
			err = f.read([]byte(test.line), &got)
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
		{"clf", nil, `format is "clf", want combined, json, envoy, alb`},
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
	f.Add(`https 2018-07-02T22:23:00.186641Z app/x/5 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET / HTTP/1.1"`)
	f.Add(`{"ts": 1e400, "client": "192.0.2.7", "method": "GET", "path": "/a"}`)
	f.Fuzz(func(t *testing.T, line string) {
		for _, name := range Formats {
			format, err := ParseFormat(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			var e Entry
			if err := format.read([]byte(line), &e); err == nil && !e.Client.IsValid() {
				t.Errorf("%s takes %q for %+v, without a client", name, line, e)
			}
		}
	})
}
