-- +goose Up

-- Of which class requests are that the rule applies to, such as low, or how classes share its budget; NULL says nothing of classes.
ALTER TABLE policies ADD COLUMN priority TEXT
    CHECK (priority IS NULL OR (typeof(priority) = 'text' AND priority <> '' AND length(priority) <= 64));
ALTER TABLE policy_changes ADD COLUMN priority TEXT;
ALTER TABLE policies_in_the_way ADD COLUMN priority TEXT;

-- As before, and without the new column too.
DROP INDEX policies_not_plain;
CREATE INDEX policies_not_plain ON policies (endpoint)
    WHERE NOT (per_seconds = 1 AND burst IS NULL AND subject = 'principal' AND algorithm = 'token_bucket' AND mode = 'enforce'
        AND tier IS NULL AND scope = 'local' AND on_store_loss = 'closed' AND expires_at IS NULL AND name IS NULL
        AND enforce_percent IS NULL AND count_when IS NULL AND penalty IS NULL AND refusal IS NULL AND priority IS NULL);

-- The history has it, and its triggers are what they were otherwise (00007).
DROP TRIGGER policies_before_insert;
-- +goose StatementBegin
CREATE TRIGGER policies_before_insert BEFORE INSERT ON policies
WHEN EXISTS (SELECT 1 FROM policies WHERE rowid = NEW.rowid)
    OR EXISTS (SELECT 1 FROM policies WHERE endpoint = NEW.endpoint AND coalesce(project_id, '') = coalesce(NEW.project_id, '')
        AND coalesce(tier, '') = coalesce(NEW.tier, '') AND subject = NEW.subject
        AND (CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END) = (CASE WHEN NEW.expires_at IS NULL THEN '' ELSE 'until' END))
BEGIN
    DELETE FROM policies_in_the_way;
    INSERT INTO policies_in_the_way
    SELECT rowid, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority
    FROM policies WHERE rowid = NEW.rowid
    UNION
    SELECT rowid, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority
    FROM policies WHERE endpoint = NEW.endpoint AND coalesce(project_id, '') = coalesce(NEW.project_id, '') AND coalesce(tier, '') = coalesce(NEW.tier, '')
        AND subject = NEW.subject
        AND (CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END) = (CASE WHEN NEW.expires_at IS NULL THEN '' ELSE 'until' END);
END;
-- +goose StatementEnd

DROP TRIGGER policies_after_replace;
-- +goose StatementBegin
CREATE TRIGGER policies_after_replace AFTER INSERT ON policies
WHEN EXISTS (SELECT 1 FROM policies_in_the_way)
BEGIN
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority)
    SELECT '-', endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority
    FROM policies_in_the_way
    WHERE id = NEW.rowid OR endpoint = NEW.endpoint AND coalesce(project_id, '') = coalesce(NEW.project_id, '')
        AND coalesce(tier, '') = coalesce(NEW.tier, '') AND subject = NEW.subject AND (expires_at IS NULL) = (NEW.expires_at IS NULL);
    DELETE FROM policies_in_the_way;
END;
-- +goose StatementEnd

DROP TRIGGER policies_after_insert;
-- +goose StatementBegin
CREATE TRIGGER policies_after_insert AFTER INSERT ON policies
BEGIN
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority)
    VALUES ('+', NEW.endpoint, NEW.project_id, NEW.rps_limit, NEW.per_seconds, NEW.burst, NEW.subject, NEW.algorithm, NEW.mode, NEW.tier, NEW.scope,
        NEW.on_store_loss, NEW.expires_at, NEW.name, NEW.enforce_percent, NEW.count_when, NEW.penalty, NEW.refusal, NEW.priority);
END;
-- +goose StatementEnd

DROP TRIGGER policies_before_update;
-- +goose StatementBegin
CREATE TRIGGER policies_before_update BEFORE UPDATE ON policies
WHEN NEW.rowid <> OLD.rowid OR NEW.endpoint IS NOT OLD.endpoint OR NEW.project_id IS NOT OLD.project_id OR NEW.tier IS NOT OLD.tier
    OR NEW.subject IS NOT OLD.subject OR (NEW.expires_at IS NULL) <> (OLD.expires_at IS NULL)
