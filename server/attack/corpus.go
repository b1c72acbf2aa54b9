package attack

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/identity"
)

// Family is an endless series of requests. To a limit that holds they are all one client's at one endpoint.
type Family struct {
	Name string

	// Make returns the i-th variation of a request, for i from 0. Nearly all of them differ.
	Make func(r Request, i int) Request
}

// Attack is families with one idea.
type Attack struct {
	Name  string // in one word
	Claim string // what must not widen the budget
	Fix   string // what to do if it does

	Families []Family

	// Doubtful are families that show something only where the server tells by its answer what is
	// valid: what it does not read as the credential, or as the tool, is another request. Ask makes
	// one that it would tell, with Stranger in it, in words.
	Doubtful []Family
	Ask      func(Request) Request
	Stranger string

	// Parts is how many requests each of its requests holds, for an API that takes batches; 0 is one.
	Parts int

	// Roams says that every request is to come from another address of this machine. Only loopback has several.
	Roams bool
}

// Request returns the i-th request of the attack: the families take turns.
func (a Attack) Request(r Request, i int) (Request, Family) {
	f := a.Families[i%len(a.Families)]
	return f.Make(r, i/len(a.Families)), f
}

// Plain repeats the request as it is.
var Plain = Attack{
	Name: "plain", Claim: "the same request again and again",
	Fix: "the limit is not the one expected: compare it with --limit, --per and --burst. A fixed window " +
		"admits twice its limit around its edge, a sliding estimate somewhat more than its limit",
	Families: []Family{{"as it is", func(r Request, _ int) Request { return r }}},
}

// Headers claims another client address in every request.
var Headers = Attack{
	Name: "headers", Claim: "header fields that claim another address",
	Fix: "take the client's address from the connection, and from a header only where a proxy of your own is the " +
		"peer; read it from the right. " +
		"Let the proxy in front overwrite or remove the fields named here",
	Families: headers(),
}

// Spelling writes the path in ways that some servers read as the same.
var Spelling = Attack{
	Name: "spelling", Claim: "other spellings of the path",
	Fix: "count by the endpoint that the path belongs to, after one canonical form, and refuse what has no safe " +
		"reading. " +
		"Neither the raw path nor the query may name a budget",
	Families: spellings(),
}

// Keys presents another API key in every request, none of them valid.
var Keys = Attack{
	Name: "keys", Claim: "API keys made up",
	Fix: "a key names a budget only after it was found in your records. Until then count the request by its " +
		"address, and keep no state for the key",
	Families: keys(),
}

// Tokens presents another forged bearer token in every request.
var Tokens = Attack{
	Name: "tokens", Claim: "forged bearer tokens",
	Fix: "a token names a budget only after its signature, algorithm, issuer and times were verified. Until " +
		"then count the request by its address",
	Families: tokens(),
}

// Unknown asks for endpoints that are not there.
var Unknown = Attack{
	Name: "unknown", Claim: "endpoints that do not exist",
	Fix:      "refuse what matches no endpoint before it reaches the API, or let all of it share one budget",
	Families: unknown(),
}

// Parameters asks for another item in every request; the request's target holds {name} where items differ.
var Parameters = Attack{
	Name: "items", Claim: "other items of the same endpoint",
	Fix: "count by the endpoint's template, not by the path: else a client has a budget for every item that it can " +
		"name",
	Families: []Family{{"another item", func(r Request, i int) Request {
		r.Target = Fill(r.Target, fmt.Sprint(2+i))
		return r
	}}},
}

// Batches sends ten requests in one body; for endpoints that are asked with one (Plan.Body).
var Batches = Attack{
	Name: "batches", Claim: "ten requests in one body",
	Fix: "count what a body holds, and refuse what cannot be counted; or refuse bodies with more than one. An API " +
		"that takes no batches should not answer them as it answers one request",
	Parts:    batched,
	Families: batches(),
}

// batched is how many requests a batch holds.
const batched = 10

