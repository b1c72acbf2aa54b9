package identity_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

// everywhere reads keys from a header, from Authorization and from the query.
var everywhere = identity.KeySources{Header: "X-Api-Key", Bearer: true, Query: "api_key"}

func TestKeySources(t *testing.T) {
	c := newCredentials(t, identity.Options{KeySources: everywhere})
	escaped := func(s string) (all string) {
		for i := range len(s) {
			all += fmt.Sprintf("%%%02x", s[i])
		}
		return all
	}
	const none = identity.NotRejected
	for _, row := range []struct {
		name   string
		target string
		header http.Header
		id     string
		why    identity.Rejection
	}{
		{"query", "/v1/items?api_key=" + c.active, nil, "k1", none},
		{"query, last of many", "/?a=b&c&=&api_key=" + c.active, nil, "k1", none},
		{"query, without headers at all", "?api_key=" + c.active, nil, "k1", none},
		{"query, key percent-encoded", "/?api_key=" + escaped(c.active), nil, "k1", none},
		{"query, name percent-encoded", "/?%61pi%5Fkey=" + c.active, nil, "k1", none},
		{"query and header, the same", "/?api_key=" + escaped(c.active),
			http.Header{"X-Api-Key": {c.active}}, "k1", none},
		{"all three, the same", "/?api_key=" + c.active,
			http.Header{"X-Api-Key": {c.active}, "Authorization": {"Bearer " + c.active}}, "k1", none},
		{"another name", "/?api_keys=" + c.active, nil, "", none},
		{"a name that begins alike", "/?api_=" + c.active, nil, "", none},
		{"another case", "/?API_KEY=" + c.active, nil, "k1", none},
		{"in the path", "/api_key=" + c.active, nil, "", none},
		{"name encoded twice", "/?%2561pi_key=" + c.active, nil, "", none},
		{"a second ? belongs to a name", "/??api_key=" + c.active, nil, "", none},

		{"twice, the same", "/?api_key=" + c.active + "&api_key=" + c.active, nil, "k1", none},
		{"twice, once encoded", "/?api_key=" + c.active + "&api%5fkey=" + c.active, nil, "k1", none},
		{"twice, once empty", "/?api_key&api_key=" + c.active, nil, "k1", identity.KeyMalformed},
		{"two keys", "/?api_key=" + c.active, http.Header{"X-Api-Key": {c.expiring}}, "k4", none},
		{"two keys, one as bearer", "/?api_key=" + c.active,
			http.Header{"Authorization": {"Bearer " + c.expiring}}, "k4", none},
		{"the query's key begins the header's", "/?api_key=" + c.active[:20], http.Header{"X-Api-Key": {c.active}},
			"k1", identity.KeyMalformed},

		{"no value", "/?api_key", nil, "", identity.KeyMalformed},
		{"empty", "/?api_key=&a=b", nil, "", identity.KeyMalformed},
		{"encoded twice", "/?api_key=" + strings.ReplaceAll(escaped(c.active), "%", "%25"), nil, "",
			identity.KeyMalformed},
		{"bad escape", "/?api_key=%zz" + c.active[2:], nil, "", identity.KeyMalformed},
		{"broken escape", "/?api_key=" + c.active + "%", nil, "", identity.KeyMalformed},
		{"fragment", "/?api_key=" + c.active + "#x", nil, "", identity.KeyMalformed},
		{"; after it", "/?api_key=" + c.active + ";a=b", nil, "k1", none},
		{"behind a ;", "/?a=b;api_key=" + c.active, nil, "k1", none},
		{"behind a ;, encoded", "/?;a&b;c;%61pi_key=" + c.active, nil, "k1", none},
		{"another behind a ;", "/?api_key=" + c.active + "&a;api_key=" + c.revoked, nil, "k1", identity.KeyRevoked},
		{"a value that looks like it behind a ;", "/?api_key=" + c.active + "&a=b;xapi_key=c", nil, "k1", none},
		{"long", "/?api_key=" + strings.Repeat("x", 1<<16), nil, "", identity.KeyMalformed},
		{"long, encoded", "/?api_key=" + strings.Repeat("%78", 1<<14), nil, "", identity.KeyMalformed},
		{"unknown", "/?api_key=" + c.unknown, nil, "", identity.KeyUnknown},
		{"revoked", "/?api_key=" + c.revoked, nil, "", identity.KeyRevoked},
	} {
		e := identity.Evidence{Peer: netip.MustParseAddr("203.0.113.9"), Target: row.target}
		if row.header != nil {
			e.Header = row.header
		}
		p := c.Resolve(t.Context(), e)
		if p.ID != row.id || p.Rejected != row.why {
			t.Errorf("%s: ID %q, %s; want %q, %s", row.name, p.ID, p.Rejected, row.id, row.why)
		}
	}
}

