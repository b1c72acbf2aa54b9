package convert

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/policy"
)

var (
	haproxyStore = regexp.MustCompile(`http_req_rate\((\d+)(us|ms|s|m|h|d)?\)`)
	haproxyError = regexp.MustCompile(`http_err_rate\((\d+)(us|ms|s|m|h|d)?\)`)
	haproxyOver  = regexp.MustCompile(
		`(sc_?[0-9]?_?http_(?:req|err)_rate|src_http_(?:req|err)_rate)(?:\(([^)]*)\))?\s+(gt|ge)\s+(\S+)`)
	haproxyPath  = regexp.MustCompile(`path_beg (?:-i )?(/\S*)`)
	haproxyMore  = regexp.MustCompile(`(hdr\(host\)|req\.hdr|src -f|!\w|method |path)`) // conditions besides the rate
	haproxyOther = regexp.MustCompile(
		`(conn_cur|conn_rate|sess_rate|http_err_rate|bytes_in_rate|bytes_out_rate|gpc\d?_rate)`)
)

// section is a section of HAProxy's configuration, as far as limits go.
type section struct {
	name  string
	per   time.Duration // of http_req_rate in its table
	errs  time.Duration // of http_err_rate there
	track string        // the key that is counted
	acls  map[string]string
	lines []haproxyLine
}

type haproxyLine struct {
	text string
	line int
}

// haproxy converts stick tables that count requests, or errors, and the rules that deny by them.
func haproxy(c *conversion, files []File) error {
	for _, f := range files {
		c.file = f.Name
		var sections []*section
		at := &section{acls: map[string]string{}}
		sections = append(sections, at)
		for n, text := range strings.Split(string(f.Text), "\n") {
			text, _, _ = strings.Cut(text, " #")
			words := strings.Fields(text)
			if len(words) == 0 || strings.HasPrefix(words[0], "#") {
				continue
			}
			switch words[0] {
			case "frontend", "backend", "listen", "defaults", "global", "peers", "resolvers", "userlist":
				at = &section{acls: map[string]string{}}
				if len(words) > 1 {
					at.name = words[1]
				}
				sections = append(sections, at)
				continue
			case "acl":
				if len(words) > 2 {
					at.acls[words[1]] = strings.Join(words[2:], " ")
				}
			case "stick-table":
				if found := haproxyStore.FindStringSubmatch(text); found != nil {
					at.per = haproxyTime(found[1], found[2])
				}
				if found := haproxyError.FindStringSubmatch(text); found != nil {
					at.errs = haproxyTime(found[1], found[2])
				}
			}
			line := strings.Join(words, " ")
			if _, key, ok := strings.Cut(line, " track-sc"); ok {
				if fields := strings.Fields(key); len(fields) > 1 {
					at.track = fields[1]
				}
			}
			at.lines = append(at.lines, haproxyLine{line, n + 1})
		}
		for _, s := range sections {
			c.haproxySection(s, sections)
		}
	}
	return nil
}

func haproxyTime(number, unit string) time.Duration {
	n, err := strconv.ParseInt(number, 10, 32)
	units := map[string]time.Duration{
		"":   time.Millisecond,
		"us": time.Microsecond,
		"ms": time.Millisecond,
		"s":  time.Second,
		"m":  time.Minute,
		"h":  time.Hour,
		"d":  24 * time.Hour,
	}
	if err != nil {
		return 0
	}
	return time.Duration(n) * units[unit]
}

func (c *conversion) haproxySection(s *section, all []*section) {
	for _, l := range s.lines {
		words := strings.Fields(l.text)
		denies := slices.Contains(words, "deny") || slices.Contains(words, "reject") ||
			slices.Contains(words, "tarpit") || slices.Contains(words, "silent-drop")
		if !denies {
			continue
		}
		condition := l.text
		for _, w := range words {
			if text, ok := s.acls[strings.Trim(w, "!")]; ok {
				condition += " " + text
			}
		}
		over := haproxyOver.FindStringSubmatch(condition)
		if over == nil {
			if haproxyOther.MatchString(condition) {
				c.Limits++
				c.lost(l.line, "%s: it is no limit of requests", clip.To(l.text, 80))
			}
			continue
		}
		c.Limits++
		c.haproxyLimit(s, all, l, condition, over)
	}
}

