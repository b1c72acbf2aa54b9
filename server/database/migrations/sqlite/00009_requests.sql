-- +goose Up

-- Requests of callers for a higher limit, and what became of them. What was
-- asked never changes, and what was decided stays.
CREATE TABLE limit_requests (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    request             TEXT    NOT NULL UNIQUE
        CHECK (typeof(request) = 'text' AND request <> ''),
    filed_at            INTEGER NOT NULL
        CHECK (typeof(filed_at) = 'integer'),
    actor               TEXT    NOT NULL
        CHECK (typeof(actor) = 'text' AND actor <> ''),
    claimed             TEXT
        CHECK (claimed IS NULL OR typeof(claimed) = 'text'),
    project_id          TEXT    NOT NULL
        CHECK (typeof(project_id) = 'text' AND project_id <> ''),
    endpoint            TEXT    NOT NULL
        CHECK (typeof(endpoint) = 'text' AND endpoint <> ''),
    subject             TEXT    NOT NULL
        CHECK (typeof(subject) = 'text'),
    rps_limit           INTEGER NOT NULL
        CHECK (typeof(rps_limit) = 'integer' AND rps_limit > 0),
    per_seconds         INTEGER NOT NULL
        CHECK (typeof(per_seconds) = 'integer' AND per_seconds > 0),
    burst               INTEGER
        CHECK (burst IS NULL OR (typeof(burst) = 'integer' AND burst > 0)),
    until_at            INTEGER
        CHECK (until_at IS NULL OR (typeof(until_at) = 'integer' AND until_at > 0)),
    for_seconds         INTEGER -- from the approval on
        CHECK (for_seconds IS NULL OR (typeof(for_seconds) = 'integer' AND for_seconds > 0)),
    reason              TEXT    NOT NULL
        CHECK (typeof(reason) = 'text'),
    state               TEXT    NOT NULL DEFAULT 'open'
        CHECK (state IN ('open', 'approved', 'declined', 'withdrawn', 'expired')),
    decided_at          INTEGER
        CHECK (decided_at IS NULL OR typeof(decided_at) = 'integer'),
    decided_by          TEXT
        CHECK (decided_by IS NULL OR typeof(decided_by) = 'text'),
    decided_claimed     TEXT
        CHECK (decided_claimed IS NULL OR typeof(decided_claimed) = 'text'),
    note                TEXT
        CHECK (note IS NULL OR typeof(note) = 'text'),
    granted_limit       INTEGER
        CHECK (granted_limit IS NULL OR (typeof(granted_limit) = 'integer' AND granted_limit > 0)),
    granted_per_seconds INTEGER
        CHECK (granted_per_seconds IS NULL OR (typeof(granted_per_seconds) = 'integer' AND granted_per_seconds > 0)),
    granted_burst       INTEGER
        CHECK (granted_burst IS NULL OR (typeof(granted_burst) = 'integer' AND granted_burst > 0)),
    granted_until       INTEGER
        CHECK (granted_until IS NULL OR (typeof(granted_until) = 'integer' AND granted_until > 0)),
    version             INTEGER -- of the rules, that the approval made
        CHECK (version IS NULL OR (typeof(version) = 'integer' AND version > 0)),
    CHECK ((until_at IS NULL) <> (for_seconds IS NULL))
);
CREATE INDEX limit_requests_by_project ON limit_requests (project_id, id);
CREATE INDEX limit_requests_open ON limit_requests (id) WHERE state = 'open';

-- +goose StatementBegin
CREATE TRIGGER limit_requests_stay BEFORE UPDATE ON limit_requests
WHEN OLD.state <> 'open' OR NEW.state = 'open' OR NEW.id <> OLD.id OR NEW.request <> OLD.request OR NEW.filed_at <> OLD.filed_at
    OR NEW.actor <> OLD.actor OR NEW.project_id <> OLD.project_id OR NEW.endpoint <> OLD.endpoint OR NEW.subject <> OLD.subject
    OR NEW.rps_limit <> OLD.rps_limit OR NEW.per_seconds <> OLD.per_seconds OR NEW.reason <> OLD.reason
BEGIN
    SELECT RAISE(ABORT, 'a request stays as it was filed and as it was decided');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER limit_requests_keep_all BEFORE DELETE ON limit_requests
BEGIN
    SELECT RAISE(ABORT, 'a request stays as it was filed and as it was decided');
END;
-- +goose StatementEnd