// A source that is off is not read: what stands there is somebody else's.
func TestKeySourcesThatAreOff(t *testing.T) {
	for _, on := range []identity.KeySources{{Header: "X-Api-Key"}, {Bearer: true}, {Query: "api_key"}} {
		c := newCredentials(t, identity.Options{KeySources: on})
		for _, e := range []struct {
			at identity.KeySources
			identity.Evidence
		}{
			{identity.KeySources{Header: "X-Api-Key"}, identity.Evidence{Header: http.Header{"X-Api-Key": {c.active}}}},
			{identity.KeySources{Bearer: true},
				identity.Evidence{Header: http.Header{"Authorization": {"Bearer " + c.active}}}},
			{identity.KeySources{Query: "api_key"}, identity.Evidence{Target: "/?api_key=" + c.active}},
		} {
			p := c.Resolve(t.Context(), e.Evidence)
			if got, want := p.Kind == identity.APIKey, e.at == on; got != want || p.Rejected != identity.NotRejected {
				t.Errorf("sources %+v, a key in %+v: %s", on, e.at, p)
			}
		}
	}
}

func TestRedactAndStripTarget(t *testing.T) {
	who := newCredentials(t, identity.Options{KeySources: everywhere})
	for _, c := range []struct{ target, redacted, stripped string }{
		{"/a?x=1", "/a?x=1", "/a?x=1"},
		{"/a", "/a", "/a"},
		{"/a?api_key=K", "/a?api_key=[redacted]", "/a"},
		{"/a?x=1&%61pi_key=K&y=%2f;z", "/a?x=1&api_key=[redacted]&y=%2f;z", "/a?x=1&y=%2f;z"},
		{"/a?api_key=K&api_key=L&b", "/a?api_key=[redacted]&api_key=[redacted]&b", "/a?b"},
		{"/a?api_key", "/a?api_key=[redacted]", "/a"},
		{"/a?x=1;api_key=K;z&b", "/a?x=1;api_key=[redacted];z&b", "/a?x=1;z&b"},
		{"/a?api_key=K;z&b", "/a?api_key=[redacted]&b", "/a?b"},
		{"?&api_key=K&", "?&api_key=[redacted]&", "?&"},
	} {
		if got := who.RedactTarget(c.target); got != c.redacted {
			t.Errorf("RedactTarget(%s) = %s, want %s", c.target, got, c.redacted)
		}
		if got := who.StripTarget(c.target); got != c.stripped {
			t.Errorf("StripTarget(%s) = %s, want %s", c.target, got, c.stripped)
		}
	}
	off := newCredentials(t, identity.Options{})
	if got := off.StripTarget("/a?api_key=K"); got != "/a?api_key=K" {
		t.Errorf("StripTarget without a query source = %s", got)
	}
}

