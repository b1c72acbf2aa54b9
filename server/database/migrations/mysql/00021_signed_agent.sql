-- Definitions are no transaction here: each statement may find what was done
-- before the last attempt ended.

-- +goose Up

-- A rule that allows or blocks may be about an agent that signs its requests. The check is changed as in 00012: on
-- MariaDB with its column, on MySQL by its name.
SET @subjects = '(subject IN (''principal'', ''ip'', ''principal_ip'', ''project'', ''region'', ''endpoint'', ''identifier'', ''identifier_ip'', ''site'') OR subject LIKE ''in_flight:_%'' OR subject LIKE ''requests:_%'' OR subject LIKE ''path:_%'' OR subject LIKE ''claim:_%'' OR subject LIKE ''ip:_%'' OR subject LIKE ''api_key:_%'' OR subject LIKE ''token:_%'' OR subject LIKE ''certificate:_%'' OR subject LIKE ''user:_%'' OR subject LIKE ''signed_agent:_%'')';

SET @change = (SELECT if(version() LIKE '%MariaDB%',
    concat('ALTER TABLE policies MODIFY COLUMN subject VARCHAR(255) NOT NULL DEFAULT ''principal'' CHECK ', @subjects),
    coalesce(max(concat('ALTER TABLE policies DROP CHECK `', constraint_name, '`, ADD CONSTRAINT policies_subject CHECK ', @subjects)), 'DO 0'))
    FROM information_schema.check_constraints
    WHERE constraint_schema = database() AND check_clause LIKE '%identifier_ip%' AND check_clause NOT LIKE '%signed_agent:%');
PREPARE change_check FROM @change;
EXECUTE change_check;
DEALLOCATE PREPARE change_check;
