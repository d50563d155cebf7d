-- Keys whose rows are gone go, too
\getenv redis_port REDIS_PORT
SET client_min_messages = error;
CREATE TABLE shop (id int PRIMARY KEY, doc text, name text);
INSERT INTO shop SELECT i, json_build_object('n', i)::text, 'shop ' || i FROM generate_series(1, 1000) AS i;
-- what a run of an export comes to
CREATE PROCEDURE pruned(name text, prune_limit float8 DEFAULT 0.1, rows text DEFAULT 'changed', prune boolean DEFAULT true, on_error text DEFAULT 'ignore', INOUT state text DEFAULT NULL,
	INOUT written bigint DEFAULT NULL, INOUT unchanged bigint DEFAULT NULL, INOUT failed bigint DEFAULT NULL, INOUT deleted bigint DEFAULT NULL) LANGUAGE plpgsql AS $$
	DECLARE job bigint; read bigint; error text;
	BEGIN
		CALL redis_export_run(name, rows => rows, prune => prune, prune_limit => prune_limit, on_error => on_error,
			job => job, state => state, rows_read => read, rows_written => written, rows_unchanged => unchanged, rows_failed => failed, keys_deleted => deleted, last_error => error);
	END
$$;
CREATE PROCEDURE expired(key text) LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1 .. 100000 LOOP EXIT WHEN redis_command('redis', 'EXISTS', key) = '0'; END LOOP; END $$;
CREATE FUNCTION entries(name text) RETURNS jsonb LANGUAGE sql AS $$ SELECT redis_command('redis', 'HLEN', 'redis_export:{' || name || '}:keys') $$;
SELECT redis_export_define('shop', 'SELECT id, doc FROM shop', 's:#{id}', value => 'doc');
CALL pruned('shop');
DELETE FROM shop WHERE id % 20 = 0;
CALL pruned('shop');
SELECT count(*), entries('shop') FROM redis_scan('redis', 's:*');
-- what the export has not written is not its own, whatever it looks like
SELECT redis_command('redis', 'JSON.SET', 's:cache:1', '$', '1'), redis_command('redis', 'JSON.SET', 's:x', '$', '1'), redis_command('redis', 'JSON.SET', 's:5002', '$', '1'), redis_command('redis', 'JSON.SET', 's:', '$', '1'),
	redis_command('redis', 'SET', 's:5000', 'a string'), redis_command('redis', 'HSET', 's:5001', 'a', 'hash'), redis_command('redis', 'JSON.SET', 's:-1', '$', '1');
