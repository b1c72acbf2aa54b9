package replay

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/policy"
)

// Decided is what a line of a gateway's decision log says of how it decided.
type Decided struct {
	Allowed bool
	Reason  string // as headgate.Reason writes it
	Rule    string // that settled it, by title; "" for none
	Project string // of the caller

	Endpoint string // the template, or UNKNOWN

	Cost    int64 // tokens, of all parts together
	Parts   int64 // requests that it held, 1 at least
	Missing int64 // requests that were not written down, before this one

	UnderWay bool // it took more for a request that was served already
	Lowered  int  // to how many 1024ths the rate of a rule that it met was, as the API was slow or failed; 0 is not
	AtOnce   int  // the same, of a limit on how many requests are under way

	Charged bool // it was refused for its credential, and had paid: it is charged, and not decided again

	// Change, in a line of its own, is to what the rates of an endpoint are lowered from then on; nil in others.
	Change *adaptive.Change

	// CallerClass is how urgent its callers' tiers and claims made it, which are not in the log; policy.Unclassed for
	// nothing.
	CallerClass policy.Class

	// Reserved names what was reserved for it. In a line that settles that, Settles does, and Answer is what came of
	// it. Waits is how long a request had to wait for its turn that is settled only if its caller leaves before.
	Reserved, Settles string
	Answer            headgate.Answer
	Waits             time.Duration
}

// each is what every part has cost, and how many there were. What all cost is a multiple of that, or what no bucket
// holds.
func (d *Decided) each() (cost, parts int64) { return d.Cost / d.Parts, d.Parts }

// byLimits are the reasons that rules with limits come to. What is decided by other means is not decided again.
var byLimits = []string{
	headgate.WithinLimits.String(),
	headgate.NoRule.String(),
	headgate.OverLimit.String(),
	headgate.CostAboveBurst.String(),
	headgate.InPenalty.String(),
}

// afterLimits are the reasons for which a request is refused that had paid, where it says what it cost.
var afterLimits = []string{headgate.BadCredential.String(), headgate.CredentialUnverified.String()}

// inDecisions makes what reads the decision log of a gateway (package decisionlog). It names callers by hashes, and
// endpoints by templates; what is read asks for the same endpoint in the name of the same caller:
//
//	"endpoint":"GET /v1/items/{id}"           GET /v1/items/0
//	"caller":"9f86d081…","kind":"address"     a network /64 of IPv6 that no other hash has
//	"caller":"9f86d081…","kind":"api_key"     a user of that name, in the same project, from "address"
func inDecisions() func(line string, e *Entry) error {
	o := &object{}
	at, decision, reason, rule := o.first("at"), o.first("decision"), o.first("reason"), o.first("rule")
	place, caller, kind, project := o.first("endpoint"), o.first("caller"), o.first("kind"), o.first("project")
	from, cost, sampled, skipped := o.first("address"), o.first("cost"), o.first("sampled"), o.first("skipped")
	requests, reserved, settles := o.first("requests"), o.first("reservation"), o.first("settled")
	waiting, turn := o.first("waiting"), o.first("wait_seconds")
	actual, status, outcome := o.first("actual"), o.first("status"), o.first("outcome")
	callerClass, multiplier := o.first("caller_class"), o.first("multiplier")
	lowers, since, agreed, atOnce := o.first("lowered"), o.first("since"), o.first("agreed"), o.first("at_once")
	return func(line string, e *Entry) error {
		if err := o.read(line); err != nil {
			return err
		}
		*e = Entry{Decided: &Decided{}}
		text := func(find func() (string, bool)) string {
			value, _ := find()
			return value
		}
		if n, ok := skipped(); ok {
			many, _ := strconv.ParseInt(n, 10, 64)
			e.Decided.Missing = max(0, many)
			return nil
		}
		verdict, ok := decision()
		d := e.Decided
		d.Settles = text(settles)
		template, changes := lowers()
		if !ok && d.Settles == "" && !changes {
			return errors.New("it is no decision of Headgate")
		}
		var err error
		if e.At, err = strconv.ParseInt(text(at), 10, 64); err != nil {
			return fmt.Errorf("at is %q, want nanoseconds since 1970", text(at))
		}
		if d.Settles != "" {
			d.Answer.Actual, _ = strconv.ParseInt(text(actual), 10, 64)
			d.Answer.Status, _ = strconv.Atoi(text(status))
			d.Answer.Forgiven = text(outcome) == "forgiven"
			d.Answer.Abandoned = text(reason) == headgate.Abandoned.String()
			return nil
		}
		if changes {
			return d.change(e.At, template, text(since), text(multiplier), text(agreed), text(atOnce))
		}
		if d.Reserved = text(reserved); d.Reserved == "" {
			if d.Reserved = text(waiting); d.Reserved != "" {
				seconds, _ := strconv.ParseFloat(text(turn), 64)
				d.Waits = time.Duration(min(max(0, seconds), most.Seconds())*1e9) + time.Second // to be sure
			}
		}
		d.Allowed, d.Reason, d.Rule, d.Project = verdict == "allowed", text(reason), text(rule), text(project)
		d.Cost, _ = strconv.ParseInt(text(cost), 10, 64)
		many, said := requests()
		d.Parts, _ = strconv.ParseInt(many, 10, 64)
		d.Parts, d.UnderWay = max(1, d.Parts), said && many == "0"
		d.CallerClass, _ = policy.ParseClass(text(callerClass))
		var errAtOnce error
		d.Lowered, err = part("multiplier", text(multiplier))
		if d.AtOnce, errAtOnce = part("at_once", text(atOnce)); err != nil || errAtOnce != nil {
			return errors.Join(err, errAtOnce)
		}
		if part, err := strconv.ParseFloat(text(sampled), 64); err == nil && part > 1 && part < 1e9 {
			d.Missing = int64(math.Round(part)) - 1
		}
		d.Charged = d.Cost > 0 && slices.Contains(afterLimits, d.Reason)
		if !d.Charged && !slices.Contains(byLimits, d.Reason) {
			return nil
		}
		d.Endpoint = text(place)
		e.Method, e.Target = asked(text(place))
		address := text(from)
		if text(kind) == "address" {
			address = text(caller)
		} else {
			e.User = text(caller)
		}
		e.Client, err = standIn(address)
		return err
	}
}

