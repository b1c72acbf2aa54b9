package replay

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
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

	Decided *Decided // what a decision log says besides; nil in others
}

// Format is how a line of a log is read.
type Format struct {
	Name string

	// Seconds says that its times are whole seconds, Mixed that lines may stand some thousands behind later ones.
	Seconds, Mixed bool

	// reader makes what reads lines, for one goroutine. What it reads lasts as long as the line does.
	reader func() func(line string, e *Entry) error
}

// Formats are the names that ParseFormat takes.
var Formats = []string{"combined", "json", "envoy", "alb", "decisions"}

// ParseFormat returns the format of a name. Fields say in which member of a JSON object a part of the request stands,
// by time, client, method, target, user and status; those that are left out are looked for under usual names.
func ParseFormat(name string, fields map[string]string) (Format, error) {
	for field := range fields {
		if _, ok := usual[field]; !ok {
			return Format{}, fmt.Errorf("field is %q, want time, client, method, target, user or status", field)
		}
	}
	always := func(read func(line string, e *Entry) error) func() func(string, *Entry) error {
		return func() func(string, *Entry) error { return read }
	}
	switch {
	case name != "json" && len(fields) > 0:
		return Format{}, fmt.Errorf("fields are named for format %q, want json", name)
	case name == "combined":
		return Format{name, true, false, func() func(string, *Entry) error {
			var c clock
			return func(line string, e *Entry) error { return combined(&c, line, e) }
		}}, nil
	case name == "json":
		return Format{name, false, false, func() func(string, *Entry) error { return inJSON(fields) }}, nil
	case name == "envoy":
		return Format{name, false, false, always(envoy)}, nil
	case name == "alb":
		return Format{name, false, false, always(alb)}, nil
	case name == "decisions":
		return Format{name, false, true, inDecisions}, nil
	}
	return Format{}, fmt.Errorf("format is %q, want %s", name, strings.Join(Formats, ", "))
}

// unwrap is a line without what syslog or a container's runtime has put before it:
//
//	Jul  8 11:07:07 web-1 nginx[2869]: 192.0.2.7 - - …
//	2025-12-31T17:37:40.493035218+01:00 stdout F {…
func unwrap(line string) string {
	head := line[:min(len(line), 200)]
	if month(head) {
		if at := strings.Index(head, "]: "); at > 0 && len(strings.Fields(head[:at])) == 5 {
			return line[at+3:]
		}
	}
	if len(head) > 10 && head[4] == '-' && head[7] == '-' {
		for _, stream := range []string{" stdout F ", " stderr F "} {
			if at := strings.Index(head, stream); at > 0 && strings.IndexByte(head[:at], ' ') < 0 {
				return line[at+len(stream):]
			}
		}
	}
	return line
}

