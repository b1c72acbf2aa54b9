package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/server/config"
)

// finder is what an entry of the configuration becomes.
func finder(t testing.TB, i config.Identifier) *body.Finder {
	t.Helper()
	l, err := login(i)
	if err != nil {
		t.Fatal(err)
	}
	f, err := body.New(l.Field)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestNFKCJoinsComposedCharacters(t *testing.T) {
	f := finder(t, config.Identifier{Field: "email", Format: "json"})
	for want, spellings := range map[string][]string{
		"renée@x.org": {"renée@x.org", "rene\u0301e@x.org", "RENÉE@x.org", "RENE\u0301E@X.ORG", "ｒene\u0301e@x.org"},
		"file":        {"\ufb01le", "FI\u200bLE"},
		"2":           {"²", "②"},
	} {
		for _, s := range spellings {
			if got, fault := f.Normalise(nil, []byte(s)); string(got) != want || fault != body.None {
				t.Errorf("Normalise(%q) = %q, %v, want %q", s, got, fault, want)
			}
		}
	}
	for r := rune(' '); r <= utf8.MaxRune; r++ {
		if got, fault := f.Normalise(nil, []byte(string(r))); fault == body.None {
			if again, _ := f.Normalise(nil, got); !bytes.Equal(again, got) {
				t.Errorf("%U becomes %q, and that %q", r, got, again)
			}
		}
	}
	plain := finder(t, config.Identifier{Field: "email", Format: "json", Normalise: []string{"case"}})
	if got, _ := plain.Normalise(nil, []byte("RENE\u0301")); string(got) != "rene\u0301" {
		t.Errorf("without nfkc: %q", got)
	}
}

func FuzzNFKC(f *testing.F) {
	for _, s := range []string{"rene\u0301e@x.org", "\ufb01", "\u0130\u0307", "\u1e9e\u0323",
		"a\u200b\u0301", "\ufdfa"} {
		f.Add(s)
	}
	finder := finder(f, config.Identifier{Field: "email", Format: "json"})
	f.Fuzz(func(t *testing.T, text string) {
		got, fault := finder.Normalise(nil, []byte(text))
		if fault != body.None {
			return
		}
		again, fault := finder.Normalise(nil, got)
		if fault != body.None || !bytes.Equal(again, got) || !utf8.Valid(got) {
			t.Errorf("Normalise(%q) = %q, of which it makes %q, %v", text, got, again, fault)
		}
	})
}

// An endpoint that is not there is found before anything starts, with the others.
func TestIdentifiersNeedTheirEndpoint(t *testing.T) {
	routes := filepath.Join(t.TempDir(), "routes.txt")
	if err := os.WriteFile(routes, []byte("POST /v1/login\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Endpoints(config.Config{Routes: []string{routes}, Identifiers: []config.Identifier{
		{Endpoint: "POST /v1/logon", Field: "email"}, {Endpoint: "login", Field: "email"}}})
	for _, want := range []string{
		`identifiers[0]: endpoint is "POST /v1/logon", want one of openapi or routes, such as "POST /v1/login"`, "identifiers[1]: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Endpoints says %v, want %s", err, want)
		}
	}
}
