package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Verdict is what an attack showed.
type Verdict string

const (
	Held         Verdict = "held"         // never more than the envelope was admitted
	Widened      Verdict = "widened"      // more was
	Inconclusive Verdict = "inconclusive" // too little was answered to tell
)

// Finding is the outcome of one attack, with its evidence.
type Finding struct {
	Attack  string  `json:"attack"`
	Claim   string  `json:"claim"`
	Verdict Verdict `json:"verdict"`

	Sent     int     `json:"sent"`     // requests
	Admitted int     `json:"admitted"` // of them, each part of a batch is one; or bytes, where the limit is in bytes
	Envelope float64 `json:"envelope"` // the most that the limit admits in Seconds
	Beyond   int64   `json:"beyond"`   // what is above the envelope of the interval in which most was admitted
	Seconds  float64 `json:"seconds"`  // from the first sending to the last answer

	// AtOnce is how many were under way at the same moment for certain. Then Envelope is how many may be.
	AtOnce int `json:"at_once,omitempty"`

	Statuses map[int]int   `json:"statuses"`       // answers by status; 0: no answer
	Families []FamilyCount `json:"families"`       // what was admitted most often first
	Note     string        `json:"note,omitempty"` // what was not tried, and why
	Fix      string        `json:"fix,omitempty"`
}

// FamilyCount is how often a variation was admitted.
type FamilyCount struct {
	Name     string `json:"name"`
	Sent     int    `json:"sent"`
	Admitted int    `json:"admitted"`
}

// ErrStorm is a server that fails under the attack.
var ErrStorm = errors.New("stopped")

// Run carries the plan out, one attack after the other, and tells each finding as it comes. What it
// returns with an error is what it found before.
func Run(ctx context.Context, site Site, p Plan, tell func(Finding)) ([]Finding, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Duration)
	defer cancel()
	v := volley{plan: p, site: site, start: time.Now(), stop: cancel}
	strangers := map[string]int{} // how they are answered, while there is room
	for _, a := range p.Attacks() {
		v.roams = v.roams || a.Roams && site.Loopback(ctx)
		if a.Ask != nil {
			if _, asked := strangers[a.Stranger]; !asked {
				strangers[a.Stranger] = v.ask(ctx, a.Ask)
			}
		}
	}
	var findings []Finding
	usual, lasts := 0, time.Duration(0)
	if p.AtOnce > 0 {
		var err error
		if usual, lasts, err = v.alone(ctx); err != nil {
			return nil, err
		}
	}
	for _, a := range p.Attacks() {
		note := v.settle(&a, strangers[a.Stranger], usual)
		var shots []shot
		var err error
		if p.AtOnce > 0 {
			shots, err = v.hold(ctx, a, usual, lasts)
		} else {
			shots, err = v.attack(ctx, a, usual)
		}
		if err != nil {
			return findings, err
		}
		if a.Name == Plain.Name && p.AtOnce == 0 {
			if usual = usualStatus(shots, p.limited()); usual == 0 {
				return findings, errNone(len(shots))
			}
		}
		f := judge(a, shots, p, usual)
		if p.AtOnce > 0 {
			f = judgeAtOnce(a, shots, p, usual, lasts)
		}
		f.Note = note
		findings = append(findings, f)
		tell(f)
		if a.Name == Plain.Name && f.Verdict == Widened {
			return findings,
				errors.New("the plain request has more than the limit already, so there is nothing to compare the " +
					"attacks with")
		}
		if a.Name == Plain.Name && p.AtOnce > 0 && f.Verdict == Inconclusive && ctx.Err() == nil {
			return findings, errPlaces
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return findings, errors.New("interrupted")
	} else if err != nil && len(findings) < len(p.Attacks()) {
		return findings, fmt.Errorf("--duration %v is over after %d of %d attacks", p.Duration, len(findings),
			len(p.Attacks()))
	}
	return findings, nil
}

// errNone is why nothing can be tried if none of n plain requests is admitted.
func errNone(n int) error {
	return fmt.Errorf("of %d plain requests none was let through: wait until the limit has recovered, or choose "+
		"another endpoint", n)
}

// shot is one request of an attack.
type shot struct {
	span   Span
	family string
	moved  int64
	status int  // 0: no answer
	closes bool // that it has none, or one of 5xx, says nothing of the server
}

// volley fires attacks at one server.
type volley struct {
	plan  Plan
	site  Site
	roams bool // an attack that is to roam can
	start time.Time
	stop  context.CancelFunc

	mu    sync.Mutex
	shots []shot  // of the attack under way; guarded by mu
	last  [40]int // the latest statuses; guarded by mu
	count int     // guarded by mu
	fault error   // guarded by mu
	lost  error   // why the latest request had no answer; guarded by mu
}

