-- +goose Up

-- Requests for a higher limit that were decided go after a time, which the
-- configuration says. Open ones stay, and so does what was decided of late.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION headgate_requests_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.state = 'open' AND NEW.state <> 'open'
        AND (NEW.id, NEW.request, NEW.filed_at, NEW.actor, NEW.project_id, NEW.endpoint, NEW.subject, NEW.rps_limit, NEW.per_seconds, NEW.reason)
          = (OLD.id, OLD.request, OLD.filed_at, OLD.actor, OLD.project_id, OLD.endpoint, OLD.subject, OLD.rps_limit, OLD.per_seconds, OLD.reason) THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF OLD.state <> 'open' AND OLD.decided_at <= extract(epoch FROM now()) - 30 * 86400 THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'a request stays as it was filed and as it was decided, for 30 days at least';
END
$$;
-- +goose StatementEnd
CREATE INDEX limit_requests_decided ON limit_requests (decided_at) WHERE state <> 'open';
