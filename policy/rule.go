package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// The reserved values of Rule.Endpoint. Everything else is the text of a template.
const (
	// Default is the endpoint of the rules for every known endpoint that has
	// none of its own.
	Default = "default"

	// UnknownEndpoint is the endpoint of the rules for requests that match no
	// template, and the last resort of those that do.
	UnknownEndpoint = "UNKNOWN"

	// All is the endpoint of the rules for all known endpoints taken together.
	// They apply in addition to the endpoint's own rules.
	All = "*"
)

// MaxName is the longest Rule.Name in bytes.
const MaxName = 128

// Rule is one row of the policy table, as people write it. Endpoint and Limit
// are required; every other zero value is the default its comment gives. With Mode
// Allow or Block it has no limit, and nothing that is said of one.
type Rule struct {
	// Endpoint is a template ("GET /v1/items/{id}"), Default, UnknownEndpoint
	// or All.
	Endpoint string

	// Project and Tier narrow the rule to one tenant or to the tenants of one
	// tier. Empty means all. At most one of the two may be set.
	Project string
	Tier    string

	Limit int64         // tokens per Per, 1 or more
	Per   time.Duration // whole seconds; 0 is one second
	// tokens at once; 0 is CompileOptions.BurstPercent of Limit, or Limit if Algorithm counts in
	// windows
	Burst int64

	Subject Subject // whose requests share a bucket
	// the subject as SetSubject reads it, where a word does not say it: "path:customer", or with
	// Mode Allow or Block one caller or network
	Only        string
	Algorithm   Algorithm // how the bucket counts
	Mode        Mode      // whether the rule denies, only counts, or settles requests without a limit
	Scope       Scope     // how far the bucket reaches
	OnStoreLoss StoreLoss // what happens to requests while the store is away
	CountWhen   Answers   // which answers count, such as "401,403"; the others are given back (Limiter.SettleAnswer)
	Penalty     Penalty   // when a caller that is denied again and again is blocked for a time
	Refusal     Refusal   // what a request is answered that the rule denies
	Priority    Priority  // of which class requests are, or how classes share the budget

	// Expires is when the rule ends; zero is never. A rule that expires may stand
	// beside a lasting one for the same Endpoint, Project, Tier and Subject, and
	// is in its place until then. One that is in shadow, or has an EnforcePercent,
	// is tried beside the lasting one.
	Expires time.Time
	Name    string // shown to clients; printable ASCII, at most MaxName bytes

	// EnforcePercent is for how many of a hundred subjects Mode Enforce means
	// what it says, 1 to 100; 0 is 100. For the others the rule is in shadow.
	// Set.Enforces says which they are.
	EnforcePercent int64
}

// Title reports the name that clients see: Name, or a text made of the endpoint
// and, unless it is the default, the subject. It is printable ASCII, so that it
// can be sent as an RFC 9651 string; other bytes are percent-encoded. It holds
// neither project nor tier, which are nobody else's business.
func (r Rule) Title() string {
	if r.Name != "" {
		return printable(r.Name)
	}
	switch {
	case r.Only != "" && !r.Mode.Limits():
		return printable(r.Endpoint + " of " + r.Only)
	case r.Subject == SubjectPrincipal:
		return printable(r.Endpoint)
	}
	title := r.Endpoint
	of, counted := r.Subject.Counts()
	switch counted {
	case CountsUnderWay:
		title += " at once"
	case CountsRequests:
		title += " requests"
	}
	if of == SubjectPrincipal {
		return printable(title)
	}
	return printable(title + " per " + r.Whose())
}

// Kept is for how long the place of a request under way is kept that nobody says is under way still, of a
// rule that counts those (Concurrency): Per, or 30 seconds where it says none, or the second that a table
// says for it.
func (r Rule) Kept() time.Duration {
	if r.Per <= time.Second {
		return defaultKept
	}
	return r.Per
}

// Rate reports the limit for people: "5 per 1s", "100 per 1h", "20 at once", "60 requests per 1m", "-" for none.
func (r Rule) Rate() string {
	if !r.Mode.Limits() {
		return "-"
	}
	limit := strconv.FormatInt(r.Limit, 10)
	switch _, counted := r.Subject.Counts(); counted {
	case CountsUnderWay:
		return limit + " at once"
	case CountsRequests:
		limit += " requests"
	}
	per := duration(max(r.Per, time.Second))
	if r.Algorithm.OnCalendar() {
		switch r.Per {
		case perDay:
			per = "day"
		case perWeek:
			per = "week"
		case perMonth:
			per = "month"
		}
	}
	return limit + " per " + per
}