// workers bounds the requests in flight.
const workers = 8

// ask sends the request of a stranger, and returns what is answered; 0 if that says nothing.
func (v *volley) ask(ctx context.Context, stranger func(Request) Request) int {
	client := v.client(netip.Addr{})
	defer client.Close()
	r := v.plan.request()
	r.Target = Fill(r.Target, "1")
	status, err := client.Do(ctx, stranger(r))
	if err != nil || slices.Contains(v.plan.limited(), status) {
		return 0
	}
	return status
}

// settle takes the doubtful families into an attack if they show something: a server that answers a
// stranger, such as a credential that nobody issued, as it answers a valid one may know neither, and
// then what it does not recognise is a stranger's request. It returns what is to be said.
func (v *volley) settle(a *Attack, stranger, usual int) string {
	var notes []string
	if len(a.Doubtful) > 0 {
		if stranger != 0 && stranger != usual {
			a.Families = slices.Concat(a.Families, a.Doubtful)
		} else {
			why := fmt.Sprintf("%s is answered with %d too", a.Stranger, stranger)
			if stranger == 0 {
				why = "it is not known how " + a.Stranger + " is answered"
			}
			notes = append(notes,
				fmt.Sprintf("%d spellings that not every server reads were left out: %s, so nobody could tell "+
					"whether they were read", len(a.Doubtful), why))
		}
	}
	if a.Roams && !v.roams {
		notes = append(notes, "all requests came from one address: only on loopback there are more to send from")
	}
	return strings.Join(notes, "; ")
}

// client is one that sends from an address; the zero one is the system's choice.
func (v *volley) client(from netip.Addr) *Client {
	c := &Client{
		Dial: func(ctx context.Context) (net.Conn, error) { return v.site.Dial(ctx, from) },
		Host: v.site.Host, Agent: v.plan.Agent,
	}
	c.Whole = v.plan.Bytes
	if v.plan.AtOnce > 0 {
		c.Patience = longPatience
	}
	if fields := named(v.plan.Body); len(fields) > 0 && fields[0].path[0] == "method" {
		c.Outcome = outcome
	}
	return c
}

// attack spends half of the requests on all families in turn, and the other half on the one that
// got most: so does an attacker.
func (v *volley) attack(ctx context.Context, a Attack, usual int) ([]shot, error) {
	scouts := v.plan.each() / 2
	shots, err := v.fire(ctx, a, scouts, 0)
	if err != nil {
		return nil, err
	}
	then := a
	then.Families = []Family{best(a, shots, v.plan, usual)}
	more, err := v.fire(ctx, then, v.plan.each()-scouts, scouts)
	return append(shots, more...), err
}

// best is the family of which most was admitted, of what was sent.
func best(a Attack, shots []shot, p Plan, usual int) Family {
	sent, got := map[string]float64{}, map[string]float64{}
	for _, s := range shots {
		sent[s.family]++
		got[s.family] += float64(p.admitted(a, s, usual))
	}
	return slices.MaxFunc(a.Families, func(f, g Family) int {
		return cmp.Compare(got[f.Name]/max(1, sent[f.Name]), got[g.Name]/max(1, sent[g.Name]))
	})
}

// fire sends n requests of an attack at the plan's rate, from the from-th on.
func (v *volley) fire(ctx context.Context, a Attack, n, from int) ([]shot, error) {
	v.mu.Lock()
	v.shots = nil
	v.mu.Unlock()
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() { v.work(ctx, a, next) })
	}
	pace := time.NewTicker(time.Duration(1e9 / v.plan.Rate))
	defer pace.Stop()
send:
	for i := range n {
		select {
		case next <- from + i:
		case <-ctx.Done():
			break send
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			break send
		}
	}
	close(next)
	wg.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shots, v.fault
}

func (v *volley) work(ctx context.Context, a Attack, next <-chan int) {
	client := v.client(netip.Addr{})
	defer func() { client.Close() }()
	plain := v.plan.request()
	for i := range next {
		base := plain
		if a.Name != Parameters.Name {
			base.Target = Fill(base.Target, "1")
		}
		r, family := a.Request(base, i)
		if a.Roams && v.roams {
			client.Close()
			client = v.client(source(i))
		}
		sent := time.Since(v.start)
		status, err := client.Do(ctx, r)
		if err != nil && ctx.Err() != nil {
			continue // cut off by the end of the run, not by the server
		}
		v.note(shot{span: Span{sent, time.Since(v.start)}, family: family.Name, moved: client.Moved,
			status: status}, err)
	}
}

