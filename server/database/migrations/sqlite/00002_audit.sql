-- +goose Up

-- What operators changed in buckets, written before it is done. Nothing of it
-- is ever changed or deleted; the triggers keep slips of the shell away too.
CREATE TABLE audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL
        CHECK (typeof(at) = 'integer'),
    actor      TEXT    NOT NULL
        CHECK (typeof(actor) = 'text' AND actor <> ''),
    claimed    TEXT
        CHECK (claimed IS NULL OR typeof(claimed) = 'text'),
    action     TEXT    NOT NULL
        CHECK (typeof(action) = 'text' AND action <> ''),
    rule       TEXT    NOT NULL
        CHECK (typeof(rule) = 'text'),
    endpoint   TEXT    NOT NULL
        CHECK (typeof(endpoint) = 'text'),
    subject    TEXT    NOT NULL
        CHECK (typeof(subject) = 'text'),
    whose      TEXT    NOT NULL
        CHECK (typeof(whose) = 'text'),
    amount     INTEGER
        CHECK (amount IS NULL OR (typeof(amount) = 'integer' AND amount > 0)),
    expires_at INTEGER
        CHECK (expires_at IS NULL OR (typeof(expires_at) = 'integer' AND expires_at > 0))
);

-- +goose StatementBegin
CREATE TRIGGER audit_keeps_what_it_says BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_keeps_all BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
-- +goose StatementEnd
