package attack

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Plan is what is sent to a Site, and what is expected of it.
type Plan struct {
	// Endpoint is what is asked for: a method and a target, such as "GET /v1/items/1". Where the
	// target holds {name}, items are varied too.
	Endpoint string

	// Limit is what one client may have of the endpoint; with Bytes, of the bodies of requests and answers together.
	Limit Limit
	Bytes bool

	// AtOnce is how many requests of one client may be under way at once, in place of Limit, Requests and Rate.
	AtOnce int64

	// Requests is how many are sent in all, Rate how many a second, Duration after what time the run ends.
	Requests int
	Rate     float64
	Duration time.Duration

	// Limited are the statuses by which the limiter says no. Default 429.
	Limited []int

	// Header is sent with every request. With a valid credential in it the attacks are those of somebody who has one.
	Header []Field

	// Body is sent with every request, as JSON unless Header says otherwise. With it, bodies that hold several
	// are tried too; and if it is a message of JSON-RPC, asks a language model or holds a document of GraphQL,
	// other ways to write it (Messages).
	Body string

	// Agent is the User-Agent.
	Agent string
}

// The most that a Plan may ask for: this finds holes, it is no load test.
const (
	MaxRequests = 50_000
	MaxRate     = 1000
	MaxDuration = 10 * time.Minute

	maxBody = 64 << 10
)

// Check finds everything that is wrong with a plan, in the words of the command's flags.
func (p Plan) Check() error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	r := p.request()
	want(validMethod(r.Method) && strings.HasPrefix(r.Target, "/") && printable(r.Target),
		"--endpoint is %q, want a method and a path such as \"GET /v1/items/1\"", p.Endpoint)
	if p.AtOnce != 0 {
		p.checkAtOnce(want)
	} else {
		p.checkLimit(want)
	}
	want(p.Duration >= time.Second && p.Duration <= MaxDuration, "--duration is %v, want 1s to %v",
		p.Duration, MaxDuration)
	for _, status := range p.limited() {
		want(status >= 400 && status <= 599, "--limited-status is %d, want 400 to 599", status)
	}
	want(len(p.Body) <= maxBody, "--body has %d bytes, want %d at most", len(p.Body), maxBody)
	for _, f := range p.Header {
		want(validMethod(f.Name) && !strings.ContainsAny(f.Value, "\r\n\x00"), "--header is %q, want NAME: VALUE",
			f.Name+": "+f.Value)
	}
	if len(errs) == 0 && p.AtOnce == 0 {
		p.checkEnough(want)
	}
	return errors.Join(errs...)
}

func (p Plan) checkLimit(want func(ok bool, format string, args ...any)) {
	want(p.Limit.Requests >= 1 && p.Limit.Requests <= 1e9, "--limit is %d, want 1 to 1000000000", p.Limit.Requests)
	want(p.Limit.Per >= time.Millisecond && p.Limit.Per <= 31*24*time.Hour,
		"--per is %v, want 1ms to 744h", p.Limit.Per)
	// The command has the limit for a burst that is not given: what is wrong with it then is said of the limit.
	want(p.Limit.Burst >= 1 && p.Limit.Burst <= 1e9 || p.Limit.Burst == p.Limit.Requests,
		"--burst is %d, want 1 to 1000000000", p.Limit.Burst)
	want(p.Requests >= 1 && p.Requests <= MaxRequests, "--requests is %d, want 1 to %d", p.Requests, MaxRequests)
	want(p.Rate >= 0.1 && p.Rate <= MaxRate, "--rate is %v, want 0.1 to %d", p.Rate, MaxRate)
}

// checkEnough sees that what is sent can show something.
func (p Plan) checkEnough(want func(ok bool, format string, args ...any)) {
	variations := p.variations()
	least := len(p.Attacks()) * 4 * variations
	want(p.Requests >= least, "--requests is %d, want %d or more: there are %d attacks with up to %d "+
		"variations each, and a variation alone shows little", p.Requests, least, len(p.Attacks()), variations)
	want(p.Requests < least || p.Bytes || p.reaches(), "with %d requests at %v a second nothing could be seen: each "+
		"attack makes %d with one variation, in %v, and the limit admits %.0f in this time. %s",
		p.Requests, p.Rate, p.half(), p.time().Round(time.Millisecond), p.Limit.Envelope(p.time()), p.enough())
}

