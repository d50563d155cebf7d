-- Exports with a name: defined once, run by name
SET client_min_messages = error;
CREATE TABLE piece (id int PRIMARY KEY, doc text, updated_at timestamptz DEFAULT now());
INSERT INTO piece SELECT i, json_build_object('n', i)::text FROM generate_series(1, 100) AS i;
SELECT redis_export_define('pieces', 'SELECT id, doc, updated_at FROM piece', 'piece:#{id}', value => 'doc', watermark_column => 'updated_at');
CALL redis_export_run('pieces') \gset
\echo :state :rows_read :rows_written :rows_unchanged :keys_deleted
CALL redis_export_run('pieces') \gset
\echo :state :rows_read :rows_written :rows_unchanged :keys_deleted
SELECT redis_command('redis', 'JSON.GET', 'piece:7');
-- the same once more is nothing; with a change it takes or_replace, which tells what the change means, and keeps what Redis has
SELECT redis_export_define('pieces', 'SELECT id, doc, updated_at FROM piece', 'piece:#{id}', value => 'doc', watermark_column => 'updated_at');
SELECT error_of($x$SELECT redis_export_define('pieces', 'SELECT id, doc FROM piece', 'piece:#{id}')$x$);
SET client_min_messages = notice;
SELECT redis_export_define('pieces', 'SELECT id, doc, updated_at FROM piece WHERE id > 0', 'piece:#{id}', value => 'doc', watermark_column => 'updated_at', or_replace => true);
CALL redis_export_run('pieces') \gset
\echo :state :rows_read :rows_written :rows_unchanged :keys_deleted
SELECT redis_export_define('pieces', 'SELECT id, doc, updated_at FROM piece WHERE id > 0', 'p:#{id}', value => 'doc', watermark_column => 'updated_at', or_replace => true);
CALL redis_export_run('pieces') \gset
\echo :state :rows_read :rows_written :rows_unchanged :keys_deleted
CALL redis_export_run('pieces', prune => true, prune_limit => 1) \gset
\echo :state :rows_read :rows_written :rows_unchanged :keys_deleted
SELECT redis_command('redis', 'EXISTS', 'piece:7'), redis_command('redis', 'EXISTS', 'p:7');
SELECT error_of($x$SELECT redis_export_define('pieces', 'SELECT id, doc FROM piece', 'p:#{id}', type => 'hash', or_replace => true)$x$);
-- the column that is the document is settled when it is defined, and so is what the query means
SELECT redis_export_define('pieces', 'SELECT id, doc FROM piece', 'p:#{id}', or_replace => true);
SELECT value, (SELECT count(*) FROM unnest(settings)) > 10 AS settings, owner = current_user::regrole AS owner FROM redis_export_definition;
SELECT redis_export_define('pieces', 'SELECT id, doc, updated_at FROM piece', 'p:#{id}', or_replace => true);
SELECT value FROM redis_export_definition;
-- keys that two exports would write
SELECT error_of($x$SELECT redis_export_define('others', 'SELECT id AS other, doc FROM piece', 'p:#{other}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id AS other, doc FROM piece', 'p:#{other}')$x$);
SELECT error_of($x$SELECT redis_hash_export('SELECT id AS other, doc FROM piece', 'p:#{other}')$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT id FROM piece', ARRAY['SET', 'p:#{id}', 'x'])$x$);
SELECT state FROM redis_json_export('SELECT id AS other, doc FROM piece', 'p:#{other}:x');
-- names
SELECT error_of($x$SELECT redis_export_define('', 'SELECT 1 AS id', 'n:#{id}')$x$);
SELECT error_of(format($x$SELECT redis_export_define(%L, 'SELECT 1 AS id', 'n:#{id}')$x$, repeat('n', 64)));
SELECT error_of($x$SELECT redis_export_define(E'a\nb', 'SELECT 1 AS id', 'n:#{id}')$x$);
SELECT error_of($x$SELECT redis_export_define(NULL, 'SELECT 1 AS id', 'n:#{id}')$x$);
SELECT error_of($x$CALL redis_export_run('nothing')$x$);
-- what is checked
SELECT error_of($x$SELECT redis_export_define('n', 'SELECT 1 AS id FROM nowhere', 'n:#{id}')$x$);
SELECT error_of($x$SELECT redis_export_define('n', 'SELECT 1 AS id', 'n:#{no}')$x$);
SELECT error_of($x$SELECT redis_export_define('n', 'SELECT 1 AS id', 'n:#{id}', server => 'nowhere')$x$);
SELECT error_of($x$SELECT redis_export_define('n', 'SELECT 1 AS id', 'n:#{id}', type => 'list')$x$);
SELECT error_of($x$SELECT redis_export_define('n', 'SELECT 1 AS id', 'n:#{id}', replace => true)$x$);
SELECT error_of($x$SELECT redis_export_define('n', 'SELECT 1 AS id', 'n:#{id}', watermark_column => 'no')$x$);
SELECT error_of($x$SELECT redis_export_define('n', 'SELECT 1 AS id', 'n:#{id}', ttl => '1 s', ttl_column => 'id')$x$);
SELECT count(*) FROM redis_export_definition;
RESET client_min_messages;
DROP TABLE piece;
DELETE FROM redis_export_definition;
SELECT redis_command('redis', 'FLUSHALL');
