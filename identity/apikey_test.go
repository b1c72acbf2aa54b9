package identity_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

func TestNewKey(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		text := newKey(t)
		if len(text) != identity.KeyLength || !strings.HasPrefix(text, "hg_") ||
			!identity.WellFormedKey(text) || seen[text] {
			t.Fatalf("NewKey() = %s", text)
		}
		if i := strings.IndexFunc(text[3:], func(c rune) bool {
			return !strings.ContainsRune("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", c)
		}); i >= 0 {
			t.Fatalf("NewKey() = %s, want base 62", text)
		}
		seen[text] = true
	}
}

// TestKeyText pins the format, because keys are kept in other people's
// configuration. The texts were computed with Python's integers and zlib.
func TestKeyText(t *testing.T) {
	reader := rand.Reader
	defer func() { rand.Reader = reader }()
	ascending := make([]byte, 32)
	for i := range ascending {
		ascending[i] = byte(i)
	}
	for _, c := range []struct {
		random []byte
		want   string
	}{
		{make([]byte, 32), "hg_00000000000000000000000000000000000000000001O44ij"},
		{bytes.Repeat([]byte{0xff}, 32), "hg_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp146clxV"},
		{ascending, "hg_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1sh72b"},
	} {
		rand.Reader = bytes.NewReader(c.random)
		if got, err := identity.NewKey(); got != c.want || err != nil || !identity.WellFormedKey(c.want) {
			t.Errorf("NewKey() with random bytes %x = %s, %v, want %s", c.random, got, err, c.want)
		}
	}
	rand.Reader = bytes.NewReader(make([]byte, 31))
	if text, err := identity.NewKey(); text != "" || err == nil {
		t.Errorf("NewKey() with 31 random bytes = %q, %v, want an error", text, err)
	}
}

func TestEverySingleCharacterChangeIsRefused(t *testing.T) {
	text := newKey(t)
	for i := range len(text) {
		for c := range 256 {
			changed := text[:i] + string([]byte{byte(c)}) + text[i+1:]
			if identity.WellFormedKey(changed) != (changed == text) {
				t.Errorf("WellFormedKey is true with byte %d changed to %q", i, c)
			}
		}
		if identity.WellFormedKey(text[:i]) || identity.WellFormedKey(text[:i]+text[i+1:]) ||
			identity.WellFormedKey(text[:i]+"0"+text[i:]) {
			t.Errorf("WellFormedKey is true with byte %d cut, dropped or doubled", i)
		}
	}
}

// countingFinder counts look-ups.
type countingFinder struct {
	identity.KeyFinder
	finds int
}

func (f *countingFinder) Find(ctx context.Context, d identity.Digest) (identity.Key, error) {
	f.finds++
	return f.KeyFinder.Find(ctx, d)
}

// TestA5MadeUpKeysAreNotLookedUp: random strings cost no look-up.
func TestA5MadeUpKeysAreNotLookedUp(t *testing.T) {
	finder := &countingFinder{KeyFinder: &identity.Keyring{}}
	who := newResolver(t, identity.Options{Keys: finder, Digester: newDigester(t)})
	random := mathrand.New(mathrand.NewPCG(3, 4))
	subjects := map[string]bool{}
	for range 10_000 {
		b := []byte("hg_")
		for len(b) < identity.KeyLength {
			b = append(b, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[random.IntN(62)])
		}
		p := who.Resolve(t.Context(), identity.Evidence{
			Peer:   netip.MustParseAddr("203.0.113.9"),
			Header: http.Header{"X-Api-Key": {string(b)}},
		})
		if p.Rejected != identity.KeyMalformed {
			t.Errorf("%s: %s, want %s", b, p.Rejected, identity.KeyMalformed)
		}
		subjects[string(p.AppendSubject(nil))] = true
	}
	if finder.finds != 0 || len(subjects) != 1 {
		t.Errorf("10000 random keys: %d look-ups and %d subjects, want 0 and 1", finder.finds, len(subjects))
	}
}

