package identity

import (
	"context"
	"strconv"
	"strings"
)

// A request can present several credentials: in several fields, in several
// lines of one field, several in one line. Nobody here knows which of them the
// API reads, and whoever sends the request can try each. So every one is looked
// at, and what cannot be verified changes nothing about what can.
//
//	X-Api-Key: K1, made-up        K1 is verified: the request is K1's
//	Authorization: Bearer expired
//
// A line that is not one credential in its plain form is searched for those
// that stand in it, because servers read such lines in many ways: most examples
// of how to read Authorization take whatever stands behind the first space.
// Reading more than the API does costs an honest caller nothing. Reading less
// would leave the request to its address, and one more budget to each address
// that a credential is sent from.

// MaxCredentials is how many different credentials of one request are looked
// at. A request with more is TooManyCredentials.
const MaxCredentials = 8

// Choice says which of several verified credentials of a request count.
type Choice uint8

const (
	// AllCredentials: the request spends the budget of each.
	AllCredentials Choice = iota

	// FirstCredentials: of tokens, API keys, client certificates and signatures of
	// agents only the first kind that is there. Whoever has several then chooses, by leaving
	// some out, whose budget is spent. Right where the API reads them in the
	// same order, and where a certificate or key is shared by many callers who
	// have tokens of their own.
	FirstCredentials

	choices // how many there are
)

var choiceWords = [choices]string{"all", "first"}

// String returns "all" or "first".
func (c Choice) String() string {
	if c < choices {
		return choiceWords[c]
	}
	return "Choice(" + strconv.Itoa(int(c)) + ")"
}

// presented is a credential as it stands in the request.
type presented struct {
	text    string
	kind    Kind // APIKey or Token
	escaped bool // percent-encoded, from a query
	part    bool // of another one, which is none as a whole

	why Rejection // what became of it
}

// credentials are those that a request presents, without doubles.
type credentials struct {
	list [MaxCredentials]presented
	n    int
	more bool // than there is room for

	unchecked bool // a bearer token is among what was presented, and none is accepted
}

func (c *credentials) add(p presented) {
	for i := range c.n {
		if c.list[i].kind == p.kind && c.list[i].same(p) {
			return
		}
	}
	if c.n == len(c.list) {
		c.more = true
		return
	}
	c.list[c.n] = p
	c.n++
}

// saysOther reports whether the i-th holds a valid credential, and so only says
// it in another way.
func (c *credentials) saysOther(i int) bool {
	for k := range c.n {
		if c.list[k].why == NotRejected && strings.Contains(c.list[i].text, c.list[k].text) {
			return true
		}
	}
	return false
}

// authenticate fills in p from the verified credentials of e: with the first of
// the best kind, and appends the others. Without any it leaves p alone but for
// Principal.Rejected.
func (r *Resolver) authenticate(ctx context.Context, e *Evidence, p *Principal, others []Principal) []Principal {
	var found credentials
	r.collect(e, &found)
	address := *p
	var elsewhere *[]Principal
	for i := 0; i < found.n && !found.more; i++ {
		c, who := &found.list[i], address
		switch c.why = r.verify(ctx, c, e, &who); {
		case c.why == KeyOutOfScope, c.why.Unproven():
			if elsewhere == nil {
				elsewhere = new([]Principal)
			}
			*elsewhere = append(*elsewhere, who)
		case c.why != NotRejected:
		case p.Kind == Address:
			*p = who
		default:
			others = include(p, who, others)
		}
		if c.why != NotRejected && !c.part {
			r.searchRejected(c, &found)
		}
	}
	for i := range found.n {
		if c := &found.list[i]; c.why != NotRejected && !c.part && !found.saysOther(i) {
			r.reject(p, c.why)
		}
	}
	if found.unchecked && p.Kind == Address && p.Rejected == NotRejected {
		r.reject(p, TokenUnchecked)
	}
	p.elsewhere = elsewhere
	if found.more {
		*p, others = address, others[:0]
		p.Rejected = NotRejected
		r.reject(p, TooManyCredentials)
	}
	return others
}

