package pace

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/sfv"
)

// Hint is what an answer says of a quota.
type Hint struct {
	// Wait is how long the server asks to wait before the next request, 0 if it says
	// nothing that can be understood.
	Wait time.Duration

	// Remaining is the least of what is left of any quota named, -1 if unknown.
	Remaining int64

	// Slot says that Wait leads to a time that this client has for itself. A server
	// says so by the parameter headgate-slot of RateLimit, in milliseconds.
	Slot bool

	// Burst and Gap are the quota that has least left, as far as the server describes
	// it (RateLimit-Policy): how many requests it holds, and how long one takes to come
	// back on average. 0 if unknown.
	Burst int64
	Gap   time.Duration

	// Reserves says that the server reserves times for who tells it how many requests
	// wait. It says so by the parameter headgate-reserves of RateLimit-Policy.
	Reserves bool

	// RoundTrip is how long the answer took. [Transport] sets it; ReadHint does not.
	RoundTrip time.Duration
}

// Empty reports whether the server said that nothing is left.
func (h Hint) Empty() bool { return h.Remaining == 0 }

// FullIn returns how long the quota takes to fill, 0 if unknown.
func (h Hint) FullIn() time.Duration {
	if h.Gap > 0 && h.Burst > int64(longest/h.Gap) {
		return longest
	}
	return time.Duration(h.Burst) * h.Gap
}

// IsRefusal reports whether an answer means that a limit was reached: 429; 503 and
// 403 with Retry-After; 403 with nothing left, as GitHub answers; and 400 with a
// throttling exception, as AWS does.
func IsRefusal(status int, header http.Header) bool {
	switch status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusServiceUnavailable:
		return len(header["Retry-After"]) > 0
	case http.StatusForbidden:
		if len(header["Retry-After"]) > 0 {
			return true
		}
		left, ok := count(header.Get("X-Ratelimit-Remaining"))
		return ok && left == 0
	case http.StatusBadRequest:
		kind, _, _ := strings.Cut(header.Get("X-Amzn-Errortype"), ":")
		switch kind {
		case "ThrottlingException", "Throttling", "ThrottledException", "RequestThrottledException",
			"TooManyRequestsException", "ProvisionedThroughputExceededException", "RequestLimitExceeded":
			return true
		}
	}
	return false
}

// ReadHint reads what an answer says of a quota; now is the present by the wall
// clock, for servers that name a time of day. Understood are:
//
//   - Retry-After in seconds, in fractions of a second (Shopify) and as a date, and
//     Retry-After-Ms (OpenAI, Azure)
//   - RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-08 and
//     later, with the names that its working group proposes as well, RateLimit of -07,
//     and RateLimit-Remaining and -Reset of those before
//   - X-RateLimit-Remaining and -Reset (also X-Rate-Limit-*), in seconds from now, as
//     a Unix time in seconds or milliseconds (GitHub), or as an RFC 3339 time
//   - X-RateLimit-Remaining-Requests and -Tokens with -Reset- as 6m0s (OpenAI), and
//     Anthropic-RateLimit-*
//   - X-Shopify-Shop-Api-Call-Limit
//
// Retry-After outweighs the others. What cannot be understood is taken as absent, so
// a header of any content yields a Hint.
func ReadHint(header http.Header, now time.Time) Hint {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date // times of day are by the server's clock
	}
	h := Hint{Remaining: -1}
	policies, _ := sfv.ParseList(strings.Join(header["Ratelimit-Policy"], ", "))
	readRateLimit(&h, strings.Join(header["Ratelimit"], ", "), policies)
	for _, f := range legacy {
		left, ok := count(header.Get(f.remaining))
		if !ok {
			continue
		}
		h.note(left, until(header.Get(f.reset), now))
	}
	if used, all, ok := strings.Cut(header.Get("X-Shopify-Shop-Api-Call-Limit"), "/"); ok {
		u, ok1 := count(used)
		a, ok2 := count(all)
		if ok1 && ok2 {
			h.note(max(0, a-u), 0)
		}
	}
	if wait, ok := retryAfter(header, now); ok && !h.Slot {
		h.Wait = wait
	}
	h.Wait = min(h.Wait, longest)
	return h
}

// note takes in one quota. The longest wait counts, of those that have nothing left.
func (h *Hint) note(left int64, wait time.Duration) {
	if h.Remaining < 0 || left < h.Remaining {
		h.Remaining = left
	}
	if left == 0 {
		h.Wait = max(h.Wait, wait)
	}
}