func TestDigestIsHMAC(t *testing.T) {
	secret := bytes.Repeat([]byte("0123456789"), 10) // longer than a block
	for _, secret := range [][]byte{secret, secret[:64], secret[:identity.MinSecretLength]} {
		d, err := identity.NewDigester(secret)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			text := newKey(t)
			mac := hmac.New(sha256.New, secret)
			mac.Write([]byte(text))
			if got, want := d.Digest(text), identity.Digest(mac.Sum(nil)); got != want {
				t.Errorf("Digest(%s) = %x, want %x", text, got, want)
			}
		}
	}
}

func TestDigestOfNoKey(t *testing.T) {
	d := newDigester(t)
	for _, text := range []string{"", strings.Repeat("x", identity.MaxKeyLength+1), strings.Repeat("x", 10_000)} {
		if got := d.Digest(text); got != (identity.Digest{}) {
			t.Errorf("Digest of %d bytes = %x, want zero", len(text), got)
		}
	}
}

func TestNewDigesterKeepsItsOwnSecret(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	d, err := identity.NewDigester(secret)
	if err != nil {
		t.Fatal(err)
	}
	text := newKey(t)
	want := newDigesterOf(t, bytes.Repeat([]byte{7}, 32)).Digest(text)
	clear(secret)
	if got := d.Digest(text); got != want {
		t.Errorf("wiping the caller's secret changes digests")
	}
	if _, err := identity.NewDigester(make([]byte, 31)); err == nil ||
		err.Error() != "secret has 31 bytes, want 32 or more" {
		t.Errorf("NewDigester(31 bytes): %v", err)
	}
}

func newDigesterOf(t *testing.T, secret []byte) *identity.Digester {
	t.Helper()
	d, err := identity.NewDigester(secret)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNothingSecretIsPrinted(t *testing.T) {
	const secret = "MUCH-SECRET-MUCH-SECRET-MUCH-SECRET"
	digester := newDigesterOf(t, []byte(secret))
	key := newKey(t)
	digester.Digest(key) // leaves nothing behind either
	evidence := identity.Evidence{
		Peer:   netip.MustParseAddr("203.0.113.9"),
		Header: http.Header{"X-Api-Key": {key}, "Authorization": {"Bearer " + key}},
	}
	options := identity.Options{Keys: &identity.Keyring{}, Digester: digester}
	who := newResolver(t, options)
	principal := who.Resolve(t.Context(), evidence)
	nested := struct {
		digester *identity.Digester
		value    identity.Digester
		Options  identity.Options
		Evidence identity.Evidence
		Pointer  *identity.Evidence
	}{digester, *digester, options, evidence, &evidence}

	// %p is left out: of what is no pointer, fmt prints the fields whatever
	// methods it has, and go vet reports the call.
	var out bytes.Buffer
	for _, value := range []any{digester, *digester, evidence, &evidence, options, nested, &nested, principal,
		[]any{digester, evidence}, who} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%c"} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
		fmt.Fprintln(&out, value)
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).Info("check", "value", value, slog.Group("in", "it", value))
		}
	}
	for _, value := range []any{digester, evidence, []any{evidence, digester}} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Error(err)
		}
		out.Write(text)
	}
	printed := out.String()
	for _, hidden := range []string{secret, key, key[3:20]} {
		for _, form := range []string{hidden, fmt.Sprintf("%x", hidden), fmt.Sprintf("%X", hidden),
			strings.Trim(fmt.Sprint([]byte(hidden)), "[]")} {
			if strings.Contains(printed, form) {
				t.Errorf("%q is printed as %q", hidden, form)
			}
		}
	}
	for _, shown := range []string{"identity.Digester[redacted]", "{Peer:203.0.113.9 Header:[redacted]}"} {
		if !strings.Contains(printed, shown) {
			t.Errorf("%q is not printed", shown)
		}
	}
}

