-- +goose Up

-- By how many milliseconds the clock of a replica is ahead of that of the store
-- of shared buckets; NULL where there is none, or nobody knows.
ALTER TABLE replicas ADD COLUMN clock_offset_ms INTEGER;
