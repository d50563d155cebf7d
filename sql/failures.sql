-- Rows that fail
SET client_min_messages = error;
CREATE FUNCTION ledger() RETURNS TABLE (state text, rows_read bigint, rows_written bigint, rows_failed bigint, rows_in_doubt bigint)
LANGUAGE sql AS 'SELECT state, rows_read, rows_written, rows_failed, rows_in_doubt FROM redis_export_progress ORDER BY job DESC LIMIT 1';

CREATE TABLE docs AS SELECT n AS id, CASE WHEN n % 100 = 50 THEN '{"broken": ' ELSE '{"n": ' || n || '}' END AS doc
FROM generate_series(1, 1000) AS n;

-- stop is the default: the first failed row ends the job, and what was sent before is counted
SELECT line FROM error_of($x$SELECT redis_json_export('SELECT * FROM docs', 'd:#{id}', 10)$x$) AS line WHERE line !~ '^detail: Export job';
SELECT state, rows_written = redis_command('redis', 'DBSIZE')::int AS written, rows_written BETWEEN 40 AND 49 AS so_many,
	rows_read = rows_written + 1 AS read, rows_failed, rows_in_doubt FROM ledger();

-- ignore
SELECT redis_command('redis', 'FLUSHALL');
SELECT job, state, rows_written, rows_failed FROM redis_json_export('SELECT * FROM docs', 'd:#{id}', on_error => 'ignore') \gset
SELECT :'state' AS state, :rows_written AS rows_written, :rows_failed AS rows_failed, redis_command('redis', 'DBSIZE');
SELECT * FROM redis_export_failures(:job);
SELECT last_error FROM redis_export_progress WHERE job = :job;

-- up to a limit
SELECT state, rows_failed FROM redis_json_export('SELECT * FROM docs', 'd:#{id}', on_error => 'ignore', reject_limit => 10);
SELECT line FROM error_of($x$SELECT redis_json_export('SELECT * FROM docs', 'd:#{id}', on_error => 'ignore', reject_limit => 9)$x$) AS line WHERE line !~ '^detail: Export job';
SELECT state, rows_failed FROM ledger();
SELECT redis_command('redis', 'FLUSHALL');

-- what can be wrong with a row before it is sent
CREATE TABLE bad (n int, id text, doc text);
INSERT INTO bad VALUES (1, 'fine', '{"n": 1}'), (2, NULL, '{"n": 2}'), (3, 'null', NULL), (4, 'empty', ''), (5, 'space', E' \n'),
	(6, 'two', '{"a":1}{"b":2}'), (7, 'open', '{"a":[1,2'), (8, 'quote', '{''a'':1}'), (9, 'nan', '{"a":NaN}'), (10, 'scalar', '12'),
	(11, 'text', 'Ada'), (12, 'trailing', '{"a":1},'), (13, 'escape', '{"a":"\q"}'), (14, 'control', E'{"a":"\t"}'),
	(15, 'deep', repeat('[', 600) || repeat(']', 600)), (16, 'brackets in strings', '{"a":"' || repeat('[', 600) || '"}'),
	(17, 'very deep', repeat('[', 1000000)), (18, 'fine too', E' \r\n\t [1]');
SELECT job, rows_written, rows_failed FROM redis_json_export('SELECT id, doc FROM bad ORDER BY n', 'b:#{id}', on_error => 'ignore') \gset
SELECT :rows_written, :rows_failed;
SELECT row_number, key, sqlstate, message FROM redis_export_failures(:job);
SELECT key FROM jsonb_array_elements_text(redis_command('redis', 'KEYS', '*')) AS key ORDER BY key;
SELECT error_of($x$SELECT redis_json_export('SELECT ''a'' AS id, ''x'' AS doc', 'b:#{id}', value => 'doc')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT ''a'' AS id, ''x'' AS doc', 'b:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT NULL AS id, ''{}'' AS doc', 'b:#{id}')$x$);

-- what Redis finds wrong with a row
SELECT redis_command('redis', 'FLUSHALL');
SELECT redis_command('redis', 'SET', 'k:3', 'a string');
SELECT error_of($x$SELECT redis_json_export('SELECT id FROM generate_series(1, 5) AS id', 'k:#{id}')$x$);
SELECT * FROM ledger();
SELECT redis_command('redis', 'GET', 'k:3');
SELECT job FROM redis_json_export('SELECT id FROM generate_series(1, 5) AS id', 'k:#{id}', on_error => 'ignore') \gset
SELECT * FROM redis_export_failures(:job);
SELECT * FROM ledger();
SELECT redis_command('redis', 'DBSIZE'), redis_command('redis', 'GET', 'k:3');

-- at most a hundred are kept
SELECT redis_command('redis', 'FLUSHALL');
SELECT job, rows_failed FROM redis_json_export('SELECT id, ''x'' AS doc FROM generate_series(1, 250) AS id', 'k:#{id}', on_error => 'ignore') \gset
SELECT :rows_failed, count(*), min(row_number), max(row_number) FROM redis_export_failures(:job);

-- a query that fails in mid-job: what was sent is there and counted
SELECT regexp_replace(line, 'job N: .*', 'job N: ...') FROM error_of($x$SELECT redis_json_export('SELECT id, 1 / (50001 - id) AS n FROM generate_series(1, 60000) AS id', 'mid:#{id}')$x$) AS line;
SELECT state, rows_written = redis_command('redis', 'DBSIZE')::int AS written, rows_written BETWEEN 48000 AND 50000 AS so_many,
	rows_read = rows_written AS read, rows_failed, rows_in_doubt FROM ledger();
SELECT last_error FROM redis_export_progress ORDER BY job DESC LIMIT 1;

-- long keys and texts are cut where they are shown, and nowhere else
SELECT redis_command('redis', 'FLUSHALL');
SELECT job FROM redis_json_export('SELECT repeat(''ü'', 5000) AS id, ''x'' AS doc UNION ALL SELECT ''n'', ''{}''', 'long:#{id}', on_error => 'ignore') \gset
SELECT length(key) < 200 AS cut, right(key, 4) FROM redis_export_failures(:job);
SELECT rows_written FROM redis_json_export('SELECT repeat(''ü'', 5000) AS id, ''{}'' AS doc', 'long:#{id}');
SELECT redis_command('redis', 'EXISTS', 'long:' || repeat('ü', 5000));
SELECT redis_command('redis', 'FLUSHALL');
DROP TABLE docs, bad;
DROP FUNCTION ledger();
RESET client_min_messages;
