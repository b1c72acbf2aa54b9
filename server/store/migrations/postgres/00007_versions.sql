-- +goose Up

-- What was changed in the rules and in the tiers of projects, whoever changed
-- it: the row as it was ('-') and as it is then ('+'). A row without an endpoint
-- is a project's tier. Triggers write it, in the transaction of the change, when
-- headgate_changed has locked headgate_version: so the changes of a transaction
-- stand together, in the order of the commits.
CREATE TABLE policy_changes (
    id              BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at              BIGINT NOT NULL DEFAULT extract(epoch FROM clock_timestamp())::bigint,
    who             TEXT   DEFAULT session_user,
    side            TEXT   NOT NULL CHECK (side IN ('-', '+')),
    endpoint        TEXT,
    project_id      TEXT,
    rps_limit       BIGINT,
    per_seconds     BIGINT,
    burst           BIGINT,
    subject         TEXT,
    algorithm       TEXT,
    mode            TEXT,
    tier            TEXT,
    scope           TEXT,
    on_store_loss   TEXT,
    expires_at      BIGINT,
    name            TEXT,
    enforce_percent BIGINT
);

-- The changes up to last_change that no version before has are a version. What
-- headgate changes gets its number with it, and what somebody's shell changed
-- when headgate sees it next.
CREATE TABLE policy_versions (
    id          BIGINT PRIMARY KEY CHECK (id > 0),
    at          BIGINT NOT NULL,
    actor       TEXT   NOT NULL CHECK (actor <> ''),
    claimed     TEXT,
    why         TEXT,
    action      TEXT   NOT NULL CHECK (action <> ''),
    restores    BIGINT, -- the version that a rollback went back to
    added       BIGINT NOT NULL,
    changed     BIGINT NOT NULL,
    removed     BIGINT NOT NULL,
    last_change BIGINT NOT NULL
);

-- Who gave up which changes, to have the room back. It says what may be deleted.
CREATE TABLE policy_forgotten (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          BIGINT NOT NULL,
    actor       TEXT   NOT NULL CHECK (actor <> ''),
    why         TEXT,
    last_change BIGINT NOT NULL
);

-- Nobody else changes the rules until this is done.
LOCK TABLE policies, projects IN SHARE ROW EXCLUSIVE MODE;

INSERT INTO policy_changes (side, endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent)
SELECT '+', endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent
FROM policies ORDER BY rowid;
INSERT INTO policy_changes (side, project_id, tier) SELECT '+', project_id, tier FROM projects;
INSERT INTO policy_versions (id, at, actor, action, added, changed, removed, last_change)
SELECT 1, extract(epoch FROM now())::bigint, 'headgate', 'start', count(*), 0, 0, coalesce(max(id), 0) FROM policy_changes;

-- What a statement leaves as it was, the time of change aside, is no change.
-- With the owner's rights, so that who may change rules need not be given any to
-- the history.
-- +goose StatementBegin
CREATE FUNCTION headgate_rules_recorded() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a_rule CONSTANT text := 'endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent';
BEGIN
    CASE TG_OP
    WHEN 'INSERT' THEN
        EXECUTE format('INSERT INTO %I.policy_changes (side, %s) SELECT ''+'', %s FROM added', TG_TABLE_SCHEMA, a_rule, a_rule);
    WHEN 'DELETE' THEN
        EXECUTE format('INSERT INTO %I.policy_changes (side, %s) SELECT ''-'', %s FROM removed', TG_TABLE_SCHEMA, a_rule, a_rule);
    WHEN 'UPDATE' THEN
        EXECUTE format('INSERT INTO %I.policy_changes (side, %s) SELECT ''-'', * FROM (SELECT %s FROM removed EXCEPT ALL SELECT %s FROM added) AS was',
            TG_TABLE_SCHEMA, a_rule, a_rule, a_rule);
        EXECUTE format('INSERT INTO %I.policy_changes (side, %s) SELECT ''+'', * FROM (SELECT %s FROM added EXCEPT ALL SELECT %s FROM removed) AS became',
            TG_TABLE_SCHEMA, a_rule, a_rule, a_rule);
    WHEN 'TRUNCATE' THEN -- before it, and before headgate_changed
        EXECUTE format('UPDATE %I.headgate_version SET version = gen_random_uuid()::text', TG_TABLE_SCHEMA);
        EXECUTE format('INSERT INTO %I.policy_changes (side, %s) SELECT ''-'', %s FROM %I.policies', TG_TABLE_SCHEMA, a_rule, a_rule, TG_TABLE_SCHEMA);
    END CASE;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- Called in the order of their names: after policies_changed.
