package charge_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// TestAccessOfSeveralCredentials: a request that shows several is blocked if one of them is, exempt if all are, and
// otherwise charged to each, since nobody knows which of them the API honours. What is made up exempts nobody.
func TestAccessOfSeveralCredentials(t *testing.T) {
	h := newHolders(t, nil)
	hour := func(r policy.Rule) policy.Rule { r.Per = time.Hour; return r }
	h.rules(t, headgate.Options{},
		hour(policy.Rule{Endpoint: policy.Default, Limit: 2}),
		policy.Rule{Endpoint: policy.All, Project: "p1", Mode: policy.Allow},
		policy.Rule{Endpoint: policy.All, Mode: policy.Allow, Only: "token:t2"},
		policy.Rule{Endpoint: policy.All, Mode: policy.Block, Only: "api_key:k3"},
	)
	ask := func(key, token string) headgate.Reason {
		header := http.Header{}
		if key != "" {
			header.Set("X-Api-Key", key)
		}
		if token != "" {
			header.Set("Authorization", "Bearer "+token)
		}
		return h.lim.Check(t.Context(), headgate.Request{
			Method: "GET",
			Target: "/v1/items/1",
			Peer:   netip.MustParseAddr("192.0.2.1"),
			Header: header,
		}).Reason
	}
	for range 5 {
		for name, c := range map[string]struct {
			key, token string
			want       headgate.Reason
		}{
			"an exempt project's key":            {h.keys[0], "", headgate.Exempt},
			"an exempt token":                    {"", "t2.x.y", headgate.Exempt},
			"both exempt":                        {h.keys[0], "t2.x.y", headgate.Exempt},
			"a blocked key":                      {h.keys[2], "", headgate.Blocked},
			"a blocked key beside an exempt one": {h.keys[2], "t2.x.y", headgate.Blocked},
			"an exempt one beside it":            {h.keys[2], "t1.x.y", headgate.Blocked},
		} {
			if got := ask(c.key, c.token); got != c.want {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
	for i, want := range []headgate.Reason{headgate.WithinLimits, headgate.WithinLimits, headgate.OverLimit} {
		if got := ask(h.keys[0], "t3.x.y"); got != want { // the second has no exemption
			t.Errorf("request %d with an exempt key and another token: %v, want %v", i, got, want)
		}
	}
	for i, want := range []headgate.Reason{headgate.WithinLimits, headgate.WithinLimits, headgate.OverLimit} {
		if got := ask("hg_made_up", "forged.x.y"); got != want { // its address pays
			t.Errorf("request %d with made-up credentials: %v, want %v", i, got, want)
		}
	}
}

// TestAnOutageDoesNotUnblock: a credential that cannot be looked up may be that of whoever is
// blocked by it, also beside one that is good, or one that is bad and was read first. Without such
// a block nothing changes.
func TestAnOutageDoesNotUnblock(t *testing.T) {
	for blocked, c := range map[string]struct {
		rule policy.Rule
		may  bool
	}{
		"a token":         {policy.Rule{Only: "token:t1"}, true},
		"a key":           {policy.Rule{Only: "api_key:k1"}, true},
		"a project":       {policy.Rule{Project: "p1"}, true},
		"a tier":          {policy.Rule{Tier: "free"}, true},
		"a network":       {policy.Rule{Only: "ip:203.0.113.0/24", Subject: policy.SubjectIP}, false},
		"nobody any more": {policy.Rule{Only: "token:t1", Expires: time.Unix(1_799_999_999, 0)}, false},
	} {
		c.rule.Endpoint, c.rule.Mode = policy.All, policy.Block
		there := newHolders(t, nil)
		away := newHolders(t, func(o *identity.Options) { o.Keys = noKeys{} })
		for sent, ask := range map[string]struct {
			by     *holders
			header http.Header
			known  bool
		}{
			"a token": {there, http.Header{"Authorization": {"Bearer away.x.y"}}, false},
			"a token after a bad one": {there,
				http.Header{"Authorization": {"Bearer forged.x.y", "Bearer away.x.y"}}, false},
			"a token beside a bad key": {there, http.Header{"X-Api-Key": {"hg_made_up"},
				"Authorization": {"Bearer away.x.y"}}, false},
			"a token beside a good key": {there, http.Header{"X-Api-Key": {there.keys[1]},
				"Authorization": {"Bearer away.x.y"}}, false},
			"a key": {away, http.Header{"X-Api-Key": {away.keys[0]}}, false},
			"a key beside a bad token": {away, http.Header{"X-Api-Key": {away.keys[0]},
				"Authorization": {"Bearer forged.x.y"}}, false},
			"a bad token": {there, http.Header{"Authorization": {"Bearer forged.x.y"}}, true},
			"a good key":  {there, http.Header{"X-Api-Key": {there.keys[1]}}, true},
			"a good token beside a key": {away, http.Header{"X-Api-Key": {away.keys[0]},
				"Authorization": {"Bearer t2.x.y"}}, false},
			"no credential, while away":   {away, http.Header{}, true},
			"a good token, while away":    {away, http.Header{"Authorization": {"Bearer t2.x.y"}}, true},
			"a malformed key, while away": {away, http.Header{"X-Api-Key": {"hg_made_up"}}, true},
		} {
			want := headgate.WithinLimits
			if c.may && !ask.known {
				want = headgate.CredentialUnverified
			}
			ask.by.rules(t, headgate.Options{}, policy.Rule{Endpoint: policy.Default, Limit: 10}, c.rule)
			r := headgate.Request{
				Method: "GET",
				Target: "/v1/items/1",
				Peer:   netip.MustParseAddr("192.0.2.1"),
				Header: ask.header,
			}
			if d := ask.by.lim.Check(t.Context(), r); d.Reason != want || d.Allowed != (want == headgate.WithinLimits) {
				t.Errorf("a block of %s, %s is sent: %v, %v, want %v", blocked, sent, d.Principal, d.Reason, want)
			}
		}
	}
}

// noKeys is where API keys are, while it cannot be reached.
type noKeys struct{}

func (noKeys) Find(context.Context, identity.Digest) (identity.Key, error) {
	return identity.Key{}, errors.New("the database is away")
}

// TestA5AFloodDoesNotUnblock sends so many forged tokens from an address that its tokens are not verified any more, and
// then the token of somebody who is blocked. Without such a block nothing changes for who shares the address.
func TestA5AFloodDoesNotUnblock(t *testing.T) {
	now := time.Unix(1_800_000_000, 0) // as newHolders has it
	blocks := map[string]policy.Rule{
		"a caller": {Endpoint: policy.All, Mode: policy.Block, Only: "token:t1"},
		"a caller, for a time": {Endpoint: policy.All, Mode: policy.Block, Only: "token:t1",
			Expires: now.Add(time.Hour)},
		"a project":       {Endpoint: "GET /v1/items/{id}", Mode: policy.Block, Project: "p1"},
		"a key":           {Endpoint: policy.All, Mode: policy.Block, Only: "api_key:k1"},
		"nobody any more": {Endpoint: policy.All, Mode: policy.Block, Only: "token:t1", Expires: now.Add(-time.Hour)},
		"a network": {Endpoint: policy.All, Mode: policy.Block, Only: "ip:203.0.113.0/24",
			Subject: policy.SubjectIP},
	}
	for blocked, rule := range blocks {
		h := newHolders(t, func(o *identity.Options) { o.TokenFailures, o.TokenCache = 2, -1 })
		h.rules(t, headgate.Options{}, policy.Rule{Endpoint: policy.Default, Limit: 10}, rule)
		for range 2 {
			h.lim.Check(t.Context(), h.one("192.0.2.1", "Authorization", "Bearer forged.x.y"))
		}
		want := headgate.CredentialUnverified
		if rule.Project == "" && rule.Only != "token:t1" || !rule.Expires.IsZero() && rule.Expires.Before(now) {
			want = headgate.WithinLimits
		}
		d := h.lim.Check(t.Context(), h.one("192.0.2.1", "Authorization", "Bearer t1.x.y"))
		if d.Principal.Rejected != identity.TokenFlood || d.Reason != want ||
			d.Allowed != (want == headgate.WithinLimits) {
			t.Errorf("a block of %s: %v, %v, want %v", blocked, d.Principal, d.Reason, want)
		}
		if d := h.lim.Check(t.Context(), h.one("192.0.2.1", "X-Api-Key", h.keys[1])); !d.Allowed {
			t.Errorf("a block of %s: a key from the same address is %v, want it allowed", blocked, d.Reason)
		}
		if d := h.lim.Check(t.Context(), h.one("192.0.2.1", "Accept", "*/*")); !d.Allowed {
			t.Errorf("a block of %s: no credential from the same address is %v, want it allowed", blocked, d.Reason)
		}
	}
}

// forgedSignatures are those of an agent that nobody has made.
type forgedSignatures struct{}

func (forgedSignatures) VerifyAgents(r *identity.Signed) identity.Signers {
	if r.Spent {
		return identity.Signers{Why: identity.SignatureFlood}
	}
	return identity.Signers{Claimed: []identity.Agent{{ID: "other"}}, Why: identity.SignatureRefused, Wrong: 1}
}

// TestA5AFloodOfSignaturesDoesNotUnblock is the same of signatures that are not checked any more.
func TestA5AFloodOfSignaturesDoesNotUnblock(t *testing.T) {
	for only, want := range map[string]headgate.Reason{
		"signed_agent:a": headgate.CredentialUnverified, "": headgate.CredentialUnverified,
		"token:a": headgate.WithinLimits,
	} {
		block := policy.Rule{Endpoint: policy.All, Mode: policy.Block, Only: only}
		if only == "" {
			block.Tier = "bots"
		}
		h := newHolders(t, func(o *identity.Options) { o.TokenFailures, o.Agents = 2, forgedSignatures{} })
		h.rules(t, headgate.Options{}, policy.Rule{Endpoint: policy.Default, Limit: 10}, block)
		for range 2 {
			if d := h.lim.Check(t.Context(), h.one("192.0.2.1", "Signature-Input", "x")); !d.Allowed {
				t.Errorf("a block of %q: %v, want it allowed", only, d.Reason)
			}
		}
		d := h.lim.Check(t.Context(), h.one("192.0.2.1", "Signature-Input", "x"))
		if d.Principal.Rejected != identity.SignatureFlood || d.Reason != want {
			t.Errorf("a block of %q: %v, %v, want %v", only, d.Principal, d.Reason, want)
		}
		if d := h.lim.Check(t.Context(), h.one("192.0.2.1", "Accept", "*/*")); !d.Allowed {
			t.Errorf("a block of %q: without a signature %v, want it allowed", only, d.Reason)
		}
	}
}

// TestA5AFloodOfBothDoesNotUnblock: where neither tokens nor signatures are checked, or keys cannot be
// looked up, a block of whoever may have sent one of them holds.
func TestA5AFloodOfBothDoesNotUnblock(t *testing.T) {
	const signed, made = "Signature-Input", "x"
	for only, want := range map[string]map[string]headgate.Reason{
		"signed_agent:a": {"": headgate.CredentialUnverified, "keys away": headgate.CredentialUnverified},
		"token:t1":       {"": headgate.CredentialUnverified, "keys away": headgate.CredentialUnverified},
		"api_key:k1":     {"": headgate.WithinLimits, "keys away": headgate.CredentialUnverified},
	} {
		for state, want := range want {
			h := newHolders(t, func(o *identity.Options) {
				o.TokenFailures, o.TokenCache, o.Agents = 2, -1, forgedSignatures{}
				if state != "" {
					o.Keys = noKeys{}
				}
			})
			block := policy.Rule{Endpoint: policy.All, Mode: policy.Block, Only: only}
			h.rules(t, headgate.Options{}, policy.Rule{Endpoint: policy.Default, Limit: 10}, block)
			for range 2 {
				h.lim.Check(t.Context(), h.one("192.0.2.1", "Authorization", "Bearer forged.x.y"))
				h.lim.Check(t.Context(), h.one("192.0.2.1", signed, made))
			}
			r := h.one("192.0.2.1", "Authorization", "Bearer t2.x.y")
			r.Header.(http.Header).Set(signed, made)
			if state != "" {
				r.Header.(http.Header).Set("X-Api-Key", h.keys[1])
			}
			d := h.lim.Check(t.Context(), r)
			if d.Reason != want || !d.Principal.InDoubt(identity.SignatureFlood) || !d.Principal.Flooded() {
				t.Errorf("a block of %s, %q: %v, %v, want %v", only, state, d.Principal, d.Reason, want)
			}
		}
	}
}

// TestABlockHoldsOutsideOfScopes: a key that is sent where its scopes do not count spends its address's budget, and
// whoever is blocked by that key is blocked there as well: alone, beside others, in whatever order. It exempts nobody.
func TestABlockHoldsOutsideOfScopes(t *testing.T) {
	keys := map[string]string{}
	narrow := func(o *identity.Options) {
		ring := &identity.Keyring{}
		var records []identity.KeyRecord
		for id, k := range map[string]identity.Key{
			"k1": {Project: "p1", Tier: "free", Scopes: "GET /v1/orders"},
			"k2": {Project: "p2", Scopes: "POST"},
			"k3": {Project: "p3"},
		} {
			text, err := identity.NewKey()
			if err != nil {
				t.Fatal(err)
			}
			keys[id], k.ID = text, id
			records = append(records, identity.KeyRecord{Digest: o.Digester.Digest(text), Key: k})
		}
		if err := ring.Replace(records); err != nil {
			t.Fatal(err)
		}
		o.Keys = ring
	}
	all := newHolders(t, narrow)
	keys["token"], keys["none"] = "t2.x.y", "hg_made_up"
	lists := permutations([]string{"k1", "k2", "k3", "token", "none"}, 3)
	for blocked, c := range map[string]struct {
		rule policy.Rule
		by   []string
	}{
		"a key":                    {policy.Rule{Endpoint: policy.All, Only: "api_key:k1"}, []string{"k1"}},
		"another key":              {policy.Rule{Endpoint: policy.All, Only: "api_key:k2"}, []string{"k2"}},
		"a key that counts":        {policy.Rule{Endpoint: policy.All, Only: "api_key:k3"}, []string{"k3"}},
		"a key, at this endpoint":  {policy.Rule{Endpoint: "GET /v1/items/{id}", Only: "api_key:k1"}, []string{"k1"}},
		"a key, where nobody asks": {policy.Rule{Endpoint: policy.UnknownEndpoint, Only: "api_key:k1"}, nil},
		"a project":                {policy.Rule{Endpoint: policy.All, Project: "p1"}, []string{"k1"}},
		"a key and a token":        {policy.Rule{Endpoint: policy.All, Project: "p2"}, []string{"k2", "token"}},
		"a tier":                   {policy.Rule{Endpoint: policy.All, Tier: "free"}, []string{"k1"}},
		"a key of no such project": {policy.Rule{Endpoint: policy.All, Project: "p3", Only: "api_key:k1"}, nil},
		"a key, until now": {policy.Rule{Endpoint: policy.All, Only: "api_key:k1",
			Expires: time.Unix(1_799_999_999, 0)}, nil},
		"nobody": {policy.Rule{Endpoint: policy.All, Project: "p1", Mode: policy.Allow}, nil},
	} {
		if c.rule.Mode != policy.Allow {
			c.rule.Mode = policy.Block
		}
		all.rules(t, headgate.Options{}, policy.Rule{Endpoint: policy.Default, Limit: 1 << 30}, c.rule)
		for _, sent := range lists {
			header, want := http.Header{}, headgate.WithinLimits
			for _, name := range sent {
				if slices.Contains(c.by, name) {
					want = headgate.Blocked
				}
				if name == "token" {
					header.Set("Authorization", "Bearer "+keys[name])
				} else {
					header.Add("X-Api-Key", keys[name])
				}
			}
			d := all.lim.Check(t.Context(), headgate.Request{
				Method: "GET",
				Target: "/v1/items/1",
				Peer:   netip.MustParseAddr("192.0.2.1"),
				Header: header,
			})
			if d.Reason != want {
				t.Errorf("a block of %s, sent are %v: %v, want %v", blocked, sent, d.Reason, want)
			}
			if rule, settled := d.Access(); settled && rule.Only != c.rule.Only {
				t.Errorf("a block of %s, sent are %v: blocked by %+v", blocked, sent, rule)
			}
		}
	}

	// Where a token goes before keys, a key beside it counts nowhere.
	first := newHolders(t, func(o *identity.Options) { narrow(o); o.Credentials = identity.FirstCredentials })
	first.rules(t, headgate.Options{}, policy.Rule{Endpoint: policy.Default, Limit: 1 << 30},
		policy.Rule{Endpoint: policy.All, Only: "api_key:k1", Mode: policy.Block})
	for token, want := range map[string]headgate.Reason{"t2.x.y": headgate.WithinLimits,
		"forged.x.y": headgate.Blocked} {
		r := first.both("192.0.2.1")
		r.Header = http.Header{"X-Api-Key": {keys["k1"]}, "Authorization": {"Bearer " + token}}
		if d := first.lim.Check(t.Context(), r); d.Reason != want {
			t.Errorf("by the first credential, %s and a key: %v, want %v", token, d.Reason, want)
		}
	}
}

// permutations are the ways to take one to most of all, in any order.
func permutations(all []string, most int) (lists [][]string) {
	if most == 0 {
		return nil
	}
	for i, one := range all {
		lists = append(lists, []string{one})
		rest := slices.Concat(all[:i], all[i+1:])
		for _, more := range permutations(rest, most-1) {
			lists = append(lists, append([]string{one}, more...))
		}
	}
	return lists
}
