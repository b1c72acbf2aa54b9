-- +goose Up

-- Of which class requests are that the rule applies to, such as low, or how classes share its budget; NULL says nothing of classes.
ALTER TABLE policies ADD COLUMN priority TEXT CHECK (priority <> '' AND length(priority) <= 64);
ALTER TABLE policy_changes ADD COLUMN priority TEXT;

-- As before, and without the new column too.
DROP INDEX policies_not_plain;
CREATE INDEX policies_not_plain ON policies (rowid)
    WHERE NOT (per_seconds = 1 AND burst IS NULL AND subject = 'principal' AND algorithm = 'token_bucket' AND mode = 'enforce'
        AND tier IS NULL AND scope = 'local' AND on_store_loss = 'closed' AND expires_at IS NULL AND name IS NULL
        AND enforce_percent IS NULL AND count_when IS NULL AND penalty IS NULL AND refusal IS NULL AND priority IS NULL);

-- The history has it; the function is what it was otherwise (00007).
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION headgate_rules_recorded() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a_rule CONSTANT text := 'endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority';
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
