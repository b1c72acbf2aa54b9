package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A limit on requests under way at once is judged by those that were under way at the same moment for certain. Nobody
// outside sees when a request begins and ends at the server. What is known is that it did between its sending and the
// sight of its answer, and, from requests that were sent one at a time, for how long it lasts at least: so one of a
// second, of which the answer came 1.4 seconds after it was sent, was under way from 0.4 to 1.0 seconds after. One that
// waited in a queue before it, and one that was answered sooner than the endpoint can, count for nothing.
//
// Most attacks send plain requests first, until all places are taken, and their variations a moment later: whoever is
// let in then has found a place that is not there.

// AtOnce is how many requests were under way at the same moment for certain, of those that last so long at least.
func AtOnce(spans []Span, lasts time.Duration) int {
	type turn struct {
		at time.Duration
		by int
	}
	var turns []turn
	for _, s := range spans {
		from, to := s.Seen-lasts, s.Sent+lasts
		if s.Seen-s.Sent < lasts || from >= to {
			continue
		}
		turns = append(turns, turn{from, 1}, turn{to, -1})
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(cmp.Compare(a.at, b.at), a.by-b.by) })
	now, most := 0, 0
	for _, t := range turns {
		now += t.by
		most = max(most, now)
	}
	return most
}

// Ends sends requests of which a limiter may take for an end what is none: a limit on requests under way alone knows
// their ends.
var Ends = Attack{
	Name: "ends", Claim: "requests that seem to end before their answer",
	Fix: "a place is free when the last byte of the answer is sent, or the request to the API is given up: not with " +
		"an interim answer, an upgrade that is only asked for, or the end of what the client sends",
	Families: []Family{
		{"asks for a WebSocket", func(r Request, i int) Request {
			return r.With(Field{"Connection", "Upgrade"}, Field{"Upgrade", "websocket"},
				Field{"Sec-WebSocket-Version", "13"}, Field{"Sec-WebSocket-Key", encode64(digest("socket", i)[:16])})
		}},
		{"asks for HTTP/2", func(r Request, _ int) Request {
			return r.With(Field{"Connection", "Upgrade, HTTP2-Settings"}, Field{"Upgrade", "h2c"},
				Field{"HTTP2-Settings", "AAMAAABkAAQAAP__"})
		}},
		{"expects to be told to go on", func(r Request, _ int) Request {
			return r.With(Field{"Expect", "100-continue"})
		}},
		{"is the last of its connection", func(r Request, _ int) Request {
			return r.With(Field{"Connection", "close"})
		}},
		{"says that it sends no more", func(r Request, _ int) Request {
			r.Closes = true
			return r
		}},
	},
}

const (
	// MaxAtOnce is the most that a Plan may say of requests at once: twice as many connections and some are made.
	MaxAtOnce = 500

	leastLasts   = 100 * time.Millisecond // that a request has to last to be seen
	untilFree    = 200 * time.Millisecond // a wait, wherever places are counted
	sentAlone    = 3                      // requests that are sent one at a time
	longPatience = 30 * time.Second       // with one request, which may wait for its turn
	aimed        = 2                      // times that the best variation of an attack is tried
	leastTried   = 24                     // variations at the same moment

	// How long before the variations the plain requests are sent, in parts of how long one lasts: a network or a
	// machine that is busy may need more than the first of these until they have their places.
	firstLead, lastLead = 8, 2
)

// tries is how many variations are sent at the same moment.
func (p Plan) tries() int { return max(int(p.AtOnce)+8, leastTried) }

// checkAtOnce is Check for a limit on requests under way.
func (p Plan) checkAtOnce(want func(ok bool, format string, args ...any)) {
	want(p.AtOnce >= 1 && p.AtOnce <= MaxAtOnce, "--at-once is %d, want 1 to %d", p.AtOnce, MaxAtOnce)
	want(p.Limit == Limit{}, "--at-once and --limit stand together, want one: a run is about one limit")
}

