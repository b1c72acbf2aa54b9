-- Definitions are no transaction here: each statement may find what was done
-- before the last attempt ended.

-- +goose Up

-- The share of a rule's subjects that it denies, the others are only counted;
-- NULL is all of them. MySQL has no ADD COLUMN IF NOT EXISTS.
SET @add = (SELECT if(count(*) = 0,
    'ALTER TABLE policies ADD COLUMN enforce_percent BIGINT CHECK (enforce_percent BETWEEN 1 AND 100)', 'DO 0')
    FROM information_schema.columns WHERE table_schema = database() AND table_name = 'policies' AND column_name = 'enforce_percent');
PREPARE add_column FROM @add;
EXECUTE add_column;
DEALLOCATE PREPARE add_column;

-- A rule that expires stands beside the lasting one, and takes its place until then.
ALTER TABLE policies MODIFY COLUMN rule_key VARBINARY(32) AS (unhex(sha2(concat_ws(char(0),
    endpoint, coalesce(project_id, ''), coalesce(tier, ''), subject, CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END), 256))) STORED;
