-- Definitions are no transaction here: each statement may find what was done
-- before the last attempt ended.

-- +goose Up

-- Requests of callers for a higher limit, and what became of them. What was
-- asked never changes, and what was decided stays. A project is found by a hash,
-- which counts spaces at its end.
CREATE TABLE IF NOT EXISTS limit_requests (
    id                  BIGINT AUTO_INCREMENT PRIMARY KEY,
    request             VARCHAR(64) NOT NULL CHECK (request <> ''),
    filed_at            BIGINT NOT NULL,
    actor               TEXT   NOT NULL CHECK (actor <> ''),
    claimed             TEXT,
    project_id          TEXT   NOT NULL CHECK (project_id <> ''),
    endpoint            TEXT   NOT NULL CHECK (endpoint <> ''),
    subject             VARCHAR(32) NOT NULL,
    rps_limit           BIGINT NOT NULL CHECK (rps_limit > 0),
    per_seconds         BIGINT NOT NULL CHECK (per_seconds > 0),
    burst               BIGINT CHECK (burst > 0),
    until_at            BIGINT CHECK (until_at > 0),
    for_seconds         BIGINT CHECK (for_seconds > 0), -- from the approval on
    reason              TEXT   NOT NULL,
    state               VARCHAR(16) NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'approved', 'declined', 'withdrawn', 'expired')),
    decided_at          BIGINT,
    decided_by          TEXT,
    decided_claimed     TEXT,
    note                TEXT,
    granted_limit       BIGINT CHECK (granted_limit > 0),
    granted_per_seconds BIGINT CHECK (granted_per_seconds > 0),
    granted_burst       BIGINT CHECK (granted_burst > 0),
    granted_until       BIGINT CHECK (granted_until > 0),
    version             BIGINT CHECK (version > 0), -- of the rules, that the approval made
    project_key         VARBINARY(32) AS (unhex(sha2(project_id, 256))) STORED,
    CONSTRAINT one_of_until_at_and_for_seconds CHECK ((until_at IS NULL) <> (for_seconds IS NULL)),
    UNIQUE KEY limit_requests_request (request),
    KEY limit_requests_by_project (project_key, id),
    KEY limit_requests_by_state (state, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

DROP TRIGGER IF EXISTS limit_requests_before_update;
-- +goose StatementBegin
CREATE TRIGGER limit_requests_before_update BEFORE UPDATE ON limit_requests FOR EACH ROW
BEGIN
    IF OLD.state <> 'open' OR NEW.state = 'open' OR NEW.id <> OLD.id OR NEW.request <> OLD.request OR NEW.filed_at <> OLD.filed_at
        OR NEW.actor <> OLD.actor OR NEW.project_id <> OLD.project_id OR NEW.endpoint <> OLD.endpoint OR NEW.subject <> OLD.subject
        OR NEW.rps_limit <> OLD.rps_limit OR NEW.per_seconds <> OLD.per_seconds OR NEW.reason <> OLD.reason THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a request stays as it was filed and as it was decided';
    END IF;
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS limit_requests_before_delete;
CREATE TRIGGER limit_requests_before_delete BEFORE DELETE ON limit_requests FOR EACH ROW
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a request stays as it was filed and as it was decided';
