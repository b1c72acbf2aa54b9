-- Definitions are no transaction here: each statement may find what was done
-- before the last attempt ended.

-- +goose Up

-- Requests for a higher limit that were decided go after a time, which the
-- configuration says. Open ones stay, and so does what was decided of late.
DROP TRIGGER IF EXISTS limit_requests_before_delete;
-- +goose StatementBegin
CREATE TRIGGER limit_requests_before_delete BEFORE DELETE ON limit_requests FOR EACH ROW
BEGIN
    IF OLD.state = 'open' OR OLD.decided_at IS NULL OR OLD.decided_at > unix_timestamp() - 30 * 86400 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a request stays as it was filed and as it was decided, for 30 days at least';
    END IF;
END;
-- +goose StatementEnd