func batches() []Family {
	one := func(name string, change func(r Request, array string) Request) Family {
		return Family{name, func(r Request, _ int) Request {
			return change(r, "["+strings.Repeat(r.Body+",", batched-1)+r.Body+"]")
		}}
	}
	body := func(format string) func(Request, string) Request {
		return func(r Request, array string) Request {
			r.Body = fmt.Sprintf(format, array)
			return r
		}
	}
	return []Family{
		one("an array", body("%s")),
		one("an array in an array", body("[%s]")),
		one("an array behind a byte order mark", body("\ufeff%s")),
		one("requests of an object", body(`{"requests":%s}`)),
		one("requests of an object, twice", body(`{"requests":[],"requests":%s}`)),
		one("an array, compressed", func(r Request, array string) Request {
			r.Body = compressed(array)
			return r.With(Field{"Content-Encoding", "gzip"})
		}),
		one("an array, as text", func(r Request, array string) Request { return retyped(r, array, "text/plain") }),
	}
}

func isContentType(f Field) bool { return strings.EqualFold(f.Name, "Content-Type") }

func compressed(text string) string {
	var b strings.Builder
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text) // to memory
	_ = w.Close()
	return b.String()
}

// Fill puts a value in place of every {name} of a target.
func Fill(target, value string) string {
	for {
		before, rest, ok := strings.Cut(target, "{")
		_, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			return target
		}
		target = before + value + after
	}
}

// digest is 32 bytes that nobody has seen before, the same for the same i.
func digest(what string, i int) []byte {
	sum := sha256.Sum256(fmt.Append(nil, what, " ", i))
	return sum[:]
}

func address(i int) string {
	d := digest("address", i)
	return fmt.Sprintf("%d.%d.%d.%d", 1+d[0]%99, d[1], d[2], d[3])
}

func headers() []Family {
	one := func(name, format string) Family {
		return Family{name, func(r Request, i int) Request {
			return r.With(Field{name, fmt.Sprintf(format, address(i))})
		}}
	}
	return []Family{
		one("X-Forwarded-For", "%s"),
		one("X-Real-IP", "%s"),
		one("True-Client-IP", "%s"),
		one("CF-Connecting-IP", "%s"),
		one("Forwarded", "for=%s"),
		{"X-Forwarded-For, several hops", func(r Request, i int) Request {
			return r.With(Field{"X-Forwarded-For", address(i) + ", " + address(i+1<<20)})
		}},
		{"X-Forwarded-For, two lines", func(r Request, i int) Request {
			return r.With(Field{"X-Forwarded-For", address(i)}, Field{"X-Forwarded-For", "127.0.0.1"})
		}},
		{"X-Forwarded-For, IPv6", func(r Request, i int) Request {
			d := digest("v6", i)
			return r.With(Field{"X-Forwarded-For", fmt.Sprintf("2001:%x:%x:%x::%x", d[:2], d[2:4], d[4:6], d[6:8])})
		}},
		{"X-Forwarded-For, no address", func(r Request, i int) Request {
			return r.With(Field{"X-Forwarded-For", "client-" + hex.EncodeToString(digest("name", i)[:6])})
		}},
		{"Forwarded, quoted", func(r Request, i int) Request {
			return r.With(Field{"Forwarded", fmt.Sprintf(`for="%s:%d";proto=https, for=unknown`, address(i),
				1024+i%60000)})
		}},
		one("X-Client-IP", "%s"),
		one("Client-IP", "%s"),
		one("X-Cluster-Client-IP", "%s"),
		one("Fastly-Client-IP", "%s"),
		one("X-Azure-ClientIP", "%s"),
		one("X-Envoy-External-Address", "%s"),
		one("X-Original-Forwarded-For", "%s"),
		one("X-Forwarded", "for=%s"),
		one("X-Remote-IP", "%s"),
		one("X-Remote-Addr", "%s"),
		one("X-Originating-IP", "%s"),
	}
}

// spell is a family that rewrites the path and leaves the query.
func spell(name string, write func(path string, i int) string) Family {
	return Family{name, func(r Request, i int) Request {
		path, query, asked := strings.Cut(r.Target, "?")
		r.Target = write(path, i)
		if asked {
			r.Target += "?" + query
		}
		return r
	}}
}

