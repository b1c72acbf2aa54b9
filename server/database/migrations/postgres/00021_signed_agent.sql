-- +goose Up

-- A rule that allows or blocks may be about an agent that signs its requests.
ALTER TABLE policies
    DROP CONSTRAINT policies_subject_check,
    ADD CONSTRAINT policies_subject_check
        CHECK (subject IN ('principal', 'ip', 'principal_ip', 'project', 'region', 'endpoint', 'identifier', 'identifier_ip', 'site')
            OR subject LIKE 'in_flight:_%' OR subject LIKE 'requests:_%' OR subject LIKE 'path:_%' OR subject LIKE 'claim:_%'
            OR subject LIKE 'ip:_%' OR subject LIKE 'api_key:_%' OR subject LIKE 'token:_%' OR subject LIKE 'certificate:_%' OR subject LIKE 'user:_%'
            OR subject LIKE 'signed_agent:_%');