func (r *Resolver) verify(ctx context.Context, c *presented, e *Evidence, p *Principal) Rejection {
	if c.kind == Token {
		return r.useToken(ctx, c.text, e, p)
	}
	return r.useKey(ctx, *c, e.Endpoint, p)
}

// include adds a further principal to first and others, which are in the order
// of the kinds. One that is there already is not added: two tokens of one
// subject are one principal.
func include(first *Principal, who Principal, others []Principal) []Principal {
	if who.is(first) {
		return others
	}
	for i := range others {
		if who.is(&others[i]) {
			return others
		}
	}
	if who.Kind.before(first.Kind) {
		who, *first = *first, who
	}
	at := len(others)
	for at > 0 && who.Kind.before(others[at-1].Kind) {
		at--
	}
	others = append(others, Principal{})
	copy(others[at+1:], others[at:])
	others[at] = who
	return others
}

// is reports whether two principals of one request spend the same budgets.
func (p *Principal) is(q *Principal) bool {
	return p.Kind == q.Kind && p.ID == q.ID && p.Project == q.Project && p.Tier == q.Tier
}

// before reports whether a credential of kind k names the project and the rules
// of a request that has one of the other kind as well.
func (k Kind) before(other Kind) bool { return kindOrder[k] < kindOrder[other] }

var kindOrder = [Kinds]uint8{LoggedIn: 0, Token: 1, APIKey: 2, Certificate: 3, SignedAgent: 4, Address: 5}

// collect gathers what the request presents, each line as a whole.
func (r *Resolver) collect(e *Evidence, found *credentials) {
	if e.Header != nil && (r.tokens != nil || r.sources.Bearer) {
		for _, line := range e.Header.Values(authorization) {
			r.collectAuthorization(line, found)
		}
	}
	if e.Header != nil && r.sources.Header != "" {
		for _, line := range e.Header.Values(r.sources.Header) {
			found.add(presented{text: line, kind: APIKey})
		}
	}
	if r.sources.Query != "" {
		eachParameter(e.Target, r.sources.Query, found.add)
	}
}

// collectAuthorization gathers the credential of an Authorization line. Other
// schemes than Bearer are the application's affair, but for what is accepted
// here and stands there all the same.
func (r *Resolver) collectAuthorization(line string, found *credentials) {
	if text, is := cutScheme(line, proofScheme); is && r.proofs != nil {
		found.add(presented{text: text, kind: Token}) // RFC 9449 section 7.1
		return
	}
	text, is := cutBearer(line)
	switch {
	case !is:
		if len(line) > len(bearerScheme) && strings.EqualFold(line[:len(bearerScheme)], bearerScheme) {
			line = line[len(bearerScheme):] // some servers cut the word off, whatever stands behind it
		}
		r.search(presented{text: line}, false, found)
	case r.sources.Bearer && r.claimed(text):
		found.add(presented{text: text, kind: APIKey})
	case r.tokens != nil:
		found.add(presented{text: text, kind: Token})
	default:
		found.unchecked = true
		r.search(presented{text: text}, false, found)
	}
}

// searchRejected searches a text that is no credential as a whole.
func (r *Resolver) searchRejected(c *presented, found *credentials) {
	if c.kind == Token {
		if text, other := respell(c.text); other && len(text) <= MaxTokenLength {
			found.add(presented{text: text, kind: Token, part: true})
		}
	}
	switch c.why {
	case KeyMalformed, KeyUnknown, TokenMalformed, TokenTooLong:
		r.search(*c, c.kind == Token, found)
	}
}

