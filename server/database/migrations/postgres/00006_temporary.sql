-- +goose Up

-- The share of a rule's subjects that it denies, the others are only counted;
-- NULL is all of them.
ALTER TABLE policies ADD COLUMN enforce_percent BIGINT CHECK (enforce_percent BETWEEN 1 AND 100);

-- A rule that expires stands beside the lasting one, and takes its place until then.
DROP INDEX policies_one_a_subject;
CREATE UNIQUE INDEX policies_one_a_subject
    ON policies (endpoint, coalesce(project_id, ''), coalesce(tier, ''), subject, (CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END));

-- As before, and without the new column too.
DROP INDEX policies_not_plain;
CREATE INDEX policies_not_plain ON policies (rowid)
    WHERE NOT (per_seconds = 1 AND burst IS NULL AND subject = 'principal' AND algorithm = 'token_bucket' AND mode = 'enforce'
        AND tier IS NULL AND scope = 'local' AND on_store_loss = 'closed' AND expires_at IS NULL AND name IS NULL
        AND enforce_percent IS NULL);
