-- Only rows that Redis does not hold already are written
\getenv redis_port REDIS_PORT
SET client_min_messages = error;
CREATE TABLE article (id int PRIMARY KEY, doc text, hits int, until timestamptz);
INSERT INTO article SELECT i, json_build_object('title', 'number ' || i)::text, i, 'infinity' FROM generate_series(1, 2000) AS i;
CREATE FUNCTION run(name text, rows text DEFAULT 'changed', batch int DEFAULT 500,
	OUT state text, OUT read bigint, OUT written bigint, OUT unchanged bigint, OUT failed bigint) LANGUAGE plpgsql AS $$
DECLARE
	job bigint;
	deleted bigint;
	error text;
BEGIN
	CALL redis_export_run(name, rows => run.rows, batch => run.batch, on_error => 'ignore', job => job, state => state, rows_read => read, rows_written => written,
		rows_unchanged => unchanged, rows_failed => failed, keys_deleted => deleted, last_error => error);
END
$$;
-- the first time all are written, and the next time none
SELECT redis_export_define('articles', 'SELECT id, doc FROM article ORDER BY id', 'a:#{id}');
SELECT * FROM run('articles');
SELECT * FROM run('articles');
SELECT * FROM redis_export_verify('SELECT id, doc FROM article', 'a:#{id}');
-- the books have an entry for each key: a digest and a stamp
SELECT redis_command('redis', 'HLEN', 'redis_export:{articles}:keys'), redis_command('redis', 'HSTRLEN', 'redis_export:{articles}:keys', 'a:7');
-- what is changed here, or gone, expired or of another type there
UPDATE article SET doc = '{"title":"new"}' WHERE id IN (10, 1999);
INSERT INTO article VALUES (2001, '{"title":"more"}');
SELECT redis_command('redis', 'DEL', 'a:20'), redis_command('redis', 'PEXPIREAT', 'a:21', '1'), redis_command('redis', 'DEL', 'a:22'), redis_command('redis', 'HSET', 'a:22', 'f', 'v');
SELECT * FROM run('articles');
SELECT redis_command('redis', 'JSON.GET', 'a:10'), redis_command('redis', 'JSON.GET', 'a:20'), redis_command('redis', 'JSON.GET', 'a:21'), redis_command('redis', 'JSON.GET', 'a:2001');
SELECT redis_command('redis', 'DEL', 'a:22');
SELECT * FROM run('articles');
SELECT * FROM run('articles');
-- there and back again: each time it is a change
UPDATE article SET doc = '{"title":"newer"}' WHERE id = 10;
SELECT * FROM run('articles');
UPDATE article SET doc = '{"title":"new"}' WHERE id = 10;
SELECT * FROM run('articles');
SELECT redis_command('redis', 'JSON.GET', 'a:10');
-- or all are written, which Redis is not asked for, and which are unchanged then
SELECT * FROM run('articles', 'all');
SELECT * FROM run('articles');
-- an old write that arrives late, with its entry, over a newer one: the next run writes that again
SELECT redis_command('redis', 'HGET', 'redis_export:{articles}:keys', 'a:10') AS entry, redis_command('redis', 'JSON.GET', 'a:10') AS document \gset old_
UPDATE article SET doc = '{"title":"newest"}' WHERE id = 10;
SELECT * FROM run('articles');
SELECT redis_command('redis', 'HSET', 'redis_export:{articles}:keys', 'a:10', decode(substr(:'old_entry'::jsonb #>> '{}', 3), 'hex')), redis_command('redis', 'JSON.SET', 'a:10', '$', :'old_document'::jsonb #>> '{}');
SELECT * FROM run('articles');
SELECT redis_command('redis', 'JSON.GET', 'a:10');
-- of rows with one key the last one counts, each time
CREATE TABLE twice (id int, doc text);
INSERT INTO twice VALUES (1, '{"n":1}'), (2, '{"n":2}'), (1, '{"n":3}');
SELECT redis_export_define('twice', 'SELECT * FROM twice', 'twice:#{id}');
SELECT * FROM run('twice');
SELECT * FROM run('twice');
SELECT redis_command('redis', 'JSON.GET', 'twice:1'), redis_command('redis', 'JSON.GET', 'twice:2');
-- failed rows are no unchanged ones, and tried again
INSERT INTO twice VALUES (NULL, '{}'), (3, 'no JSON'), (4, '{}');
SELECT redis_command('redis', 'SET', 'twice:4', 'a string');
SELECT * FROM run('twice');
SELECT * FROM run('twice');
-- (of a key whose write was refused, the books say no more than that it is ours)
SELECT redis_command('redis', 'HSTRLEN', 'redis_export:{twice}:keys', 'twice:2'), redis_command('redis', 'HGET', 'redis_export:{twice}:keys', 'twice:4'), redis_command('redis', 'HGET', 'redis_export:{twice}:keys', 'twice:3');
SELECT redis_command('redis', 'DEL', 'twice:4');
SELECT * FROM run('twice');
SELECT redis_command('redis', 'JSON.GET', 'twice:4');
-- documents of each form, as they are stored: short, compressed, out of line, larger than what is put off, and what is none
CREATE TABLE form (id int PRIMARY KEY, t text, j json, b jsonb, e text);
ALTER TABLE form ALTER e SET STORAGE EXTERNAL;
INSERT INTO form SELECT i, d, d::json, d::jsonb, d FROM (VALUES (1, '{"a": [1, 2.50, null, "é\u20ac"]}'), (2, json_build_object('a', repeat('x', 5000))::text), (3, json_build_object('a', repeat('x', 400000))::text),
	(4, (SELECT json_agg(md5(i::text))::text FROM generate_series(1, 500) AS i)), (5, (SELECT json_agg(md5(i::text))::text FROM generate_series(1, 20000) AS i)), (6, '{}')) AS _ (i, d);
SELECT redis_export_define('form ' || c, format('SELECT id, %I FROM form ORDER BY id', c), c || ':#{id}', value => c::name) FROM unnest('{t,j,b,e}'::text[]) AS c;
SELECT c, r.* FROM unnest('{t,j,b,e}'::text[]) AS c, run('form ' || c) AS r;
SELECT c, r.* FROM unnest('{t,j,b,e}'::text[]) AS c, run('form ' || c) AS r;
SELECT c, missing, different FROM unnest('{t,j,b,e}'::text[]) AS c, redis_export_verify(format('SELECT id, %I FROM form', c), c || ':#{id}', value => c::name);
UPDATE form SET t = replace(t, 'a', 'b'), j = replace(j::text, 'a', 'b')::json, b = replace(b::text, 'a', 'b')::jsonb, e = replace(e, 'a', 'b') WHERE id < 6;
SELECT c, r.* FROM unnest('{t,j,b,e}'::text[]) AS c, run('form ' || c) AS r;
SELECT c, r.* FROM unnest('{t,j,b,e}'::text[]) AS c, run('form ' || c) AS r;
SELECT c, missing, different FROM unnest('{t,j,b,e}'::text[]) AS c, redis_export_verify(format('SELECT id, %I FROM form', c), c || ':#{id}', value => c::name);
UPDATE form SET t = CASE id WHEN 1 THEN '{"a":' WHEN 2 THEN repeat('[', 600) || repeat(']', 600) WHEN 3 THEN repeat('x', 300000) WHEN 4 THEN NULL ELSE '7' END, e = t;
SELECT * FROM run('form t');
SELECT row_number, key, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress)) ORDER BY row_number;
-- the same value, that was compressed, and is not: it is written once more
ALTER TABLE form ALTER b SET STORAGE EXTERNAL;
UPDATE form SET b = b || '{}' WHERE id = 2;
SELECT * FROM run('form b');
SELECT * FROM run('form b');
-- an expiry is set again, also that of unchanged rows
UPDATE redis_export_definition SET ttl = '1 hour' WHERE name = 'articles';
SELECT * FROM run('articles');
SELECT (redis_command('redis', 'TTL', 'a:1'))::int BETWEEN 3000 AND 3600, (redis_command('redis', 'TTL', 'a:10'))::int BETWEEN 3000 AND 3600;
UPDATE article SET doc = '{"title":"old"}' WHERE id = 10;
UPDATE redis_export_definition SET ttl = '2 hours' WHERE name = 'articles';
SELECT * FROM run('articles');
SELECT (redis_command('redis', 'TTL', 'a:1'))::int BETWEEN 7000 AND 7200, (redis_command('redis', 'TTL', 'a:10'))::int BETWEEN 7000 AND 7200;
UPDATE redis_export_definition SET ttl = '0' WHERE name = 'articles';
SELECT * FROM run('articles');
SELECT redis_command('redis', 'TTL', 'a:1'), redis_command('redis', 'TTL', 'a:10');
UPDATE article SET until = now() + interval '3 hours' WHERE id <= 1000;
UPDATE redis_export_definition SET query = 'SELECT id, doc, until FROM article', value = 'doc', ttl = NULL, ttl_column = 'until' WHERE name = 'articles';
SELECT * FROM run('articles');
SELECT (redis_command('redis', 'TTL', 'a:1'))::int BETWEEN 10000 AND 10800, redis_command('redis', 'TTL', 'a:1500');
UPDATE redis_export_definition SET query = 'SELECT id, doc FROM article', ttl_column = NULL WHERE name = 'articles';
-- hashes, also whole ones, and any key
SELECT redis_export_define('hits', 'SELECT id, hits FROM article', 'h:{#{id}}:x', type => 'hash');
SELECT * FROM run('hits');
SELECT * FROM run('hits');
UPDATE redis_export_definition SET query = 'SELECT id, nullif(hits, 5) AS hits FROM article', replace = true WHERE name = 'hits';
SELECT * FROM run('hits');
UPDATE redis_export_definition SET query = 'SELECT id, nullif(hits, 6) AS hits FROM article' WHERE name = 'hits';
SELECT * FROM run('hits');
SELECT redis_command('redis', 'HGETALL', 'h:{5}:x'), redis_command('redis', 'HGETALL', 'h:{6}:x');
SELECT redis_export_define('any', $$SELECT k, 1 AS n FROM (VALUES (''), ('{'), ('{}'), (E'\r\n'), ('%s'), (repeat('x', 9000))) AS _ (k)$$, '#{k}', type => 'hash');
SELECT * FROM run('any');
SELECT * FROM run('any');
-- a row whose columns are all null and whose key is gone is a change each time: its key is not there, nor has it an entry
UPDATE redis_export_definition SET query = 'SELECT id, NULL AS hits FROM article WHERE id = 1', exclude = '{id}' WHERE name = 'hits';
SELECT * FROM run('hits');
SELECT * FROM run('hits');
SELECT redis_command('redis', 'EXISTS', 'h:{1}:x'), redis_command('redis', 'HEXISTS', 'redis_export:{hits}:keys', 'h:{1}:x');
-- small and large batches, and rows of which each fills one
SELECT * FROM run('articles', batch => 1);
SELECT * FROM run('articles', batch => 50000);
SELECT redis_export_define('big', $$SELECT i AS id, json_build_object('t', repeat('x', 5000000)) AS doc FROM generate_series(1, 8) AS i$$, 'big:#{id}');
SELECT * FROM run('big');
UPDATE redis_export_definition SET query = $$SELECT i AS id, json_build_object('t', repeat(CASE WHEN i = 3 THEN 'y' ELSE 'x' END, 5000000)) AS doc FROM generate_series(1, 8) AS i$$ WHERE name = 'big';
SELECT * FROM run('big');
-- all that it keeps is below one prefix, and without it all counts as changed
SELECT count(*) FROM redis_scan('redis', '*') AS key WHERE key !~ '^(a|twice|h|big|t|j|b|e|redis_export):' AND key NOT IN ('', '{', '{}', E'\r\n', '%s', repeat('x', 9000));
SELECT count(DISTINCT redis_command('redis', 'UNLINK', key)) FROM redis_scan('redis', 'redis_export:*') AS key;
SELECT * FROM run('articles');
-- who may not use that prefix is told
SELECT redis_command('redis', 'ACL', 'SETUSER', 'limited', 'on', '>secret', '~a:*', '+@all');
CREATE SERVER limited FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port :'redis_port');
CREATE USER MAPPING FOR CURRENT_USER SERVER limited OPTIONS (username 'limited', password 'secret');
UPDATE redis_export_definition SET server = 'limited' WHERE name = 'articles';
SELECT error_of($x$CALL redis_export_run('articles')$x$);
SELECT redis_command('redis', 'ACL', 'SETUSER', 'limited', '~redis_export:*');
SELECT * FROM run('articles');
SELECT redis_command('redis', 'ACL', 'DELUSER', 'limited');
UPDATE redis_export_definition SET server = 'redis' WHERE name = 'articles';
DROP SERVER limited CASCADE;
-- somebody else's key where ours should be
SELECT redis_command('redis', 'SET', 'redis_export:{articles}:keys', 'nonsense');
SELECT error_of($x$CALL redis_export_run('articles')$x$);
SELECT redis_command('redis', 'FLUSHALL');
DELETE FROM redis_export_definition;
DROP TABLE article, twice, form;
DROP FUNCTION run;
