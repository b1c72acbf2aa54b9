package daemon

import (
	"context"
	"fmt"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// keyStore makes and ends API keys for the admin listener. What it did counts here at once.
type keyStore struct {
	*apiKeys
	db     *policyDatabase
	format identity.KeyFormat // of keys that are made
}

var _ admin.KeyStore = keyStore{}

func (p *parts) keyStore() keyStore {
	store := keyStore{apiKeys: p.apiKeys, db: p.database}
	if formats := p.loaded.Load().conf.Keys.Formats(); len(formats) > 0 {
		store.format = formats[0]
	}
	return store
}

func (k keyStore) CreateKey(ctx context.Context, n record.NewAPIKey) (record.APIKey, string, error) {
	n.Format = k.format
	return k.made(ctx, func(s *database.Store) (record.APIKey, string, error) {
		return s.CreateKey(ctx, k.digester, n)
	})
}

func (k keyStore) RotateKey(ctx context.Context, r record.Rotation) (record.APIKey, string, error) {
	return k.made(ctx, func(s *database.Store) (record.APIKey, string, error) {
		return s.RotateKey(ctx, k.digester, r, k.format)
	})
}

func (k keyStore) made(ctx context.Context, do func(*database.Store) (record.APIKey, string, error)) (record.APIKey,
	string, error) {
	s, err := k.db.get(ctx)
	if err != nil {
		return record.APIKey{}, "", err
	}
	key, text, err := do(s)
	if err == nil {
		_ = k.keys.reload(ctx) // says so itself; the key counts at the next look
	}
	return key, text, err
}

func (k keyStore) ListKeys(ctx context.Context) ([]record.APIKey, error) {
	s, err := k.db.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.ListKeys(ctx)
}

func (k keyStore) RevokeKey(ctx context.Context, id string) error {
	s, err := k.db.get(ctx)
	if err != nil {
		return err
	}
	if err := s.RevokeKey(ctx, id); err != nil {
		return err
	}
	if err := k.keys.reload(ctx); err != nil {
		return fmt.Errorf("it is revoked in the database and still counts here: %w", err)
	}
	return nil
}