// note records a shot, and ends the run where the server fails.
func (v *volley) note(s shot, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shots = append(v.shots, s); s.closes {
		return
	}
	if err != nil {
		v.lost = err
	}
	v.last[v.count%len(v.last)] = s.status
	v.count++
	failed, silent := 0, 0
	for _, status := range v.last[:min(v.count, len(v.last))] {
		if status == 0 {
			silent++
		} else if status >= 500 && !slices.Contains(v.plan.limited(), status) {
			failed++
		}
	}
	if v.fault != nil {
		return
	}
	switch half := len(v.last) / 2; {
	case failed >= half:
		v.fault = fmt.Errorf("%w: %d of the last %d answers were 5xx, the latest of them %d. This hurts the API, "+
			"or it is how its limiter says no: then name it, --limited-status %d",
			ErrStorm, failed, min(v.count, len(v.last)), latestFailure(v), latestFailure(v))
	case silent >= half:
		v.fault = fmt.Errorf("%w: %d of the last %d requests had no answer: %w", ErrStorm, silent,
			min(v.count, len(v.last)), v.lost)
	default:
		return
	}
	v.stop()
}

func latestFailure(v *volley) int {
	for back := 1; back <= min(v.count, len(v.last)); back++ {
		if status := v.last[(v.count-back)%len(v.last)]; status >= 500 {
			return status
		}
	}
	return 0
}

// usualStatus is the most frequent answer to the plain request when it is let through; 0 if it never was.
func usualStatus(shots []shot, limited []int) int {
	counts, usual := map[int]int{}, 0
	for _, s := range shots {
		if s.status != 0 && s.status < 500 && !slices.Contains(limited, s.status) {
			if counts[s.status]++; counts[s.status] > counts[usual] ||
				counts[s.status] == counts[usual] && s.status < usual {
				usual = s.status
			}
		}
	}
	return usual
}

// judge counts what an attack had admitted. usual is what the plain request is answered.
func judge(a Attack, shots []shot, p Plan, usual int) Finding {
	f := Finding{Attack: a.Name, Claim: a.Claim, Sent: len(shots), Statuses: map[int]int{}}
	var got []Moved
	var all []Span
	byFamily := map[string]*FamilyCount{}
	for _, s := range shots {
		f.Statuses[s.status]++
		all = append(all, s.span)
		if byFamily[s.family] == nil {
			byFamily[s.family] = &FamilyCount{Name: s.family}
		}
		byFamily[s.family].Sent++
		if n := p.admitted(a, s, usual); n > 0 {
			got = append(got, Moved{s.span, n})
			byFamily[s.family].Admitted += int(n)
			f.Admitted += int(n)
		}
	}
	took := Took(all)
	f.Envelope, f.Seconds, f.Beyond = p.Limit.Envelope(took), took.Seconds(), p.Limit.BeyondBytes(got)
	for _, count := range byFamily {
		f.Families = append(f.Families, *count)
	}
	slices.SortFunc(f.Families, func(a, b FamilyCount) int {
		if a.Admitted != b.Admitted {
			return b.Admitted - a.Admitted
		}
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	switch {
	case f.Beyond > 0:
		f.Verdict, f.Fix = Widened, a.Fix
	case p.Bytes && (len(got) == f.Sent || f.Statuses[0] == f.Sent): // nothing was denied
		f.Verdict = Inconclusive
	case !p.Bytes && float64(f.Sent-f.Statuses[0]) < (1+visible)/2*f.Envelope:
		f.Verdict = Inconclusive // it could hardly have been beyond
	default:
		f.Verdict = Held
	}
	return f
}

// admitted is how much of what the limit is to protect a request got.
func (p *Plan) admitted(a Attack, s shot, usual int) int64 {
	switch {
	case p.Bytes && s.status == usual:
		return s.moved
	case p.Bytes || !admitted(a, s.status, p.limited(), usual):
		return 0
	}
	return int64(max(1, a.Parts))
}

// admitted reports whether a request got what the limit is to protect.
func admitted(a Attack, status int, limited []int, usual int) bool {
	if status == 0 || slices.Contains(limited, status) {
		return false
	}
	switch a.Name {
	case Ends.Name:
		return status == usual || status == http.StatusSwitchingProtocols
	case Spelling.Name, Parameters.Name, Batches.Name, credentialName, claimedName:
		// any other answer says that this is not the resource, or that the credential was not read
		return status == usual
	case messagesName: // what wants no answer is accepted
		return status == usual || status == http.StatusAccepted
	case Unknown.Name:
		return status != http.StatusNotFound && !refused(status)
	}
	// A credential that the API refuses was tried all the same: 401 and 403 are what a guesser pays for.
	return !refused(status)
}

// refused are the answers of servers that did not accept the request as one.
func refused(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusGone, http.StatusRequestURITooLong,
		http.StatusMisdirectedRequest,
		http.StatusRequestHeaderFieldsTooLarge, http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return true
	}
	return false
}