func TestKeyring(t *testing.T) {
	var ring identity.Keyring
	digest := func(i int) (d identity.Digest) { d[0], d[8], d[31] = byte(i), byte(i>>8), byte(i); return d }
	if _, err := ring.Find(t.Context(), digest(1)); !errors.Is(err, identity.ErrUnknownKey) || ring.Len() != 0 {
		t.Errorf("the zero Keyring finds: %v", err)
	}
	record := func(i int, id string) identity.KeyRecord {
		return identity.KeyRecord{Digest: digest(i), Key: identity.Key{ID: id}}
	}
	if err := ring.Replace([]identity.KeyRecord{record(1, "one"), record(2, "two")}); err != nil {
		t.Fatal(err)
	}
	if key, err := ring.Find(t.Context(), digest(2)); err != nil || key.ID != "two" || ring.Len() != 2 {
		t.Errorf("Find(2) = %v, %v", key, err)
	}

	err := ring.Replace([]identity.KeyRecord{record(3, "three"), record(3, "drei"), record(4, "")})
	want := `records[1].Digest of key "drei" is that of key "three", want one record for a key` + "\n" +
		`records[2].Key.ID is empty, want the stable name of the key`
	if err == nil || err.Error() != want {
		t.Errorf("Replace: %v\nwant %s", err, want)
	}
	if key, err := ring.Find(t.Context(), digest(1)); err != nil || key.ID != "one" {
		t.Errorf("after a bad Replace, Find(1) = %v, %v, want the old key", key, err)
	}

	if err := ring.Replace(nil); err != nil || ring.Len() != 0 {
		t.Errorf("Replace(nil): %v, Len %d", err, ring.Len())
	}
	if _, err := ring.Find(t.Context(), digest(1)); !errors.Is(err, identity.ErrUnknownKey) {
		t.Errorf("after Replace(nil), Find(1): %v", err)
	}
}

// TestKeyringIsAMap compares the ring with the map that it stands for, with
// digests that agree in what the index looks at first.
func TestKeyringIsAMap(t *testing.T) {
	random := mathrand.New(mathrand.NewPCG(5, 6))
	draw := func() (d identity.Digest) {
		for i := range d {
			d[i] = byte(random.IntN(2))
		}
		copy(d[2:28], make([]byte, 26))
		return d
	}
	for range 100 {
		plain := map[identity.Digest]identity.Key{}
		var records []identity.KeyRecord
		for range random.IntN(40) {
			d := draw()
			if _, taken := plain[d]; !taken {
				plain[d] = identity.Key{ID: fmt.Sprint("key", len(records))}
				records = append(records, identity.KeyRecord{Digest: d, Key: plain[d]})
			}
		}
		var ring identity.Keyring
		if err := ring.Replace(records); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			d := draw()
			want, known := plain[d]
			if got, err := ring.Find(t.Context(), d); got != want || known != (err == nil) {
				t.Fatalf("Find(%x) = %v, %v, want %v", d, got, err, want)
			}
		}
	}
}

// TestKeyringReplaceIsAtomic: whoever reads while keys are replaced sees one
// set or the other.
func TestKeyringReplaceIsAtomic(t *testing.T) {
	var ring identity.Keyring
	digester, text := newDigester(t), newKey(t)
	set := func(project string) []identity.KeyRecord {
		records := []identity.KeyRecord{{Digest: digester.Digest(text),
			Key: identity.Key{ID: "k-" + project, Project: project}}}
		for i := range 50 {
			records = append(records, identity.KeyRecord{Digest: identity.Digest{0: byte(i), 1: 1},
				Key: identity.Key{ID: fmt.Sprint(i)}})
		}
		return records
	}
	if err := ring.Replace(set("a")); err != nil {
		t.Fatal(err)
	}
	who := newResolver(t, identity.Options{Keys: &ring, Digester: digester})
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				p := who.Resolve(context.Background(), identity.Evidence{Header: http.Header{"X-Api-Key": {text}}})
				if p.Kind != identity.APIKey || p.ID != "k-"+p.Project {
					t.Errorf("while keys are replaced: %s", p)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		}()
	}
	for i := range 200 {
		if err := ring.Replace(set([]string{"a", "b"}[i%2])); err != nil {
			t.Error(err)
		}
	}
	close(done)
	readers.Wait()
}
