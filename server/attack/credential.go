package attack

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// A limiter that knows a client by its credential has to find that credential in whatever stands
// around it. One that reads two credentials as none, or a line that it does not expect as no
// credential, goes back to limiting by address: then one valid key has another budget for every
// address that it is sent from.

const (
	credentialName = "credential"
	claimedName    = "claimed"
)

// Credential sends a valid credential beside others that nobody issued, repeated, and in other
// spellings, from another address of this machine each time where that is possible.
func Credential(given Field) Attack {
	return Attack{
		Name: credentialName, Claim: "a valid credential: alone, beside made-up ones, repeated, in other spellings",
		Fix: "charge every request with a valid credential to that credential, whatever else stands beside it and " +
			"whatever address it comes from: " +
			"look at every line, and let nothing that is not verified change what is. (A limit that is meant for " +
			"each address, not for each credential, is widened by more addresses)",
		Families: append(Beside(given), schemes(given)...),
		Doubtful: append(Respelled(given), Elsewhere(given)...),
		Stranger: "a credential that nobody issued",
		Ask: func(r Request) Request {
			return presenting("", given, func(int) []Field {
				return []Field{{given.Name, madeUp(given, 0)}}
			}).Make(r, 0)
		},
		Roams: true,
	}
}

// Claimed is Credential with another claimed address in each request.
func Claimed(given Field) Attack {
	a := Credential(given)
	a.Name, a.Claim = claimedName, "the same, with header fields that claim another address"
	a.Fix += ". Believe header fields about addresses from proxies of your own alone"
	a.Roams = false
	for _, list := range []*[]Family{&a.Families, &a.Doubtful} {
		*list = slices.Clone(*list)
		for n, f := range *list {
			(*list)[n].Make = func(r Request, i int) Request { return claim(f.Make(r, i), address(i*64+n)) }
		}
	}
	return a
}

// claim adds the fields by which most proxies say for whom a request is; all name the same address.
func claim(r Request, address string) Request {
	return r.With(Field{"X-Forwarded-For", address}, Field{"X-Real-IP", address}, Field{"True-Client-IP", address},
		Field{"CF-Connecting-IP", address}, Field{"X-Client-IP", address}, Field{"Forwarded", "for=" + address})
}

// presenting is a family that writes its own lines in place of the given one.
func presenting(name string, given Field, lines func(i int) []Field) Family {
	return Family{name, func(r Request, i int) Request {
		at := slices.Index(r.Header, given)
		kept := slices.DeleteFunc(slices.Clone(r.Header), func(f Field) bool { return f == given })
		r.Header = slices.Insert(kept, max(0, min(at, len(kept))), lines(i)...)
		return r
	}}
}

// Beside are families that hold the line of a valid credential as it was given, and others that
// nobody issued. Families take a Request with the line or without.
func Beside(given Field) []Family {
	made := func(i int) string { return hex.EncodeToString(digest("beside", i)) }
	with := func(name string, lines ...func(i int) Field) Family {
		return presenting(name, given, func(i int) []Field {
			var list []Field
			for _, line := range lines {
				list = append(list, line(i))
			}
			return list
		})
	}
	line := func(name, prefix string) func(int) Field {
		return func(i int) Field { return Field{name, prefix + made(i)} }
	}
	own := func(int) Field { return given }
	empty := func(int) Field { return Field{given.Name, ""} }
	forged := func(i int) Field {
		return Field{"Authorization", "Bearer " + forge(map[string]any{"alg": "HS256", "typ": "JWT"}, claims(i),
			func(string) string { return encode64(digest("beside", i)) })}
	}
	another := func(i int) Field { return Field{given.Name, madeUp(given, i)} }
	nine := slices.Repeat([]func(int) Field{own}, 10)
	for n := range 9 {
		nine[n] = func(i int) Field { return another(9*i + n) }
	}
	families := []Family{
		with("alone", own),
		with("before a made-up bearer token", own, line("Authorization", "Bearer ")),
		with("behind a made-up bearer token", line("Authorization", "Bearer "), own),
		with("before a key of Headgate's form, as bearer", own,
			func(int) Field { return Field{"Authorization", "Bearer " + inventedKey()} }),
		with("behind a bearer token of Headgate's prefix",
			func(i int) Field { return Field{"Authorization", "Bearer hg_" + made(i)[:8]} }, own),
		with("before a forged JWT", own, forged),
		with("behind a forged JWT", forged, own),
		with("before a made-up X-Api-Key", own, line("X-Api-Key", "")),
		with("behind a made-up X-Api-Key", line("X-Api-Key", ""), own),
		with("before another in its own field", own, another),
		with("behind another in its own field", another, own),
		with("behind nine others in its own field", nine...),
		with("behind an empty line of its own field", empty, own),
		with("beside Basic", line("Authorization", "Basic "), own),
		with("beside a made-up Apikey", own, line("Apikey", "")),
		with("beside a made-up X-Access-Token", own, line("X-Access-Token", "")),
		with("beside a cookie", own, line("Cookie", "session=")),
		with("twice", own, own),
		with("three times, and one made up", own, another, own, own),
	}
	query := presenting("beside api_key in the query", given, func(int) []Field { return []Field{given} })
	return append(families, Family{query.Name,
		func(r Request, i int) Request { return asking(query.Make(r, i), "api_key", made(i)) }})
}

