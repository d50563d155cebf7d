-- Keys whose rows are gone go, too
\getenv redis_port REDIS_PORT
SET client_min_messages = error;
CREATE TABLE shop (id int PRIMARY KEY, doc text, name text);
INSERT INTO shop SELECT i, json_build_object('n', i)::text, 'shop ' || i FROM generate_series(1, 1000) AS i;
CREATE FUNCTION pruned(query text DEFAULT 'SELECT id, doc FROM shop', template text DEFAULT 's:#{id}', prune_limit float8 DEFAULT 0.1, changed_only boolean DEFAULT false,
	OUT state text, OUT written bigint, OUT unchanged bigint, OUT pruned bigint, OUT extra bigint) LANGUAGE plpgsql AS $$
	BEGIN
		SELECT p.state, rows_written, rows_unchanged, rows_pruned INTO state, written, unchanged, pruned
		FROM redis_json_export(query, template, prune => true, prune_limit => prune_limit, changed_only => changed_only, on_error => 'ignore') AS p;
		SELECT v.extra INTO extra FROM redis_export_verify(query, template) AS v;
	END
$$;
SELECT * FROM pruned();
DELETE FROM shop WHERE id % 20 = 0;
SELECT * FROM pruned();
SELECT count(*) FROM redis_scan('redis', 's:*');
SELECT * FROM redis_export_verify('SELECT id, doc FROM shop', 's:#{id}');
-- what is of another shape, or type, is not ours
SELECT redis_command('redis', 'JSON.SET', 's:cache:1', '$', '1'), redis_command('redis', 'JSON.SET', 's:x', '$', '1'), redis_command('redis', 'JSON.SET', 'sx:1', '$', '1'), redis_command('redis', 'JSON.SET', 's:', '$', '1'),
	redis_command('redis', 'SET', 's:5000', 'a string'), redis_command('redis', 'HSET', 's:5001', 'a', 'hash'), redis_command('redis', 'JSON.SET', 's:5002', '$', '1');