// Enforcement reports for people whom the rule denies: "enforce", "enforce 25%" or
// "shadow".
func (r Rule) Enforcement() string {
	if r.Mode != Enforce || r.EnforcePercent == 0 || r.EnforcePercent == 100 {
		return r.Mode.String()
	}
	return r.Mode.String() + " " + strconv.FormatInt(r.EnforcePercent, 10) + "%"
}

// duration is d without the zero units that time.Duration appends: 1h, not
// 1h0m0s.
func duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// printable percent-encodes what may not stand in an RFC 9651 string.
func printable(s string) string {
	for i := 0; ; i++ {
		if i == len(s) {
			return s
		}
		if !isPrintable(s[i]) {
			break
		}
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if isPrintable(s[i]) {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

// isPrintable reports whether c may stand in an RFC 9651 string (section 3.3.3).
func isPrintable(c byte) bool { return 0x20 <= c && c <= 0x7e }

// Document is everything a source of rules holds.
type Document struct {
	Rules    []Rule
	Projects map[string]string // project → its tier
	Source   string            // where it came from, for messages; may be empty
	Number   int64             // its version, where the source numbers them; 0 is unknown
	// the version by which somebody removed the last rule on purpose; 0 if there are rules, or
	// nobody did
	Cleared int64
	Ignore  []Ignore // what Lint and Compile may find and nobody need mend
}

// Ignore accepts findings: warnings and notes of one code, about any rule or
// about the rules that have the given endpoint, project and tier. Errors cannot
// be accepted.
type Ignore struct {
	Code     string
	Endpoint string // as the rule writes it; empty is any
	Project  string
	Tier     string
	Reason   string // why, for those who read the findings
}

// Subject says whose requests share one bucket of a rule.
type Subject uint8

// The subjects. SubjectPrincipal is the default: the verified caller without
// its address, because a caller that rotates addresses would otherwise multiply
// its budget.
const (
	SubjectPrincipal    Subject = iota // the verified caller, else the client's address
	SubjectIP                          // the client's address or prefix
	SubjectPrincipalIP                 // caller and address together, the paper's literal key
	SubjectProject                     // all callers of a project
	SubjectRegion                      // all callers from a region
	SubjectEndpoint                    // everybody
	SubjectIdentifier                  // a value read from the request, such as a login name
	SubjectIdentifierIP                // that value and the client's address together
	SubjectSite                        // the site of an IPv6 address, its /48; else the address
	SubjectPath                        // the value of a path parameter, which Rule.Only names; else the address
	SubjectClaim                       // the value of a token's verified claim, which Rule.Only names; else the caller

	subjects = 11
)

// Counted is what a rule counts of its subject's requests.
type Counted uint8

// What is counted. Each is a dimension of its own: rules that count different things of the same callers stand beside
// each other.
const (
	CountsTokens   Counted = iota // what they cost
	CountsUnderWay                // how many are under way at once (Concurrency)
	CountsRequests                // how many there are, whatever each costs

	counteds = 3
)

// countedTexts stand before the text of a subject.
var countedTexts = [counteds]string{"", "in_flight:", "requests:"}

// dimensions is how many subjects there are, by all that is counted of each.
const dimensions = counteds * subjects

// Counting is the subject of the same callers of whose requests something else is counted.
func (s Subject) Counting(what Counted) Subject {
	s, _ = s.Counts()
	return s + Subject(what)*subjects
}

// Counts reports what is counted, and by which subject.
func (s Subject) Counts() (of Subject, what Counted) {
	if s >= dimensions {
		return s, CountsTokens
	}
	return s % subjects, Counted(s / subjects)
}

// cutCounted takes what is counted off the text of a subject.
func cutCounted(written string) (of string, what Counted) {
	for what = CountsUnderWay; what < counteds; what++ {
		if of, ok := strings.CutPrefix(written, countedTexts[what]); ok {
			return of, what
		}
	}
	return written, CountsTokens
}

var subjectTexts = []string{"principal", "ip", "principal_ip", "project", "region", "endpoint", "identifier",
	"identifier_ip", "site", "path", "claim"}

// wantSubject is what a rule's subject may be.
var wantSubject = oneOf(subjectTexts[:SubjectPath]) +
	`; or "path:NAME" for a parameter of the path, "claim:NAME" for a claim of the token; each also behind ` +
	`"requests:" or "in_flight:"`

// Named reports whether Rule.Only has to say by what parameter or claim a rule by s counts.
func (s Subject) Named() bool {
	s, _ = s.Counts()
	return s == SubjectPath || s == SubjectClaim
}

// subjectSet is a set of subjects, one bit each.
type subjectSet uint64

// String reports the text that stands in a rule.
func (s Subject) String() string {
	of, what := s.Counts()
	return countedTexts[what] + enumString(uint8(of), "subject", subjectTexts)
}

// MarshalText writes the text that stands in a rule.
func (s Subject) MarshalText() ([]byte, error) {
	of, what := s.Counts()
	written, err := marshalEnum(uint8(of), "subject", subjectTexts)
	if err != nil {
		return nil, err
	}
	return append([]byte(countedTexts[what]), written...), nil
}

// UnmarshalText reads what MarshalText writes and refuses everything else.
func (s *Subject) UnmarshalText(text []byte) error {
	of, what := cutCounted(string(text))
	err := unmarshalEnum((*uint8)(s), []byte(of), "subject", subjectTexts)
	if err == nil {
		*s = s.Counting(what)
	}
	return err
}

// Algorithm says how the bucket of a rule counts.
type Algorithm rate.Algorithm

// The algorithms of package rate, and the calendar. TokenBucket is the default. docs/algorithms.md says
// what each is for and what it admits at worst.
const (
	TokenBucket Algorithm = Algorithm(rate.TokenBucket) // up to a burst at once, then at the rate
	LeakyBucket Algorithm = Algorithm(rate.LeakyBucket) // a queue of a burst's length, released at the rate
	FixedWindow Algorithm = Algorithm(rate.FixedWindow) // a count that starts again when the window, Per, ends
	// the count of this window and what lies in its length of the last one's
	SlidingWindow Algorithm = Algorithm(rate.SlidingWindow)
	// the counts of all short cells in a window's length: never more, wherever it begins
	SlidingLog Algorithm = Algorithm(rate.SlidingLog)
	// a count that starts again with each day, week or month of UTC; those above are of other time
	// zones
	Calendar Algorithm = SlidingLog + 1
	// so many requests under way at once, for a Subject that counts those; Per is how long the place of one is kept
	// whose process has died
	Concurrency Algorithm = 255
)

var algorithmTexts = []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window",
	"sliding_log", "calendar"}

// concurrencyText is that of Concurrency, which algorithmTexts has no place for.
const concurrencyText = "concurrency"

// String reports the text that stands in a rule: "calendar:Europe/Zurich" for the calendar of a zone.
func (a Algorithm) String() string {
	if a == Concurrency {
		return concurrencyText
	}
	if a > Calendar && a.OnCalendar() {
		return calendarOf + a.Zone()
	}
	return enumString(uint8(a), "algorithm", algorithmTexts)
}

// MarshalText writes the text that stands in a rule.
func (a Algorithm) MarshalText() ([]byte, error) {
	if a == Concurrency || a > Calendar && a.OnCalendar() {
		return []byte(a.String()), nil
	}
	return marshalEnum(uint8(a), "algorithm", algorithmTexts)
}

// UnmarshalText reads what MarshalText writes and refuses everything else.
func (a *Algorithm) UnmarshalText(text []byte) error {
	if string(text) == concurrencyText {
		*a = Concurrency
		return nil
	}
	if name, of := strings.CutPrefix(string(text), calendarOf); of {
		in, err := calendarIn(name)
		if err != nil {
			return Problem{
				Code:  "algorithm",
				Rule:  -1,
				Field: "algorithm",
				Value: fmt.Sprintf("%q", text),
				Want:  err.Error(),
			}
		}
		*a = in
		return nil
	}
	if unmarshalEnum((*uint8)(a), text, "algorithm", algorithmTexts) == nil {
		return nil
	}
	return Problem{
		Code:  "algorithm",
		Rule:  -1,
		Field: "algorithm",
		Value: fmt.Sprintf("%q", text),
		Want:  wantAlgorithm,
	}
}

// wantAlgorithm is what a rule's algorithm may be.
var wantAlgorithm = oneOf(append(slices.Clone(algorithmTexts), concurrencyText))

// Mode says whether a rule denies requests over a limit or only counts them, or what becomes of all.
type Mode uint8

// The modes. Enforce is the default.
const (
	Enforce Mode = iota // deny what is over the limit
	Shadow              // count and report what would have been denied, and let it pass
	Allow               // no limit: let all pass, whatever other rules say but those of Mode Block
	Block               // no limit: refuse all
)

var modeTexts = []string{"enforce", "shadow", "allow", "block"}

// String reports the text that stands in a rule.
func (m Mode) String() string { return enumString(uint8(m), "mode", modeTexts) }

// MarshalText writes the text that stands in a rule.
func (m Mode) MarshalText() ([]byte, error) { return marshalEnum(uint8(m), "mode", modeTexts) }

// UnmarshalText reads what MarshalText writes and refuses everything else.
func (m *Mode) UnmarshalText(text []byte) error {
	return unmarshalEnum((*uint8)(m), text, "mode", modeTexts)
}

// Scope says how far a bucket reaches when several replicas run.
type Scope rate.Scope

// The scopes. Local is the default. docs/scaling.md says what each promises.
const (
	// every replica keeps buckets of its own, so k replicas admit up to k times the limit
	Local  Scope = Scope(rate.Local)
	Split  Scope = Scope(rate.Split)  // every replica keeps buckets of its own, each with its share of the limit
	Strict Scope = Scope(rate.Strict) // one bucket in a shared store, which is asked for every request
	// one bucket in a shared store, which replicas take batches from before they use them; or, of
	// requests under way, keep places of for those to come
	Lease Scope = Scope(rate.Lease)
	Sync  Scope = Scope(rate.Sync) // one bucket in a shared store, which replicas report to what they have admitted
	// every replica keeps buckets of its own, and debits them by what the others say that they
	// admitted
	Gossip Scope = Scope(rate.Gossip)
)

// Shared reports whether a rule of this scope needs a store that all replicas
// share.
func (s Scope) Shared() bool { return rate.Scope(s).Shared() }

// Named reports whether buckets of this scope have names that all replicas know.
func (s Scope) Named() bool { return rate.Scope(s).Named() }

var scopeTexts = []string{"local", "split", "strict", "lease", "sync", "gossip"}

// String reports the text that stands in a rule.
func (s Scope) String() string { return enumString(uint8(s), "scope", scopeTexts) }

// MarshalText writes the text that stands in a rule.
func (s Scope) MarshalText() ([]byte, error) { return marshalEnum(uint8(s), "scope", scopeTexts) }

// UnmarshalText reads what MarshalText writes and refuses everything else.
func (s *Scope) UnmarshalText(text []byte) error {
	return unmarshalEnum((*uint8)(s), text, "scope", scopeTexts)
}

// StoreLoss says what becomes of a rule's requests while the bucket store
// cannot answer.
type StoreLoss rate.Loss

// The answers to the loss of the store. LossClosed is the default.
const (
	LossClosed StoreLoss = StoreLoss(rate.LossClosed) // deny: the backend is protected, callers are not served
	LossShare  StoreLoss = StoreLoss(rate.LossShare)  // go on with a local share of the limit
	LossOpen   StoreLoss = StoreLoss(rate.LossOpen)   // admit: callers are served, the backend is not protected
)

var storeLossTexts = []string{"closed", "share", "open"}

// String reports the text that stands in a rule.
func (l StoreLoss) String() string { return enumString(uint8(l), "on_store_loss", storeLossTexts) }

// MarshalText writes the text that stands in a rule.
func (l StoreLoss) MarshalText() ([]byte, error) {
	return marshalEnum(uint8(l), "on_store_loss", storeLossTexts)
}

// UnmarshalText reads what MarshalText writes and refuses everything else.
func (l *StoreLoss) UnmarshalText(text []byte) error {
	return unmarshalEnum((*uint8)(l), text, "on_store_loss", storeLossTexts)
}

func enumString(v uint8, field string, texts []string) string {
	if int(v) < len(texts) {
		return texts[v]
	}
	return fmt.Sprintf("%s(%d)", field, v)
}

func marshalEnum(v uint8, field string, texts []string) ([]byte, error) {
	if int(v) < len(texts) {
		return []byte(texts[v]), nil
	}
	return nil, Problem{Code: field, Rule: -1, Field: field, Value: fmt.Sprint(v), Want: oneOf(texts)}
}

func unmarshalEnum(v *uint8, text []byte, field string, texts []string) error {
	for i, t := range texts {
		if string(text) == t {
			*v = uint8(i)
			return nil
		}
	}
	return Problem{Code: field, Rule: -1, Field: field, Value: fmt.Sprintf("%q", text), Want: oneOf(texts)}
}

// oneOf lists the texts that a field may have.
func oneOf(texts []string) string {
	if len(texts) == 1 {
		return fmt.Sprintf("%q, the only one this version has", texts[0])
	}
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = fmt.Sprintf("%q", t)
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + " or " + quoted[len(quoted)-1]
}