// visible is how many times the envelope an attack must send with one variation: with less, a hole might not show.
const visible = 1.5

func (p Plan) reaches() bool { return float64(p.half()) >= visible*p.Limit.Envelope(p.time()) }

// enough says which rate and number of requests would show something.
func (p Plan) enough() string {
	second := p.Limit.rate() * float64(time.Second)
	rate := max(p.Rate, 2*visible*second)
	// half = visible·(burst + second·half/rate)
	half := visible * float64(p.Limit.Burst) / (1 - visible*second/rate)
	requests := 2 * (int(half) + 1) * len(p.Attacks())
	if rate > MaxRate || requests > MaxRequests {
		return fmt.Sprintf("No more than %d requests at %d a second are sent: try it at an endpoint, or with a "+
			"rule of your own for it, that has a lower limit", MaxRequests, MaxRate)
	}
	lasts := time.Duration(1.5*float64(requests)/rate)*time.Second + time.Second
	return fmt.Sprintf("Try --rate %.0f --requests %d --duration %v", rate, requests, max(p.Duration, lasts))
}

// request is the plain one.
func (p Plan) request() Request {
	method, target, _ := strings.Cut(p.Endpoint, " ")
	r := Request{Method: method, Target: strings.TrimSpace(target), Body: p.Body}.With(p.Header...)
	if p.Body != "" && !slices.ContainsFunc(r.Header, isContentType) {
		r = r.With(Field{"Content-Type", "application/json"})
	}
	return r
}

// Attacks are those that the plan runs, in this order. Somebody who has a valid credential tries
// others beside it, and not in its place.
func (p Plan) Attacks() []Attack {
	list := []Attack{Plain, Headers, Spelling}
	if given, ok := p.credential(); ok {
		list = append(list, Credential(given), Claimed(given))
	} else {
		list = append(list, Keys, Tokens)
	}
	list = append(list, Unknown)
	if r := p.request(); Fill(r.Target, "") != r.Target {
		list = append(list, Parameters)
	}
	a, ok := Messages(p.Body)
	switch {
	case p.AtOnce > 0: // of which a batch is one
		if ok {
			list = append(list, a)
		}
		list = append(list, Ends)
	case ok:
		list = append(list, a.batches(), a)
	case p.Body != "":
		list = append(list, Batches)
	}
	return list
}

// variations is the most that an attack has.
func (p Plan) variations() int {
	most := 0
	for _, a := range p.Attacks() {
		most = max(most, len(a.Families)+len(a.Doubtful))
	}
	return most
}

// credentials are the fields in which clients present credentials, the likeliest first.
var credentials = []string{"Authorization", "X-Api-Key", "Api-Key", "Apikey", "X-Auth-Token",
	"X-Access-Token", "Cookie"}

// credential is the credential that is sent with every request, if one is.
func (p Plan) credential() (Field, bool) {
	for _, name := range credentials {
		for _, f := range p.Header {
			if strings.EqualFold(f.Name, name) && f.Value != "" {
				return f, true
			}
		}
	}
	return Field{}, false
}

// each is the requests of one attack, half those with its best variation, time how long these take.
func (p Plan) each() int           { return p.Requests / len(p.Attacks()) }
func (p Plan) half() int           { return p.each() / 2 }
func (p Plan) time() time.Duration { return time.Duration(float64(p.half()) / p.Rate * 1e9) }

func (p Plan) limited() []int {
	if len(p.Limited) == 0 {
		return []int{429}
	}
	return p.Limited
}

func validMethod(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s,
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func printable(target string) bool {
	return len(target) <= 4096 && !strings.ContainsFunc(target, func(c rune) bool { return c <= ' ' || c > '~' })
}
