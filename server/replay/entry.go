package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Entry is a request as a log has it.
type Entry struct {
	At     int64 // Unix nanoseconds
	Client netip.Addr
	Method string
	Target string // as in the request line
	User   string // who the program had logged in; "" if the log does not say
	Status int    // of the answer; 0 if the log does not say
}

// Format is how a line of a log is read.
type Format struct {
	Name string

	// Seconds says that its times are whole seconds.
	Seconds bool

	read func(line []byte, e *Entry) error
}

// Formats are the names that ParseFormat takes.
var Formats = []string{"combined", "json", "envoy", "alb"}

// ParseFormat returns the format of a name. Fields say in which member of a JSON object a part of the request stands,
// by time, client, method, target, user and status; those that are left out are looked for under usual names.
func ParseFormat(name string, fields map[string]string) (Format, error) {
	for field := range fields {
		if _, ok := usual[field]; !ok {
			return Format{}, fmt.Errorf("field is %q, want time, client, method, target, user or status", field)
		}
	}
	switch {
	case name != "json" && len(fields) > 0:
		return Format{}, fmt.Errorf("fields are named for format %q, want json", name)
	case name == "combined":
		var c clock
		return Format{name, true, func(line []byte, e *Entry) error { return combined(&c, line, e) }}, nil
	case name == "json":
		return Format{name, false, inJSON(fields)}, nil
	case name == "envoy":
		return Format{name, false, envoy}, nil
	case name == "alb":
		return Format{name, false, alb}, nil
	}
	return Format{}, fmt.Errorf("format is %q, want %s", name, strings.Join(Formats, ", "))
}

// unwrap is a line without what syslog or a container's runtime has put before it:
//
//	Jul  8 11:07:07 web-1 nginx[2869]: 192.0.2.7 - - …
//	2025-12-31T17:37:40.493035218+01:00 stdout F {…
func unwrap(line []byte) []byte {
	head := line[:min(len(line), 200)]
	if month(head) {
		if at := bytes.Index(head, []byte("]: ")); at > 0 && len(bytes.Fields(head[:at])) == 5 {
			return line[at+3:]
		}
	}
	if len(head) > 10 && head[4] == '-' && head[7] == '-' {
		for _, stream := range []string{" stdout F ", " stderr F "} {
			if at := bytes.Index(head, []byte(stream)); at > 0 && bytes.IndexByte(head[:at], ' ') < 0 {
				return line[at+len(stream):]
			}
		}
	}
	return line
}

// month reports whether a line begins with the name of a month.
func month(line []byte) bool {
	if len(line) < 4 || line[3] != ' ' {
		return false
	}
	at := strings.Index("JanFebMarAprMayJunJulAugSepOctNovDec", string(line[:3]))
	return at >= 0 && at%3 == 0
}

// Detect returns the name of the format that a line is probably of.
func Detect(line []byte) string {
	kind, rest, _ := bytes.Cut(line, []byte(" "))
	switch {
	case bytes.HasPrefix(line, []byte("{")):
		return "json"
	case bytes.HasPrefix(line, []byte("[")):
		return "envoy"
	case slices.Contains([]string{"http", "https", "h2", "grpcs", "ws", "wss"}, string(kind)) && len(rest) > 0 &&
		'0' <= rest[0] && rest[0] <= '9':
		return "alb"
	}
	return "combined"
}

var errShort = errors.New("it ends too early")

// clock reads the times of the combined format, of which many follow that are the same.
type clock struct {
	text string
	at   int64
}

const combinedTime = "02/Jan/2006:15:04:05 -0700"

func (c *clock) read(text []byte) (int64, error) {
	if string(text) == c.text {
		return c.at, nil
	}
	at, err := time.Parse(combinedTime, string(text))
	if err != nil {
		return 0, fmt.Errorf("time is %q, want one such as %s", text, combinedTime)
	}
	c.text, c.at = string(text), at.UnixNano()
	return c.at, nil
}

