-- +goose Up

-- A rule's subject may be site.
ALTER TABLE policies
    DROP CONSTRAINT policies_subject_check,
    ADD CONSTRAINT policies_subject_check
        CHECK (subject IN ('principal', 'ip', 'principal_ip', 'project', 'region', 'endpoint', 'identifier', 'identifier_ip', 'site'));