func spellings() []Family {
	return []Family{
		spell("repeated slashes", func(p string, i int) string {
			return insert(p, i, func(n int) string { return strings.Repeat("/", n) })
		}),
		spell("dot segments", func(p string, i int) string {
			return insert(p, i, func(n int) string { return strings.Repeat("/.", n) })
		}),
		spell("back and forth", func(p string, i int) string {
			return insert(p, i, func(n int) string { return fmt.Sprintf("/x%d/..", n) })
		}),
		spell("percent-encoding", func(p string, i int) string { return encode(p, i+1, "%%%02x") }),
		spell("percent-encoding, upper case", func(p string, i int) string { return encode(p, ^i, "%%%02X") }),
		spell("encoded dot segments", func(p string, i int) string {
			return insert(p, i, func(n int) string { return strings.Repeat("/%2e", n) })
		}),
		spell("encoded back and forth", func(p string, i int) string {
			return insert(p, i, func(n int) string { return fmt.Sprintf("/x%d/%%2E%%2e", n) })
		}),
		spell("slashes at the end", func(p string, i int) string { return p + strings.Repeat("/", 1+i%1000) }),
		{"query", func(r Request, i int) Request {
			join := "?"
			if strings.Contains(r.Target, "?") {
				join = "&"
			}
			r.Target += fmt.Sprintf("%s_=%d", join, i)
			return r
		}},
		spell("path parameters", func(p string, i int) string { return fmt.Sprintf("%s;p=%d", p, i) }),
		spell("inner path parameters", func(p string, i int) string {
			if at := strings.LastIndexByte(p, '/'); at > 0 {
				return fmt.Sprintf("%s;p=%d%s", p[:at], i, p[at:])
			}
			return fmt.Sprintf("%s;v=%d", p, i)
		}),
		spell("parameters on dots", func(p string, i int) string { return fmt.Sprintf("/x%d/..;%s", i, p) }),
		spell("letter case", func(p string, i int) string { return flipCase(p, i+1) }),
		spell("encoded slashes", func(p string, i int) string {
			return insert(p, i, func(n int) string { return strings.Repeat("/%2f", n) })
		}),
		spell("backslashes", func(p string, i int) string {
			return insert(p, i, func(n int) string { return strings.Repeat(`/\`, n) })
		}),
		spell("double encoding", func(p string, i int) string { return encode(p, i+1, "%%25%02x") }),
		spell("fragment", func(p string, i int) string { return fmt.Sprintf("%s#%d", p, i) }),
		spell("absolute form", func(p string, i int) string { return fmt.Sprintf("http://h%d.invalid%s", i, p) }),
		spell("another scheme", func(p string, i int) string {
			return fmt.Sprintf("x%d:%s?://h.invalid/x%d", i, p, i)
		}),
		spell("a scheme without an authority", func(p string,
			i int) string {
			return fmt.Sprintf("http:%s?://h.invalid/x%d", p, i)
		}),
		spell("spaces and dots at the end", func(p string,
			i int) string {
			return p + strings.Repeat([]string{"%20", "."}[i%2], 1+i/2%300)
		}),
		spell("overlong UTF-8", func(p string, i int) string {
			return insert(p, i, func(n int) string { return strings.Repeat("/%c0%ae", n) })
		}),
		spell("zero byte", func(p string, i int) string { return fmt.Sprintf("%s%%00%d", p, i) }),
	}
}

// insert puts what makes of n at the i-th place before a slash of path; once all places had their turn, n grows.
func insert(path string, i int, what func(n int) string) string {
	var places []int
	for at := range len(path) {
		if path[at] == '/' {
			places = append(places, at)
		}
	}
	if len(places) == 0 {
		return what(1+i) + path
	}
	at := places[i%len(places)]
	return path[:at] + what(1+i/len(places)%1000) + path[at:]
}

// choose maps the characters of path that are for the bits of set that are set; letters come first,
// so that a small set chooses some.
func choose(path string, set int, eligible func(c byte) bool, write func(c byte) string) string {
	var b strings.Builder
	width := 0
	for at := range len(path) {
		if eligible(path[at]) {
			width++
		}
	}
	if mask := 1<<min(width, bits.UintSize-2) - 1; set&mask == 0 {
		set = mask // none chosen would be the path itself
	}
	for at := range len(path) {
		if c := path[at]; eligible(c) {
			if set&1 == 1 {
				b.WriteString(write(c))
			} else {
				b.WriteByte(c)
			}
			set >>= 1
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func encode(path string, set int, format string) string {
	unreserved := func(c byte) bool {
		return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
	}
	return choose(path, set, unreserved, func(c byte) string { return fmt.Sprintf(format, c) })
}

func flipCase(path string, set int) string {
	letter := func(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
	return choose(path, set, letter, func(c byte) string { return string(rune(c ^ 0x20)) })
}

func keys() []Family {
	text := func(i int) string { return hex.EncodeToString(digest("key", i)) }
	in := func(name, where, prefix string) Family {
		return Family{name, func(r Request, i int) Request { return r.With(Field{where, prefix + text(i)}) }}
	}
	return []Family{
		in("X-Api-Key", "X-Api-Key", ""),
		in("X-Api-Key, with a prefix", "X-Api-Key", "sk_live_"),
		in("Apikey", "Apikey", ""),
		in("X-Access-Token", "X-Access-Token", ""),
		in("Authorization: Bearer", "Authorization", "Bearer "),
		in("Authorization: Basic", "Authorization", "Basic "),
		in("Cookie", "Cookie", "session="),
		{"X-Api-Key, a key of Headgate's form", func(r Request,
			_ int) Request {
			return r.With(Field{"X-Api-Key", inventedKey()})
		}},
		{"X-Api-Key, a key of Headgate's form with a wrong checksum", func(r Request, i int) Request {
			return r.With(Field{"X-Api-Key", "hg_" + text(i)[:49]})
		}},
		{"Bearer, a key of Headgate's form", func(r Request,
			_ int) Request {
			return r.With(Field{"Authorization", "Bearer " + inventedKey()})
		}},
		{"api_key in the query", func(r Request, i int) Request { return asking(r, "api_key", text(i)) }},
		{"a signature of an agent", func(r Request, i int) Request { return r.With(inventedSignature(i)...) }},
	}
}

// inventedSignature is one of an agent of another name each time, in the form that Web Bot Auth has.
func inventedSignature(i int) []Field {
	made := digest("signature", i)
	return []Field{
		{"Signature-Agent", fmt.Sprintf(`sig="https://agent%d.example"`, i)},
		{"Signature-Input", fmt.Sprintf(`sig=("@authority" "signature-agent";key="sig");created=%d;expires=%d;keyid="%s";`+
			`nonce="%d";tag="web-bot-auth"`, 1700000000+i, 4000000000, encode64(made), i)},
		{"Signature", "sig=:" + base64.StdEncoding.EncodeToString(slices.Concat(made, made)) + ":"},
	}
}

// inventedKey is a key with the right form and checksum that nobody issued.
func inventedKey() string {
	key, err := identity.NewKey()
	if err != nil {
		panic(err) // the operating system has no randomness to give
	}
	return key
}

func unknown() []Family {
	word := func(i int) string { return hex.EncodeToString(digest("path", i)[:6]) }
	return []Family{
		{"at the root", func(r Request, i int) Request {
			r.Target = fmt.Sprintf("/%s/%s", word(i), word(i+1<<20))
			return r
		}},
		{"below the endpoint", func(r Request, i int) Request {
			path, _, _ := strings.Cut(r.Target, "?")
			r.Target = fmt.Sprintf("%s/%s/%s", strings.TrimSuffix(path, "/"), word(i), word(i+1<<20))
			return r
		}},
		{"another first segment", func(r Request, i int) Request {
			path, _, _ := strings.Cut(r.Target, "?")
			r.Target = fmt.Sprintf("/%s%s", word(i), path)
			return r
		}},
	}
}

// classClaims say how urgent a request is, or of which tier its caller, in ways that a client can. claim is what the
// deployment reads the class from in tokens that it has verified; "" is nothing.
func classClaims(claim string) []Family {
	classes := []string{"critical", "high", "normal", "low"}
	text := func(i int) string { return classes[i%len(classes)] }
	one := func(name, format string) Family {
		return Family{name, func(r Request, i int) Request {
			return r.With(Field{name, strings.ReplaceAll(format, "%s", text(i))})
		}}
	}
	list := []Family{
		one("Priority", "u=0"), // RFC 9218
		one("Importance", "high"),
	}
	for _, name := range []string{"X-Priority", "X-Request-Priority", "X-Class", "X-Headgate-Class", "X-Urgency",
		"X-Tier", "X-Plan", "X-User-Tier"} {
		list = append(list, one(name, "%s"))
	}
	list = append(list, Family{"priority in the query", func(r Request, i int) Request {
		return asking(r, "priority", text(i))
	}})
	return append(list, Family{"a forged token", func(r Request, i int) Request {
		said := claims(i)
		for _, name := range []string{"priority", "class", "tier", "plan", claim} {
			if name != "" {
				said[name] = text(i)
			}
		}
		return r.With(Field{"Authorization", "Bearer " + forge(map[string]any{"alg": "none", "typ": "JWT"}, said,
			func(string) string { return "" })})
	}})
}
