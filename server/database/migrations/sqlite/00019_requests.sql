-- +goose Up

-- A rule may count requests, whatever each costs, which its subject says. The text of the check is changed as in 00012.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql,
    'OR subject LIKE ''path:_%''', 'OR subject LIKE ''requests:_%'' OR subject LIKE ''path:_%''')
WHERE type = 'table' AND name = 'policies';
PRAGMA writable_schema = RESET;

-- Whoever has the database open reads the text again when something else of the
-- schema has changed.
CREATE TABLE changed_nothing (n INTEGER);
DROP TABLE changed_nothing;
