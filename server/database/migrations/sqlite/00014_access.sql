-- +goose Up

-- A rule may allow or block what it is for, without a limit, and be for one network or caller. The text of the
-- checks is changed as in 00012.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(replace(sql,
    'CHECK (mode IN (''enforce'', ''shadow''))', 'CHECK (mode IN (''enforce'', ''shadow'', ''allow'', ''block''))'),
    '''identifier'', ''identifier_ip'', ''site''))', '''identifier'', ''identifier_ip'', ''site'')
            OR subject LIKE ''ip:_%'' OR subject LIKE ''api_key:_%'' OR subject LIKE ''token:_%'' OR subject LIKE ''certificate:_%'' OR subject LIKE ''user:_%'')')
WHERE type = 'table' AND name = 'policies';
PRAGMA writable_schema = RESET;

-- Whoever has the database open reads the text again when something else of the
-- schema has changed.
CREATE TABLE changed_nothing (n INTEGER);
DROP TABLE changed_nothing;
