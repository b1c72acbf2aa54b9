-- Definitions are no transaction here: each statement may find what was done
-- before the last attempt ended.

-- +goose Up

-- Of which class requests are that the rule applies to, such as low, or how classes share its budget; NULL says nothing of classes.
SET @add = (SELECT if(count(*) = 0, 'ALTER TABLE policies ADD COLUMN priority VARCHAR(64) CHECK (priority <> '''')', 'DO 0')
    FROM information_schema.columns WHERE table_schema = database() AND table_name = 'policies' AND column_name = 'priority');
PREPARE add_column FROM @add;
EXECUTE add_column;
DEALLOCATE PREPARE add_column;

SET @add = (SELECT if(count(*) = 0, 'ALTER TABLE policy_changes ADD COLUMN priority VARCHAR(64)', 'DO 0')
    FROM information_schema.columns WHERE table_schema = database() AND table_name = 'policy_changes' AND column_name = 'priority');
PREPARE add_column FROM @add;
EXECUTE add_column;
DEALLOCATE PREPARE add_column;

-- The history has it; the triggers are what they were otherwise (00007).
DROP TRIGGER IF EXISTS policies_recorded_insert;
CREATE TRIGGER policies_recorded_insert AFTER INSERT ON policies FOR EACH ROW FOLLOWS policies_after_insert
INSERT INTO policy_changes
    (who, side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority)
VALUES (substring_index(user(), '@', 1), '+', NEW.endpoint, NEW.project_id, NEW.rps_limit, NEW.per_seconds, NEW.burst, NEW.subject, NEW.algorithm, NEW.mode,
    NEW.tier, NEW.scope, NEW.on_store_loss, NEW.expires_at, NEW.name, NEW.enforce_percent, NEW.count_when, NEW.penalty, NEW.refusal, NEW.priority);

DROP TRIGGER IF EXISTS policies_recorded_update;
-- +goose StatementBegin
CREATE TRIGGER policies_recorded_update AFTER UPDATE ON policies FOR EACH ROW FOLLOWS policies_after_update
BEGIN
    IF NOT (OLD.rule_key <=> NEW.rule_key AND OLD.rps_limit <=> NEW.rps_limit AND OLD.per_seconds <=> NEW.per_seconds AND OLD.burst <=> NEW.burst
        AND hex(OLD.algorithm) <=> hex(NEW.algorithm) AND OLD.mode <=> NEW.mode AND hex(OLD.scope) <=> hex(NEW.scope)
        AND OLD.on_store_loss <=> NEW.on_store_loss AND OLD.expires_at <=> NEW.expires_at AND hex(OLD.name) <=> hex(NEW.name)
        AND OLD.enforce_percent <=> NEW.enforce_percent AND hex(OLD.count_when) <=> hex(NEW.count_when) AND hex(OLD.penalty) <=> hex(NEW.penalty)
        AND hex(OLD.refusal) <=> hex(NEW.refusal) AND hex(OLD.priority) <=> hex(NEW.priority))
        AND (OLD.rule_key <=> NEW.rule_key OR EXISTS (SELECT 1 FROM policies WHERE rowid = NEW.rowid AND rule_key = NEW.rule_key))
    THEN
        INSERT INTO policy_changes
            (who, side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority)
        VALUES (substring_index(user(), '@', 1), '-', OLD.endpoint, OLD.project_id, OLD.rps_limit, OLD.per_seconds, OLD.burst, OLD.subject, OLD.algorithm, OLD.mode,
            OLD.tier, OLD.scope, OLD.on_store_loss, OLD.expires_at, OLD.name, OLD.enforce_percent, OLD.count_when, OLD.penalty, OLD.refusal, OLD.priority),
            (substring_index(user(), '@', 1), '+', NEW.endpoint, NEW.project_id, NEW.rps_limit, NEW.per_seconds, NEW.burst, NEW.subject, NEW.algorithm, NEW.mode,
            NEW.tier, NEW.scope, NEW.on_store_loss, NEW.expires_at, NEW.name, NEW.enforce_percent, NEW.count_when, NEW.penalty, NEW.refusal, NEW.priority);
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS policies_recorded_delete;
CREATE TRIGGER policies_recorded_delete AFTER DELETE ON policies FOR EACH ROW FOLLOWS policies_after_delete
INSERT INTO policy_changes
    (who, side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority)
VALUES (substring_index(user(), '@', 1), '-', OLD.endpoint, OLD.project_id, OLD.rps_limit, OLD.per_seconds, OLD.burst, OLD.subject, OLD.algorithm, OLD.mode,
    OLD.tier, OLD.scope, OLD.on_store_loss, OLD.expires_at, OLD.name, OLD.enforce_percent, OLD.count_when, OLD.penalty, OLD.refusal, OLD.priority);