// legacy are pairs of fields, in the canonical form of http.Header.
var legacy = [...]struct{ remaining, reset string }{
	{"Ratelimit-Remaining", "Ratelimit-Reset"},
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
	{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
	{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
	{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
}

// readRateLimit reads the field of draft-08 and later, or else of draft-07.
func readRateLimit(h *Hint, field string, policies []sfv.Item) {
	items, ok := sfv.ParseList(field)
	if !ok {
		readDictionary(h, field)
		return
	}
	for _, p := range policies {
		h.Reserves = h.Reserves || p.Params["headgate-reserves"].IsTrue
	}
	least := int64(-1)
	for _, item := range items {
		remaining, reset := "r", "t"
		if _, renamed := item.Params["a"]; renamed { // as the working group proposes (its pull request 166)
			remaining, reset = "a", "w"
		}
		left, ok := item.Integer(remaining)
		if !ok || left < 0 {
			continue
		}
		policy := policyOf(item, policies)
		if unit := policy.Params["qu"].Text; unit != "" && unit != "requests" && left > 0 {
			continue // so many bytes, or requests at once: not so many requests
		}
		wait, ok := item.Integer(reset)
		if !ok || wait < 0 {
			wait = 0
		}
		h.note(left, delay(float64(wait)))
		if slot, ok := item.Integer("headgate-slot"); ok && slot >= 0 && left == 0 {
			h.Slot, h.Wait = true, seconds(float64(slot)/1000)
		}
		if least < 0 || left < least {
			least, h.Burst, h.Gap = left, 0, 0
		}
		if left == least {
			h.describe(policy)
		}
	}
}

// policyOf is the policy that an item of RateLimit is about: the one of its
// name.
func policyOf(limit sfv.Item, policies []sfv.Item) sfv.Item {
	for _, p := range policies {
		if p.Name == limit.Name {
			return p
		}
	}
	return sfv.Item{}
}

// describe takes in the policy of a quota that has least left. Of several, the one
// that takes longest to fill counts.
func (h *Hint) describe(policy sfv.Item) {
	quota, window := policy.Params["q"].Integer, policy.Params["w"].Integer
	if quota <= 0 || window <= 0 {
		return
	}
	d := Hint{Burst: quota, Gap: seconds(float64(window) / float64(quota))}
	if burst := policy.Params["headgate-burst"].Integer; burst > 0 {
		d.Burst = burst
	}
	if d.FullIn() > h.FullIn() {
		h.Burst, h.Gap = d.Burst, d.Gap
	}
}

// readDictionary reads RateLimit of draft-07: limit=100, remaining=50, reset=5.
func readDictionary(h *Hint, field string) {
	var left int64
	var wait time.Duration
	found := false
	for part := range strings.SplitSeq(field, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, ok := count(value)
		switch {
		case !ok:
		case name == "remaining":
			left, found = n, true
		case name == "reset":
			wait = delay(float64(n))
		}
	}
	if found {
		h.note(left, wait)
	}
}

// retryAfter reads RFC 9110 section 10.2.3, and what others made of it.
func retryAfter(header http.Header, now time.Time) (time.Duration, bool) {
	for _, name := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, ok := number(header.Get(name)); ok {
			return seconds(ms / 1000), true
		}
	}
	value := strings.TrimSpace(header.Get("Retry-After"))
	if s, ok := number(value); ok {
		return seconds(s), true
	}
	if t, err := http.ParseTime(value); err == nil {
		return max(0, t.Sub(now)), true
	}
	return 0, false
}

// until reads a reset in any dialect: seconds from now, a Unix time in seconds or
// milliseconds, a time of RFC 3339, or a duration such as 6m0s; 0 if it is none.
func until(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if n, ok := number(value); ok {
		return max(0, sinceEpoch(n, now))
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return max(0, t.Sub(now))
	}
	if d, err := time.ParseDuration(value); err == nil {
		return max(0, d)
	}
	return 0
}

// A number of seconds above smallestEpoch (in 2001) is a time of day: nobody is
// asked to wait for 31 years.
const (
	smallestEpoch   = 1e9
	smallestEpochMs = 1e12
)

func sinceEpoch(n float64, now time.Time) time.Duration {
	switch {
	case n >= smallestEpochMs:
		return seconds(n/1000 - unix(now))
	case n >= smallestEpoch:
		return seconds(n - unix(now))
	}
	return seconds(n)
}

func unix(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// delay is seconds from now. A Unix time in its place is a fault of the server.
func delay(s float64) time.Duration {
	if s >= smallestEpoch {
		return 0
	}
	return seconds(s)
}

// number reads a decimal number that is not negative.
func number(text string) (float64, bool) {
	if text == "" || len(text) > 400 || strings.Trim(text, "0123456789.") != "" {
		return 0, false // no signs, exponents, NaN or Inf
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsInf(n, 0)
}

// count reads a whole number that is not negative, and drops what follows a comma
// or semicolon: "10, 10;w=1" is 10.
func count(text string) (int64, bool) {
	if at := strings.IndexAny(text, ",;"); at >= 0 {
		text = text[:at]
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n, err == nil && n >= 0
}
