-- Definitions are no transaction here: each statement may find what was done
-- before the last attempt ended.

-- +goose Up

-- A rule may allow or block what it is for, without a limit, and be for one network or caller. What is named
-- needs room. The checks are changed as in 00012: on MariaDB with their columns, on MySQL by their names.
ALTER TABLE policy_changes MODIFY COLUMN subject VARCHAR(255);

SET @subjects = '(subject IN (''principal'', ''ip'', ''principal_ip'', ''project'', ''region'', ''endpoint'', ''identifier'', ''identifier_ip'', ''site'') OR subject LIKE ''ip:_%'' OR subject LIKE ''api_key:_%'' OR subject LIKE ''token:_%'' OR subject LIKE ''certificate:_%'' OR subject LIKE ''user:_%'')';
SET @modes = '(mode IN (''enforce'', ''shadow'', ''allow'', ''block''))';

SET @change = (SELECT if(version() LIKE '%MariaDB%', 'DO 0',
    coalesce(max(concat('ALTER TABLE policies DROP CHECK `', constraint_name, '`')), 'DO 0'))
    FROM information_schema.check_constraints
    WHERE constraint_schema = database() AND check_clause LIKE '%identifier_ip%' AND check_clause NOT LIKE '%api_key:%');
PREPARE change_check FROM @change;
EXECUTE change_check;
DEALLOCATE PREPARE change_check;

SET @change = if(version() LIKE '%MariaDB%',
    concat('ALTER TABLE policies MODIFY COLUMN subject VARCHAR(255) NOT NULL DEFAULT ''principal'' CHECK ', @subjects, ', MODIFY COLUMN mode VARCHAR(32) NOT NULL DEFAULT ''enforce'' CHECK ', @modes),
    'ALTER TABLE policies MODIFY COLUMN subject VARCHAR(255) NOT NULL DEFAULT ''principal''');
PREPARE change_check FROM @change;
EXECUTE change_check;
DEALLOCATE PREPARE change_check;

SET @change = (SELECT if(version() LIKE '%MariaDB%' OR count(*) > 0, 'DO 0', concat('ALTER TABLE policies ADD CONSTRAINT policies_subject CHECK ', @subjects))
    FROM information_schema.check_constraints
    WHERE constraint_schema = database() AND check_clause LIKE '%identifier_ip%' AND check_clause LIKE '%api_key:%');
PREPARE change_check FROM @change;
EXECUTE change_check;
DEALLOCATE PREPARE change_check;

SET @change = (SELECT if(version() LIKE '%MariaDB%', 'DO 0',
    coalesce(max(concat('ALTER TABLE policies DROP CHECK `', constraint_name, '`, ADD CONSTRAINT policies_mode CHECK ', @modes)), 'DO 0'))
    FROM information_schema.check_constraints
    WHERE constraint_schema = database() AND check_clause LIKE '%enforce%' AND check_clause LIKE '%shadow%' AND check_clause NOT LIKE '%block%');
PREPARE change_check FROM @change;
EXECUTE change_check;
DEALLOCATE PREPARE change_check;