// FuzzQueryKey compares the search in the raw query with net/url's parser, for
// servers that end parameters at & and for those that end them at ; too: a key
// that either finds counts, whatever else is there, and a target from which keys
// were stripped shows neither parser any.
func FuzzQueryKey(f *testing.F) {
	ring, digester := &identity.Keyring{}, newDigester(f)
	const key = "hg_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1sh72b"
	if err := ring.Replace([]identity.KeyRecord{{Digest: digester.Digest(key),
		Key: identity.Key{ID: "k1"}}}); err != nil {
		f.Fatal(err)
	}
	who := newResolver(f, identity.Options{Keys: ring, Digester: digester, KeySources: everywhere})
	for _, query := range []string{
		"", "api_key=" + key, "a=b&api%5Fkey=" + key, "api_key=" + key + "&api_key", "api_key=%68g_" + key[3:],
		"api_key=" + key + "+",
		"%zz=1&api_key=" + key, "api_key%=" + key, "=" + key, "&&api_key==" + key, "a;api_key=" + key,
		"api_key=" + key + "%", "api_key;", "api_key;a&b",
		"api_key=x;y&api_key=%20" + key, "API_KEY=" + key, "[api_key]=" + key, "api_key[]=" + key, "+api.key=" + key,
		"api_key[=" + key,
		strings.Repeat("api_key=x&", 4) +
			"api_key=1&api_key=2&api_key=3&api_key=4&api_key=5&api_key=6&api_key=7&api_key=8&api_key=" + key,
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		p := who.Resolve(t.Context(), identity.Evidence{Peer: netip.MustParseAddr("203.0.113.9"),
			Target: "/v1/items?" + query})
		there := false
		for _, separators := range []string{"", ";"} {
			for pair := range strings.FieldsFuncSeq(query,
				func(r rune) bool { return r == '&' || strings.ContainsRune(separators, r) }) {
				// ParseQuery drops pairs with a ;.
				values, _ := url.ParseQuery(strings.ReplaceAll(pair, ";", "%3b"))
				there = there || strings.TrimSpace(values.Get("api_key")) == key
			}
		}
		if counts := p.Kind == identity.APIKey; there && !counts && p.Rejected != identity.TooManyCredentials {
			t.Errorf("query %q has the key: %s", query, p)
		} else if decoded, err := url.PathUnescape(query); counts && err == nil && !strings.Contains(decoded, key) {
			t.Errorf("query %q does not have the key: %s", query, p)
		}
		stripped := who.StripTarget("/?" + query)
		// Servers that end parameters at a ; as well find none either.
		values, _ := url.ParseQuery(strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(stripped, "/"), "?"), ";",
			"&"))
		if values.Has("api_key") {
			t.Errorf("query %q stripped is %q, which has a key", query, stripped)
		}
		if again := who.StripTarget(stripped); again != stripped {
			t.Errorf("query %q stripped twice is %q, once %q", query, again, stripped)
		}
		if shown := who.RedactTarget("/?" + query); there && strings.Count(query, key) == 1 &&
			strings.Contains(shown, key) {
			t.Errorf("query %q is shown as %q", query, shown)
		}
	})
}

func TestKeyFormats(t *testing.T) {
	live := identity.KeyFormat{Prefix: "acme_live_"}
	old := identity.KeyFormat{Prefix: "old-", MinLength: 20, MaxLength: 40}
	bare := identity.KeyFormat{MinLength: 36, MaxLength: 36}
	const uuid = "5f3c6c0e-9f0b-4a57-8f61-0c3a1d2e4b6a"
	made, err := live.New()
	if err != nil || !strings.HasPrefix(made, "acme_live_") || len(made) != len("acme_live_")+49 {
		t.Fatalf("New = %q, %v", made, err)
	}
	for _, c := range []struct {
		format identity.KeyFormat
		text   string
		want   bool
	}{
		{live, made, true},
		{live, made[:len(made)-1] + "!", false},
		{live, "acme_test_" + made[10:], false},
		{identity.KeyFormat{}, made, false},
		{old, "old-0123456789abcdef", true},
		{old, "old-0123456789abcde", false},
		{old, "old-" + strings.Repeat("x", 36), true},
		{old, "old-" + strings.Repeat("x", 37), false},
		{old, "new-0123456789abcdef", false},
		{old, "old-0123456789abcde\x7f", false},
		{old, "old-0123456789 bcdef", false},
		{old, "old-0123456789é0123", false},
		{bare, uuid, true},
		{bare, uuid[1:], false},
	} {
		if got := c.format.Match(c.text); got != c.want {
			t.Errorf("%+v.Match(%q) = %v, want %v", c.format, c.text, got, c.want)
		}
	}

	// Only texts of a shape are looked up.
	digester := newDigester(t)
	ring := &identity.Keyring{}
	if err := ring.Replace([]identity.KeyRecord{
		{Digest: digester.Digest(made), Key: identity.Key{ID: "made"}},
		{Digest: digester.Digest(uuid), Key: identity.Key{ID: "uuid"}},
		{Digest: digester.Digest("hunter2"), Key: identity.Key{ID: "short"}},
	}); err != nil {
		t.Fatal(err)
	}
	finder := &countingFinder{KeyFinder: ring}
	who := newResolver(t, identity.Options{
		Keys:       finder,
		Digester:   digester,
		KeyFormats: []identity.KeyFormat{live, old, bare},
	})
	for _, c := range []struct {
		text, id string
		why      identity.Rejection
		finds    int
	}{
		{made, "made", identity.NotRejected, 1},
		{uuid, "uuid", identity.NotRejected, 1},
		{"old-0123456789abcdef", "", identity.KeyUnknown, 1},
		{"hunter2", "", identity.KeyMalformed, 0},
		{newKey(t), "", identity.KeyMalformed, 0}, // hg_ is not among the formats
		{uuid + "0", "", identity.KeyMalformed, 0},
	} {
		for _, h := range []http.Header{{"X-Api-Key": {c.text}}, {"Authorization": {"Bearer " + c.text}}} {
			finder.finds = 0
			p := who.Resolve(t.Context(), identity.Evidence{Header: h})
			why := c.why
			if h.Get("Authorization") != "" && why == identity.KeyMalformed {
				why = identity.TokenUnchecked // nothing says that it is a key
			}
			if p.ID != c.id || p.Rejected != why || finder.finds != c.finds {
				t.Errorf("%v: %s after %d look-ups, want %q, %s, %d", h, p, finder.finds, c.id, why, c.finds)
			}
		}
	}
}