CREATE TRIGGER policies_recorded_insert AFTER INSERT ON policies
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION headgate_rules_recorded();
CREATE TRIGGER policies_recorded_update AFTER UPDATE ON policies
    REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION headgate_rules_recorded();
CREATE TRIGGER policies_recorded_delete AFTER DELETE ON policies
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION headgate_rules_recorded();
CREATE TRIGGER policies_recorded_truncate BEFORE TRUNCATE ON policies
    FOR EACH STATEMENT EXECUTE FUNCTION headgate_rules_recorded();

-- +goose StatementBegin
CREATE FUNCTION headgate_tiers_recorded() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE TG_OP
    WHEN 'INSERT' THEN
        EXECUTE format('INSERT INTO %I.policy_changes (side, project_id, tier) SELECT ''+'', project_id, tier FROM added', TG_TABLE_SCHEMA);
    WHEN 'DELETE' THEN
        EXECUTE format('INSERT INTO %I.policy_changes (side, project_id, tier) SELECT ''-'', project_id, tier FROM removed', TG_TABLE_SCHEMA);
    WHEN 'UPDATE' THEN
        EXECUTE format('INSERT INTO %I.policy_changes (side, project_id, tier) SELECT ''-'', * FROM
            (SELECT project_id, tier FROM removed EXCEPT ALL SELECT project_id, tier FROM added) AS was', TG_TABLE_SCHEMA);
        EXECUTE format('INSERT INTO %I.policy_changes (side, project_id, tier) SELECT ''+'', * FROM
            (SELECT project_id, tier FROM added EXCEPT ALL SELECT project_id, tier FROM removed) AS became', TG_TABLE_SCHEMA);
    WHEN 'TRUNCATE' THEN
        EXECUTE format('UPDATE %I.headgate_version SET version = gen_random_uuid()::text', TG_TABLE_SCHEMA);
        EXECUTE format('INSERT INTO %I.policy_changes (side, project_id, tier) SELECT ''-'', project_id, tier FROM %I.projects', TG_TABLE_SCHEMA, TG_TABLE_SCHEMA);
    END CASE;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER projects_recorded_insert AFTER INSERT ON projects
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION headgate_tiers_recorded();
CREATE TRIGGER projects_recorded_update AFTER UPDATE ON projects
    REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION headgate_tiers_recorded();
CREATE TRIGGER projects_recorded_delete AFTER DELETE ON projects
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION headgate_tiers_recorded();
CREATE TRIGGER projects_recorded_truncate BEFORE TRUNCATE ON projects
    FOR EACH STATEMENT EXECUTE FUNCTION headgate_tiers_recorded();

-- +goose StatementBegin
CREATE FUNCTION headgate_history_keeps_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the history is append-only';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION headgate_history_keeps_what_is_not_forgotten() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    forgotten bigint;
BEGIN
    EXECUTE format('SELECT coalesce(max(last_change), 0) FROM %I.policy_forgotten', TG_TABLE_SCHEMA) INTO forgotten;
    IF EXISTS (SELECT FROM removed WHERE id > forgotten) THEN
        RAISE EXCEPTION 'the history is append-only';
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER policy_changes_keep_all BEFORE UPDATE OR TRUNCATE ON policy_changes
    FOR EACH STATEMENT EXECUTE FUNCTION headgate_history_keeps_all();
CREATE TRIGGER policy_changes_keep_the_rest AFTER DELETE ON policy_changes
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION headgate_history_keeps_what_is_not_forgotten();
CREATE TRIGGER policy_versions_keep_all BEFORE UPDATE OR DELETE OR TRUNCATE ON policy_versions
    FOR EACH STATEMENT EXECUTE FUNCTION headgate_history_keeps_all();
CREATE TRIGGER policy_forgotten_keep_all BEFORE UPDATE OR DELETE OR TRUNCATE ON policy_forgotten
    FOR EACH STATEMENT EXECUTE FUNCTION headgate_history_keeps_all();
