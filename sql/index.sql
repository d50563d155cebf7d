-- wait_index: the job ends when the index has taken everything, and says what it refused
SET client_min_messages = error;
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id', 'i:#{id}', wait_index => 'idx:none')$x$);
SELECT redis_command('redis', 'DBSIZE');
SELECT redis_command('redis', 'FT.CREATE', 'idx', 'ON', 'HASH', 'PREFIX', '1', 'i:', 'SCHEMA', 'n', 'NUMERIC', 't', 'TAG');
SELECT state, rows_written, index_failures, last_error FROM redis_hash_export('SELECT i AS id, i AS n, ''x'' AS t FROM generate_series(1, 1000) AS i', 'i:#{id}', wait_index => 'idx');
SELECT redis_command('redis', 'FT.SEARCH', 'idx', '@n:[501 1000]', 'LIMIT', '0', '0');
-- refused by the index, not by Redis: written, and not to be found
SELECT state, rows_written, rows_failed, index_failures, last_error FROM redis_hash_export($$SELECT i AS id, CASE i WHEN 7 THEN 'seven' ELSE i::text END AS n FROM generate_series(1, 10) AS i$$, 'i:#{id}', wait_index => 'idx');
SELECT redis_command('redis', 'FT.SEARCH', 'idx', '@n:[1 10]', 'LIMIT', '0', '0');
-- counted from this job's start on
SELECT state, index_failures FROM redis_hash_export('SELECT 7 AS id, 7 AS n', 'i:#{id}', wait_index => 'idx');
SELECT state, index_failures IS NULL AS unknown FROM redis_hash_export('SELECT 7 AS id, 7 AS n', 'i:#{id}');
-- an index that is filled in the background, and one over documents
SELECT redis_command('redis', 'FT.CREATE', 'idx:json', 'ON', 'JSON', 'PREFIX', '1', 'j:', 'SCHEMA', '$.n', 'AS', 'n', 'NUMERIC');
SELECT state, rows_written, index_failures FROM redis_json_export('SELECT i AS id, i AS n FROM generate_series(1, 3000) AS i', 'j:#{id}', wait_index => 'idx:json');
SELECT redis_command('redis', 'FT.SEARCH', 'idx:json', '@n:[1 inf]', 'LIMIT', '0', '0');
SELECT state, rows_written, index_failures, last_error FROM redis_json_export($$SELECT 5 AS id, 'five' AS n$$, 'j:#{id}', value => '*', wait_index => 'idx:json');
SELECT state, rows_written FROM redis_command_export('SELECT i AS id FROM generate_series(1, 10) AS i', ARRAY['HSET', 'i:c:#{id}', 'n', '#{id}'], wait_index => 'idx');
SELECT redis_command('redis', 'FLUSHALL');
