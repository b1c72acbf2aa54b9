-- +goose Up

-- Its one row changes with every change that gateways must learn of, to a text
-- of its own. What SQLite itself tells, that the file has changed, is so of
-- tables too that gateways do not read.
CREATE TABLE headgate_version (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    version TEXT NOT NULL CHECK (typeof(version) = 'text' AND version <> '')
);
INSERT INTO headgate_version (id, version) VALUES (1, lower(hex(randomblob(16))));

-- +goose StatementBegin
CREATE TRIGGER policies_insert_is_news AFTER INSERT ON policies
BEGIN
    UPDATE headgate_version SET version = lower(hex(randomblob(16)));
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policies_update_is_news AFTER UPDATE ON policies
BEGIN
    UPDATE headgate_version SET version = lower(hex(randomblob(16)));
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policies_delete_is_news AFTER DELETE ON policies
BEGIN
    UPDATE headgate_version SET version = lower(hex(randomblob(16)));
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER projects_insert_is_news AFTER INSERT ON projects
BEGIN
    UPDATE headgate_version SET version = lower(hex(randomblob(16)));
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER projects_update_is_news AFTER UPDATE ON projects
BEGIN
    UPDATE headgate_version SET version = lower(hex(randomblob(16)));
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER projects_delete_is_news AFTER DELETE ON projects
BEGIN
    UPDATE headgate_version SET version = lower(hex(randomblob(16)));
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER api_keys_insert_is_news AFTER INSERT ON api_keys
BEGIN
    UPDATE headgate_version SET version = lower(hex(randomblob(16)));
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER api_keys_update_is_news AFTER UPDATE ON api_keys
BEGIN
    UPDATE headgate_version SET version = lower(hex(randomblob(16)));
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER api_keys_delete_is_news AFTER DELETE ON api_keys
BEGIN
    UPDATE headgate_version SET version = lower(hex(randomblob(16)));
END;
-- +goose StatementEnd

-- What every running gateway last told of itself; times in milliseconds. Nobody has to learn of a
-- change here, and rows that nobody renews are removed after a day.
CREATE TABLE replicas (
    name         TEXT    PRIMARY KEY NOT NULL
        CHECK (typeof(name) = 'text' AND name <> ''),
    process      TEXT    NOT NULL,
    program      TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    rules        TEXT    NOT NULL,
    rules_number INTEGER NOT NULL,
    loaded_at    INTEGER NOT NULL,
    stale_ms     INTEGER NOT NULL,
    every_ms     INTEGER NOT NULL,
    last_error   TEXT    NOT NULL,
    seen_at      INTEGER NOT NULL
);