func TestNewReportsFaultsOfKeys(t *testing.T) {
	_, err := identity.New(identity.Options{
		Keys: &identity.Keyring{}, Digester: newDigester(t), Tokens: goodToken{},
		KeySources: identity.KeySources{Header: "forwarded", Bearer: true, Query: "api key"},
		KeyFormats: []identity.KeyFormat{
			{Prefix: "a.b"}, {MinLength: 36, MaxLength: 36}, {Prefix: "old-", MinLength: 10, MaxLength: 8},
			{Prefix: "x", MinLength: 20, MaxLength: 257},
		},
	})
	want := strings.Join([]string{
		`KeySources.Header is "Forwarded", want a header of its own`,
		`KeySources.Query is "api key", want the name of a parameter: at most 32 letters, digits and _-.~`,
		`KeyFormats[0]: Prefix is "a.b", want at most 32 letters, digits, _ and -`,
		`KeyFormats[1].Prefix is empty, want one, or KeySources.Bearer false: tokens are accepted too, and nothing else tells the two apart`,
		`KeyFormats[2]: MinLength is 10, want 16 to 256 with this prefix: shorter keys are guessed too soon`,
		`MaxLength is 8, want MinLength to 256`,
		`KeyFormats[3]: MaxLength is 257, want MinLength to 256`,
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("New: %v\nwant %s", err, want)
	}
	if _, err := identity.New(identity.Options{
		Keys:       &identity.Keyring{},
		Digester:   newDigester(t),
		KeyFormats: make([]identity.KeyFormat, 9),
	}); err == nil || !strings.Contains(err.Error(), "KeyFormats has 9 formats, want at most 8") {
		t.Errorf("New with nine formats: %v", err)
	}
	if text, err := (identity.KeyFormat{MinLength: 20, MaxLength: 20}).New(); err == nil || text != "" {
		t.Errorf("New of a key made elsewhere = %q, %v", text, err)
	}
}

func TestScopes(t *testing.T) {
	item, items := &identity.Endpoint{Method: "GET", Path: "/v1/items/{id}"},
		&identity.Endpoint{Method: "POST", Path: "/v1/items"}
	rest := &identity.Endpoint{Method: "GET", Path: "/v1/files/{name...}"}
	for _, c := range []struct {
		scopes []string
		at     *identity.Endpoint
		want   bool
	}{
		{nil, item, true},
		{nil, nil, true},
		{[]string{"GET"}, item, true},
		{[]string{"GET"}, items, false},
		{[]string{"GET"}, nil, false},
		{[]string{"/v1/items/{id}"}, item, true},
		{[]string{"/v1/items/{other}"}, item, true},
		{[]string{"/v1/items/{id...}"}, item, false},
		{[]string{"/v1/items"}, item, false},
		{[]string{"/v1/items/7"}, item, false},
		{[]string{"/v1"}, item, false},
		{[]string{"GET /v1/items/{id}"}, item, true},
		{[]string{"PUT /v1/items/{id}"}, item, false},
		{[]string{"PUT /v1/items/{id}", "POST", "GET /x"}, items, true},
		{[]string{"GE", "GETS", "/v1/items/{id}/"}, item, false},
		{[]string{"/v1/files/{path...}"}, rest, true},
		{[]string{"/v1/files/{path}"}, rest, false},
	} {
		scopes, err := identity.ParseScopes(c.scopes)
		if err != nil {
			t.Errorf("ParseScopes(%q): %v", c.scopes, err)
		}
		if got := scopes.Allow(c.at); got != c.want {
			t.Errorf("scopes %q at %v: %v, want %v", c.scopes, c.at, got, c.want)
		}
		if n := testing.AllocsPerRun(100, func() { scopes.Allow(c.at) }); n != 0 {
			t.Errorf("Allow of %q allocates %v times", c.scopes, n)
		}
	}
	for _, wrong := range []string{"", " ", "get", "GET ", " GET", "GET  /v1", "GET /v1\n/v2", "G\x00T", "GET/v1", "*",
		"GET *", "/v1/ x", "/" + strings.Repeat("x", 1024)} {
		if scopes, err := identity.ParseScopes([]string{"GET", wrong}); err == nil ||
			!strings.Contains(err.Error(), "scopes[1] is ") {
			t.Errorf("ParseScopes(%q) = %q, %v", wrong, scopes, err)
		}
	}
	if _, err := identity.ParseScopes(make([]string, 65)); err == nil ||
		!strings.Contains(err.Error(), "there are 65 scopes, want at most 64") {
		t.Errorf("65 scopes: %v", err)
	}
	var s identity.Scopes
	for _, data := range []string{`null`, `"GET"`, `["get"]`, `[1]`} {
		if err := s.UnmarshalJSON([]byte(data)); err == nil && data != `null` {
			t.Errorf("scopes of %s = %q", data, s)
		}
	}
}

// A key with scopes counts at its endpoints, and nowhere else opens a budget.
func TestKeyOutOfScopeIsTheAddress(t *testing.T) {
	digester, text := newDigester(t), newKey(t)
	scopes, err := identity.ParseScopes([]string{"GET /v1/items/{id}"})
	if err != nil {
		t.Fatal(err)
	}
	ring := &identity.Keyring{}
	if err := ring.Replace([]identity.KeyRecord{{Digest: digester.Digest(text),
		Key: identity.Key{ID: "k1", Project: "acme", Scopes: scopes}}}); err != nil {
		t.Fatal(err)
	}
	who := newResolver(t, identity.Options{Keys: ring, Digester: digester})
	e := identity.Evidence{Peer: netip.MustParseAddr("203.0.113.9"), Header: http.Header{"X-Api-Key": {text}}}
	address := who.Resolve(t.Context(), identity.Evidence{Peer: e.Peer})
	for _, at := range []*identity.Endpoint{nil, {Method: "PUT", Path: "/v1/items/{id}"}} {
		e.Endpoint = at
		p := who.Resolve(t.Context(), e)
		if p.Rejected != identity.KeyOutOfScope || p.Project != "" ||
			string(p.AppendSubject(nil)) != string(address.AppendSubject(nil)) {
			t.Errorf("at %v: %s, want the address", at, p)
		}
	}
	e.Endpoint = &identity.Endpoint{Method: "GET", Path: "/v1/items/{item}"}
	if p := who.Resolve(t.Context(), e); p.Kind != identity.APIKey {
		t.Errorf("at %v: %s, want the key", e.Endpoint, p)
	}
	e.Endpoint = nil
	if p := who.AnyScope().Resolve(t.Context(), e); p.Kind != identity.APIKey || p.Scopes != scopes {
		t.Errorf("by AnyScope: %s with scopes %q, want the key with its own", p, p.Scopes)
	}
}

func TestKeysInQueriesAllocateNothing(t *testing.T) {
	c := newCredentials(t, identity.Options{})
	ring, digester := &identity.Keyring{}, newDigester(t)
	scopes, _ := identity.ParseScopes([]string{"GET", "/v1/items/{id}"})
	if err := ring.Replace([]identity.KeyRecord{{Digest: digester.Digest(c.active),
		Key: identity.Key{ID: "k1", Scopes: scopes}}}); err != nil {
		t.Fatal(err)
	}
	who := newResolver(t, identity.Options{Keys: ring, Digester: digester, KeySources: everywhere})
	allowed := 0.0
	if raceEnabled {
		allowed = 10 // pools drop what they hold
	}
	for _, target := range []string{"/?x=y&api_key=" + c.active, "/?%61pi_key=%68g_" + c.active[3:], "/?x=y",
		"/?api_key=" + c.unknown, "/?api_key=%zz"} {
		e := identity.Evidence{
			Peer:     netip.MustParseAddr("203.0.113.9"),
			Header:   http.Header{},
			Target:   target,
			Endpoint: &identity.Endpoint{Method: "GET", Path: "/v1/items/{i}"},
		}
		if n := testing.AllocsPerRun(100, func() { who.Resolve(context.Background(), e) }); n > allowed {
			t.Errorf("%s: Resolve allocates %v times, want %v", target, n, allowed)
		}
	}
}
