-- +goose Up

-- What was changed in the rules and in the tiers of projects, whoever changed
-- it: the row as it was ('-') and as it is then ('+'). A row without an endpoint
-- is a project's tier. Triggers write it, in the transaction of the change.
CREATE TABLE policy_changes (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    at              INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)),
    who             TEXT, -- no user is known here
    side            TEXT    NOT NULL CHECK (side IN ('-', '+')),
    endpoint        TEXT,
    project_id      TEXT,
    rps_limit       INTEGER,
    per_seconds     INTEGER,
    burst           INTEGER,
    subject         TEXT,
    algorithm       TEXT,
    mode            TEXT,
    tier            TEXT,
    scope           TEXT,
    on_store_loss   TEXT,
    expires_at      INTEGER,
    name            TEXT,
    enforce_percent INTEGER
);

-- The changes up to last_change that no version before has are a version. What
-- headgate changes gets its number with it, and what somebody's shell changed
-- when headgate sees it next.
CREATE TABLE policy_versions (
    id          INTEGER PRIMARY KEY NOT NULL CHECK (id > 0),
    at          INTEGER NOT NULL,
    actor       TEXT    NOT NULL CHECK (actor <> ''),
    claimed     TEXT,
    why         TEXT,
    action      TEXT    NOT NULL CHECK (action <> ''),
    restores    INTEGER, -- the version that a rollback went back to
    added       INTEGER NOT NULL,
    changed     INTEGER NOT NULL,
    removed     INTEGER NOT NULL,
    last_change INTEGER NOT NULL
);

-- Who gave up which changes, to have the room back. It says what may be deleted.
CREATE TABLE policy_forgotten (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    at          INTEGER NOT NULL,
    actor       TEXT    NOT NULL CHECK (actor <> ''),
    why         TEXT,
    last_change INTEGER NOT NULL
);

-- The rules that a statement is about to put others in the place of. REPLACE
-- calls no trigger for a row that it removes, so what is in its way is noted
-- before, and counts if the statement then comes to its end.
CREATE TABLE policies_in_the_way (
    id              INTEGER PRIMARY KEY,
    endpoint        TEXT,
    project_id      TEXT,
    rps_limit       INTEGER,
    per_seconds     INTEGER,
    burst           INTEGER,
    subject         TEXT,
    algorithm       TEXT,
    mode            TEXT,
    tier            TEXT,
    scope           TEXT,
    on_store_loss   TEXT,
    expires_at      INTEGER,
    name            TEXT,
    enforce_percent INTEGER
);

INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
SELECT '+', endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent
FROM policies ORDER BY rowid;
INSERT INTO policy_changes (side, project_id, tier) SELECT '+', project_id, tier FROM projects;
INSERT INTO policy_versions (id, at, actor, action, added, changed, removed, last_change)
SELECT 1, CAST(strftime('%s', 'now') AS INTEGER), 'headgate', 'start', count(*), 0, 0, coalesce(max(id), 0) FROM policy_changes;

-- +goose StatementBegin
CREATE TRIGGER policies_before_insert BEFORE INSERT ON policies
WHEN EXISTS (SELECT 1 FROM policies WHERE rowid = NEW.rowid)
    OR EXISTS (SELECT 1 FROM policies WHERE endpoint = NEW.endpoint AND coalesce(project_id, '') = coalesce(NEW.project_id, '')
        AND coalesce(tier, '') = coalesce(NEW.tier, '') AND subject = NEW.subject
        AND (CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END) = (CASE WHEN NEW.expires_at IS NULL THEN '' ELSE 'until' END))
BEGIN
    DELETE FROM policies_in_the_way;
    INSERT INTO policies_in_the_way
    SELECT rowid, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent
    FROM policies WHERE rowid = NEW.rowid
    UNION
    SELECT rowid, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent
    FROM policies WHERE endpoint = NEW.endpoint AND coalesce(project_id, '') = coalesce(NEW.project_id, '') AND coalesce(tier, '') = coalesce(NEW.tier, '')
        AND subject = NEW.subject
        AND (CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END) = (CASE WHEN NEW.expires_at IS NULL THEN '' ELSE 'until' END);
END;
-- +goose StatementEnd

