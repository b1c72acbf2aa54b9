-- +goose Up

-- What every running gateway last told of itself; times in milliseconds.
-- Nobody has to learn of a change here, and rows that nobody renews are removed
-- after a day.
CREATE TABLE replicas (
    name         TEXT   COLLATE "C" PRIMARY KEY CHECK (name <> ''),
    process      TEXT   NOT NULL,
    program      TEXT   NOT NULL,
    started_at   BIGINT NOT NULL,
    rules        TEXT   NOT NULL,
    rules_number BIGINT NOT NULL,
    loaded_at    BIGINT NOT NULL,
    stale_ms     BIGINT NOT NULL,
    every_ms     BIGINT NOT NULL,
    last_error   TEXT   NOT NULL,
    seen_at      BIGINT NOT NULL
);
