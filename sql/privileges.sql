-- An export has its caller's rights, and no others
CREATE ROLE regress_redis_app LOGIN;
CREATE ROLE regress_redis_other LOGIN;
CREATE ROLE regress_redis_group;
GRANT regress_redis_group TO regress_redis_app;
CREATE TABLE open_data AS SELECT 1 AS id;
CREATE TABLE secret AS SELECT 1 AS id;
GRANT SELECT ON open_data TO regress_redis_app, regress_redis_group;
SELECT job AS ours FROM redis_json_export('SELECT 1 AS id', 'su:#{id}') \gset

-- execute and usage are to be granted
SET SESSION AUTHORIZATION regress_redis_app;
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM open_data', 'a:#{id}')$x$);
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO regress_redis_app, regress_redis_group, regress_redis_other;
SET SESSION AUTHORIZATION regress_redis_app;
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM open_data', 'a:#{id}')$x$);
RESET SESSION AUTHORIZATION;
GRANT USAGE ON FOREIGN SERVER redis TO regress_redis_app, regress_redis_group;

SET SESSION AUTHORIZATION regress_redis_app;
SELECT job AS theirs, usename, state FROM redis_json_export('SELECT * FROM open_data', 'a:#{id}') \gset
SELECT :'usename', :'state';
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM secret', 'a:#{id}')$x$);
-- current_user, session_user and role are the caller's
SELECT state FROM redis_json_export('SELECT 1 AS id, current_user::text AS c, session_user::text AS s, current_setting(''role'') AS r', 'who:#{id}');
SELECT redis_command('redis', 'JSON.GET', 'who:1');
SET ROLE regress_redis_group;
SELECT usename, state FROM redis_json_export('SELECT 1 AS id, current_user::text AS c, session_user::text AS s, current_setting(''role'') AS r', 'who:#{id}');
SELECT redis_command('redis', 'JSON.GET', 'who:1');
RESET ROLE;

-- others see that there is a job, and no texts of it
SELECT server, command, state, rows_written, key_template, query, last_error FROM redis_export_progress WHERE job = :ours;
SELECT key_template, query FROM redis_export_progress WHERE job = :theirs;
\set VERBOSITY sqlstate
SELECT * FROM redis_export_failures(:ours);
SELECT redis_export_cancel(:ours);
\set VERBOSITY default
RESET SESSION AUTHORIZATION;
GRANT pg_read_all_stats TO regress_redis_other;
SET SESSION AUTHORIZATION regress_redis_other;
SELECT key_template, query FROM redis_export_progress WHERE job = :ours;
SELECT count(*) FROM redis_export_failures(:ours);
RESET SESSION AUTHORIZATION;

-- out of a security definer function no way leads back to the session user's rights
CREATE SCHEMA definer AUTHORIZATION regress_redis_app;
SET SESSION AUTHORIZATION regress_redis_app;
CREATE FUNCTION definer.export(query text) RETURNS text LANGUAGE sql SECURITY DEFINER
AS $$ SELECT state || ' as ' || usename FROM redis_json_export(query, 'd:#{id}') $$;
CREATE FUNCTION definer.escape(how text) RETURNS int LANGUAGE plpgsql
AS $$ BEGIN EXECUTE how; RETURN 1; END $$;
RESET SESSION AUTHORIZATION;
SELECT definer.export('SELECT 1 AS id, current_user::text AS c, session_user::text AS s');
SELECT redis_command('redis', 'JSON.GET', 'd:1')::text LIKE '%\\"c\\":\\"regress_redis_app\\"%' AS current_user;
SELECT error_of($x$SELECT definer.export('SELECT * FROM secret')$x$);
SELECT error_of($x$SELECT definer.export('SELECT definer.escape(''RESET ROLE'') AS id')$x$);
SELECT error_of($x$SELECT definer.export('SELECT definer.escape(''SET ROLE NONE'') AS id')$x$);
SELECT error_of($x$SELECT definer.export('SELECT definer.escape(''RESET SESSION AUTHORIZATION'') AS id')$x$);
SELECT error_of($x$SELECT definer.export('SELECT definer.escape(''SET SESSION AUTHORIZATION DEFAULT'') AS id')$x$);
SELECT error_of($x$SELECT definer.export('SELECT 1 AS id, set_config(''role'', ''none'', false)')$x$);

-- row-level security goes by the caller and by the caller's settings
CREATE TABLE tenants (id int, tenant text);
INSERT INTO tenants VALUES (1, 'a'), (2, 'a'), (3, 'b');
ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_setting ON tenants USING (tenant = current_setting('app.tenant_id', true));
GRANT SELECT ON tenants TO regress_redis_app;
SET SESSION AUTHORIZATION regress_redis_app;
SELECT rows_written FROM redis_json_export('SELECT * FROM tenants', 't:#{id}', value => '*');
SET app.tenant_id = 'a';
SELECT rows_written FROM redis_json_export('SELECT * FROM tenants', 't:#{id}', value => '*');
BEGIN;
SET LOCAL app.tenant_id = 'b';
SELECT rows_written FROM redis_json_export('SELECT * FROM tenants', 't:#{id}', value => '*');
COMMIT;
SET row_security = off;
\set SHOW_CONTEXT never
SELECT rows_written FROM redis_json_export('SELECT * FROM tenants', 't:#{id}', value => '*');
\set SHOW_CONTEXT errors
RESET row_security;
RESET app.tenant_id;
RESET SESSION AUTHORIZATION;
SELECT rows_written FROM redis_json_export('SELECT * FROM tenants', 't:#{id}', value => '*');

-- a setting for superusers is none for others, though its module is not loaded when it is set
CREATE FUNCTION conflict() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN current_setting('plpgsql.variable_conflict'); END $$;
\c -
SET plpgsql.variable_conflict = use_column;
SELECT state FROM redis_json_export('SELECT 1 AS id, conflict() AS superuser', 'conflict:#{id}', value => '*');
SELECT redis_command('redis', 'JSON.GET', 'conflict:1');
\c -
SET SESSION AUTHORIZATION regress_redis_app;
SET plpgsql.variable_conflict = use_column;
SELECT state FROM redis_json_export('SELECT 2 AS id, conflict() AS not_superuser', 'conflict:#{id}', value => '*');
SELECT redis_command('redis', 'JSON.GET', 'conflict:2');
RESET SESSION AUTHORIZATION;
DROP FUNCTION conflict();

-- the search path is the caller's
CREATE SCHEMA elsewhere;
CREATE TABLE elsewhere.open_data AS SELECT 2 AS id UNION ALL SELECT 3;
SET search_path = elsewhere, public;
SELECT rows_written FROM redis_json_export('SELECT * FROM open_data', 'path:#{id}');
RESET search_path;
SELECT rows_written FROM redis_json_export('SELECT * FROM open_data', 'path:#{id}');

-- a read-only transaction may export
BEGIN READ ONLY;
SELECT state FROM redis_json_export('SELECT 1 AS id', 'ro:#{id}');
COMMIT;

SELECT redis_command('redis', 'FLUSHALL');
DROP TABLE open_data, secret, tenants;
DROP SCHEMA elsewhere, definer CASCADE;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM regress_redis_app, regress_redis_group, regress_redis_other;
REVOKE USAGE ON FOREIGN SERVER redis FROM regress_redis_app, regress_redis_group;
DROP ROLE regress_redis_app, regress_redis_group, regress_redis_other;
