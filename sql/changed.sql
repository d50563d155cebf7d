-- Only rows that Redis does not hold already are written
\getenv redis_port REDIS_PORT
SET client_min_messages = error;
CREATE TABLE article (id int PRIMARY KEY, doc text, hits int, until timestamptz);
INSERT INTO article SELECT i, json_build_object('title', 'number ' || i)::text, i, 'infinity' FROM generate_series(1, 2000) AS i;
CREATE FUNCTION changed(template text DEFAULT 'a:#{id}', query text DEFAULT 'SELECT id, doc FROM article ORDER BY id', ttl interval DEFAULT NULL,
	OUT state text, OUT read bigint, OUT written bigint, OUT unchanged bigint, OUT failed bigint) LANGUAGE sql AS $$
	SELECT state, rows_read, rows_written, rows_unchanged, rows_failed FROM redis_json_export(query, template, changed_only => true, on_error => 'ignore', ttl => ttl)
$$;
-- the first time all are written, and the next time none
SELECT * FROM changed();
SELECT * FROM changed();
SELECT * FROM redis_export_verify('SELECT id, doc FROM article', 'a:#{id}');
-- the books have an entry for each key: a digest and a stamp
SELECT redis_command('redis', 'HLEN', 'redis_export:{a:#{id}}:keys'), redis_command('redis', 'HSTRLEN', 'redis_export:{a:#{id}}:keys', 'a:7');
-- what is changed here, or gone or expired there
UPDATE article SET doc = '{"title":"new"}' WHERE id IN (10, 1999);
INSERT INTO article VALUES (2001, '{"title":"more"}');
SELECT redis_command('redis', 'DEL', 'a:20'), redis_command('redis', 'PEXPIREAT', 'a:21', '1');
SELECT * FROM changed();
SELECT redis_command('redis', 'JSON.GET', 'a:10'), redis_command('redis', 'JSON.GET', 'a:20'), redis_command('redis', 'JSON.GET', 'a:21'), redis_command('redis', 'JSON.GET', 'a:2001');
SELECT * FROM changed();
-- there and back again: each time it is a change
UPDATE article SET doc = '{"title":"newer"}' WHERE id = 10;
SELECT * FROM changed();
UPDATE article SET doc = '{"title":"new"}' WHERE id = 10;
SELECT * FROM changed();
SELECT redis_command('redis', 'JSON.GET', 'a:10');
-- of rows with one key the last one counts, each time
CREATE TABLE twice (id int, doc text);
INSERT INTO twice VALUES (1, '{"n":1}'), (2, '{"n":2}'), (1, '{"n":3}');
SELECT * FROM changed('twice:#{id}', 'SELECT * FROM twice');
SELECT * FROM changed('twice:#{id}', 'SELECT * FROM twice');
SELECT redis_command('redis', 'JSON.GET', 'twice:1'), redis_command('redis', 'JSON.GET', 'twice:2');
-- failed rows are no unchanged ones, and tried again
INSERT INTO twice VALUES (NULL, '{}'), (3, 'no JSON'), (4, '{}');
SELECT redis_command('redis', 'SET', 'twice:4', 'a string');
SELECT * FROM changed('twice:#{id}', 'SELECT * FROM twice');
SELECT * FROM changed('twice:#{id}', 'SELECT * FROM twice');
-- (of a key whose write was refused, the books say no more than that it is ours)
SELECT redis_command('redis', 'HSTRLEN', 'redis_export:{twice:#{id}}:keys', 'twice:2'), redis_command('redis', 'HGET', 'redis_export:{twice:#{id}}:keys', 'twice:4'), redis_command('redis', 'HGET', 'redis_export:{twice:#{id}}:keys', 'twice:3');
SELECT redis_command('redis', 'DEL', 'twice:4');
SELECT * FROM changed('twice:#{id}', 'SELECT * FROM twice');
SELECT redis_command('redis', 'JSON.GET', 'twice:4');
-- an expiry is set again, also that of unchanged rows
SELECT * FROM changed(ttl => '1 hour');
SELECT (redis_command('redis', 'TTL', 'a:1'))::int BETWEEN 3000 AND 3600, (redis_command('redis', 'TTL', 'a:10'))::int BETWEEN 3000 AND 3600;
UPDATE article SET doc = '{"title":"newest"}' WHERE id = 10;
SELECT * FROM changed(ttl => '2 hours');
SELECT (redis_command('redis', 'TTL', 'a:1'))::int BETWEEN 7000 AND 7200, (redis_command('redis', 'TTL', 'a:10'))::int BETWEEN 7000 AND 7200;
SELECT * FROM changed(ttl => '0');
SELECT redis_command('redis', 'TTL', 'a:1'), redis_command('redis', 'TTL', 'a:10');
UPDATE article SET until = now() + interval '3 hours' WHERE id <= 1000;
SELECT state, rows_written, rows_unchanged FROM redis_json_export('SELECT id, doc, until FROM article', 'a:#{id}', value => 'doc', ttl_column => 'until', changed_only => true);
SELECT (redis_command('redis', 'TTL', 'a:1'))::int BETWEEN 10000 AND 10800, redis_command('redis', 'TTL', 'a:1500');
-- hashes, also whole ones, and any key
SELECT state, rows_written, rows_unchanged FROM redis_hash_export('SELECT id, hits FROM article', 'h:{#{id}}:x', changed_only => true);
SELECT state, rows_written, rows_unchanged FROM redis_hash_export('SELECT id, hits FROM article', 'h:{#{id}}:x', changed_only => true);
SELECT state, rows_written, rows_unchanged FROM redis_hash_export('SELECT id, nullif(hits, 5) AS hits FROM article', 'h:{#{id}}:x', changed_only => true, replace => true);
SELECT state, rows_written, rows_unchanged FROM redis_hash_export('SELECT id, nullif(hits, 6) AS hits FROM article', 'h:{#{id}}:x', changed_only => true, replace => true);
SELECT redis_command('redis', 'HGETALL', 'h:{5}:x'), redis_command('redis', 'HGETALL', 'h:{6}:x');
SELECT state, rows_written, rows_unchanged FROM redis_hash_export($$SELECT k, 1 AS n FROM (VALUES (''), ('{'), ('{}'), (E'\r\n'), ('%s'), (repeat('x', 9000))) AS _ (k)$$, '#{k}', changed_only => true);
SELECT state, rows_written, rows_unchanged FROM redis_hash_export($$SELECT k, 1 AS n FROM (VALUES (''), ('{'), ('{}'), (E'\r\n'), ('%s'), (repeat('x', 9000))) AS _ (k)$$, '#{k}', changed_only => true);
-- a row whose columns are all null and whose key is gone is a change each time: its key is not there
SELECT state, rows_written, rows_unchanged FROM redis_hash_export('SELECT id, NULL AS hits FROM article WHERE id = 1', 'h:{#{id}}:x', changed_only => true, replace => true, exclude => '{id}');
SELECT state, rows_written, rows_unchanged FROM redis_hash_export('SELECT id, NULL AS hits FROM article WHERE id = 1', 'h:{#{id}}:x', changed_only => true, replace => true, exclude => '{id}');
SELECT redis_command('redis', 'EXISTS', 'h:{1}:x'), redis_command('redis', 'HEXISTS', 'redis_export:{h:{#{id}}:x}:keys', 'h:{1}:x');
-- small and large batches, and rows of which each fills one
SELECT state, rows_unchanged FROM redis_json_export('SELECT id, doc FROM article', 'a:#{id}', 1, changed_only => true);
SELECT state, rows_unchanged FROM redis_json_export('SELECT id, doc FROM article', 'a:#{id}', 50000, changed_only => true);
SELECT state, rows_written FROM redis_json_export($$SELECT i AS id, json_build_object('t', repeat('x', 5000000)) AS doc FROM generate_series(1, 8) AS i$$, 'big:#{id}', changed_only => true);
SELECT state, rows_written, rows_unchanged FROM redis_json_export($$SELECT i AS id, json_build_object('t', repeat(CASE WHEN i = 3 THEN 'y' ELSE 'x' END, 5000000)) AS doc FROM generate_series(1, 8) AS i$$, 'big:#{id}', changed_only => true);
-- all that it keeps is below one prefix, and without it all counts as changed
SELECT count(*) FROM redis_scan('redis', '*') AS key WHERE key !~ '^(a|other|twice|h|big|redis_export):' AND key NOT IN ('', '{', '{}', E'\r\n', '%s', repeat('x', 9000));
SELECT count(DISTINCT redis_command('redis', 'UNLINK', key)) FROM redis_scan('redis', 'redis_export:*') AS key;
SELECT * FROM changed();
-- who may not use that prefix is told, and may export without it
SELECT redis_command('redis', 'ACL', 'SETUSER', 'limited', 'on', '>secret', '~a:*', '+@all');
CREATE SERVER limited FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port :'redis_port');
CREATE USER MAPPING FOR CURRENT_USER SERVER limited OPTIONS (username 'limited', password 'secret');
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM article', 'a:#{id}', changed_only => true, server => 'limited')$x$);
SELECT state, rows_written FROM redis_json_export('SELECT id, doc FROM article', 'a:#{id}', server => 'limited');
SELECT redis_command('redis', 'ACL', 'SETUSER', 'limited', '%R~redis_export:*');
UPDATE article SET doc = '{}' WHERE id = 1;
SELECT line FROM error_of($x$SELECT redis_json_export('SELECT id, doc FROM article', 'a:#{id}', changed_only => true, server => 'limited')$x$) AS line WHERE line !~ '^detail';
SELECT redis_command('redis', 'ACL', 'SETUSER', 'limited', '~redis_export:*');
SELECT state, rows_written FROM redis_json_export('SELECT id, doc FROM article', 'a:#{id}', changed_only => true, server => 'limited');
SELECT redis_command('redis', 'ACL', 'DELUSER', 'limited');
DROP SERVER limited CASCADE;
-- somebody else's keys where ours should be
SELECT redis_command('redis', 'SET', 'redis_export:{a:#{id}}:keys', 'nonsense');
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM article', 'a:#{id}', changed_only => true)$x$);
-- what cannot be
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM article', 'a:#{id}', changed_only => true, merge => true)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM article', 'a:#{id}', changed_only => true, path => '$.a')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM article', 'a:#{id}', changed_only => NULL)$x$);
SELECT redis_command('redis', 'FLUSHALL');
DROP TABLE article, twice;
DROP FUNCTION changed;
