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
-- the history. The rows before and after an UPDATE are brought together by their
-- number, in one pass: to tell the difference of the two sets would sort both,
-- twice.
-- +goose StatementBegin
CREATE FUNCTION headgate_rules_recorded() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a_rule CONSTANT text := 'endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent';
    was    CONSTANT text := 'r.' || replace(a_rule, ', ', ', r.');
    became CONSTANT text := 'a.' || replace(a_rule, ', ', ', a.');
    image  CONSTANT text := format('INSERT INTO %I.policy_changes (at, who, side, %s) ', TG_TABLE_SCHEMA, a_rule);
    now    CONSTANT bigint := extract(epoch FROM clock_timestamp());
    who    CONSTANT text := session_user;
BEGIN
    CASE TG_OP
    WHEN 'INSERT' THEN
        EXECUTE image || format('SELECT $1, $2, ''+'', %s FROM added', a_rule) USING now, who;
    WHEN 'DELETE' THEN
        EXECUTE image || format('SELECT $1, $2, ''-'', %s FROM removed', a_rule) USING now, who;
    WHEN 'UPDATE' THEN
        EXECUTE image || format('SELECT $1, $2, i.* FROM removed r FULL JOIN added a USING (rowid)
            CROSS JOIN LATERAL (VALUES (''-'', %s), (''+'', %s)) AS i (side, %s)
            WHERE (%s) IS DISTINCT FROM (%s) AND i.endpoint IS NOT NULL', was, became, a_rule, was, became) USING now, who;
    WHEN 'TRUNCATE' THEN -- before it, and before headgate_changed
        EXECUTE format('UPDATE %I.headgate_version SET version = gen_random_uuid()::text', TG_TABLE_SCHEMA);
        EXECUTE image || format('SELECT $1, $2, ''-'', %s FROM %I.policies', a_rule, TG_TABLE_SCHEMA) USING now, who;
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
DECLARE
    image CONSTANT text := format('INSERT INTO %I.policy_changes (at, who, side, project_id, tier) ', TG_TABLE_SCHEMA);
    now   CONSTANT bigint := extract(epoch FROM clock_timestamp());
    who   CONSTANT text := session_user;
BEGIN
    CASE TG_OP
    WHEN 'INSERT' THEN
        EXECUTE image || 'SELECT $1, $2, ''+'', project_id, tier FROM added' USING now, who;
    WHEN 'DELETE' THEN
        EXECUTE image || 'SELECT $1, $2, ''-'', project_id, tier FROM removed' USING now, who;
    WHEN 'UPDATE' THEN
        EXECUTE image || 'SELECT $1, $2, i.* FROM removed r FULL JOIN added a USING (rowid)
            CROSS JOIN LATERAL (VALUES (''-'', r.project_id, r.tier), (''+'', a.project_id, a.tier)) AS i (side, project_id, tier)
            WHERE (r.project_id, r.tier) IS DISTINCT FROM (a.project_id, a.tier) AND i.project_id IS NOT NULL' USING now, who;
    WHEN 'TRUNCATE' THEN
        EXECUTE format('UPDATE %I.headgate_version SET version = gen_random_uuid()::text', TG_TABLE_SCHEMA);
        EXECUTE image || format('SELECT $1, $2, ''-'', project_id, tier FROM %I.projects', TG_TABLE_SCHEMA) USING now, who;
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
