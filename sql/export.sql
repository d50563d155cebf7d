-- Exports, looked at in Redis
CREATE TABLE appointment (appointment_id bigint PRIMARY KEY, doc text NOT NULL);
INSERT INTO appointment
SELECT n, format('{"appointmentId": %s, "status": "%s"}', n, CASE n % 2 WHEN 0 THEN 'done' ELSE 'open' END)
FROM generate_series(1, 2500) AS n;

-- the three arguments of the first line of the README
SELECT job > 0 AS job, pid, datname, usename = current_user AS usename, server, command, key_template, query, state,
	rows_estimated > 0 AS estimated, rows_read, rows_written, rows_failed, rows_in_doubt, bytes_sent, reconnects, redis_restarts,
	rows_per_second > 0 AS rows_per_second, percent, time_left, started_at < finished_at AS finished, last_error
FROM redis_json_export('SELECT appointment_id, doc FROM appointment', 'appointment:#{appointment_id}', 500) \gx
SELECT redis_command('redis', 'DBSIZE');
SELECT redis_command('redis', 'JSON.GET', 'appointment:1'), redis_command('redis', 'JSON.GET', 'appointment:2500');
SELECT redis_command('redis', 'JSON.GET', 'appointment:2', '$.status');

-- every row is there, whatever the batch
SELECT redis_command('redis', 'FLUSHALL');
SELECT batch, (redis_json_export('SELECT appointment_id, doc FROM appointment', batch || ':#{appointment_id}', batch)).rows_written
FROM (VALUES (1), (7), (2499), (2500), (2501), (50000)) AS t (batch);
SELECT redis_command('redis', 'DBSIZE');

-- the document: the one column that is left ...
SELECT redis_command('redis', 'FLUSHALL');
SELECT state FROM redis_json_export('SELECT 1 AS id, ''{"text": 1}''::text AS d', 'text:#{id}');
SELECT state FROM redis_json_export('SELECT 1 AS id, ''[1, 2]''::varchar AS d', 'varchar:#{id}');
SELECT state FROM redis_json_export('SELECT 1 AS id, ''{"json" :  1}''::json AS d', 'json:#{id}');
SELECT state FROM redis_json_export('SELECT 1 AS id, ''{"jsonb" :  1}''::jsonb AS d', 'jsonb:#{id}');
SELECT state FROM redis_json_export('SELECT 1 AS id, ''"scalar"''::jsonb AS d', 'scalar:#{id}');
SELECT key, redis_command('redis', 'JSON.GET', key || ':1') FROM unnest('{text,varchar,json,jsonb,scalar}'::text[]) AS key;
-- ... or the row
SELECT state FROM redis_json_export('SELECT 1 AS id, 2 AS n', 'row1:#{id}');
SELECT state FROM redis_json_export('SELECT 1 AS id, ''{}''::json AS a, ''{}''::json AS b', 'row2:#{id}');
SELECT state FROM redis_json_export('SELECT 1 AS id', 'row3:#{id}');
SELECT key, redis_command('redis', 'JSON.GET', key || ':1') FROM unnest('{row1,row2,row3}'::text[]) AS key;
-- ... and never a bare text in place of the row
SELECT error_of($x$SELECT redis_json_export('SELECT 12 AS id, ''12345'' AS name', 'bare:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT 12 AS id, ''Ada'' AS name', 'bare:#{id}')$x$);
SELECT state FROM redis_json_export('SELECT 12 AS id, ''12345'' AS name', 'bare:#{id}', value => 'name');
SELECT state FROM redis_json_export('SELECT 13 AS id, ''12345'' AS name', 'bare:#{id}', value => '*');
SELECT redis_command('redis', 'JSON.GET', 'bare:12'), redis_command('redis', 'JSON.GET', 'bare:13');

-- value, exclude, path
SELECT state FROM redis_json_export('SELECT 1 AS id, 2 AS n, ''{"a": 1}''::jsonb AS d', 'value:#{id}', value => 'd');
SELECT state FROM redis_json_export('SELECT 1 AS id, 2 AS n, ''{"a": 1}''::jsonb AS d', 'exclude:#{id}', exclude => '{n}');
SELECT state FROM redis_json_export('SELECT 1 AS id, 2 AS n', 'exclude2:#{id}', exclude => '{id}');
SELECT state FROM redis_json_export('SELECT 1 AS id, ''[7]''::jsonb AS d', 'value:#{id}', path => '$.b');
SELECT key, redis_command('redis', 'JSON.GET', key || ':1') FROM unnest('{value,exclude,exclude2}'::text[]) AS key;