func (c *conversion) haproxyLimit(s *section, all []*section, l haproxyLine, condition string, over []string) {
	of := clip.To(l.text, 80)
	most, err := strconv.ParseInt(over[4], 10, 64)
	if err != nil || most < 1 {
		c.lost(l.line, "%s: the limit is %q, want a whole number", of, over[4])
		return
	}
	if over[3] == "ge" {
		most--
	}
	table := s
	for _, other := range all {
		if other.name != "" && (over[2] == other.name || strings.HasSuffix(over[2], ","+other.name)) {
			table = other
		}
	}
	rate, stored := "http_req_rate", func(s *section) time.Duration { return s.per }
	r := policy.Rule{Limit: most, Algorithm: policy.SlidingWindow, Subject: policy.SubjectIP}
	if strings.HasSuffix(over[1], "http_err_rate") {
		rate, stored, r.CountWhen = "http_err_rate", func(s *section) time.Duration { return s.errs }, "4xx"
	}
	r.Per = stored(table)
	for _, other := range all {
		if r.Per == 0 {
			r.Per = stored(other)
		}
	}
	if r.Per < time.Second || r.Per%time.Second != 0 || most < 1 {
		c.lost(l.line, "%s: no stick-table stores %s over whole seconds", of, rate)
		return
	}
	if r.CountWhen != "" {
		c.differs(l.line, "%s counts what HAProxy denies, and what it cannot read, as well, so that who goes on "+
			"stays denied: here answers of 4xx alone; a penalty of the rule blocks who goes on", of)
	}
	key := s.track
	if strings.HasPrefix(over[1], "src_") || key == "" {
		key = "src"
	}
	switch lower := strings.ToLower(key); {
	case lower == "src" || strings.HasPrefix(lower, "src,"):
	case strings.Contains(lower, "hdr(authorization)") || strings.Contains(lower, "hdr(x-api-key)"):
		r.Subject = policy.SubjectPrincipal
		c.differs(l.line, "%s counts by %s: the verified caller here, else the address; anything in that header "+
			"was a budget of its own", of, key)
	case strings.HasPrefix(lower, "hdr_ip(x-forwarded-for") || strings.HasPrefix(lower, "req.hdr_ip(x-forwarded-for") ||
		strings.Contains(lower, "hdr(x-forwarded-for"):
		c.differs(l.line,
			"%s counts by %s, which a client can write: here the client's address is read behind trusted_proxies", of,
			key)
	case strings.HasPrefix(lower, "base32+src"):
		c.differs(l.line, "%s counts each path of a client by itself: the endpoints here", of)
		r.Endpoint = policy.Default
	default:
		c.lost(l.line, "%s counts by %s, which is no caller that can be verified", of, key)
		return
	}
	rest := haproxyOver.ReplaceAllString(condition, "")
	if begins := haproxyPath.FindStringSubmatch(rest); begins != nil {
		endpoints, ok := c.endpoints(path{text: begins[1]}, nil)
		if !ok || len(endpoints) == 0 {
			c.lost(l.line, "%s: no endpoint can be said for %s", of, begins[1])
			return
		}
		c.manyBuckets(l.line, of, len(endpoints), begins[1], "HAProxy")
		for _, at := range endpoints {
			r.Endpoint = at
			c.add(l.line, of, r)
		}
		return
	}
	if haproxyMore.MatchString(rest) {
		c.differs(l.line, "%s holds under a further condition: here it holds for all requests", of)
	}
	if r.Endpoint == policy.Default {
		c.add(l.line, of, r)
		return
	}
	c.everywhere(l.line, of, r)
}
