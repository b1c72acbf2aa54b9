-- Definitions are no transaction here: each statement may find what was done
-- before the last attempt ended.

-- +goose Up

-- Who may use the admin listener. The token itself is never stored: it is
-- random enough that its SHA-256 tells nobody anything. Gateways look at this
-- table by themselves, so that a new token makes none of them load its rules.
CREATE TABLE IF NOT EXISTS admin_tokens (
    rowid      BIGINT AUTO_INCREMENT PRIMARY KEY,
    id         VARCHAR(64) NOT NULL CHECK (id <> ''),
    name       VARCHAR(64) NOT NULL CHECK (name <> ''),
    roles      VARCHAR(64) NOT NULL CHECK (roles <> ''),
    digest     VARBINARY(32) NOT NULL CHECK (length(digest) = 32),
    created_at BIGINT NOT NULL CHECK (created_at > 0),
    expires_at BIGINT CHECK (expires_at > 0),
    revoked_at BIGINT CHECK (revoked_at > 0),
    UNIQUE KEY admin_tokens_id (id),
    UNIQUE KEY admin_tokens_name (name),
    UNIQUE KEY admin_tokens_digest (digest)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Every call of the admin listener. One that changes something is written down
-- before it is made, without a status, and gets one when it has ended.
CREATE TABLE IF NOT EXISTS api_calls (
    id        BIGINT AUTO_INCREMENT PRIMARY KEY,
    at        BIGINT NOT NULL CHECK (at > 0),
    actor     TEXT   NOT NULL CHECK (actor <> ''),
    token_id  VARCHAR(64),
    peer      VARCHAR(64) NOT NULL,
    operation VARCHAR(64) NOT NULL,
    changes   BIGINT NOT NULL CHECK (changes IN (0, 1)),
    about     TEXT,
    status    BIGINT CHECK (status BETWEEN 100 AND 599),
    micros    BIGINT CHECK (micros > 0),
    KEY api_calls_of_kind (changes, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What is old goes by DELETE; nothing is rewritten.
DROP TRIGGER IF EXISTS api_calls_keep_what_they_say;
-- +goose StatementBegin
CREATE TRIGGER api_calls_keep_what_they_say BEFORE UPDATE ON api_calls FOR EACH ROW
BEGIN
    IF OLD.status IS NOT NULL OR NEW.status IS NULL OR NEW.id <> OLD.id OR NEW.at <> OLD.at OR NEW.actor <> OLD.actor
        OR NOT (NEW.token_id <=> OLD.token_id) OR NEW.peer <> OLD.peer OR NEW.operation <> OLD.operation OR NEW.changes <> OLD.changes THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the record of calls is append-only';
    END IF;
END;
-- +goose StatementEnd
