-- What Redis holds, as rows
SELECT state FROM redis_command_export('SELECT i AS id FROM generate_series(1, 5000) AS i', ARRAY['SET', 's:#{id}', 'v#{id}']);
SELECT state FROM redis_json_export('SELECT i AS id, ''n'' || i AS name FROM generate_series(1, 1500) AS i', 'j:#{id}', value => '*');
SELECT state FROM redis_hash_export('SELECT i AS id, ''n'' || i AS name, ''\x00ff''::bytea AS b FROM generate_series(1, 1500) AS i', 'h:#{id}');
SELECT count(*), count(DISTINCT key), min(key), max(key) FROM redis_scan('redis') AS key;
SELECT count(*) FROM redis_scan('redis', 's:*');
SELECT * FROM redis_scan('redis', 's:499?') ORDER BY 1;
SELECT count(*), min(key) FROM redis_scan('redis', type => 'json') AS key;
SELECT count(*), min(key) FROM redis_scan('redis', '*', 'hash') AS key;
SELECT count(*) FROM redis_scan('redis', 'none*');
SELECT count(*), count(DISTINCT key), bool_and(document = jsonb_build_object('id', substr(key, 3)::int, 'name', 'n' || substr(key, 3))) AS right FROM redis_json_scan('redis', 'j:*');
SELECT * FROM redis_json_scan('redis', 'j:12', '$.name');
SELECT count(*), count(DISTINCT key), bool_and(fields = jsonb_build_object('id', substr(key, 3), 'name', 'n' || substr(key, 3), 'b', '\x00ff')) AS right FROM redis_hash_scan('redis', 'h:*');
-- other types than asked for are left out
SELECT (SELECT count(*) FROM redis_json_scan('redis')) AS documents, (SELECT count(*) FROM redis_hash_scan('redis', 's:*')) AS hashes;
-- with SQL's own means: what is here and not there
SELECT key FROM redis_scan('redis', 'h:*') AS key EXCEPT SELECT 'h:' || i FROM generate_series(3, 2000) AS i ORDER BY 1;
-- more than one at a time, not read to their ends, and within work_mem
SELECT a.key FROM redis_json_scan('redis', 'j:1?') AS a JOIN redis_hash_scan('redis', 'h:1?') AS b ON substr(a.key, 3) = substr(b.key, 3) ORDER BY 1 LIMIT 3;
SELECT key ~ '^j:\d+$' AS fits FROM redis_scan('redis', 'j:*') AS key LIMIT 2;
BEGIN;
DECLARE few CURSOR FOR SELECT redis_scan('redis', 'j:*') ~ '^j:\d+$' AS fits;
FETCH 2 FROM few;
COMMIT;
SET work_mem = '64kB';
SELECT count(*), count(DISTINCT key) FROM redis_scan('redis') AS key;
RESET work_mem;
-- keys that are no text
SELECT redis_command('redis', 'SET', '\x62ff00'::bytea, 'x'), redis_command('redis', 'SET', 'b ü', 'x');
SELECT error_of($x$SELECT count(*) FROM redis_scan('redis', 'b*')$x$);
SELECT * FROM redis_scan('redis', 'b*', skip_invalid => true);
-- what cannot be
SELECT error_of($x$SELECT count(*) FROM redis_scan('redis', NULL)$x$);
SELECT error_of($x$SELECT count(*) FROM redis_scan(NULL)$x$);
SELECT error_of($x$SELECT count(*) FROM redis_scan('nowhere')$x$);
SELECT error_of($x$SELECT count(*) FROM redis_json_scan('redis', 'j:*', '$.[')$x$);
SELECT redis_command('redis', 'FLUSHALL');
