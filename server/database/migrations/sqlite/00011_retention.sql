-- +goose Up

-- Requests for a higher limit that were decided go after a time, which the
-- configuration says. Open ones stay, and so does what was decided of late.
DROP TRIGGER limit_requests_keep_all;
-- +goose StatementBegin
CREATE TRIGGER limit_requests_keep_all BEFORE DELETE ON limit_requests
WHEN OLD.state = 'open' OR OLD.decided_at IS NULL OR OLD.decided_at > CAST(strftime('%s', 'now') AS INTEGER) - 30 * 86400
BEGIN
    SELECT RAISE(ABORT, 'a request stays as it was filed and as it was decided, for 30 days at least');
END;
-- +goose StatementEnd
CREATE INDEX limit_requests_decided ON limit_requests (decided_at) WHERE state <> 'open';