// month reports whether a line begins with the name of a month.
func month(line string) bool {
	if len(line) < 4 || line[3] != ' ' {
		return false
	}
	at := strings.Index(months, line[:3])
	return at >= 0 && at%3 == 0
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

// Detect returns the name of the format that a line is probably of.
func Detect(line string) string {
	kind, rest, _ := strings.Cut(line, " ")
	switch {
	case ofDecisions.MatchString(line):
		return "decisions"
	case strings.HasPrefix(line, "{"):
		return "json"
	case strings.HasPrefix(line, "["):
		return "envoy"
	case slices.Contains([]string{"http", "https", "h2", "grpcs", "ws", "wss"}, kind) &&
		len(rest) > 0 && '0' <= rest[0] && rest[0] <= '9':
		return "alb"
	}
	return "combined"
}

// ofDecisions are the lines of a decision log, of which any may be the first once older ones are gone.
var ofDecisions = regexp.MustCompile(`^\{.*"at":.*"(?:decision|settled|lowered)":"|^\{"time":"[^"]*","skipped":\d+\}$`)

var errShort = errors.New("it ends too early")

// clock reads the times of the combined format, of which many follow that are the same.
type clock struct {
	text string
	at   int64
}

const combinedTime = "02/Jan/2006:15:04:05 -0700"

func (c *clock) read(text string) (int64, error) {
	if text == c.text {
		return c.at, nil
	}
	at, ok := quickly(text)
	if !ok {
		slow, err := time.Parse(combinedTime, text)
		if err != nil {
			return 0, fmt.Errorf("time is %q, want one such as %s", text, combinedTime)
		}
		at = slow.UnixNano()
	}
	c.text, c.at = text, at
	return at, nil
}

// quickly reads a time that is written as combinedTime is, and leaves what is written otherwise to time.Parse.
func quickly(text string) (at int64, ok bool) {
	if len(text) != len(combinedTime) || text[2] != '/' || text[6] != '/' || text[11] != ':' || text[14] != ':' ||
		text[17] != ':' ||
		text[20] != ' ' {
		return 0, false
	}
	month := strings.Index(months, text[3:6])
	day, hour, minute, second := digits(text[0:2]), digits(text[12:14]), digits(text[15:17]), digits(text[18:20])
	year, east, past := digits(text[7:11]), digits(text[22:24]), digits(text[24:26])
	if month < 0 || month%3 != 0 || min(day, hour, minute, second, year, east, past) < 0 ||
		day < 1 || day > 28 || hour > 23 || minute > 59 || second > 59 ||
		year < 1700 || year > 2200 || east > 23 || past > 59 {
		return 0, false // the last days of a month too: few of them are none
	}
	zone := int64(east*3600 + past*60)
	switch text[21] {
	case '-':
		zone = -zone
	case '+':
	default:
		return 0, false
	}
	when := time.Date(year, time.Month(month/3+1), day, hour, minute, second, 0, time.UTC)
	return (when.Unix() - zone) * 1e9, true
}

// digits is the number that a text of digits alone is, else -1.
func digits(text string) (n int) {
	for i := range len(text) {
		c := text[i] - '0'
		if c > 9 {
			return -1
		}
		n = 10*n + int(c)
	}
	return n
}

// combined reads what nginx and Apache call combined, or common:
//
//	192.0.2.7 - alice [17/May/2015:10:05:03 +0000] "GET /v1/items/7 HTTP/1.1" 200 203023 "…" "…"
func combined(c *clock, line string, e *Entry) (err error) {
	host, rest, ok := strings.Cut(line, " ")
	who, rest, ok2 := strings.Cut(rest, " [")
	at, rest, ok3 := strings.Cut(rest, `] "`)
	if !ok || !ok2 || !ok3 {
		return errShort
	}
	if e.Client, err = address(host); err != nil {
		behind, others, ok := strings.Cut(who, " ") // the virtual host may stand before
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
	if _, user, ok := strings.Cut(who, " "); ok && user != "-" {
		e.User = user
	}
	request, rest, err := quoted(rest)
	if err != nil {
		return err
	}
	if err := e.request(request); err != nil {
		return err
	}
	e.Status, err = number(strings.TrimLeft(rest, " "))
	return err
}

// envoy reads Envoy's default format, and takes the last address of X-Forwarded-For for the client:
//
//	[2016-04-15T20:17:00.310Z] "POST /v1/items HTTP/2" 204 - 154 0 226 100 "192.0.2.7" "…" "…" "api.local" "tcp://10.0.2.1:80"
func envoy(line string, e *Entry) (err error) {
	at, rest, ok := strings.Cut(strings.TrimPrefix(line, "["), `] "`)
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
	if e.Status, err = number(strings.TrimLeft(rest, " ")); err != nil {
		return err
	}
	_, rest, ok = strings.Cut(rest, ` "`)
	if !ok {
		return errShort
	}
	forwarded, _, err := quoted(rest)
	if err != nil {
		return err
	}
	last := forwarded[strings.LastIndexByte(forwarded, ',')+1:]
	e.User = ""
	e.Client, err = address(strings.TrimSpace(last))
	return err
}

// alb reads what AWS's application load balancers write:
//
//	https 2018-07-02T22:23:00.186641Z app/lb/50dc 192.0.2.7:2817 10.0.0.1:80 0.0 0.0 0.0 200 200 34 366 "GET https://h:443/ HTTP/1.1" …
func alb(line string, e *Entry) (err error) {
	words, rest, ok := strings.Cut(line, ` "`)
	fields := strings.Fields(words)
	if !ok || len(fields) < 12 {
		return errShort
	}
	if e.At, err = instant(fields[1]); err != nil {
		return err
	}
	host := fields[3]
	if i := strings.LastIndexByte(host, ':'); i > 0 {
		host = host[:i]
	}
	if e.Client, err = address(strings.Trim(host, "[]")); err != nil {
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

// instant reads a time of RFC 3339, or seconds or milliseconds since 1970.
func instant(text string) (int64, error) {
	if len(text) > 4 && text[4] == '-' {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return at.UnixNano(), nil
		}
	}
	whole, part, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	part = part[:min(len(part), 9)]
	nanos := digits(part)
	switch {
	case err != nil || nanos < 0 || n < 0 || n > 1<<53:
		return 0, fmt.Errorf(
			"time is %q, want one of RFC 3339 such as 2026-11-23T10:05:03.5Z, or seconds or milliseconds since 1970",
			text,
		)
	case n > 1e11: // milliseconds, from 1973 on
		return time.UnixMilli(n).UnixNano(), nil
	}
	for range 9 - len(part) {
		nanos *= 10
	}
	return n*1e9 + int64(nanos), nil
}

// address reads an address, with a port or without.
func address(text string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a, nil
	}
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a.Addr(), nil
	}
	return netip.Addr{}, fmt.Errorf("client is %q, want an address: names are not looked up", text)
}

// request reads a request line.
func (e *Entry) request(line string) error {
	method, rest, ok := strings.Cut(line, " ")
	if !ok {
		return fmt.Errorf("request is %q, want METHOD TARGET PROTOCOL", line)
	}
	if i := strings.LastIndex(rest, " HTTP/"); i >= 0 {
		rest = rest[:i]
	}
	e.Method, e.Target = method, rest
	return nil
}

// quoted is what stands before the next quotation mark that is not escaped, with its escapes read, and what stands
// behind.
func quoted(text string) (inside, rest string, err error) {
	i := strings.IndexByte(text, '"')
	if i < 0 {
		return "", "", errShort
	}
	if strings.IndexByte(text[:i], '\\') < 0 {
		return text[:i], text[i+1:], nil
	}
	var read []byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return string(read), text[i+1:], nil
		case c == '\\' && i+3 < len(text) && text[i+1] == 'x':
			b, err := strconv.ParseUint(text[i+2:i+4], 16, 8)
			if err != nil {
				return "", "", fmt.Errorf("escape is %q, want two hexadecimal digits after \\x", text[i:i+4])
			}
			read, i = append(read, byte(b)), i+3
		case c == '\\' && i+1 < len(text):
			read, i = append(read, text[i+1]), i+1
		default:
			read = append(read, c)
		}
	}
	return "", "", errShort
}

func number(text string) (int, error) {
	word, _, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n > 999 {
		return 0, fmt.Errorf("status is %q, want a number", word)
	}
	return n, nil
}
