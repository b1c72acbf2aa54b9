package wasm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/internal/refusal"
	"github.com/headgate-io/headgate/policy"
)

// Kind is for whom a module is made.
type Kind uint8

const (
	// Filter is for proxies: proxy-wasm, ABI 0.2.1 (Envoy, Istio, and others that run such filters).
	Filter Kind = iota
	// Plain is for programs that run WebAssembly: it imports nothing. core/plain.c says how it is called.
	Plain
)

//go:embed core.wasm
var core []byte

//go:embed filter.wasm
var filterModule []byte

//go:embed plain.wasm
var plainModule []byte

// Core is the arithmetic of one bucket alone, as a module that imports nothing; core/core.c says how it is called.
func Core() []byte { return bytes.Clone(core) }

// Options says what a module is to do. Policies is required; every other zero value is a safe default.
type Options struct {
	Policies *policy.Set

	// Keys are the API keys that are known, by digests under Secret. Requests carry one in KeyHeader, default
	// X-Api-Key. Who has the module can check keys, and learns neither Secret nor a key. Revoked keys are left out.
	Keys      []identity.KeyRecord
	Secret    []byte
	KeyHeader string

	// TrustedHops is how many proxies stand before the one that runs the filter: the client's
	// address is the entry of X-Forwarded-For with that number from the right. 0, the default, is
	// the address that the proxy itself takes for the client's. Too high, and clients choose
	// their address. At most 64.
	TrustedHops int

	// IPv6Bits is the length of the prefix whose addresses share a budget, 1 to 128, default 64.
	IPv6Bits int

	// RejectUnknown answers requests to no known endpoint with 404 or 405, instead of by the rules for UNKNOWN.
	RejectUnknown bool

	// Shared are the titles of rules whose buckets all workers of a proxy share; "*" is all rules. Default none.
	Shared []string

	// Buckets is how many buckets a worker has room for, rounded up to a power of two, 64 to 1<<22, 34 bytes each;
	// default 65536. SharedBuckets is the same for those that workers share, default 16384, at most 1<<20.
	Buckets, SharedBuckets int
}

const (
	maxTakes   = 16
	maxMatrix  = 64 << 20  // bytes: the lists of rules of all endpoints and kinds of callers
	maxMemory  = 1 << 30   // bytes of a module's memory
	arenaBytes = 512 << 10 // for what is asked and told of one request
)

// Build makes a module. The error names everything in the options that it has no code for.
func Build(kind Kind, o Options) ([]byte, error) {
	module := filterModule
	if kind == Plain {
		module = plainModule
	}
	base, err := baseOf(module)
	if err != nil {
		return nil, err
	}
	b := builder{Options: o, base: base, l: newLayout()}
	data, room, err := b.build()
	if err != nil {
		return nil, err
	}
	memory := uint64(room) + arenaBytes
	if memory > maxMemory {
		return nil, fmt.Errorf("module needs %d MiB of memory, want at most %d: fewer buckets, endpoints or keys",
			memory>>20, maxMemory>>20)
	}
	return appendData(module, base, data, uint32((memory+1<<16-1)>>16))
}

type builder struct {
	Options
	base uint32
	l    *layout

	faults []error

	classes []class // of callers; the first has no key
	rules   []policy.RuleID
	shared  map[policy.RuleID]bool
}

// class is what rules tell callers apart by.
type class struct{ project string }

func (b *builder) fault(format string, args ...any) {
	b.faults = append(b.faults, fmt.Errorf(format, args...))
}

