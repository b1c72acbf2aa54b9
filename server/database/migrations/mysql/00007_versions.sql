-- Definitions are no transaction here: each statement may find what was done
-- before the last attempt ended.

-- +goose Up

-- What was changed in the rules and in the tiers of projects, whoever changed
-- it: the row as it was ('-') and as it is then ('+'). A row without an endpoint
-- is a project's tier. Triggers write it, in the transaction of the change, when
-- the triggers before them have locked headgate_version: so the changes of a
-- transaction stand together, in the order of the commits.
CREATE TABLE IF NOT EXISTS policy_changes (
    id              BIGINT AUTO_INCREMENT PRIMARY KEY,
    at              BIGINT NOT NULL DEFAULT (unix_timestamp()),
    who             VARCHAR(128),
    side            CHAR(1) NOT NULL CHECK (side IN ('-', '+')),
    endpoint        TEXT,
    project_id      TEXT,
    rps_limit       BIGINT,
    per_seconds     BIGINT,
    burst           BIGINT,
    subject         VARCHAR(32),
    algorithm       VARCHAR(32),
    mode            VARCHAR(32),
    tier            TEXT,
    scope           VARCHAR(32),
    on_store_loss   VARCHAR(32),
    expires_at      BIGINT,
    name            VARCHAR(128),
    enforce_percent BIGINT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The changes up to last_change that no version before has are a version. What
-- headgate changes gets its number with it, and what somebody's shell changed
-- when headgate sees it next.
CREATE TABLE IF NOT EXISTS policy_versions (
    id          BIGINT PRIMARY KEY CHECK (id > 0),
    at          BIGINT NOT NULL,
    actor       TEXT   NOT NULL CHECK (actor <> ''),
    claimed     TEXT,
    why         TEXT,
    action      VARCHAR(64) NOT NULL CHECK (action <> ''),
    restores    BIGINT COMMENT 'the version that a rollback went back to',
    added       BIGINT NOT NULL,
    changed     BIGINT NOT NULL,
    removed     BIGINT NOT NULL,
    last_change BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who gave up which changes, to have the room back. It says what may be deleted.
CREATE TABLE IF NOT EXISTS policy_forgotten (
    id          BIGINT AUTO_INCREMENT PRIMARY KEY,
    at          BIGINT NOT NULL,
    actor       TEXT   NOT NULL CHECK (actor <> ''),
    why         TEXT,
    last_change BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- TRUNCATE calls no trigger: what it does is not seen.
DROP TRIGGER IF EXISTS policies_recorded_insert;
CREATE TRIGGER policies_recorded_insert AFTER INSERT ON policies FOR EACH ROW FOLLOWS policies_after_insert
INSERT INTO policy_changes
    (who, side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
VALUES (substring_index(user(), '@', 1), '+', NEW.endpoint, NEW.project_id, NEW.rps_limit, NEW.per_seconds, NEW.burst, NEW.subject, NEW.algorithm, NEW.mode,
    NEW.tier, NEW.scope, NEW.on_store_loss, NEW.expires_at, NEW.name, NEW.enforce_percent);

-- A new time of change alone is no change of the rule. Texts are compared by
-- their bytes, spaces at their end too. MariaDB calls this one also for a row
-- that UPDATE IGNORE left as it was, because another one has its place.
DROP TRIGGER IF EXISTS policies_recorded_update;
-- +goose StatementBegin
CREATE TRIGGER policies_recorded_update AFTER UPDATE ON policies FOR EACH ROW FOLLOWS policies_after_update
BEGIN
    IF NOT (OLD.rule_key <=> NEW.rule_key AND OLD.rps_limit <=> NEW.rps_limit AND OLD.per_seconds <=> NEW.per_seconds AND OLD.burst <=> NEW.burst
        AND hex(OLD.algorithm) <=> hex(NEW.algorithm) AND OLD.mode <=> NEW.mode AND hex(OLD.scope) <=> hex(NEW.scope)
        AND OLD.on_store_loss <=> NEW.on_store_loss AND OLD.expires_at <=> NEW.expires_at AND hex(OLD.name) <=> hex(NEW.name)
        AND OLD.enforce_percent <=> NEW.enforce_percent)
        AND (OLD.rule_key <=> NEW.rule_key OR EXISTS (SELECT 1 FROM policies WHERE rowid = NEW.rowid AND rule_key = NEW.rule_key))
    THEN
        INSERT INTO policy_changes
            (who, side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
        VALUES (substring_index(user(), '@', 1), '-', OLD.endpoint, OLD.project_id, OLD.rps_limit, OLD.per_seconds, OLD.burst, OLD.subject, OLD.algorithm, OLD.mode,
            OLD.tier, OLD.scope, OLD.on_store_loss, OLD.expires_at, OLD.name, OLD.enforce_percent),
            (substring_index(user(), '@', 1), '+', NEW.endpoint, NEW.project_id, NEW.rps_limit, NEW.per_seconds, NEW.burst, NEW.subject, NEW.algorithm, NEW.mode,
            NEW.tier, NEW.scope, NEW.on_store_loss, NEW.expires_at, NEW.name, NEW.enforce_percent);
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS policies_recorded_delete;
CREATE TRIGGER policies_recorded_delete AFTER DELETE ON policies FOR EACH ROW FOLLOWS policies_after_delete
INSERT INTO policy_changes
    (who, side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
VALUES (substring_index(user(), '@', 1), '-', OLD.endpoint, OLD.project_id, OLD.rps_limit, OLD.per_seconds, OLD.burst, OLD.subject, OLD.algorithm, OLD.mode,
    OLD.tier, OLD.scope, OLD.on_store_loss, OLD.expires_at, OLD.name, OLD.enforce_percent);

DROP TRIGGER IF EXISTS projects_recorded_insert;
CREATE TRIGGER projects_recorded_insert AFTER INSERT ON projects FOR EACH ROW FOLLOWS projects_after_insert
INSERT INTO policy_changes (who, side, project_id, tier) VALUES (substring_index(user(), '@', 1), '+', NEW.project_id, NEW.tier);

DROP TRIGGER IF EXISTS projects_recorded_update;
-- +goose StatementBegin
CREATE TRIGGER projects_recorded_update AFTER UPDATE ON projects FOR EACH ROW FOLLOWS projects_after_update
BEGIN
    IF NOT (OLD.project_key <=> NEW.project_key AND hex(OLD.tier) <=> hex(NEW.tier))
        AND (OLD.project_key <=> NEW.project_key OR EXISTS (SELECT 1 FROM projects WHERE rowid = NEW.rowid AND project_key = NEW.project_key))
    THEN
        INSERT INTO policy_changes (who, side, project_id, tier)
        VALUES (substring_index(user(), '@', 1), '-', OLD.project_id, OLD.tier), (substring_index(user(), '@', 1), '+', NEW.project_id, NEW.tier);
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS projects_recorded_delete;
CREATE TRIGGER projects_recorded_delete AFTER DELETE ON projects FOR EACH ROW FOLLOWS projects_after_delete
INSERT INTO policy_changes (who, side, project_id, tier) VALUES (substring_index(user(), '@', 1), '-', OLD.project_id, OLD.tier);

-- What stands there is the first version, whatever the triggers have seen so
-- far: nobody else changes the rules until it is written.
BEGIN;
SELECT version FROM headgate_version FOR UPDATE;
SET @begun = (SELECT count(*) FROM policy_versions);
DELETE FROM policy_changes WHERE @begun = 0;
INSERT INTO policy_changes
    (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
SELECT '+', endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent
FROM policies WHERE @begun = 0 ORDER BY rowid;
INSERT INTO policy_changes (side, project_id, tier) SELECT '+', project_id, tier FROM projects WHERE @begun = 0;
INSERT INTO policy_versions (id, at, actor, action, added, changed, removed, last_change)
SELECT 1, unix_timestamp(), 'headgate', 'start', count(*), 0, 0, coalesce(max(id), 0) FROM policy_changes WHERE @begun = 0 HAVING @begun = 0;
COMMIT;

DROP TRIGGER IF EXISTS policy_changes_before_update;
CREATE TRIGGER policy_changes_before_update BEFORE UPDATE ON policy_changes FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the history is append-only';
DROP TRIGGER IF EXISTS policy_changes_before_delete;
-- +goose StatementBegin
CREATE TRIGGER policy_changes_before_delete BEFORE DELETE ON policy_changes FOR EACH ROW
BEGIN
    IF OLD.id > coalesce((SELECT max(last_change) FROM policy_forgotten), 0) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the history is append-only';
    END IF;
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS policy_versions_before_update;
CREATE TRIGGER policy_versions_before_update BEFORE UPDATE ON policy_versions FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the history is append-only';
DROP TRIGGER IF EXISTS policy_versions_before_delete;
CREATE TRIGGER policy_versions_before_delete BEFORE DELETE ON policy_versions FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the history is append-only';
DROP TRIGGER IF EXISTS policy_forgotten_before_update;
CREATE TRIGGER policy_forgotten_before_update BEFORE UPDATE ON policy_forgotten FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the history is append-only';
DROP TRIGGER IF EXISTS policy_forgotten_before_delete;
CREATE TRIGGER policy_forgotten_before_delete BEFORE DELETE ON policy_forgotten FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the history is append-only';
