-- +goose Up

-- A rule that allows or blocks may be about an agent that signs its requests. The text of the check is changed as in
-- 00012.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql,
    'OR subject LIKE ''user:_%''', 'OR subject LIKE ''user:_%'' OR subject LIKE ''signed_agent:_%''')
WHERE type = 'table' AND name = 'policies';
PRAGMA writable_schema = RESET;

-- Whoever has the database open reads the text again when something else of the
-- schema has changed.
CREATE TABLE changed_nothing (n INTEGER);
DROP TABLE changed_nothing;