func (b *builder) build() (data []byte, room uint32, err error) {
	if b.Policies == nil || b.Policies.Endpoints() == nil {
		return nil, 0, errors.New("Policies is nil or has no endpoints, want a compiled policy.Set")
	}
	b.defaults()
	table := b.Policies.Endpoints()
	keys := b.keys()
	var atTable place
	if b.l.data, atTable, err = table.AppendCompiled(b.l.data); err != nil {
		b.faults = append(b.faults, err)
	}
	b.document()
	lists, matrix := b.lists(table)
	rules := b.putRules()
	if len(b.faults) > 0 {
		return nil, 0, errors.Join(b.faults...)
	}

	var costs, numbers record
	for id := range endpoint.ID(table.Len() + 1) {
		costs.i64(b.Policies.Cost(id))
		numbers.u64(table.Number(id))
	}
	atMatrix, atCosts, atNumbers := b.l.put(matrix), b.l.put(costs), b.l.put(numbers)
	atLists, atRules := b.l.put(lists), b.l.put(rules)
	atKeys, atHash := b.l.put(keys), b.l.put(hashOf(b.Secret))
	refused, atRefused := b.l.list(refusedMethods())
	allowable, atAllowable := b.l.list(allowable(table))
	denied := b.denied()

	var h record
	sets, pages := powerOfTwo(b.Buckets/slotsOfSet), powerOfTwo(b.SharedBuckets/slotsOfSet)
	_, atRefusals := b.l.list(refusals())
	keyHeader, lost := b.l.text(strings.ToLower(b.KeyHeader)), b.l.text(bodyOf(headgate.StoreFailed, 0))
	size := (len(b.l.data) + 7) &^ 7
	memory := (uint64(b.base) + uint64(size) + 63) &^ 63
	end := memory + uint64(max(sets, pages))*setBytes
	if end > maxMemory {
		return nil, 0, fmt.Errorf("module needs %d MiB of memory, want at most %d", end>>20, maxMemory>>20)
	}
	flags := uint32(0)
	if b.RejectUnknown {
		flags |= 1
	}
	if len(b.shared) > 0 {
		flags |= 2
	}
	h.u32(uint32(memory), uint32(end), sets-1, pages-1, flags, uint32(b.TrustedHops), uint32(b.IPv6Bits))
	h.u32(atTable, uint32(table.Len()), atMatrix, atCosts, atNumbers, atLists, atRules)
	h.u32(uint32(len(keys)/keyBytes), atKeys, atHash, refused, atRefused, allowable, atAllowable, atRefusals)
	h.text(keyHeader, denied[0], denied[1], denied[2], denied[3], lost)
	return b.l.finish(h), uint32(end), nil
}

func (b *builder) defaults() {
	b.KeyHeader = cmp.Or(b.KeyHeader, "X-Api-Key")
	b.IPv6Bits = cmp.Or(b.IPv6Bits, 64)
	b.Buckets, b.SharedBuckets = cmp.Or(b.Buckets, 1<<16), cmp.Or(b.SharedBuckets, 1<<14)
	between := func(name string, value, least, most int) {
		if value < least || value > most {
			b.fault("%s is %d, want %d to %d", name, value, least, most)
		}
	}
	between("TrustedHops", b.TrustedHops, 0, 64)
	between("IPv6Bits", b.IPv6Bits, 1, 128)
	between("Buckets", b.Buckets, 64, 1<<22)
	between("SharedBuckets", b.SharedBuckets, 64, 1<<20)
	if len(b.Keys) > 0 && len(b.Secret) < identity.MinSecretLength {
		b.fault("Secret has %d bytes, want %d or more", len(b.Secret), identity.MinSecretLength)
	}
}

const keyBytes = 56

