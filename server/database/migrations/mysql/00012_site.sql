-- Definitions are no transaction here: each statement may find what was done
-- before the last attempt ended.

-- +goose Up

-- A rule's subject may be site. The check of the column is a part of it on MariaDB.
-- On MySQL it is one of the table, with a name that was chosen for it.
SET @check = '(subject IN (''principal'', ''ip'', ''principal_ip'', ''project'', ''region'', ''endpoint'', ''identifier'', ''identifier_ip'', ''site''))';
SET @change = (SELECT if(version() LIKE '%MariaDB%',
    concat('ALTER TABLE policies MODIFY COLUMN subject VARCHAR(32) NOT NULL DEFAULT ''principal'' CHECK ', @check),
    coalesce(max(concat('ALTER TABLE policies DROP CHECK `', constraint_name, '`, ADD CONSTRAINT policies_subject CHECK ', @check)), 'DO 0'))
    FROM information_schema.check_constraints
    WHERE constraint_schema = database() AND check_clause LIKE '%identifier_ip%' AND check_clause NOT LIKE '%site%');
PREPARE change_check FROM @change;
EXECUTE change_check;
DEALLOCATE PREPARE change_check;