CALL pruned('shop', 0);
SELECT string_agg(key, ' ' ORDER BY key) FROM redis_scan('redis', 's*') AS key WHERE key !~ '^s:\d{1,3}$';
-- of two exports each has its own, though the template of one can make the keys of the other
SELECT redis_export_define('orders', 'SELECT id, doc FROM shop WHERE id < 10', 'order:#{id}', value => 'doc');
SELECT redis_export_define('days', $$SELECT 2026 AS year, '01'::text AS month, '0' || i AS day FROM generate_series(1, 3) AS i$$, 'order:#{year}-#{month}-#{day}', value => '*');
SELECT redis_export_define('lines', 'SELECT 12 AS id, i AS line FROM generate_series(1, 3) AS i', 'order:#{id}-#{line}');
CALL pruned('days');
CALL pruned('lines');
CALL pruned('orders');
DELETE FROM shop WHERE id IN (3, 5);
CALL pruned('orders', 1);
SELECT string_agg(key, ' ' ORDER BY key) FROM redis_scan('redis', 'order:*') AS key;
-- text columns are good for keys, and so is a template that begins with one
SELECT redis_export_define('names', 'SELECT name, id FROM shop WHERE id < 8', '#{name}', type => 'hash');
CALL pruned('names');
DELETE FROM shop WHERE id IN (4, 6);
CALL pruned('names', 1);
SELECT string_agg(key, ', ' ORDER BY key) FROM redis_scan('redis', 'shop*') AS key;
-- more than a tenth of them: nothing goes, unless it may
DELETE FROM shop WHERE id > 500;
SELECT error_of($x$CALL redis_export_run('shop', prune => true)$x$);
SELECT count(*), entries('shop') FROM redis_scan('redis', 's:*', 'json');
SELECT error_of($x$CALL redis_export_run('shop', prune => true, prune_limit => 0.49)$x$);
CALL pruned('shop', 0.51);
SELECT count(*), entries('shop') FROM redis_scan('redis', 's:*', 'json');
SELECT error_of($x$CALL redis_export_run('shop', prune => true, prune_limit => 1.1)$x$);
SELECT error_of($x$CALL redis_export_run('shop', prune => true, prune_limit => 'NaN')$x$);
SELECT error_of($x$CALL redis_export_run('shop', prune => true, prune_limit => NULL)$x$);
SELECT error_of($x$CALL redis_export_run('shop', prune => true, rows => 'new')$x$);
-- a row that comes back is written again
DELETE FROM shop WHERE id = 1;
CALL pruned('shop');
INSERT INTO shop VALUES (1, '{"n":1}');
CALL pruned('shop');
-- all that is not to be read anew is in the books, also of a run that writes all
DELETE FROM shop WHERE id = 2;
CALL pruned('shop', rows => 'all');
-- rows that fail keep it from pruning
DELETE FROM shop WHERE id = 7;
UPDATE shop SET doc = 'no JSON' WHERE id = 8;
CALL pruned('shop');
SELECT redis_command('redis', 'EXISTS', 's:7'), redis_command('redis', 'EXISTS', 's:8');
UPDATE shop SET doc = '{}' WHERE id = 8;
CALL pruned('shop');
-- of a key that is gone already there is the entry, which goes, and is not counted
SELECT redis_command('redis', 'DEL', 's:10', 's:11');
DELETE FROM shop WHERE id IN (10, 12);
CALL pruned('shop');
SELECT count(*), entries('shop'), (SELECT count(*) FROM shop) FROM redis_scan('redis', 's:*', 'json') WHERE redis_scan ~ '^s:\d{1,3}$';
-- without prune what is gone by itself goes out of the books, and what is there stays
SELECT redis_command('redis', 'DEL', 's:13', 's:14', 's:15'), redis_command('redis', 'PEXPIRE', 's:17', '1');
CALL expired('s:17');
DELETE FROM shop WHERE id IN (13, 14, 16, 17);
CALL pruned('shop', prune => false);
SELECT entries('shop'), (SELECT count(*) + 1 FROM shop), redis_command('redis', 'EXISTS', 's:15', 's:16');
DELETE FROM shop;
CALL pruned('shop', 1);
SELECT string_agg(key, ' ' ORDER BY key), entries('shop') FROM redis_scan('redis', 's:*') AS key;
-- rows that expire, and rows of nulls that have their keys deleted
INSERT INTO shop SELECT i, NULL, 'shop ' || i FROM generate_series(1, 100) AS i;
SELECT redis_export_define('hashes', 'SELECT id, CASE WHEN id % 10 > 0 OR id > 90 THEN name END AS name, CASE WHEN id = 50 THEN interval ''1 ms'' END AS ttl FROM shop', 'h:#{id}', type => 'hash', exclude => '{id}', replace => true, ttl_column => 'ttl');
CALL pruned('hashes');
CALL expired('h:50');
SELECT count(*), entries('hashes') FROM redis_scan('redis', 'h:*');
DELETE FROM shop WHERE id IN (7, 77);
CALL pruned('hashes');
CALL expired('h:50');
SELECT count(*), entries('hashes') FROM redis_scan('redis', 'h:*');
-- glob characters are no pattern
SELECT redis_export_define('glob', 'SELECT id FROM shop WHERE id < 3', 'g[a]*?\#{id}');
CALL pruned('glob');
SELECT redis_command('redis', 'JSON.SET', 'gaXY\2', '$', '1');
DELETE FROM shop WHERE id = 2;
CALL pruned('glob', 0.5);
SELECT * FROM redis_scan('redis', 'g*') ORDER BY 1;
-- all within work_mem
CREATE TABLE wide AS SELECT i AS id FROM generate_series(1, 20000) AS i;
SELECT redis_export_define('wide', 'SELECT id FROM wide', 'w:#{id}', type => 'hash');
SET work_mem = '64kB';
CALL pruned('wide');
DELETE FROM wide WHERE id > 18000;
CALL pruned('wide');
RESET work_mem;
SELECT count(*) FROM redis_scan('redis', 'w:*');
-- who may not delete, or not read the books
SELECT redis_command('redis', 'ACL', 'SETUSER', 'limited', 'on', '>secret', '~*', '+@all', '-unlink');
CREATE SERVER limited FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port :'redis_port');
CREATE USER MAPPING FOR CURRENT_USER SERVER limited OPTIONS (username 'limited', password 'secret');
SELECT redis_export_define('far', 'SELECT id FROM wide', 'far:#{id}', server => 'limited', type => 'hash');
CALL pruned('far');
DELETE FROM wide WHERE id > 17500;
SELECT error_of($x$CALL redis_export_run('far', prune => true)$x$);
SELECT redis_command('redis', 'ACL', 'SETUSER', 'limited', '+unlink', '-hscan');
SELECT error_of($x$CALL redis_export_run('far', prune => true)$x$);
SELECT count(*) FROM redis_scan('redis', 'far:*');
SELECT redis_command('redis', 'ACL', 'DELUSER', 'limited');
DELETE FROM redis_export_definition;
DROP SERVER limited CASCADE;
SELECT redis_command('redis', 'FLUSHALL');
DROP TABLE shop, wide;
DROP PROCEDURE pruned, expired;
DROP FUNCTION entries;
