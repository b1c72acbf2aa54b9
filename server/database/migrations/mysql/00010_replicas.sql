-- +goose Up

-- What every running gateway last told of itself; times in milliseconds.
-- Nobody has to learn of a change here, and rows that nobody renews are removed
-- after a day.
CREATE TABLE IF NOT EXISTS replicas (
    name         VARCHAR(128) NOT NULL PRIMARY KEY CHECK (name <> ''),
    process      VARCHAR(64)  NOT NULL,
    program      VARCHAR(128) NOT NULL,
    started_at   BIGINT NOT NULL,
    rules        VARCHAR(128) NOT NULL,
    rules_number BIGINT NOT NULL,
    loaded_at    BIGINT NOT NULL,
    stale_ms     BIGINT NOT NULL,
    every_ms     BIGINT NOT NULL,
    last_error   TEXT   NOT NULL,
    seen_at      BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
