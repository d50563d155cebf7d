-- Hashes: each column a field, under its name
SET client_min_messages = error;
SELECT state, rows_written, command FROM redis_hash_export($$VALUES (1, 'Ada', 1.5, true, NULL), (2, '', -0.0, false, 'x')$$, 'h:#{column1}');
SELECT redis_command('redis', 'HGETALL', 'h:1'), redis_command('redis', 'HGETALL', 'h:2');
SELECT state FROM redis_hash_export($$SELECT 3 AS id, 'keep' AS keep, 'drop' AS "drop ""it"""$$, 'h:#{id}', exclude => '{id,"drop \"it\""}');
SELECT redis_command('redis', 'HGETALL', 'h:3');
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id', 'h:#{id}', exclude => '{id}')$x$);
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id', 'h:#{id}', exclude => '{di}')$x$);
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id', 'h')$x$);

-- without replace, what the row does not have stays
SELECT redis_command('redis', 'HSET', 'h:1', 'old', 'field');
SELECT state FROM redis_hash_export($$SELECT 1 AS id, NULL::text AS column2, 'new' AS column5$$, 'h:#{id}', exclude => '{id}');
SELECT redis_command('redis', 'HGETALL', 'h:1');
-- with it, nothing of the old stays, of whatever type it was, nor does its expiry
SELECT redis_command('redis', 'EXPIRE', 'h:1', '1000');
SELECT redis_command('redis', 'RPUSH', 'h:4', 'a', 'list');
SELECT state, rows_written, rows_failed FROM redis_hash_export($$SELECT id, NULL::text AS column2, 'new' AS column5 FROM unnest(ARRAY[1,4]) AS id$$, 'h:#{id}', exclude => '{id}', replace => true);
SELECT redis_command('redis', 'HGETALL', 'h:1'), redis_command('redis', 'TTL', 'h:1'), redis_command('redis', 'HGETALL', 'h:4');
SELECT error_of($x$SELECT redis_hash_export('SELECT 5 AS id, 1 AS n FROM generate_series(1, 1)', 'h:5:#{id}', exclude => '{id}', batch => 1)$x$);
SELECT redis_command('redis', 'SET', 'h:6', 'a string');
SELECT error_of($x$SELECT redis_hash_export('SELECT 6 AS id', 'h:#{id}')$x$);
-- a row of nulls is no hash; with replace it is the absence of one
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id, NULL::int AS n', 'h:#{id}', exclude => '{id}')$x$);
SELECT state, rows_written FROM redis_hash_export('SELECT 1 AS id, NULL::int AS n', 'h:#{id}', exclude => '{id}', replace => true, ttl => '1 hour');
SELECT redis_command('redis', 'EXISTS', 'h:1');
-- many fields, and many rows of which some fail
SELECT state, rows_written FROM redis_hash_export((SELECT 'SELECT ' || string_agg(format('%s AS c%s', i, i), ', ') FROM generate_series(1, 1500) AS i), 'wide:#{c1}');
SELECT redis_command('redis', 'HLEN', 'wide:1'), redis_command('redis', 'HGET', 'wide:1', 'c1500');
SELECT state, rows_read, rows_written, rows_failed FROM redis_hash_export('SELECT i AS id, CASE WHEN i % 10 > 0 THEN i END AS n FROM generate_series(1, 2000) AS i', 'many:#{id}', exclude => '{id}', on_error => 'ignore');
SELECT state, rows_read, rows_written, rows_failed FROM redis_hash_export('SELECT i AS id, CASE WHEN i % 10 > 0 THEN i END AS n FROM generate_series(1, 2000) AS i', 'many:#{id}', exclude => '{id}', replace => true);
SELECT jsonb_array_length(redis_command('redis', 'KEYS', 'many:*'));

-- vectors: blobs in hashes, arrays of numbers in documents
SELECT state FROM redis_hash_export($$SELECT 1 AS id, '{1,-2.5}'::real[] AS f4, '{1,-2.5}'::float8[] AS f8, '{1,2}'::int[] AS i4$$, 'v:#{id}');
SELECT redis_command('redis', 'HGETALL', 'v:1');
SELECT redis_command('redis', 'HSTRLEN', 'v:1', 'f4'), redis_command('redis', 'HSTRLEN', 'v:1', 'f8');
CREATE DOMAIN embedding AS real[];
SELECT state FROM redis_hash_export($$SELECT 2 AS id, '{1,NaN,Infinity}'::embedding AS f4$$, 'v:#{id}');
SELECT redis_command('redis', 'HGET', 'v:2', 'f4');
SELECT state, rows_failed FROM redis_hash_export($$SELECT i AS id, v::real[] AS v FROM (VALUES (1, '{1,NULL}'), (2, '{{1,2},{3,4}}'), (3, '{}'), (4, '{7}')) AS _ (i, v)$$, 'w:#{id}', on_error => 'ignore');
SELECT key, sqlstate, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress));
SELECT state FROM redis_json_export($$SELECT 3 AS id, '{1,-2.5}'::real[] AS f4$$, 'v:#{id}');
SELECT redis_command('redis', 'JSON.GET', 'v:3');
SELECT redis_command('redis', 'FLUSHALL');
