-- What an export would send
CREATE TABLE person (id int, name text, born date);
INSERT INTO person VALUES (1, 'Ada', '1815-12-10'), (2, 'O''Neil "x"', NULL), (3, E'line\nfeed \\ ünï', '0044-03-15 BC'), (NULL, 'nobody', NULL);
\pset format unaligned
SELECT * FROM redis_export_preview('SELECT * FROM person', 'person:#{id}');
SELECT * FROM redis_export_preview('SELECT * FROM person', 'person:#{id}', rows => 1, merge => true, path => '$.p#{id}', ttl => '1 minute', exclude => '{id}');
SELECT * FROM redis_export_preview('SELECT * FROM person', 'person:#{id}', type => 'hash', rows => 3);
SELECT * FROM redis_export_preview('SELECT * FROM person WHERE id = 1', 'person:#{id}', type => 'hash', replace => true, ttl => '0');
SELECT * FROM redis_export_preview('SELECT * FROM person ORDER BY id DESC', ARRAY['ZADD', 'people', '#{id}', '#{name} (#{born})'], on_null => 'skip');
SELECT * FROM redis_export_preview($$VALUES (1, NULL), (2, 'x'), (NULL, 'y')$$, 'h:#{column1}', type => 'hash', exclude => '{column1}', replace => true, ttl => '1 hour');
SELECT * FROM redis_export_preview($$SELECT '\x00ff0a'::bytea AS b, '{1,2}'::int[] AS a, '' AS e$$, ARRAY['RPUSH', 'k', '#{b}', '#{a}', '#{e}'], ttl_column => NULL);
SELECT count(*) FROM redis_export_preview('SELECT i AS id FROM generate_series(1, 10000000) AS i', 'x:#{id}');
SELECT count(*) FROM redis_export_preview('SELECT i AS id FROM generate_series(1, 100) AS i', 'x:#{id}', rows => 1000);
SELECT count(*) FROM redis_export_preview('SELECT 1 AS id WHERE false', 'x:#{id}');
-- of one that is defined
SELECT redis_export_define('people', 'SELECT * FROM person ORDER BY id', 'person:#{id}', type => 'hash', exclude => '{id}', ttl => '1 hour');
SELECT * FROM redis_export_preview('people', 2);
-- Redis has some of its rows, and keys of rows that are gone
UPDATE redis_export_definition SET query = 'SELECT * FROM person WHERE id IS NOT NULL ORDER BY id' WHERE name = 'people';
INSERT INTO person VALUES (4, 'four', NULL), (6, 'six', NULL), (7, 'seven', NULL), (8, 'eight', NULL);
CALL redis_export_run('people') \gset
SELECT redis_command('redis', 'DEL', 'person:1', 'person:7'), redis_command('redis', 'HSET', 'redis_export:{people}', 'unclean:00000000', '');
UPDATE person SET name = 'three' WHERE id = 3;
DELETE FROM person WHERE id IN (4, 7, 8);
SELECT * FROM redis_export_preview('people');
SELECT * FROM redis_export_preview('people', 1, prune => true);
SELECT * FROM redis_export_preview('people', prune => true);
-- of a run that did not end clean nothing counts as there
SELECT redis_command('redis', 'EVAL', $$local stamp = struct.unpack('<I4', redis.call('HGET', KEYS[1], 'person:2'), 9)
	return redis.call('HSET', KEYS[2], 'unclean:' .. string.format('%08x', stamp), '')$$, '2', 'redis_export:{people}:keys', 'redis_export:{people}');
SELECT row_number, action FROM redis_export_preview('people', 2);
SELECT redis_command('redis', 'DEL', 'redis_export:{people}');
-- rows that fail keep a run from pruning
UPDATE redis_export_definition SET query = 'SELECT * FROM person ORDER BY id' WHERE name = 'people';
SELECT row_number, action FROM redis_export_preview('people', 2, prune => true);
-- documents, and rows that delete their keys
SELECT redis_export_define('papers', $q$SELECT i AS id, json_build_object('n', i) AS doc FROM generate_series(1, 3) AS i$q$, 'paper:#{id}', value => 'doc');
CALL redis_export_run('papers') \gset
UPDATE redis_export_definition SET query = $q$SELECT i AS id, json_build_object('n', CASE WHEN i = 2 THEN 0 ELSE i END) AS doc FROM generate_series(1, 3) AS i$q$ WHERE name = 'papers';
SELECT * FROM redis_export_preview('papers');
SELECT redis_export_define('gone', $q$SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS _ (id, name)$q$, 'gone:#{id}', type => 'hash', exclude => '{id}', replace => true);
CALL redis_export_run('gone') \gset
SELECT * FROM redis_export_preview('gone', prune => true);
SELECT redis_command('redis', 'FLUSHALL');
SELECT error_of($x$SELECT * FROM redis_export_preview('nobody')$x$);
SELECT error_of($x$SELECT * FROM redis_export_preview(NULL)$x$);
DELETE FROM redis_export_definition;
\pset format aligned
-- nothing was sent, and no job was there
SELECT redis_command('redis', 'DBSIZE');
-- what is an error of an export is one here
SELECT error_of($x$SELECT * FROM redis_export_preview('SELECT 1 AS id', 'x:#{no}')$x$);
SELECT error_of($x$SELECT * FROM redis_export_preview('DELETE FROM person', 'x:#{no}')$x$);
SELECT error_of($x$SELECT * FROM redis_export_preview('SELECT 1 AS id', 'x:#{id}', server => 'nowhere')$x$);
SELECT error_of($x$SELECT * FROM redis_export_preview('SELECT 1 AS id', 'x:#{id}', rows => 0)$x$);
SELECT error_of($x$SELECT * FROM redis_export_preview('SELECT 1 AS id', 'x:#{id}', type => 'set')$x$);
SELECT error_of($x$SELECT * FROM redis_export_preview('SELECT 1 AS id', 'x:#{id}', replace => true)$x$);
SELECT error_of($x$SELECT * FROM redis_export_preview('SELECT 1 AS id', 'x:#{id}', type => 'hash', merge => true)$x$);
SELECT error_of($x$SELECT * FROM redis_export_preview('SELECT 1 AS id', 'x:#{id}', type => 'hash', value => 'id')$x$);
-- it only reads, as an export does, and leaves the transaction as it was
CREATE SEQUENCE counter;
SELECT error_of($x$SELECT * FROM redis_export_preview('SELECT nextval(''counter'') AS id', 'x:#{id}')$x$);
BEGIN;
SELECT count(*) FROM redis_export_preview('SELECT * FROM person', 'x:#{id}');
INSERT INTO person VALUES (5, 'five', NULL);
ROLLBACK;
SELECT error_of($x$SELECT * FROM redis_export_preview('SELECT 1/(id-1) AS id FROM person', 'x:#{id}')$x$);