// combined reads what nginx and Apache call combined, or common:
//
//	192.0.2.7 - alice [17/May/2015:10:05:03 +0000] "GET /v1/items/7 HTTP/1.1" 200 203023 "…" "…"
func combined(c *clock, line []byte, e *Entry) (err error) {
	host, rest, ok := bytes.Cut(line, []byte(" "))
	who, rest, ok2 := bytes.Cut(rest, []byte(" ["))
	at, rest, ok3 := bytes.Cut(rest, []byte(`] "`))
	if !ok || !ok2 || !ok3 {
		return errShort
	}
	if e.Client, err = address(host); err != nil {
		behind, others, ok := bytes.Cut(who, []byte(" ")) // the virtual host may stand before
		client, err2 := address(behind)
		if !ok || err2 != nil {
			return err
		}
		e.Client, who = client, others
	}
	if e.At, err = c.read(at); err != nil {
		return err
	}
	e.User = ""
	if _, user, ok := bytes.Cut(who, []byte(" ")); ok && string(user) != "-" {
		e.User = string(user)
	}
	request, rest, err := quoted(rest)
	if err != nil {
		return err
	}
	if err := e.request(request); err != nil {
		return err
	}
	e.Status, err = number(bytes.TrimLeft(rest, " "))
	return err
}

// envoy reads Envoy's default format, and takes the last address of X-Forwarded-For for the client:
//
//	[2016-04-15T20:17:00.310Z] "POST /v1/items HTTP/2" 204 - 154 0 226 100 "192.0.2.7" "…" "…" "api.local" "tcp://10.0.2.1:80"
func envoy(line []byte, e *Entry) (err error) {
	at, rest, ok := bytes.Cut(bytes.TrimPrefix(line, []byte("[")), []byte(`] "`))
	if !ok {
		return errShort
	}
	if e.At, err = instant(at); err != nil {
		return err
	}
	request, rest, err := quoted(rest)
	if err != nil {
		return err
	}
	if err := e.request(request); err != nil {
		return err
	}
	if e.Status, err = number(bytes.TrimLeft(rest, " ")); err != nil {
		return err
	}
	_, rest, ok = bytes.Cut(rest, []byte(` "`))
	if !ok {
		return errShort
	}
	forwarded, _, err := quoted(rest)
	if err != nil {
		return err
	}
	last := forwarded[bytes.LastIndexByte(forwarded, ',')+1:]
	e.User = ""
	e.Client, err = address(bytes.TrimSpace(last))
	return err
}

// alb reads what AWS's application load balancers write:
//
//	https 2018-07-02T22:23:00.186641Z app/lb/50dc 192.0.2.7:2817 10.0.0.1:80 0.0 0.0 0.0 200 200 34 366 "GET https://h:443/ HTTP/1.1" …
func alb(line []byte, e *Entry) (err error) {
	words, rest, ok := bytes.Cut(line, []byte(` "`))
	fields := bytes.Fields(words)
	if !ok || len(fields) < 12 {
		return errShort
	}
	if e.At, err = instant(fields[1]); err != nil {
		return err
	}
	host := fields[3]
	if i := bytes.LastIndexByte(host, ':'); i > 0 {
		host = host[:i]
	}
	if e.Client, err = address(bytes.Trim(host, "[]")); err != nil {
		return err
	}
	request, _, err := quoted(rest)
	if err != nil {
		return err
	}
	e.User = ""
	if e.Status, err = number(fields[8]); err != nil {
		return err
	}
	return e.request(request)
}

// usual are the names under which programs write the parts of a request.
var usual = map[string][]string{
	"time": {"time", "ts", "timestamp", "@timestamp", "time_iso8601", "start_time", "StartUTC"},
	"client": {"client", "client_ip", "remote_addr", "remote_ip", "ip", "clientIP", "downstream_remote_address",
		"request.client_ip", "request.remote_ip", "ClientHost"},
	"method": {"method", "request_method", "http_method", "request.method", "RequestMethod"},
	"target": {"target", "request_uri", "uri", "path", "url", "http_path", "x-envoy-original-path",
		"x-envoy-origin-path", "request.uri", "RequestPath"},
	"user":   {"user", "user_id", "remote_user", "ClientUsername"},
	"status": {"status", "response_code", "status_code", "DownstreamStatus"},
}

