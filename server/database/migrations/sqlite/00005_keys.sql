-- +goose Up

-- Where a key counts: a JSON list of scopes; NULL is everywhere.
ALTER TABLE api_keys ADD COLUMN scopes TEXT
    CHECK (scopes IS NULL OR (typeof(scopes) = 'text' AND substr(scopes, 1, 2) = '["'));

-- Which secret the digest is under: a name that tells nothing of it. NULL is
-- the one that there was before secrets could be rotated.
ALTER TABLE api_keys ADD COLUMN secret TEXT
    CHECK (secret IS NULL OR (typeof(secret) = 'text' AND length(secret) = 8));
