-- Does Redis hold what an export would write?
CREATE TABLE thing (id int PRIMARY KEY, doc text, name text, f float8, n numeric, t timestamptz, by bytea);
INSERT INTO thing SELECT i, json_build_object('b', i, 'a', ARRAY[i::float8 / 3, 1e300, i * 1e-7], 'u', 'ünï €𝄞', 'e', '', 'o', json_build_object('x', NULL, 'y', true))::text,
	CASE WHEN i % 7 > 0 THEN 'name "' || i END, i / 7.0::float8, i * 12345678901234567890.123456789, '2026-02-03 04:05:06+01', decode(lpad(to_hex(i), 8, '0'), 'hex')
FROM generate_series(1, 3000) AS i;
-- odd ones: escapes, numbers as RedisJSON keeps them, members of one name
UPDATE thing SET doc = '{ "x" : 1.0, "y":1e2, "z":100, "z2":-0.0, "big":12345678901234567890123, "i":9223372036854775807, "j":9007199254740993.0, "s":"\u00e9\ud83d\ude00\u0000\\u0000", "a":1, "a":2 }' WHERE id = 1;
UPDATE thing SET doc = '[]' WHERE id = 2;
UPDATE thing SET doc = '{"f":[0.1,0.2,0.30000000000000004,1e-7,123456.789e-3,5e-324,1.7976931348623157e308]}' WHERE id = 3;
SELECT state, rows_failed FROM redis_json_export('SELECT id, doc FROM thing', 'd:#{id}');
SELECT state, rows_failed FROM redis_json_export('SELECT * FROM thing', 'w:#{id}', value => '*', exclude => '{doc}');
SELECT state, rows_failed FROM redis_hash_export('SELECT * FROM thing', 'h:#{id}');
-- a fresh export verifies clean
SELECT * FROM redis_export_verify('SELECT id, doc FROM thing', 'd:#{id}');
SELECT * FROM redis_export_verify('SELECT * FROM thing', 'w:#{id}', value => '*', exclude => '{doc}');
SELECT * FROM redis_export_verify('SELECT * FROM thing', 'h:#{id}', type => 'hash');
SELECT * FROM redis_export_verify('SELECT * FROM thing', 'h:#{id}', type => 'hash', replace => true);
SET work_mem = '64kB';
SELECT expected, missing, different, unknown FROM redis_export_verify('SELECT * FROM thing', 'w:#{id}', value => '*', exclude => '{doc}');
RESET work_mem;
-- one of each
SELECT redis_command('redis', 'DEL', 'd:7', 'd:8'), redis_command('redis', 'JSON.SET', 'd:9', '$.b', '10'), redis_command('redis', 'JSON.SET', 'd:4000', '$', '1'),
	redis_command('redis', 'JSON.SET', 'd:cache:1', '$', '1'), redis_command('redis', 'JSON.SET', 'd:x', '$', '1'), redis_command('redis', 'JSON.SET', 'dx:1', '$', '1'), redis_command('redis', 'SET', 'd:11', 'a string');