-- What OR IGNORE let be is still in its place, so that nothing new has that.
-- +goose StatementBegin
CREATE TRIGGER policies_after_replace AFTER INSERT ON policies
WHEN EXISTS (SELECT 1 FROM policies_in_the_way)
BEGIN
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
    SELECT '-', endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent
    FROM policies_in_the_way
    WHERE id = NEW.rowid OR endpoint = NEW.endpoint AND coalesce(project_id, '') = coalesce(NEW.project_id, '')
        AND coalesce(tier, '') = coalesce(NEW.tier, '') AND subject = NEW.subject AND (expires_at IS NULL) = (NEW.expires_at IS NULL);
    DELETE FROM policies_in_the_way;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policies_after_insert AFTER INSERT ON policies
BEGIN
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
    VALUES ('+', NEW.endpoint, NEW.project_id, NEW.rps_limit, NEW.per_seconds, NEW.burst, NEW.subject, NEW.algorithm, NEW.mode, NEW.tier, NEW.scope,
        NEW.on_store_loss, NEW.expires_at, NEW.name, NEW.enforce_percent);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policies_before_update BEFORE UPDATE ON policies
WHEN NEW.rowid <> OLD.rowid OR NEW.endpoint IS NOT OLD.endpoint OR NEW.project_id IS NOT OLD.project_id OR NEW.tier IS NOT OLD.tier
    OR NEW.subject IS NOT OLD.subject OR (NEW.expires_at IS NULL) <> (OLD.expires_at IS NULL)
BEGIN
    DELETE FROM policies_in_the_way;
    INSERT INTO policies_in_the_way
    SELECT rowid, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent
    FROM policies WHERE rowid = NEW.rowid AND rowid <> OLD.rowid
    UNION
    SELECT rowid, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent
    FROM policies WHERE endpoint = NEW.endpoint AND coalesce(project_id, '') = coalesce(NEW.project_id, '') AND coalesce(tier, '') = coalesce(NEW.tier, '')
        AND subject = NEW.subject
        AND (CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END) = (CASE WHEN NEW.expires_at IS NULL THEN '' ELSE 'until' END)
        AND rowid <> OLD.rowid;
END;
-- +goose StatementEnd

-- A new time of change alone is no change of the rule.
-- +goose StatementBegin
CREATE TRIGGER policies_after_update AFTER UPDATE ON policies
WHEN NEW.rowid <> OLD.rowid OR NEW.endpoint IS NOT OLD.endpoint OR NEW.project_id IS NOT OLD.project_id OR NEW.rps_limit IS NOT OLD.rps_limit
    OR NEW.per_seconds IS NOT OLD.per_seconds OR NEW.burst IS NOT OLD.burst OR NEW.subject IS NOT OLD.subject OR NEW.algorithm IS NOT OLD.algorithm
    OR NEW.mode IS NOT OLD.mode OR NEW.tier IS NOT OLD.tier OR NEW.scope IS NOT OLD.scope OR NEW.on_store_loss IS NOT OLD.on_store_loss
    OR NEW.expires_at IS NOT OLD.expires_at OR NEW.name IS NOT OLD.name OR NEW.enforce_percent IS NOT OLD.enforce_percent
BEGIN
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
    SELECT '-', endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent
    FROM policies_in_the_way -- as policies_before_update left it, if that was called
    WHERE NEW.rowid <> OLD.rowid OR NEW.endpoint IS NOT OLD.endpoint OR NEW.project_id IS NOT OLD.project_id OR NEW.tier IS NOT OLD.tier
        OR NEW.subject IS NOT OLD.subject OR (NEW.expires_at IS NULL) <> (OLD.expires_at IS NULL);
    DELETE FROM policies_in_the_way;
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
    VALUES ('-', OLD.endpoint, OLD.project_id, OLD.rps_limit, OLD.per_seconds, OLD.burst, OLD.subject, OLD.algorithm, OLD.mode, OLD.tier, OLD.scope,
        OLD.on_store_loss, OLD.expires_at, OLD.name, OLD.enforce_percent);
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
    VALUES ('+', NEW.endpoint, NEW.project_id, NEW.rps_limit, NEW.per_seconds, NEW.burst, NEW.subject, NEW.algorithm, NEW.mode, NEW.tier, NEW.scope,
        NEW.on_store_loss, NEW.expires_at, NEW.name, NEW.enforce_percent);
END;
-- +goose StatementEnd