SELECT * FROM pruned();
SELECT string_agg(key, ' ' ORDER BY key) FROM redis_scan('redis', 's*') AS key WHERE key !~ '^s:\d{1,3}$';
-- an integer may be negative, and is written in one way only; a text can be anything, so it is refused
SELECT redis_command('redis', 'JSON.SET', 's:-1', '$', '1'), redis_command('redis', 'JSON.SET', 's:12-3', '$', '1'), redis_command('redis', 'JSON.SET', 's:007', '$', '1');
SELECT error_of($x$SELECT redis_json_export('SELECT id::text, doc FROM shop', 's:#{id}', prune => true)$x$);
SELECT * FROM pruned();
SELECT redis_command('redis', 'EXISTS', 's:x'), redis_command('redis', 'EXISTS', 's:12-3'), redis_command('redis', 'EXISTS', 's:007');
-- more than a tenth of them: nothing goes, unless it may
DELETE FROM shop WHERE id > 500;
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM shop', 's:#{id}', prune => true)$x$);
SELECT count(*) FROM redis_scan('redis', 's:*', 'json');
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM shop', 's:#{id}', prune => true, prune_limit => 0.49)$x$);
SELECT * FROM pruned(prune_limit => 0.5);
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM shop WHERE false', 's:#{id}', prune => true, prune_limit => 0.99)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM shop WHERE id > 1', 's:#{id}', prune => true, prune_limit => 0)$x$);
-- with changed_only, whose books go too
SELECT * FROM pruned(changed_only => true);
DELETE FROM shop WHERE id = 1;
UPDATE shop SET doc = '{"n":0}' WHERE id = 2;
SELECT * FROM pruned(changed_only => true);
INSERT INTO shop VALUES (1, '{"n":1}');
SELECT * FROM pruned(changed_only => true);
DELETE FROM shop;
SELECT * FROM pruned(changed_only => true, prune_limit => 1);
SELECT string_agg(key, ' ' ORDER BY key) FROM redis_scan('redis', 's:*') AS key;
SELECT count(*) FROM redis_scan('redis', 'redis_export:{*}:keys*');
-- hashes; rows of nulls have their keys deleted anyway
INSERT INTO shop SELECT i, NULL, 'shop ' || i FROM generate_series(1, 100) AS i;
SELECT state, rows_written, rows_pruned FROM redis_hash_export('SELECT * FROM shop', 'h:#{id}', prune => true);
DELETE FROM shop WHERE id IN (7, 77);
SELECT redis_command('redis', 'JSON.SET', 'h:1000', '$', '1');
SELECT state, rows_written, rows_pruned FROM redis_hash_export('SELECT * FROM shop', 'h:#{id}', prune => true, replace => true, ttl => '1 hour');
SELECT count(*) FROM redis_scan('redis', 'h:*');
-- rows that fail, here or there, keep it from pruning
DELETE FROM shop WHERE id = 8;
SELECT rows_failed, rows_pruned FROM redis_hash_export('SELECT * FROM shop UNION ALL SELECT NULL, NULL, ''x''', 'h:#{id}', prune => true, on_error => 'ignore');
SELECT redis_command('redis', 'EXISTS', 'h:8');
-- glob characters are no pattern
SELECT * FROM redis_scan('redis', 'g*');
SELECT state, rows_pruned FROM redis_json_export($$VALUES (1, '{}'), (2, '{}')$$, 'g[a]*?\#{column1}', prune => true);
SELECT redis_command('redis', 'JSON.SET', 'gaXY\2', '$', '1');
SELECT state, rows_pruned FROM redis_json_export($$VALUES (1, '{}')$$, 'g[a]*?\#{column1}', prune => true, prune_limit => 0.5);
SELECT * FROM redis_scan('redis', 'g*') ORDER BY 1;
-- all within work_mem
SET work_mem = '64kB';
SELECT state, rows_pruned FROM redis_hash_export('SELECT i AS id FROM generate_series(1, 20000) AS i', 'w:#{id}', 5000, prune => true);
SELECT state, rows_pruned FROM redis_hash_export('SELECT i AS id FROM generate_series(1, 18000) AS i', 'w:#{id}', 5000, prune => true);
RESET work_mem;
SELECT count(*) FROM redis_scan('redis', 'w:*');
-- who may not delete
SELECT redis_command('redis', 'ACL', 'SETUSER', 'limited', 'on', '>secret', '~*', '+@all', '-unlink');
CREATE SERVER limited FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port :'redis_port');
CREATE USER MAPPING FOR CURRENT_USER SERVER limited OPTIONS (username 'limited', password 'secret');
SELECT error_of($x$SELECT redis_hash_export('SELECT i AS id FROM generate_series(1, 17000) AS i', 'w:#{id}', 5000, prune => true, server => 'limited')$x$);
SELECT redis_command('redis', 'ACL', 'SETUSER', 'limited', '+unlink', '-scan');
SELECT error_of($x$SELECT redis_hash_export('SELECT i AS id FROM generate_series(1, 17000) AS i', 'w:#{id}', 5000, prune => true, server => 'limited')$x$);
SELECT count(*) FROM redis_scan('redis', 'w:*');
SELECT redis_command('redis', 'ACL', 'DELUSER', 'limited');
DROP SERVER limited CASCADE;
-- what cannot be
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM shop', '#{id}', prune => true)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM shop', 's:#{id}:#{doc}', value => '*', prune => true)$x$);
SELECT error_of($x$SELECT redis_export_verify('SELECT id, doc FROM shop', 's:#{doc}', value => '*', prune => true)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM shop', 's:#{id}', prune => true, prune_limit => 1.1)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM shop', 's:#{id}', prune => true, prune_limit => 'NaN')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM shop', 's:#{id}', prune => true, prune_limit => NULL)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id, doc FROM shop', 's:#{id}', prune => true, watermark_column => 'id', mark => 'm')$x$);
SELECT redis_command('redis', 'FLUSHALL');
DROP TABLE shop;
DROP FUNCTION pruned;