SELECT * FROM redis_export_verify('SELECT id, doc FROM thing', 'd:#{id}');
SELECT missing, missing_keys FROM redis_export_verify('SELECT id, doc FROM thing', 'd:#{id}', examples => 2);
SELECT redis_command('redis', 'HSET', 'h:1', 'name', 'other'), redis_command('redis', 'HSET', 'h:2', 'more', 'fields'), redis_command('redis', 'HDEL', 'h:3', 'n'), redis_command('redis', 'HSET', 'h:7', 'name', 'not null'), redis_command('redis', 'HSET', 'h:-5', 'a', 'b');
SELECT * FROM redis_export_verify('SELECT * FROM thing', 'h:#{id}', type => 'hash');
SELECT * FROM redis_export_verify('SELECT * FROM thing', 'h:#{id}', type => 'hash', replace => true);
SELECT unknown_keys FROM redis_export_verify('SELECT * FROM thing UNION ALL SELECT -1, NULL, NULL, NULL, NULL, NULL, NULL', 'h:#{id}', type => 'hash');
-- a change of the table
UPDATE thing SET f = f + 1 WHERE id = 100;
DELETE FROM thing WHERE id = 101;
SELECT * FROM redis_export_verify('SELECT * FROM thing', 'w:#{id}', value => '*', exclude => '{doc}');
-- of rows with one key the last one counts; rows that fail are none
SELECT expected, missing, different, unknown FROM redis_export_verify('SELECT * FROM (VALUES (2, ''{"no":1}''), (2, ''[]''), (3000000, ''no JSON''), (NULL, ''{}'')) AS _ (id, doc)', 'd:#{id}');
-- nothing, and all
SELECT * FROM redis_export_verify('SELECT id, doc FROM thing WHERE false', 'none:#{id}');
SELECT expected, missing, different, unknown FROM redis_export_verify('SELECT id, doc FROM thing WHERE false', 'w:#{id}');
-- glob characters are no pattern
SELECT state FROM redis_json_export('SELECT 1 AS id, 2 AS n', 'g[a]*?\#{id}');
SELECT redis_command('redis', 'JSON.SET', 'gaXY1', '$', '1');
SELECT * FROM redis_export_verify('SELECT 1 AS id, 2 AS n', 'g[a]*?\#{id}');
-- of one that is defined: what it has written and no row has is extra, what others have written there is unknown
SELECT redis_command('redis', 'FLUSHALL');
SELECT redis_export_define('things', 'SELECT id, doc FROM thing WHERE id <= 1000', 't:#{id}', value => 'doc');
SELECT redis_command('redis', 'JSON.SET', 't:5000', '$', '1'), redis_command('redis', 'SET', 't:lock', '1'), redis_command('redis', 'HSET', 't:990', 'a', 'b'), redis_command('redis', 'SET', 'tt', '1');
DELETE FROM thing WHERE id = 990;
CALL redis_export_run('things') \gset
SELECT * FROM redis_export_verify('things');
DELETE FROM thing WHERE id IN (20, 21, 22);
UPDATE thing SET doc = 'no JSON' WHERE id = 23;
UPDATE thing SET doc = '{"n":1}' WHERE id = 24;
SELECT redis_command('redis', 'DEL', 't:21', 't:25'), redis_command('redis', 'DEL', 't:22'), redis_command('redis', 'SET', 't:22', 'of another type');
SELECT * FROM redis_export_verify('things');
SELECT missing, extra_keys, unknown_keys FROM redis_export_verify('things', 1);
-- keys of an export that had another template are its own still
SELECT redis_export_define('hashes', 'SELECT id, name FROM thing WHERE id < 10', 't:hash:#{id}', type => 'hash');
CALL redis_export_run('hashes') \gset
SELECT extra, unknown, unknown_keys FROM redis_export_verify('things');
SELECT extra, unknown FROM redis_export_verify('hashes');
UPDATE redis_export_definition SET key_template = 'u:#{id}' WHERE name = 'hashes';
SELECT missing, extra, unknown, extra_keys FROM redis_export_verify('hashes', examples => 2);
-- a query that is not defined has nothing that is extra
SELECT extra, unknown, unknown_keys, extra_keys FROM redis_export_verify('SELECT id, name FROM thing WHERE id < 3', 't:hash:#{id}', type => 'hash');
SELECT extra, unknown FROM redis_export_verify('SELECT id, name FROM thing WHERE false', 't:#{id}');
-- a template without a beginning: all keys of Redis but ours
SELECT unknown FROM redis_export_verify('SELECT id, name FROM thing WHERE false', '#{id}');
DELETE FROM redis_export_definition;
-- what cannot be
SELECT error_of($x$SELECT redis_export_verify('nobody')$x$);
SELECT error_of($x$SELECT redis_export_verify('SELECT id, doc FROM thing', 'd:#{id}', replace => true)$x$);
SELECT error_of($x$SELECT redis_export_verify('SELECT id, doc FROM thing', 'd:#{no}')$x$);
SELECT error_of($x$SELECT redis_export_verify('SELECT id, doc FROM thing', 'd:#{id}', server => 'nowhere')$x$);
SELECT error_of($x$SELECT redis_export_verify('SELECT 1/(id-1) AS id, doc FROM thing', 'd:#{id}')$x$);
SELECT redis_command('redis', 'FLUSHALL');