-- a path without a place is a failed row, as is a key that is not there, and a path that is none
SELECT error_of($x$SELECT redis_json_export('SELECT 1 AS id, ''7''::jsonb AS d', 'value:#{id}', path => '$.x.y.z')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT 1 AS id, ''7''::jsonb AS d', 'no:#{id}', path => '$.x')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT 1 AS id, ''7''::jsonb AS d', 'value:#{id}', path => '$[')$x$);

-- keys, byte for byte
SELECT redis_command('redis', 'FLUSHALL');
SELECT state FROM redis_json_export($$SELECT 'a b' AS a, E'c\r\nd' AS b, '%s{tag}' AS c, '#{a}' AS d, '' AS e, 'ü' AS f$$,
	'#{a}|#{b}|##{#{c}}|#{d}|#{e}|#{f}|#x#');
SELECT state FROM redis_json_export($$SELECT '\x00ff0a'::bytea AS id, date '2026-02-03' AS day, 1.50 AS n, true AS t, '00000000-0000-0000-0000-000000000001'::uuid AS u, 1$$,
	'#{id}/#{day}/#{n}/#{t}/#{u}');
SELECT key FROM jsonb_array_elements_text(redis_command('redis', 'KEYS', '*')) AS key ORDER BY key COLLATE "C";

-- ttl: without it an old expiry stays, '0' removes it
SELECT redis_command('redis', 'FLUSHALL');
SELECT state FROM redis_json_export('SELECT 1 AS id', 'ttl:#{id}', ttl => '1 hour');
SELECT redis_command('redis', 'PTTL', 'ttl:1')::int BETWEEN 3000000 AND 3600000 AS expires;
SELECT state FROM redis_json_export('SELECT 1 AS id', 'ttl:#{id}');
SELECT redis_command('redis', 'PTTL', 'ttl:1')::int BETWEEN 3000000 AND 3600000 AS expires;
SELECT state FROM redis_json_export('SELECT 1 AS id', 'ttl:#{id}', ttl => '0');
SELECT redis_command('redis', 'PTTL', 'ttl:1') AS never;
SELECT state, rows_written FROM redis_json_export('SELECT id FROM generate_series(1, 3000) AS id', 'ttl:#{id}', 100, ttl => '1 day');
SELECT redis_command('redis', 'DBSIZE'), redis_command('redis', 'EVAL',
	'local n = 0 for i = 1, 3000 do if redis.call("TTL", "ttl:" .. i) > 86000 then n = n + 1 end end return n', 0) AS expire;

-- the last row of a key wins
SELECT state, rows_written FROM redis_json_export('SELECT n % 3 AS id, n FROM generate_series(1, 5000) AS n', 'last:#{id}', 50);
SELECT redis_command('redis', 'JSON.GET', 'last:0', '$.n'), redis_command('redis', 'JSON.GET', 'last:1', '$.n'), redis_command('redis', 'JSON.GET', 'last:2', '$.n');

-- another database of Redis
CREATE SERVER redis_db FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port '1', db '3');
\getenv redis_port REDIS_PORT
ALTER SERVER redis_db OPTIONS (SET port :'redis_port');
SELECT server, state FROM redis_json_export('SELECT 1 AS id', 'db:#{id}', server => 'redis_db');
SELECT redis_command('redis', 'EXISTS', 'db:1') AS here, redis_command('redis_db', 'EXISTS', 'db:1') AS there;
DROP SERVER redis_db;

-- in one transaction several, and within functions
BEGIN;
SELECT state FROM redis_json_export('SELECT 1 AS id', 'tx:#{id}');
SELECT state FROM redis_json_export('SELECT 2 AS id', 'tx:#{id}');
ROLLBACK;
DO $$
DECLARE
	job redis_export_job;
BEGIN
	SELECT * INTO job FROM redis_json_export('SELECT 3 AS id', 'tx:#{id}');
	RAISE NOTICE '% rows %', job.rows_written, job.state;
	BEGIN
		PERFORM redis_json_export('SELECT 1/0 AS id', 'tx:#{id}');
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE 'caught: %', SQLERRM;
	END;
END
$$;
SELECT redis_command('redis', 'EXISTS', 'tx:1', 'tx:2', 'tx:3') AS not_taken_back;

-- wait => false
SELECT job, state IN ('starting', 'running', 'finishing', 'done') AS state
FROM redis_json_export('SELECT 1 AS id', 'later:#{id}', wait => false) \gset
SELECT state, rows_written FROM redis_export_wait(:job);
SELECT state, rows_written FROM redis_export_wait(:job, '1 s');
SELECT redis_command('redis', 'EXISTS', 'later:1');
SET client_min_messages = error;
SELECT redis_export_cancel(:job);
RESET client_min_messages;

-- the view
SELECT bool_and(state = 'done' OR last_error IS NOT NULL) AS told, bool_and(rows_read = rows_written + rows_failed + rows_in_doubt) AS ledger,
	bool_and(pid IS NULL) AS ended
FROM redis_export_progress;
SELECT redis_command('redis', 'FLUSHALL');
DROP TABLE appointment;
