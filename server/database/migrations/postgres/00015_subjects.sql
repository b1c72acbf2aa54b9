-- +goose Up

-- A rule may count by a path parameter or a claim, which its subject names.
ALTER TABLE policies
    DROP CONSTRAINT policies_subject_check,
    ADD CONSTRAINT policies_subject_check
        CHECK (subject IN ('principal', 'ip', 'principal_ip', 'project', 'region', 'endpoint', 'identifier', 'identifier_ip', 'site')
            OR subject LIKE 'path:_%' OR subject LIKE 'claim:_%'
            OR subject LIKE 'ip:_%' OR subject LIKE 'api_key:_%' OR subject LIKE 'token:_%' OR subject LIKE 'certificate:_%' OR subject LIKE 'user:_%');
