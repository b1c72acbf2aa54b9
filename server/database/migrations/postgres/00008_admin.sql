-- +goose Up

-- Who may use the admin listener. The token itself is never stored: it is
-- random enough that its SHA-256 tells nobody anything. Gateways look at this
-- table by themselves, so that a new token makes none of them load its rules.
CREATE TABLE admin_tokens (
    rowid      BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    id         TEXT   COLLATE "C" PRIMARY KEY CHECK (id <> ''),
    name       TEXT   COLLATE "C" NOT NULL UNIQUE CHECK (name <> ''),
    roles      TEXT   NOT NULL CHECK (roles <> ''),
    digest     BYTEA  NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at BIGINT NOT NULL CHECK (created_at > 0),
    expires_at BIGINT CHECK (expires_at > 0),
    revoked_at BIGINT CHECK (revoked_at > 0)
);

-- Every call of the admin listener. One that changes something is written down
-- before it is made, without a status, and gets one when it has ended.
CREATE TABLE api_calls (
    id        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        BIGINT NOT NULL CHECK (at > 0),
    actor     TEXT   NOT NULL CHECK (actor <> ''),
    token_id  TEXT,
    peer      TEXT   NOT NULL,
    operation TEXT   NOT NULL,
    changes   BIGINT NOT NULL CHECK (changes IN (0, 1)),
    about     TEXT,
    status    BIGINT CHECK (status BETWEEN 100 AND 599),
    micros    BIGINT CHECK (micros > 0)
);
CREATE INDEX api_calls_of_kind ON api_calls (changes, id);

-- What is old goes by DELETE; nothing is rewritten.
-- +goose StatementBegin
CREATE FUNCTION headgate_calls_keep_what_they_say() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status IS NOT NULL OR NEW.status IS NULL
        OR (NEW.id, NEW.at, NEW.actor, NEW.token_id, NEW.peer, NEW.operation, NEW.changes)
            IS DISTINCT FROM (OLD.id, OLD.at, OLD.actor, OLD.token_id, OLD.peer, OLD.operation, OLD.changes) THEN
        RAISE EXCEPTION 'the record of calls is append-only';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER api_calls_keep_what_they_say BEFORE UPDATE ON api_calls
    FOR EACH ROW EXECUTE FUNCTION headgate_calls_keep_what_they_say();