// inJSON reads an object a line.
func inJSON(fields map[string]string) func(line []byte, e *Entry) error {
	return func(line []byte, e *Entry) error {
		var all map[string]any
		in := json.NewDecoder(bytes.NewReader(line))
		in.UseNumber()
		if err := in.Decode(&all); err != nil {
			return fmt.Errorf("it is no JSON object: %w", err)
		}
		find := func(part string) (string, bool) {
			names := usual[part]
			if own, ok := fields[part]; ok {
				names = []string{own}
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
					return v, true
				case json.Number:
					return v.String(), true
				}
			}
			return "", false
		}
		*e = Entry{}
		var missing []string
		text := func(part string) string {
			value, ok := find(part)
			if !ok {
				missing = append(missing, part)
			}
			return value
		}
		at, client := text("time"), text("client")
		// the request line, as nginx has it
		if line, ok := all["request"].(string); !ok || e.request([]byte(line)) != nil {
			e.Method, e.Target = text("method"), text("target")
		}
		if len(missing) > 0 {
			return fmt.Errorf("it has no %s: name the member with --field, such as %s=NAME",
				strings.Join(missing, " and no "), missing[0])
		}
		var err, err2 error
		e.At, err = instant([]byte(at))
		e.Client, err2 = address([]byte(client))
		if e.User, _ = find("user"); e.User == "-" {
			e.User = ""
		}
		if status, ok := find("status"); ok {
			e.Status, _ = strconv.Atoi(status)
		}
		return errors.Join(err, err2)
	}
}

// instant reads a time of RFC 3339, or seconds or milliseconds since 1970.
func instant(text []byte) (int64, error) {
	if at, err := time.Parse(time.RFC3339Nano, string(text)); err == nil {
		return at.UnixNano(), nil
	}
	whole, part, _ := strings.Cut(string(text), ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	part = (part + "000000000")[:9]
	nanos, err2 := strconv.ParseInt(part, 10, 64)
	switch {
	case err != nil || err2 != nil || n < 0 || n > 1<<53:
		return 0,
			fmt.Errorf("time is %q, want one of RFC 3339 such as 2026-11-23T10:05:03.5Z, or seconds or "+
				"milliseconds since 1970", text)
	case n > 1e11: // milliseconds, from 1973 on
		return time.UnixMilli(n).UnixNano(), nil
	}
	return n*1e9 + nanos, nil
}

// address reads an address, with a port or without.
func address(text []byte) (netip.Addr, error) {
	if a, err := netip.ParseAddr(string(text)); err == nil {
		return a, nil
	}
	if a, err := netip.ParseAddrPort(string(text)); err == nil {
		return a.Addr(), nil
	}
	return netip.Addr{}, fmt.Errorf("client is %q, want an address: names are not looked up", text)
}

// request reads a request line.
func (e *Entry) request(line []byte) error {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return fmt.Errorf("request is %q, want METHOD TARGET PROTOCOL", line)
	}
	if i := bytes.LastIndex(rest, []byte(" HTTP/")); i >= 0 {
		rest = rest[:i]
	}
	e.Method, e.Target = string(method), string(rest)
	return nil
}

// quoted is what stands before the next quotation mark that is not escaped, with its escapes read, and what stands
// behind.
func quoted(text []byte) (inside, rest []byte, err error) {
	i := bytes.IndexByte(text, '"')
	if i < 0 {
		return nil, nil, errShort
	}
	if bytes.IndexByte(text[:i], '\\') < 0 {
		return text[:i], text[i+1:], nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return inside, text[i+1:], nil
		case c == '\\' && i+3 < len(text) && text[i+1] == 'x':
			b, err := strconv.ParseUint(string(text[i+2:i+4]), 16, 8)
			if err != nil {
				return nil, nil, fmt.Errorf("escape is %q, want two hexadecimal digits after \\x", text[i:i+4])
			}
			inside, i = append(inside, byte(b)), i+3
		case c == '\\' && i+1 < len(text):
			inside, i = append(inside, text[i+1]), i+1
		default:
			inside = append(inside, c)
		}
	}
	return nil, nil, errShort
}

func number(text []byte) (int, error) {
	word, _, _ := bytes.Cut(text, []byte(" "))
	n, err := strconv.Atoi(string(word))
	if err != nil || n < 0 || n > 999 {
		return 0, fmt.Errorf("status is %q, want a number", word)
	}
	return n, nil
}
