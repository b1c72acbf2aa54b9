-- +goose Up

-- A rule's subject may be identifier_ip. SQLite cannot change the check of a
-- column, so the table is made anew; its rows are kept. Nothing else differs
-- from the first version. On a table of a million rules this takes some seconds.

-- Processes that start together may each run this. Without the index, a slow one
-- would make the table anew after a fast one has changed it further: now the
-- second note that this was done is refused, and all that was done with it.
CREATE UNIQUE INDEX IF NOT EXISTS goose_db_version_once ON goose_db_version (version_id);

CREATE TABLE policies_next (
    endpoint      TEXT    NOT NULL
        CHECK (typeof(endpoint) = 'text' AND endpoint <> ''),
    project_id    TEXT
        CHECK (project_id IS NULL OR (typeof(project_id) = 'text' AND trim(project_id) <> '')),
    rps_limit     INTEGER NOT NULL
        CHECK (typeof(rps_limit) = 'integer' AND rps_limit > 0),
    per_seconds   INTEGER NOT NULL DEFAULT 1
        CHECK (typeof(per_seconds) = 'integer' AND per_seconds BETWEEN 1 AND 9223372036),
    burst         INTEGER
        CHECK (burst IS NULL OR (typeof(burst) = 'integer' AND burst > 0)),
    subject       TEXT    NOT NULL DEFAULT 'principal'
        CHECK (subject IN ('principal', 'ip', 'principal_ip', 'project', 'region', 'endpoint', 'identifier', 'identifier_ip')),
    algorithm     TEXT    NOT NULL DEFAULT 'token_bucket'
        CHECK (typeof(algorithm) = 'text'),
    mode          TEXT    NOT NULL DEFAULT 'enforce'
        CHECK (mode IN ('enforce', 'shadow')),
    tier          TEXT
        CHECK (tier IS NULL OR (typeof(tier) = 'text' AND trim(tier) <> '')),
    scope         TEXT    NOT NULL DEFAULT 'local'
        CHECK (typeof(scope) = 'text'),
    on_store_loss TEXT    NOT NULL DEFAULT 'closed'
        CHECK (on_store_loss IN ('closed', 'share', 'open')),
    expires_at    INTEGER
        CHECK (expires_at IS NULL OR (typeof(expires_at) = 'integer' AND expires_at > 0)),
    name          TEXT
        CHECK (name IS NULL OR (typeof(name) = 'text' AND length(name) <= 128)),
    created_at    INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER))
        CHECK (typeof(created_at) = 'integer'),
    updated_at    INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER))
        CHECK (typeof(updated_at) = 'integer'),
    CONSTRAINT "project_id and tier are both set" CHECK (project_id IS NULL OR tier IS NULL)
);

INSERT INTO policies_next (rowid,
    endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss,
    expires_at, name, created_at, updated_at)
SELECT rowid,
    endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss,
    expires_at, name, created_at, updated_at
FROM policies;

DROP TABLE policies;

ALTER TABLE policies_next RENAME TO policies;

-- NULLs are all different in a unique constraint, hence the expressions.
CREATE UNIQUE INDEX policies_one_a_subject
    ON policies (endpoint, coalesce(project_id, ''), coalesce(tier, ''), subject);

CREATE INDEX policies_by_tenant ON policies (project_id, tier, subject);

-- Few rules have more than the first three columns. A load reads those wide and
-- the rest narrow; its query repeats this condition to the letter.
CREATE INDEX policies_not_plain ON policies (endpoint)
    WHERE NOT (per_seconds = 1 AND burst IS NULL AND subject = 'principal' AND algorithm = 'token_bucket' AND mode = 'enforce'
        AND tier IS NULL AND scope = 'local' AND on_store_loss = 'closed' AND expires_at IS NULL AND name IS NULL);

-- +goose StatementBegin
CREATE TRIGGER policies_updated AFTER UPDATE ON policies
WHEN NEW.updated_at IS OLD.updated_at
BEGIN
    UPDATE policies SET updated_at = CAST(strftime('%s', 'now') AS INTEGER) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd
