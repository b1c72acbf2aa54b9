-- +goose Up

-- A rule may allow or block what it is for, without a limit, and be for one network or caller.
ALTER TABLE policies
    DROP CONSTRAINT policies_mode_check,
    ADD CONSTRAINT policies_mode_check CHECK (mode IN ('enforce', 'shadow', 'allow', 'block')),
    DROP CONSTRAINT policies_subject_check,
    ADD CONSTRAINT policies_subject_check
        CHECK (subject IN ('principal', 'ip', 'principal_ip', 'project', 'region', 'endpoint', 'identifier', 'identifier_ip', 'site')
            OR subject LIKE 'ip:_%' OR subject LIKE 'api_key:_%' OR subject LIKE 'token:_%' OR subject LIKE 'certificate:_%' OR subject LIKE 'user:_%');