// keys writes the keys in the order of their digests, and finds the classes of callers.
func (b *builder) keys() record {
	b.classes = []class{{}}
	place := map[class]int{{}: 0}
	sorted := slices.Clone(b.Keys)
	slices.SortFunc(sorted, func(a, b identity.KeyRecord) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
	var keys record
	for _, k := range sorted {
		switch {
		case k.Key.Revoked:
			continue
		case !k.Key.Expires.IsZero():
			b.fault("key %q expires, want keys without an end: the module has no calendar", k.Key.ID)
		case len(k.Key.Scopes) > 0:
			b.fault("key %q has scopes, want keys for all endpoints", k.Key.ID)
		case k.Key.Tier != "":
			b.fault("key %q has tier %q of its own, want the tier to be its project's", k.Key.ID, k.Key.Tier)
		}
		c := class{k.Key.Project}
		at, known := place[c]
		if !known {
			at = len(b.classes)
			place[c] = at
			b.classes = append(b.classes, c)
		}
		keys = append(keys, k.Digest[:]...)
		project := uint64(0)
		if c.project != "" {
			project = numberOf("project", c.project) | 1
		}
		keys.u64(numberOf("key", c.project, k.Key.ID), project)
		keys.u32(uint32(at), 0)
	}
	return keys
}

// numberOf is 64 bits of a hash of texts, each with its length.
func numberOf(texts ...string) uint64 {
	var b []byte
	for _, t := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(t))), t...)
	}
	digest := sha256.Sum256(b)
	return binary.BigEndian.Uint64(digest[:])
}

// document refuses what rules cannot be told of one by one.
func (b *builder) document() {
	if b.Policies.AccessRules() > 0 {
		b.fault("rule %q has mode %s, want rules that limit", b.Policies.AccessRule(0).Title(),
			b.Policies.AccessRule(0).Mode)
	}
	b.shared = make(map[policy.RuleID]bool)
	for _, title := range b.Shared {
		found := false
		for id := range policy.RuleID(b.Policies.Len()) {
			if r := b.Policies.Rule(id); title == "*" || r.Title() == title {
				b.shared[id], found = true, true
			}
		}
		if !found {
			b.fault("Shared names %q, want the title of a rule, or *", title)
		}
	}
	for id := range policy.RuleID(b.Policies.Len()) {
		b.checkRule(id)
	}
}

// subjects are those that the module tells apart.
var subjects = []policy.Subject{policy.SubjectPrincipal, policy.SubjectIP, policy.SubjectPrincipalIP,
	policy.SubjectProject, policy.SubjectEndpoint, policy.SubjectSite}

func (b *builder) checkRule(id policy.RuleID) {
	r := b.Policies.Rule(id)
	wrong := func(field, got, want string) { b.fault("rule %q: %s is %s, want %s", r.Title(), field, got, want) }
	if !slices.Contains(subjects, r.Subject) {
		wrong("subject", r.SubjectText(), "principal, ip, principal_ip, project, endpoint or site")
	}
	if r.Algorithm != policy.TokenBucket {
		wrong("algorithm", r.Algorithm.String(), "token_bucket")
	}
	if r.Scope != policy.Local {
		wrong("scope", r.Scope.String(), "local: the module asks nobody")
	}
	if r.OnStoreLoss == policy.LossShare {
		wrong("on_store_loss", r.OnStoreLoss.String(), "closed or open")
	}
	if r.CountWhen != "" {
		wrong("count_when", string(r.CountWhen), "none: the module does not see answers")
	}
	if b.Policies.PenaltyOf(id) != nil {
		wrong("penalty", "set", "none")
	}
	if b.Policies.RefusalOf(id) != nil {
		wrong("refusal", "set", "none")
	}
	if b.Policies.PriorityOf(id) != nil {
		wrong("priority", "set", "none")
	}
	if !r.Expires.IsZero() {
		wrong("expires_at", r.Expires.Format(time.RFC3339), "none: the module has no calendar")
	}
	if r.EnforcePercent > 0 && r.EnforcePercent < 100 {
		wrong("enforce_percent", fmt.Sprint(r.EnforcePercent), "100, or mode shadow")
	}
}

const (
	shadow        = 1
	everyEndpoint = 2
)

