-- +goose Up

-- Who may use the admin listener. The token itself is never stored: it is
-- random enough that its SHA-256 tells nobody anything. Gateways look at this
-- table by themselves, so that a new token makes none of them load its rules.
CREATE TABLE admin_tokens (
    id         TEXT    PRIMARY KEY NOT NULL
        CHECK (typeof(id) = 'text' AND id <> ''),
    name       TEXT    NOT NULL UNIQUE
        CHECK (typeof(name) = 'text' AND name <> ''),
    roles      TEXT    NOT NULL
        CHECK (typeof(roles) = 'text' AND roles <> ''),
    digest     BLOB    NOT NULL UNIQUE
        CHECK (typeof(digest) = 'blob' AND length(digest) = 32),
    created_at INTEGER NOT NULL
        CHECK (typeof(created_at) = 'integer' AND created_at > 0),
    expires_at INTEGER
        CHECK (expires_at IS NULL OR (typeof(expires_at) = 'integer' AND expires_at > 0)),
    revoked_at INTEGER
        CHECK (revoked_at IS NULL OR (typeof(revoked_at) = 'integer' AND revoked_at > 0))
);

-- Every call of the admin listener. One that changes something is written down
-- before it is made, without a status, and gets one when it has ended.
CREATE TABLE api_calls (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL
        CHECK (typeof(at) = 'integer' AND at > 0),
    actor     TEXT    NOT NULL
        CHECK (typeof(actor) = 'text' AND actor <> ''),
    token_id  TEXT
        CHECK (token_id IS NULL OR typeof(token_id) = 'text'),
    peer      TEXT    NOT NULL
        CHECK (typeof(peer) = 'text'),
    operation TEXT    NOT NULL
        CHECK (typeof(operation) = 'text'),
    changes   INTEGER NOT NULL
        CHECK (changes IN (0, 1)),
    about     TEXT
        CHECK (about IS NULL OR typeof(about) = 'text'),
    status    INTEGER
        CHECK (status IS NULL OR (typeof(status) = 'integer' AND status BETWEEN 100 AND 599)),
    micros    INTEGER
        CHECK (micros IS NULL OR (typeof(micros) = 'integer' AND micros > 0))
);
CREATE INDEX api_calls_of_kind ON api_calls (changes, id);

-- What is old goes by DELETE; nothing is rewritten.
-- +goose StatementBegin
CREATE TRIGGER api_calls_keep_what_they_say BEFORE UPDATE ON api_calls
WHEN OLD.status IS NOT NULL OR NEW.status IS NULL OR NEW.id <> OLD.id OR NEW.at <> OLD.at OR NEW.actor <> OLD.actor
    OR coalesce(NEW.token_id, '') <> coalesce(OLD.token_id, '') OR NEW.peer <> OLD.peer OR NEW.operation <> OLD.operation OR NEW.changes <> OLD.changes
BEGIN
    SELECT RAISE(ABORT, 'the record of calls is append-only');
END;
-- +goose StatementEnd
