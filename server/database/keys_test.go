package database_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/record"
)

func newDigester(t testing.TB) *identity.Digester {
	t.Helper()
	d, err := identity.NewDigester(bytes.Repeat([]byte{7}, identity.MinSecretLength))
	must(t, err)
	return d
}

func TestKeys(t *testing.T) { everywhere(t, testKeys) }

func testKeys(t *testing.T, d someDatabase) {
	s, ctx, digester := d.open(t), t.Context(), newDigester(t)
	expires := time.Unix(2_000_000_000, 0).UTC()
	key, text, err := s.CreateKey(ctx, digester,
		record.NewAPIKey{Project: "acme", Tier: "gold", Name: "ci", Expires: expires})
	must(t, err)
	if !regexp.MustCompile(`^k_[0-9a-f]{20}$`).MatchString(key.ID) || !identity.WellFormedKey(text) {
		t.Errorf("CreateKey = id %q, text %q, want k_ and 20 digits, and a well-formed key", key.ID, text)
	}
	plain, plainText, err := s.CreateKey(ctx, digester, record.NewAPIKey{})
	must(t, err)
	if plain.ID == key.ID || plainText == text {
		t.Error("two keys are the same")
	}

	var ring identity.Keyring
	find := func(text string) identity.Key {
		records, _, err := s.Keys().Load(ctx)
		must(t, err)
		must(t, ring.Replace(records))
		found, err := ring.Find(ctx, digester.Digest(text))
		must(t, err)
		return found
	}
	if got, want := find(text), (identity.Key{ID: key.ID, Project: "acme", Tier: "gold", Name: "ci",
		Expires: expires}); got != want {
		t.Errorf("found %+v, want %+v", got, want)
	}
	if got, want := find(plainText), (identity.Key{ID: plain.ID}); got != want {
		t.Errorf("found %+v, want %+v", got, want)
	}

	must(t, s.RevokeKey(ctx, key.ID))
	if !find(text).Revoked || find(plainText).Revoked {
		t.Error("after RevokeKey the one key must be revoked and the other not")
	}
	keys, err := s.ListKeys(ctx)
	must(t, err)
	if len(keys) != 2 || keys[0].ID != key.ID || keys[0].Revoked.IsZero() || !keys[0].Expires.Equal(expires) ||
		keys[0].Created != key.Created {
		t.Errorf("ListKeys = %+v, want the revoked key first", keys)
	}
	must(t, s.RevokeKey(ctx, key.ID)) // again
	again, err := s.ListKeys(ctx)
	must(t, err)
	if again[0].Revoked != keys[0].Revoked {
		t.Errorf("revoking again moved the time from %v to %v", keys[0].Revoked, again[0].Revoked)
	}
	if err := s.RevokeKey(ctx, "k_none"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("RevokeKey of no key = %v, want ErrNotFound", err)
	}

	scopes, err := identity.ParseScopes([]string{"GET"})
	must(t, err)
	ends := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
	old, oldText, err := s.CreateKey(ctx, digester,
		record.NewAPIKey{Project: "acme", Tier: "gold", Name: "ci", Expires: ends, Scopes: scopes})
	must(t, err)
	asked := time.Now()
	made, madeText, err := s.RotateKey(ctx, digester, record.Rotation{ID: old.ID, Grace: time.Hour},
		identity.KeyFormat{})
	must(t, err)
	if got, want := find(madeText), (identity.Key{ID: made.ID, Project: "acme", Tier: "gold", Name: "ci", Expires: ends,
		Scopes: scopes}); got != want || made.ID == old.ID {
		t.Errorf("the new key is %+v, want %+v", got, want)
	}
	if got := find(oldText).Expires; got.Before(asked.Add(time.Hour-time.Second)) ||
		got.After(time.Now().Add(time.Hour)) {
		t.Errorf("the other one ends at %v, want in an hour", got)
	}
	_, _, err = s.RotateKey(ctx, digester, record.Rotation{ID: made.ID, Grace: 3 * time.Hour}, identity.KeyFormat{})
	must(t, err)
	if got := find(madeText).Expires; !got.Equal(ends) {
		t.Errorf("one that would have ended within the grace ends at %v, want at %v as before", got, ends)
	}
	for id, want := range map[string]error{key.ID: record.ErrKeyOver, "k_none": record.ErrNotFound} {
		if _, _, err := s.RotateKey(ctx, digester, record.Rotation{ID: id},
			identity.KeyFormat{}); !errors.Is(err, want) {
			t.Errorf("RotateKey(%s) = %v, want %v", id, err, want)
		}
	}
}

func TestCreateKeyRefuses(t *testing.T) { everywhere(t, testCreateKeyRefuses) }

func testCreateKeyRefuses(t *testing.T, d someDatabase) {
	s := d.open(t)
	for _, k := range []record.NewAPIKey{
		{Project: "\xff"}, {Tier: strings.Repeat("t", 257)}, {Name: strings.Repeat("n", 257)},
		{Expires: time.Unix(0, 0)},
	} {
		if _, text, err := s.CreateKey(t.Context(), newDigester(t), k); err == nil || text != "" {
			t.Errorf("CreateKey(%+v) succeeded", k)
		}
	}
}

// Neither the key nor its digest in hexadecimal digits can be found in what is
// on the disk, nor the key's random part.
func TestKeyTextIsNotStored(t *testing.T) {
	s, ctx := open(t), context.Background()
	_, text, err := s.CreateKey(ctx, newDigester(t), record.NewAPIKey{Name: "visible"})
	must(t, err)
	var disk []byte
	for _, suffix := range []string{"", "-wal", "-shm"} {
		data, err := os.ReadFile(s.Path() + suffix)
		must(t, err)
		disk = append(disk, data...)
	}
	if !bytes.Contains(disk, []byte("visible")) {
		t.Error("the key's name is not on the disk, so this test looks in the wrong place")
	}
	if bytes.Contains(disk, []byte(text[3:20])) {
		t.Error("the key is on the disk")
	}
}