// lists writes the lists of rules that apply, and which of them does for each class of callers at each endpoint.
func (b *builder) lists(table *endpoint.Table) (lists, matrix record) {
	known := make(map[string]uint16)
	if size := len(b.classes) * (table.Len() + 1) * 2; size > maxMatrix {
		b.fault("%d projects at %d endpoints take %d MiB, want at most %d", len(b.classes), table.Len(), size>>20,
			maxMatrix>>20)
		return nil, nil
	}
	rules := make(map[policy.RuleID]uint32)
	var applied []policy.Applied
	for _, c := range b.classes {
		for id := range endpoint.ID(table.Len() + 1) {
			m := endpoint.Match{ID: id}
			if id != endpoint.Unknown {
				m.Status = endpoint.Known
			}
			applied = b.Policies.Resolve(applied[:0], 0, m, c.project, "")
			name := fmt.Sprint(applied)
			if _, twice := known[name]; !twice {
				known[name] = uint16(len(known))
				if len(known) > 1<<16-1 {
					b.fault("requests fall under more than %d different lists of rules", 1<<16-1)
					return nil, nil
				}
				lists = append(lists, b.list(applied, rules)...)
			}
			b.checkCosts(table, id, applied)
			matrix = binary.LittleEndian.AppendUint16(matrix, known[name])
		}
	}
	return lists, matrix
}

func (b *builder) checkCosts(table *endpoint.Table, id endpoint.ID, applied []policy.Applied) {
	cost := b.Policies.Cost(id)
	for _, a := range applied {
		if _, ok := b.Policies.Terms(a.Rule).Shape.Units(cost); !ok {
			b.fault("endpoint %q costs %d, want at most the burst of rule %q", table.Template(id), cost,
				b.Policies.Rule(a.Rule).Title())
		}
	}
}

// list is one list of rules.
func (b *builder) list(applied []policy.Applied, rules map[policy.RuleID]uint32) record {
	var entries, list record
	var policies []string
	if len(applied) > maxTakes {
		b.fault("%d rules apply to one request, want at most %d", len(applied), maxTakes)
	}
	for _, a := range applied {
		at, known := rules[a.Rule]
		if !known {
			at = uint32(len(b.rules))
			rules[a.Rule] = at
			b.rules = append(b.rules, a.Rule)
		}
		flags := uint32(0)
		if a.Shadow {
			flags |= shadow
		} else {
			_, described := httplimit.Fields(b.Policies.Rule(a.Rule), &bucket.Outcome{})
			policies = append(policies, described)
		}
		if a.Level.EveryEndpoint() {
			flags |= everyEndpoint
		}
		entries.u32(at, flags)
	}
	list.u32(b.l.put(entries), uint32(len(applied)))
	list.text(b.l.text(strings.Join(policies, ", ")))
	return list
}

// Flags of rules, and classes by how long a whole burst takes to come back.
const (
	sharedRule = 1
	openRule   = 2
)

var classEnds = []time.Duration{10 * time.Second, 10 * time.Minute, 24 * time.Hour}

func (b *builder) putRules() record {
	var rules record
	for _, id := range b.rules {
		r, terms := b.Policies.Rule(id), b.Policies.Terms(id)
		sh := terms.Shape
		rules.i64(sh.Drain, sh.Unit, sh.Capacity, sh.Tick, r.Limit, int64(r.Per), r.Burst)
		rules.u64(numberOf("rule", fmt.Sprint(terms.ID), fmt.Sprint(sh)))
		flags, class := uint32(0), 0
		if b.shared[id] {
			flags |= sharedRule
		}
		if r.OnStoreLoss == policy.LossOpen {
			flags |= openRule
		}
		for class < len(classEnds) && sh.TimeToFull(sh.Capacity) > classEnds[class] {
			class++
		}
		rules.u32(uint32(r.Subject), flags, uint32(class), 0)
		quota, _ := httplimit.Fields(r, &bucket.Outcome{})
		name, _, _ := strings.Cut(quota, ";r=")
		title := problem.Quote(r.Title())
		detail := problem.Quote(fmt.Sprintf("Limit %s: %s, burst %d. Retry in ", r.Title(), r.Rate(), r.Burst))
		rules.text(b.l.text(name), b.l.text(detail[1:len(detail)-1]), b.l.text(title))
	}
	return rules
}

