-- What the SQLite migrations up to 5 come to. Later ones have the same numbers.

-- +goose Up

-- Its presence tells headgate's tables from other people's, and its one row
-- changes with every change that gateways must learn of.
CREATE TABLE headgate_version (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    version TEXT NOT NULL
);
INSERT INTO headgate_version (id, version) VALUES (1, gen_random_uuid()::text);

-- A text of its own for every change: after a restored backup or a failover, a
-- number could come again for other rules. One row, so that a version is not
-- seen before all that was changed before it. With its owner's rights, so that
-- who may change rules need not be given the right to the row.
-- +goose StatementBegin
CREATE FUNCTION headgate_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('UPDATE %I.headgate_version SET version = gen_random_uuid()::text', TG_TABLE_SCHEMA);
    PERFORM pg_notify('headgate', TG_TABLE_SCHEMA);
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TABLE policies (
    rowid         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint      TEXT   COLLATE "C" NOT NULL CHECK (endpoint <> ''),
    project_id    TEXT   COLLATE "C" CHECK (trim(project_id) <> ''),
    rps_limit     BIGINT NOT NULL CHECK (rps_limit > 0),
    per_seconds   BIGINT NOT NULL DEFAULT 1 CHECK (per_seconds BETWEEN 1 AND 9223372036),
    burst         BIGINT CHECK (burst > 0),
    subject       TEXT   COLLATE "C" NOT NULL DEFAULT 'principal'
        CHECK (subject IN ('principal', 'ip', 'principal_ip', 'project', 'region', 'endpoint', 'identifier', 'identifier_ip')),
    algorithm     TEXT   NOT NULL DEFAULT 'token_bucket',
    mode          TEXT   NOT NULL DEFAULT 'enforce' CHECK (mode IN ('enforce', 'shadow')),
    tier          TEXT   COLLATE "C" CHECK (trim(tier) <> ''),
    scope         TEXT   NOT NULL DEFAULT 'local',
    on_store_loss TEXT   NOT NULL DEFAULT 'closed' CHECK (on_store_loss IN ('closed', 'share', 'open')),
    expires_at    BIGINT CHECK (expires_at > 0),
    name          TEXT   CHECK (length(name) <= 128),
    created_at    BIGINT NOT NULL DEFAULT extract(epoch FROM now())::bigint,
    updated_at    BIGINT NOT NULL DEFAULT extract(epoch FROM now())::bigint,
    CONSTRAINT "project_id and tier are both set" CHECK (project_id IS NULL OR tier IS NULL)
);

-- NULLs are all different in a unique constraint, hence the expressions. NULLS
-- NOT DISTINCT would say the same since PostgreSQL 15.
CREATE UNIQUE INDEX policies_one_a_subject
    ON policies (endpoint, coalesce(project_id, ''), coalesce(tier, ''), subject);

CREATE INDEX policies_by_tenant ON policies (project_id, tier, subject);

-- As in SQLite: few rules have more than the first three columns.
CREATE INDEX policies_not_plain ON policies (rowid)
    WHERE NOT (per_seconds = 1 AND burst IS NULL AND subject = 'principal' AND algorithm = 'token_bucket' AND mode = 'enforce'
        AND tier IS NULL AND scope = 'local' AND on_store_loss = 'closed' AND expires_at IS NULL AND name IS NULL);

-- +goose StatementBegin
CREATE FUNCTION headgate_updated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.updated_at = OLD.updated_at THEN
        NEW.updated_at := extract(epoch FROM now())::bigint;
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER policies_updated BEFORE UPDATE ON policies FOR EACH ROW EXECUTE FUNCTION headgate_updated();
CREATE TRIGGER policies_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON policies
    FOR EACH STATEMENT EXECUTE FUNCTION headgate_changed();

CREATE TABLE projects (
    rowid      BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    project_id TEXT COLLATE "C" PRIMARY KEY CHECK (trim(project_id) <> ''),
    tier       TEXT COLLATE "C" NOT NULL CHECK (trim(tier) <> '')
);
CREATE TRIGGER projects_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON projects
    FOR EACH STATEMENT EXECUTE FUNCTION headgate_changed();

-- The key itself is never stored: digest is its HMAC-SHA-256.
CREATE TABLE api_keys (
    rowid      BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    id         TEXT   COLLATE "C" PRIMARY KEY CHECK (id <> ''),
    project_id TEXT   COLLATE "C" CHECK (trim(project_id) <> ''),
    name       TEXT,
    tier       TEXT   COLLATE "C" CHECK (trim(tier) <> ''),
    digest     BYTEA  NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at BIGINT NOT NULL DEFAULT extract(epoch FROM now())::bigint,
    expires_at BIGINT CHECK (expires_at > 0),
    revoked_at BIGINT CHECK (revoked_at > 0),
    scopes     TEXT   CHECK (substr(scopes, 1, 2) = '["'),
    secret     TEXT   CHECK (length(secret) = 8)
);
CREATE TRIGGER api_keys_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION headgate_changed();

-- What operators changed in buckets, written before it is done. Nothing of it
-- is ever changed or deleted; the trigger keeps slips of the shell away too.
CREATE TABLE audit (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         BIGINT NOT NULL,
    actor      TEXT   NOT NULL CHECK (actor <> ''),
    claimed    TEXT,
    action     TEXT   NOT NULL CHECK (action <> ''),
    rule       TEXT   NOT NULL,
    endpoint   TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    whose      TEXT   NOT NULL,
    amount     BIGINT CHECK (amount > 0),
    expires_at BIGINT CHECK (expires_at > 0)
);

-- +goose StatementBegin
CREATE FUNCTION headgate_audit_keeps_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is append-only';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER audit_keeps_all BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION headgate_audit_keeps_all();
