-- Definitions are no transaction here: each statement may find what was done
-- before the last attempt ended.

-- +goose Up

-- By how many milliseconds the clock of a replica is ahead of that of the store
-- of shared buckets; NULL where there is none, or nobody knows. MySQL has no
-- ADD COLUMN IF NOT EXISTS.
SET @add = (SELECT if(count(*) = 0, 'ALTER TABLE replicas ADD COLUMN clock_offset_ms BIGINT', 'DO 0')
    FROM information_schema.columns WHERE table_schema = database() AND table_name = 'replicas' AND column_name = 'clock_offset_ms');
PREPARE add_column FROM @add;
EXECUTE add_column;
DEALLOCATE PREPARE add_column;