BEGIN
    DELETE FROM policies_in_the_way;
    INSERT INTO policies_in_the_way
    SELECT rowid, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority
    FROM policies WHERE rowid = NEW.rowid AND rowid <> OLD.rowid
    UNION
    SELECT rowid, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority
    FROM policies WHERE endpoint = NEW.endpoint AND coalesce(project_id, '') = coalesce(NEW.project_id, '') AND coalesce(tier, '') = coalesce(NEW.tier, '')
        AND subject = NEW.subject
        AND (CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END) = (CASE WHEN NEW.expires_at IS NULL THEN '' ELSE 'until' END)
        AND rowid <> OLD.rowid;
END;
-- +goose StatementEnd

DROP TRIGGER policies_after_update;
-- +goose StatementBegin
CREATE TRIGGER policies_after_update AFTER UPDATE ON policies
WHEN NEW.rowid <> OLD.rowid OR NEW.endpoint IS NOT OLD.endpoint OR NEW.project_id IS NOT OLD.project_id OR NEW.rps_limit IS NOT OLD.rps_limit
    OR NEW.per_seconds IS NOT OLD.per_seconds OR NEW.burst IS NOT OLD.burst OR NEW.subject IS NOT OLD.subject OR NEW.algorithm IS NOT OLD.algorithm
    OR NEW.mode IS NOT OLD.mode OR NEW.tier IS NOT OLD.tier OR NEW.scope IS NOT OLD.scope OR NEW.on_store_loss IS NOT OLD.on_store_loss
    OR NEW.expires_at IS NOT OLD.expires_at OR NEW.name IS NOT OLD.name OR NEW.enforce_percent IS NOT OLD.enforce_percent
    OR NEW.count_when IS NOT OLD.count_when OR NEW.penalty IS NOT OLD.penalty OR NEW.refusal IS NOT OLD.refusal OR NEW.priority IS NOT OLD.priority
BEGIN
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority)
    SELECT '-', endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority
    FROM policies_in_the_way -- as policies_before_update left it, if that was called
    WHERE NEW.rowid <> OLD.rowid OR NEW.endpoint IS NOT OLD.endpoint OR NEW.project_id IS NOT OLD.project_id OR NEW.tier IS NOT OLD.tier
        OR NEW.subject IS NOT OLD.subject OR (NEW.expires_at IS NULL) <> (OLD.expires_at IS NULL);
    DELETE FROM policies_in_the_way;
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority)
    VALUES ('-', OLD.endpoint, OLD.project_id, OLD.rps_limit, OLD.per_seconds, OLD.burst, OLD.subject, OLD.algorithm, OLD.mode, OLD.tier, OLD.scope,
        OLD.on_store_loss, OLD.expires_at, OLD.name, OLD.enforce_percent, OLD.count_when, OLD.penalty, OLD.refusal, OLD.priority);
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority)
    VALUES ('+', NEW.endpoint, NEW.project_id, NEW.rps_limit, NEW.per_seconds, NEW.burst, NEW.subject, NEW.algorithm, NEW.mode, NEW.tier, NEW.scope,
        NEW.on_store_loss, NEW.expires_at, NEW.name, NEW.enforce_percent, NEW.count_when, NEW.penalty, NEW.refusal, NEW.priority);
END;
-- +goose StatementEnd

DROP TRIGGER policies_after_delete;
-- +goose StatementBegin
CREATE TRIGGER policies_after_delete AFTER DELETE ON policies
BEGIN
    DELETE FROM policies_in_the_way WHERE id = OLD.rowid;
    INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority)
    VALUES ('-', OLD.endpoint, OLD.project_id, OLD.rps_limit, OLD.per_seconds, OLD.burst, OLD.subject, OLD.algorithm, OLD.mode, OLD.tier, OLD.scope,
        OLD.on_store_loss, OLD.expires_at, OLD.name, OLD.enforce_percent, OLD.count_when, OLD.penalty, OLD.refusal, OLD.priority);
END;
-- +goose StatementEnd