-- With PRAGMA recursive_triggers, REPLACE calls this one too.
-- +goose StatementBegin
CREATE TRIGGER policies_after_delete AFTER DELETE ON policies
BEGIN
    DELETE FROM policies_in_the_way WHERE id = OLD.rowid;
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
    VALUES ('-', OLD.endpoint, OLD.project_id, OLD.rps_limit, OLD.per_seconds, OLD.burst, OLD.subject, OLD.algorithm, OLD.mode, OLD.tier, OLD.scope,
        OLD.on_store_loss, OLD.expires_at, OLD.name, OLD.enforce_percent);
END;
-- +goose StatementEnd

-- The same for the tiers of projects.
CREATE TABLE projects_in_the_way (
    id         INTEGER PRIMARY KEY,
    project_id TEXT,
    tier       TEXT
);

-- +goose StatementBegin
CREATE TRIGGER projects_before_insert BEFORE INSERT ON projects
BEGIN
    DELETE FROM projects_in_the_way;
    INSERT INTO projects_in_the_way
    SELECT rowid, project_id, tier FROM projects WHERE rowid = NEW.rowid OR project_id = NEW.project_id;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER projects_after_insert AFTER INSERT ON projects
BEGIN
    INSERT INTO policy_changes (side, project_id, tier) SELECT '-', project_id, tier FROM projects_in_the_way;
    DELETE FROM projects_in_the_way;
    INSERT INTO policy_changes (side, project_id, tier) VALUES ('+', NEW.project_id, NEW.tier);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER projects_before_update BEFORE UPDATE ON projects
WHEN NEW.rowid <> OLD.rowid OR NEW.project_id IS NOT OLD.project_id
BEGIN
    DELETE FROM projects_in_the_way;
    INSERT INTO projects_in_the_way
    SELECT rowid, project_id, tier FROM projects WHERE (rowid = NEW.rowid OR project_id = NEW.project_id) AND rowid <> OLD.rowid;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER projects_after_update AFTER UPDATE ON projects
WHEN NEW.rowid <> OLD.rowid OR NEW.project_id IS NOT OLD.project_id OR NEW.tier IS NOT OLD.tier
BEGIN
    INSERT INTO policy_changes (side, project_id, tier)
    SELECT '-', project_id, tier FROM projects_in_the_way WHERE NEW.rowid <> OLD.rowid OR NEW.project_id IS NOT OLD.project_id;
    DELETE FROM projects_in_the_way;
    INSERT INTO policy_changes (side, project_id, tier) VALUES ('-', OLD.project_id, OLD.tier);
    INSERT INTO policy_changes (side, project_id, tier) VALUES ('+', NEW.project_id, NEW.tier);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER projects_after_delete AFTER DELETE ON projects
BEGIN
    DELETE FROM projects_in_the_way WHERE id = OLD.rowid;
    INSERT INTO policy_changes (side, project_id, tier) VALUES ('-', OLD.project_id, OLD.tier);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policy_changes_before_update BEFORE UPDATE ON policy_changes
BEGIN
    SELECT RAISE(ABORT, 'the history is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policy_changes_before_delete BEFORE DELETE ON policy_changes
WHEN OLD.id > coalesce((SELECT max(last_change) FROM policy_forgotten), 0)
BEGIN
    SELECT RAISE(ABORT, 'the history is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policy_versions_before_update BEFORE UPDATE ON policy_versions
BEGIN
    SELECT RAISE(ABORT, 'the history is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policy_versions_before_delete BEFORE DELETE ON policy_versions
BEGIN
    SELECT RAISE(ABORT, 'the history is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policy_forgotten_before_update BEFORE UPDATE ON policy_forgotten
BEGIN
    SELECT RAISE(ABORT, 'the history is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policy_forgotten_before_delete BEFORE DELETE ON policy_forgotten
BEGIN
    SELECT RAISE(ABORT, 'the history is append-only');
END;
-- +goose StatementEnd

-- As before, and not for ever where PRAGMA recursive_triggers is on and the time
-- of change is this second already.
DROP TRIGGER policies_updated;
-- +goose StatementBegin
CREATE TRIGGER policies_updated AFTER UPDATE ON policies
WHEN NEW.updated_at IS OLD.updated_at AND NEW.updated_at <> CAST(strftime('%s', 'now') AS INTEGER)
BEGIN
    UPDATE policies SET updated_at = CAST(strftime('%s', 'now') AS INTEGER) WHERE rowid = NEW.rowid;
END;
-- +goose StatementEnd
