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