// respell writes the signature of a signed token (RFC 7515 section 3.1) as the
// standard has it. Many decoders take others for the same: with padding, in the
// other alphabet, with bits behind the last byte, with characters between that
// mean nothing. Of the parts before it they sign every character.
func respell(text string) (string, bool) {
	if strings.Count(text, ".") != 2 {
		return "", false
	}
	at := strings.LastIndexByte(text, '.') + 1
	if at == len(text) || isCanonical(text[at:]) {
		return "", false
	}
	b := append(make([]byte, 0, len(text)), text[:at]...)
	for i := at; i < len(text); i++ {
		switch c := text[i]; {
		case c == '+':
			b = append(b, '-')
		case c == '/':
			b = append(b, '_')
		case base64Value[c] > 0:
			b = append(b, c)
		}
	}
	if spare := spareBits[(len(b)-at)%4]; spare > 0 {
		last := &b[len(b)-1]
		*last = base64Alphabet[(base64Value[*last]-1)&^spare]
	}
	return string(b), true
}

// isCanonical reports whether a signature is in the one spelling that it has.
func isCanonical(signature string) bool {
	for i := range len(signature) {
		if base64Value[signature[i]] == 0 {
			return false
		}
	}
	return (base64Value[signature[len(signature)-1]]-1)&spareBits[len(signature)%4] == 0
}

const base64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// base64Value is the value of a character of base64url, plus 1, and spareBits
// the bits behind the last byte by the length modulo 4 (RFC 4648 section 3.5).
var (
	base64Value = func() (value [256]byte) {
		for i := range len(base64Alphabet) {
			value[base64Alphabet[i]] = byte(i) + 1
		}
		return value
	}()
	spareBits = [4]byte{2: 0b1111, 3: 0b11}
)

// search adds the parts of a text that may be credentials: those that have the
// form of a key, or the two dots of a signed token, or any at all if tokens is
// set.
func (r *Resolver) search(in presented, tokens bool, found *credentials) {
	for start, at := 0, 0; ; {
		end, over := at, at == len(in.text)
		if !over {
			c, ok := in.next(&at)
			if !ok || !separates[c] && !(in.escaped && in.text[end] == '+') { // a space, to those who read forms
				continue
			}
		}
		if start < end {
			part := presented{text: in.text[start:end], escaped: in.escaped, part: true}
			r.addPart(part, tokens, found)
			if value, is := valueOf(part.text); is && !part.escaped {
				part.text = value
				r.addPart(part, tokens, found)
			}
		}
		if over {
			return
		}
		start = at
	}
}

// separates are the bytes that stand in no token and in no key that is made
// here, and that one server or another takes for the end of a credential.
var separates = func() (in [256]bool) {
	for c := range in {
		in[c] = c <= ' ' || c >= 0x7f || strings.IndexByte(`,;"'`, byte(c)) >= 0
	}
	return in
}()

// valueOf returns what stands behind the last colon or equals sign, as in Bearer:K and Token token=K. Keys that
// were made elsewhere may hold these signs, and tokens may end in some, so the whole part is looked at too.
func valueOf(part string) (string, bool) {
	at := strings.LastIndexAny(strings.TrimRight(part, "="), ":=")
	return part[at+1:], at >= 0
}

func (r *Resolver) addPart(part presented, tokens bool, found *credentials) {
	isKey := false
	for i := range r.formats {
		key := part
		key.kind = APIKey
		if !part.escaped && !r.formats[i].cut(&key.text) {
			continue
		}
		isKey = true
		found.add(key)
	}
	if part.escaped || isKey || r.tokens == nil || !isToken(part.text) {
		return
	}
	if tokens || strings.Count(part.text, ".") == 2 {
		part.kind = Token
		found.add(part)
	}
}

// cut makes of a text what may be a key in it, if anything may.
func (f *KeyFormat) cut(text *string) bool {
	at := strings.Index(*text, f.Prefix)
	if at < 0 {
		return false
	}
	*text = (*text)[at:]
	if f.made() {
		*text = (*text)[:min(len(*text), len(f.Prefix)+keyTailLength)]
	}
	return f.fits(len(*text))
}