// alone sends plain requests one at a time, and returns how they are answered, and for how long one lasts at least at
// the server. A quarter of what was seen is left to the network, and to chance.
func (v *volley) alone(ctx context.Context) (usual int, lasts time.Duration, err error) {
	var shots []shot
	for range sentAlone {
		client := v.client(netip.Addr{})
		begin := time.Since(v.start)
		err := client.Connect(ctx)
		connected := time.Since(v.start)
		if err != nil {
			return 0, 0, err
		}
		r := v.plan.request()
		r.Target = Fill(r.Target, "1")
		status, err := client.Do(ctx, r)
		client.Close()
		if err != nil {
			return 0, 0, err
		}
		took := max(0, time.Since(v.start)-connected-(connected-begin)) * 3 / 4
		if shots = append(shots, shot{status: status}); lasts == 0 || took < lasts {
			lasts = took
		}
		wait(ctx, untilFree)
	}
	if usual = usualStatus(shots, v.plan.limited()); usual == 0 {
		return 0, 0, errNone(len(shots))
	}
	if lasts < leastLasts {
		return 0, 0, fmt.Errorf("%s is answered within %v: how many are under way at once is seen only where they "+
			"last for %v or more", v.plan.Endpoint, (lasts * 4 / 3).Round(time.Millisecond), 2*leastLasts)
	}
	return usual, lasts, nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// hold is attack for a limit on requests under way: all families have their turn while the plain
// request has all places, and then the one that got most. Those that are to end too soon have to have
// a place first, and are tried one by one.
func (v *volley) hold(ctx context.Context, a Attack, usual int, lasts time.Duration) (shots []shot, err error) {
	send := func(from int, families ...Family) {
		if err == nil {
			var more []shot
			then := a
			then.Families = families
			for lead := firstLead; ; lead /= 2 {
				more, err = v.together(ctx, then, from, lasts, lasts/time.Duration(lead))
				if err != nil || lead == lastLead || !v.overtaken(a, more, usual) {
					break
				}
			}
			shots = append(shots, more...)
		}
	}
	if a.Name == Ends.Name {
		for _, f := range a.Families {
			send(0, f)
		}
		return shots, err
	}
	tried := v.plan.tries()
	for from := 0; from < len(a.Families); from += tried {
		send(from, a.Families...)
	}
	most := best(a, shots, v.plan, usual)
	for range aimed {
		send(len(shots), most)
	}
	return shots, err
}

// plainFirst is the family of plain requests that take the places.
const plainFirst = "as it is, before the others"

// filled reports whether plain requests have all places before an attack. What does not exist has
// places of its own, a limit that looks and takes later is found by many who come at once, and only
// who has a place can have it end too soon.
func (a Attack) filled() bool {
	return a.Name != Plain.Name && a.Name != Unknown.Name && a.Name != Ends.Name
}

// overtaken reports whether as many were admitted as may be at once, and some of them were variations that came before
// plain requests: that says nothing about what has all places.
func (v *volley) overtaken(a Attack, shots []shot, usual int) bool {
	all, plain := int64(0), int64(0)
	for _, s := range shots {
		if admitted(a, s.status, v.plan.limited(), usual) {
			if all++; s.family == plainFirst {
				plain++
			}
		}
	}
	return a.filled() && all == v.plan.AtOnce && plain < all
}

// together sends the plain requests that take all places, if any do, and variations from the from-th on, lead later,
// each over a connection that is there already.
func (v *volley) together(ctx context.Context, a Attack, from int, lasts, lead time.Duration) ([]shot, error) {
	fills := 0
	if a.filled() {
		fills = int(v.plan.AtOnce)
	}
	v.mu.Lock()
	v.shots = nil
	v.mu.Unlock()
	first, second := make(chan struct{}), make(chan struct{})
	var connected, all sync.WaitGroup
	plain := v.plan.request()
	for i := range fills + v.plan.tries() {
		base := plain
		if a.Name != Parameters.Name || i < fills {
			base.Target = Fill(base.Target, "1")
		}
		r, family, begin, address := base, plainFirst, first, netip.Addr{}
		if i >= fills {
			var f Family
			r, f = a.Request(base, from+i-fills)
			family, begin = f.Name, second
			if a.Roams && v.roams {
				address = source(from + i - fills)
			}
		}
		connected.Add(1)
		all.Go(func() {
			client := v.client(address)
			defer client.Close()
			failed := client.Connect(ctx)
			connected.Done()
			<-begin
			if a.Name == Ends.Name { // one after the other, as places end
				wait(ctx, lasts/4*time.Duration(i)/time.Duration(v.plan.tries()))
			}
			sent := time.Since(v.start)
			status := 0
			if failed == nil {
				status, failed = client.Do(ctx, r)
			}
			if failed != nil && ctx.Err() != nil {
				return
			}
			one := shot{span: Span{sent, time.Since(v.start)}, family: family, status: status, closes: r.Closes}
			if status == http.StatusSwitchingProtocols { // it is under way for as long as both keep it
				one.span.Sent = one.span.Seen
				if wait(ctx, lasts); client.open() {
					one.span.Seen += lasts
				}
			}
			v.note(one, failed)
		})
	}
	connected.Wait()
	close(first)
	if fills > 0 {
		wait(ctx, lead)
	}
	close(second)
	all.Wait()
	wait(ctx, untilFree)
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shots, v.fault
}

// judgeAtOnce is judge for a limit on requests under way.
func judgeAtOnce(a Attack, shots []shot, p Plan, usual int, lasts time.Duration) Finding {
	f := judge(a, shots, p, usual)
	var spans []Span
	filling, tries := 0, 0
	for _, s := range shots {
		is := admitted(a, s.status, p.limited(), usual)
		if is {
			spans = append(spans, s.span)
		}
		switch {
		case s.family != plainFirst:
			tries++
		case is:
			filling++
		}
	}
	f.AtOnce = AtOnce(spans, lasts)
	f.Envelope, f.Beyond, f.Verdict, f.Fix = float64(p.AtOnce), max(0, int64(f.AtOnce)-p.AtOnce), Held, ""
	volleys := tries / p.tries()
	if a.Name == Ends.Name {
		volleys = 1 // who says that it sends no more may be taken for gone, and others be answered otherwise
	}
	switch {
	case f.Beyond > 0:
		f.Verdict, f.Fix = Widened, a.Fix
	case a.Name == Unknown.Name:
	case a.filled() && filling < volleys*int(p.AtOnce), f.Admitted < volleys*int(p.AtOnce):
		f.Verdict = Inconclusive // not all places were taken, so one more need not have been beyond
	}
	return f
}

// errPlaces is why nothing can be compared if the plain request does not have all places.
var errPlaces = errors.New("the plain request never had all places at once: something else denies it, such as a " +
	"rate or a penalty, or fewer may be under way than --at-once says")
