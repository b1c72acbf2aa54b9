-- +goose Up

-- A rule's subject may be site. SQLite has no way to change the check of a column
-- but to make the table anew with its indexes and triggers, or to change its
-- text, which its manual allows where no row is stored otherwise
-- (https://www.sqlite.org/lang_altertable.html#otheralter).
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, '''identifier'', ''identifier_ip'')', '''identifier'', ''identifier_ip'', ''site'')')
WHERE type = 'table' AND name = 'policies';
PRAGMA writable_schema = RESET;

-- Whoever has the database open reads the text again when something else of the
-- schema has changed.
CREATE TABLE changed_nothing (n INTEGER);
DROP TABLE changed_nothing;
