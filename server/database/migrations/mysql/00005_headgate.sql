-- What the SQLite migrations up to 5 come to. Later ones have the same numbers.
-- For MySQL 8.0.16 and MariaDB 10.5, or newer. Definitions are no transaction
-- here: each statement may find what was done before the last attempt ended.

-- +goose Up

-- Its presence tells headgate's tables from other people's, and its one row
-- changes with every change that gateways must learn of: to a text of its own,
-- because after a restored backup or a failover a number could come again for
-- other rules.
CREATE TABLE IF NOT EXISTS headgate_version (
    id      INT PRIMARY KEY CHECK (id = 1),
    version VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO headgate_version (id, version) VALUES (1, uuid());

-- Texts are compared by their bytes, but for spaces at their end, which MySQL
-- and MariaDB ignore under every collation that both have. So what must be
-- unique is a hash. NULLs are all different in a unique index, hence coalesce.
CREATE TABLE IF NOT EXISTS policies (
    rowid         BIGINT AUTO_INCREMENT PRIMARY KEY,
    endpoint      TEXT   NOT NULL CHECK (endpoint <> ''),
    project_id    TEXT   CHECK (trim(project_id) <> ''),
    rps_limit     BIGINT NOT NULL CHECK (rps_limit > 0),
    per_seconds   BIGINT NOT NULL DEFAULT 1 CHECK (per_seconds BETWEEN 1 AND 9223372036),
    burst         BIGINT CHECK (burst > 0),
    subject       VARCHAR(32) NOT NULL DEFAULT 'principal'
        CHECK (subject IN ('principal', 'ip', 'principal_ip', 'project', 'region', 'endpoint', 'identifier', 'identifier_ip')),
    algorithm     VARCHAR(32) NOT NULL DEFAULT 'token_bucket',
    mode          VARCHAR(32) NOT NULL DEFAULT 'enforce' CHECK (mode IN ('enforce', 'shadow')),
    tier          TEXT   CHECK (trim(tier) <> ''),
    scope         VARCHAR(32) NOT NULL DEFAULT 'local',
    on_store_loss VARCHAR(32) NOT NULL DEFAULT 'closed' CHECK (on_store_loss IN ('closed', 'share', 'open')),
    expires_at    BIGINT CHECK (expires_at > 0),
    name          VARCHAR(128),
    created_at    BIGINT NOT NULL DEFAULT (unix_timestamp()),
    updated_at    BIGINT NOT NULL DEFAULT (unix_timestamp()),
    rule_key      VARBINARY(32) AS (unhex(sha2(concat_ws(char(0), endpoint, coalesce(project_id, ''), coalesce(tier, ''), subject), 256))) STORED,
    CONSTRAINT project_id_and_tier_are_both_set CHECK (project_id IS NULL OR tier IS NULL),
    UNIQUE KEY policies_one_a_subject (rule_key),
    KEY policies_by_tenant (project_id(100), tier(100), subject)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS projects (
    rowid       BIGINT AUTO_INCREMENT PRIMARY KEY,
    project_id  TEXT NOT NULL CHECK (trim(project_id) <> ''),
    tier        TEXT NOT NULL CHECK (trim(tier) <> ''),
    project_key VARBINARY(32) AS (unhex(sha2(project_id, 256))) STORED,
    UNIQUE KEY projects_one_tier (project_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The key itself is never stored: digest is its HMAC-SHA-256.
CREATE TABLE IF NOT EXISTS api_keys (
    rowid      BIGINT AUTO_INCREMENT PRIMARY KEY,
    id         VARCHAR(64) NOT NULL CHECK (id <> ''),
    project_id TEXT   CHECK (trim(project_id) <> ''),
    name       TEXT,
    tier       TEXT   CHECK (trim(tier) <> ''),
    digest     VARBINARY(32) NOT NULL CHECK (length(digest) = 32),
    created_at BIGINT NOT NULL DEFAULT (unix_timestamp()),
    expires_at BIGINT CHECK (expires_at > 0),
    revoked_at BIGINT CHECK (revoked_at > 0),
    scopes     TEXT   CHECK (substr(scopes, 1, 2) = '["'),
    secret     VARCHAR(8) CHECK (length(secret) = 8),
    UNIQUE KEY api_keys_id (id),
    UNIQUE KEY api_keys_digest (digest)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What operators changed in buckets, written before it is done. Nothing of it
-- is ever changed or deleted; the triggers keep slips of the shell away too.
CREATE TABLE IF NOT EXISTS audit (
    id         BIGINT AUTO_INCREMENT PRIMARY KEY,
    at         BIGINT NOT NULL,
    actor      TEXT   NOT NULL CHECK (actor <> ''),
    claimed    TEXT,
    action     VARCHAR(64) NOT NULL CHECK (action <> ''),
    rule       TEXT   NOT NULL,
    endpoint   TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    whose      TEXT   NOT NULL,
    amount     BIGINT CHECK (amount > 0),
    expires_at BIGINT CHECK (expires_at > 0)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

DROP TRIGGER IF EXISTS policies_updated;
CREATE TRIGGER policies_updated BEFORE UPDATE ON policies FOR EACH ROW
    SET NEW.updated_at = if(NEW.updated_at = OLD.updated_at, unix_timestamp(), NEW.updated_at);

-- TRUNCATE calls no trigger: DELETE does.
DROP TRIGGER IF EXISTS policies_after_insert;
CREATE TRIGGER policies_after_insert AFTER INSERT ON policies FOR EACH ROW UPDATE headgate_version SET version = uuid();
DROP TRIGGER IF EXISTS policies_after_update;
CREATE TRIGGER policies_after_update AFTER UPDATE ON policies FOR EACH ROW UPDATE headgate_version SET version = uuid();
DROP TRIGGER IF EXISTS policies_after_delete;
CREATE TRIGGER policies_after_delete AFTER DELETE ON policies FOR EACH ROW UPDATE headgate_version SET version = uuid();
DROP TRIGGER IF EXISTS projects_after_insert;
CREATE TRIGGER projects_after_insert AFTER INSERT ON projects FOR EACH ROW UPDATE headgate_version SET version = uuid();
DROP TRIGGER IF EXISTS projects_after_update;
CREATE TRIGGER projects_after_update AFTER UPDATE ON projects FOR EACH ROW UPDATE headgate_version SET version = uuid();
DROP TRIGGER IF EXISTS projects_after_delete;
CREATE TRIGGER projects_after_delete AFTER DELETE ON projects FOR EACH ROW UPDATE headgate_version SET version = uuid();
DROP TRIGGER IF EXISTS api_keys_after_insert;
CREATE TRIGGER api_keys_after_insert AFTER INSERT ON api_keys FOR EACH ROW UPDATE headgate_version SET version = uuid();
DROP TRIGGER IF EXISTS api_keys_after_update;
CREATE TRIGGER api_keys_after_update AFTER UPDATE ON api_keys FOR EACH ROW UPDATE headgate_version SET version = uuid();
DROP TRIGGER IF EXISTS api_keys_after_delete;
CREATE TRIGGER api_keys_after_delete AFTER DELETE ON api_keys FOR EACH ROW UPDATE headgate_version SET version = uuid();

DROP TRIGGER IF EXISTS audit_before_update;
CREATE TRIGGER audit_before_update BEFORE UPDATE ON audit FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the audit is append-only';
DROP TRIGGER IF EXISTS audit_before_delete;
CREATE TRIGGER audit_before_delete BEFORE DELETE ON audit FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the audit is append-only';