// denied are the parts of the answer that a limit gives: before its detail, before the first and before other names of
// rules, and what ends it.
func (b *builder) denied() [4]text {
	const detail, one, two = "DETAIL", `"ONE"`, `"TWO"`
	d := refusal.Of(&headgate.Decision{Reason: headgate.OverLimit}).Details
	d.Detail, d.Violated = detail, []string{"ONE", "TWO"}
	whole := string(d.AppendJSON(nil))
	before, after, _ := strings.Cut(whole, detail)
	between, after, _ := strings.Cut(after, one)
	comma, end, _ := strings.Cut(after, two)
	return [4]text{b.l.text(before), b.l.text("." + between), b.l.text(comma), b.l.text(end)}
}

func bodyOf(why headgate.Reason, fault endpoint.Fault) string {
	r := refusal.Of(&headgate.Decision{Reason: why, Endpoint: endpoint.Match{Fault: fault}})
	return string(r.Details.AppendJSON(nil))
}

// refusals are the answers to requests that no limit is asked about, by fault, and then of unknown path and method.
func refusals() []string {
	var texts []string
	for f := endpoint.NoFault; f <= endpoint.EmptyTail; f++ {
		texts = append(texts, bodyOf(headgate.InvalidTarget, f))
	}
	return append(texts, bodyOf(headgate.UnknownEndpoint, 0), bodyOf(headgate.UnknownMethod, 0))
}

// refusedMethods are those of messages, which no request may have, and TRACE, which only a template lets through.
func refusedMethods() []string {
	return []string{endpoint.Send, endpoint.Receive, endpoint.SendCall, endpoint.ReceiveCall, endpoint.MCP,
		endpoint.Model, http.MethodTrace}
}

// allowable are the methods that Allow may name.
func allowable(table *endpoint.Table) []string {
	var methods []string
	for _, t := range table.All() {
		if m := t.Method(); !endpoint.OfMessages(m) {
			methods = append(methods, m)
			if m == "GET" {
				methods = append(methods, "HEAD")
			}
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

// hashOf is what HMAC-SHA-256 needs: the constants of SHA-256 (FIPS 180-4 section 4.2.2), and its states after the
// secret, which take the secret's place.
func hashOf(secret []byte) record {
	var r record
	for n, prime := 0, int64(2); n < 64; prime++ {
		if p := big.NewInt(prime); p.ProbablyPrime(0) {
			root := cubeRoot(p.Lsh(p, 96))
			r.u32(uint32(root.And(root, big.NewInt(1<<32-1)).Uint64()))
			n++
		}
	}
	if len(secret) > sha256.BlockSize {
		digest := sha256.Sum256(secret)
		secret = digest[:]
	}
	for _, pad := range []byte{0x36, 0x5C} {
		var block [sha256.BlockSize]byte
		copy(block[:], secret)
		for i := range block {
			block[i] ^= pad
		}
		h := sha256.New()
		h.Write(block[:])
		state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
		if err != nil {
			panic(err) // it never fails
		}
		for i := range 8 {
			r.u32(binary.BigEndian.Uint32(state[4+4*i:]))
		}
	}
	return r
}

// cubeRoot is the largest number whose cube is at most n, by Newton's method.
func cubeRoot(n *big.Int) *big.Int {
	x := new(big.Int).Lsh(big.NewInt(1), uint(n.BitLen()/3+1))
	for {
		next := new(big.Int).Mul(x, x)
		next.Quo(n, next).Add(next, x).Add(next, x).Quo(next, big.NewInt(3))
		if next.Cmp(x) >= 0 {
			return x
		}
		x = next
	}
}

func powerOfTwo(n int) uint32 {
	p := uint32(1)
	for int(p) < n {
		p *= 2
	}
	return p
}