// schemes are spellings of the given line that mean the same by RFC 9110: the name of the field and
// the scheme have no case (sections 5.1 and 11.1), blanks around a value are not part of it
// (section 5.5), and several may stand behind the scheme (section 11.4).
func schemes(given Field) []Family {
	to := func(name string, line func(i int) Field) Family {
		return presenting(name, given, func(i int) []Field { return []Field{line(i)} })
	}
	families := []Family{
		to("name of the field in another case", func(i int) Field {
			return Field{flipCase(given.Name, i+1),
				given.Value}
		}),
		to("blanks around the value", func(i int) Field {
			return Field{given.Name, strings.Repeat(" ", i%9) + given.Value + strings.Repeat(" ", 1+i%7)}
		}),
	}
	if scheme, text := split(given); scheme != "" {
		families = append(families,
			to("scheme in another case", func(i int) Field {
				return Field{given.Name, flipCase(scheme, i+1) + " " + text}
			}),
			to("several blanks behind the scheme",
				func(i int) Field { return Field{given.Name, scheme + strings.Repeat(" ", 2+i%8) + text} }))
	}
	return families
}

// Respelled are families that write a valid credential into its own field as some servers read it, and others do not.
func Respelled(given Field) []Family {
	scheme, text := split(given)
	if scheme != "" {
		scheme += " "
	}
	made := func(i int) string { return madeUp(given, i) }
	to := func(name string, value func(i int) string) Family {
		return presenting(name, given, func(i int) []Field { return []Field{{given.Name, value(i)}} })
	}
	families := []Family{
		to("in one line before a made-up one", func(i int) string { return given.Value + ", " + made(i) }),
		to("in one line behind a made-up one", func(i int) string { return made(i) + "," + given.Value }),
		to("in quotes", func(int) string { return scheme + `"` + text + `"` }),
		to("before a word", func(i int) string { return fmt.Sprintf("%s x%d", given.Value, i) }),
		to("behind a word", func(i int) string { return fmt.Sprintf("%sx%d %s", scheme, i, text) }),
	}
	if scheme == "" {
		return families
	}
	bare := strings.TrimSpace(scheme)
	return append(families,
		to("behind a tab", func(i int) string { return bare + strings.Repeat("\t", 1+i%8) + text }),
		to("behind a colon", func(int) string { return bare + ":" + text }),
		to("in one line with Basic", func(i int) string {
			return "Basic " + encode64(digest("basic", i)[:9]) + ", " + given.Value
		}),
		to("under the scheme Token", func(int) string { return "Token " + text }),
		to("as a parameter of a scheme", func(i int) string { return fmt.Sprintf(`Token token="%s", x=%d`, text, i) }),
		to("without a scheme", func(int) string { return text }),
	)
}

// Elsewhere are families that present a valid credential where some servers look for it too.
func Elsewhere(given Field) []Family {
	_, text := split(given)
	var families []Family
	to := func(name string, line Field) {
		if line != given {
			families = append(families, presenting("in "+name, given, func(int) []Field { return []Field{line} }))
		}
	}
	to("X-Api-Key", Field{"X-Api-Key", text})
	to("Authorization: Bearer", Field{"Authorization", "Bearer " + text})
	to("Apikey", Field{"Apikey", text})
	to("X-Access-Token", Field{"X-Access-Token", text})
	to("Basic, as the user", Field{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(text+":"))})
	to("Basic, as the password", Field{"Authorization",
		"Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+text))})
	without := presenting("in api_key of the query", given, func(int) []Field { return nil })
	return append(families, Family{without.Name, func(r Request, i int) Request {
		return asking(without.Make(r, i), "api_key", url.QueryEscape(text))
	}})
}

// split takes the scheme of an Authorization line off its credential, and the name of a cookie off its value.
func split(given Field) (scheme, text string) {
	switch {
	case strings.EqualFold(given.Name, "Cookie"):
		_, text, _ = strings.Cut(given.Value, "=")
		return "", text
	case strings.HasSuffix(strings.ToLower(given.Name), "authorization"):
		if scheme, text, ok := strings.Cut(given.Value, " "); ok {
			return scheme, strings.TrimSpace(text)
		}
	}
	return "", given.Value
}

// madeUp is a value for the given field that has the form of the given one, and that nobody issued:
// the letters and digits in its second half are others.
func madeUp(given Field, i int) string {
	_, text := split(given)
	prefix := strings.TrimSuffix(given.Value, text)
	b := []byte(text)
	noise := hex.EncodeToString(digest("made up", i))
	for at := len(b) / 2; at < len(b); at++ {
		if c := b[at]; 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' {
			b[at] = noise[at%len(noise)]
		}
	}
	if string(b) == text { // nothing in it could be changed, or chance changed nothing
		b = append(b, noise[:8]...)
	}
	return prefix + string(b)
}

// asking adds a parameter to the query.
func asking(r Request, name, value string) Request {
	join := "?"
	if strings.Contains(r.Target, "?") {
		join = "&"
	}
	r.Target += join + name + "=" + value
	return r
}

// sources is how many addresses of loopback a roaming attack comes from.
const sources = 64

// source is the address that the i-th request of a roaming attack comes from. They lie in different
// networks, for limiters that count by network.
func source(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 100 + digest("source", i)[0]%sources, 0, 1})
}
