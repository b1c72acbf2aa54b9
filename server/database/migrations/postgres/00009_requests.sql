-- +goose Up

-- Requests of callers for a higher limit, and what became of them. What was
-- asked never changes, and what was decided stays. No trigger tells gateways:
-- these are no rules.
CREATE TABLE limit_requests (
    id                  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request             TEXT   COLLATE "C" NOT NULL UNIQUE CHECK (request <> ''),
    filed_at            BIGINT NOT NULL,
    actor               TEXT   NOT NULL CHECK (actor <> ''),
    claimed             TEXT,
    project_id          TEXT   COLLATE "C" NOT NULL CHECK (project_id <> ''),
    endpoint            TEXT   COLLATE "C" NOT NULL CHECK (endpoint <> ''),
    subject             TEXT   NOT NULL,
    rps_limit           BIGINT NOT NULL CHECK (rps_limit > 0),
    per_seconds         BIGINT NOT NULL CHECK (per_seconds > 0),
    burst               BIGINT CHECK (burst > 0),
    until_at            BIGINT CHECK (until_at > 0),
    for_seconds         BIGINT CHECK (for_seconds > 0), -- from the approval on
    reason              TEXT   NOT NULL,
    state               TEXT   NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'approved', 'declined', 'withdrawn', 'expired')),
    decided_at          BIGINT,
    decided_by          TEXT,
    decided_claimed     TEXT,
    note                TEXT,
    granted_limit       BIGINT CHECK (granted_limit > 0),
    granted_per_seconds BIGINT CHECK (granted_per_seconds > 0),
    granted_burst       BIGINT CHECK (granted_burst > 0),
    granted_until       BIGINT CHECK (granted_until > 0),
    version             BIGINT CHECK (version > 0), -- of the rules, that the approval made
    CHECK ((until_at IS NULL) <> (for_seconds IS NULL))
);
CREATE INDEX limit_requests_by_project ON limit_requests (project_id, id);
CREATE INDEX limit_requests_open ON limit_requests (id) WHERE state = 'open';

-- +goose StatementBegin
CREATE FUNCTION headgate_requests_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.state = 'open' AND NEW.state <> 'open'
        AND (NEW.id, NEW.request, NEW.filed_at, NEW.actor, NEW.project_id, NEW.endpoint, NEW.subject, NEW.rps_limit, NEW.per_seconds, NEW.reason)
          = (OLD.id, OLD.request, OLD.filed_at, OLD.actor, OLD.project_id, OLD.endpoint, OLD.subject, OLD.rps_limit, OLD.per_seconds, OLD.reason) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a request stays as it was filed and as it was decided';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER limit_requests_stay BEFORE UPDATE OR DELETE ON limit_requests
    FOR EACH ROW EXECUTE FUNCTION headgate_requests_stay();
CREATE TRIGGER limit_requests_keep_all BEFORE TRUNCATE ON limit_requests
    FOR EACH STATEMENT EXECUTE FUNCTION headgate_requests_stay();