// most is the longest that a request can have to wait for its turn.
const most = time.Hour

// change reads the line of an endpoint whose rates are lowered to another part.
func (d *Decided) change(at int64, endpoint, since, multiplier, agreed, atOnce string) error {
	c := &adaptive.Change{Endpoint: strings.Clone(endpoint), At: at, Since: at, Over: since == ""}
	var errs [4]error
	if since != "" {
		if c.Since, errs[0] = strconv.ParseInt(since, 10, 64); errs[0] != nil {
			errs[0] = fmt.Errorf("since is %q, want nanoseconds since 1970", since)
		}
		c.Own, errs[1] = part("multiplier", multiplier)
		c.Shared, errs[2] = part("agreed", agreed)
		c.AtOnce, errs[3] = part("at_once", atOnce)
	}
	d.Change = c
	return errors.Join(errs[:]...)
}

// part reads a part of a rate, in 1024ths; 0 is none.
func part(name, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f > 0 && f <= 1 {
		return max(1, int(math.Round(f*adaptive.Whole))), nil
	}
	return 0, fmt.Errorf("%s is %q, want above 0 and at most 1", name, text)
}

// asked is a request for an endpoint.
func asked(template string) (method, target string) {
	method, path, ok := strings.Cut(template, " ")
	if !ok { // UNKNOWN
		return "GET", "/headgate-replays/what-is-no-endpoint"
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(path, "{")
		out.WriteString(before)
		_, after, closed := strings.Cut(rest, "}")
		if !found || !closed {
			return method, out.String()
		}
		out.WriteByte('0')
		path = after
	}
}

// standIn is an address in the place of one of which the hash alone is known: of a network /64 for each hash.
func standIn(hash string) (netip.Addr, error) {
	bits, err := hex.DecodeString(hash)
	if err != nil || len(bits) != 8 {
		return netip.Addr{}, fmt.Errorf("caller or address is %q, want a hash of 16 hexadecimal digits", hash)
	}
	var address [16]byte
	// 2000::/3 are the addresses that mean nothing special.
	binary.BigEndian.PutUint64(address[:], binary.BigEndian.Uint64(bits)>>3|1<<61)
	address[15] = 1
	return netip.AddrFrom16(address), nil
}

// mixed is how many lines one may stand behind a later one: gateways decide requests at once, and write them down as
// they come to it.
const mixed = 1 << 12

// ordered puts entries in the order of time, as far as they may be out of it. It returns those whose time has come, of
// held and more, and those that wait. A line without a time, which says how many others are missing, stands behind
// those that were written before it.
func ordered(held, more []Entry, end bool) (ready, wait []Entry) {
	latest := int64(0)
	if len(held) > 0 { // which are in order
		latest = held[len(held)-1].At
	}
	for i := range more {
		if more[i].At == 0 {
			more[i].At = latest
		}
		latest = max(latest, more[i].At)
	}
	held = append(held, more...)
	slices.SortStableFunc(held, func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
	if n := len(held) - mixed; n > 0 && !end {
		return held[:n], slices.Clone(held[n:])
	} else if !end {
		return nil, held
	}
	return held, nil
}
