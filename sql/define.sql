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
-- what is there, and what Redis keeps for it
SELECT redis_export_define('pieces', 'SELECT id, doc, updated_at FROM piece', 'p:#{id}', value => 'doc', watermark_column => 'updated_at', or_replace => true);
CALL redis_export_run('pieces') \gset
\x
SELECT name, owner = current_user::regrole AS owner, server, type, key_template, query, value, watermark_column, running_by, now() - ended_at < '1 min' AS ended_at, state, rows_read, rows_written, rows_unchanged, rows_failed, rows_skipped, keys_deleted,
	mark IS NOT NULL AS mark, now() - mark_at < '1 min' AS mark_at, keys, error FROM redis_exports;
CREATE SERVER away FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port '1');
SELECT redis_export_define('away', 'SELECT 1 AS id', 'p:#{id}', server => 'away');
SELECT name, state, keys, regexp_replace(error, 'port \d+.*', 'port ...') AS error FROM redis_exports;
\x
-- dropped: with force also if Redis is away; its keys stay unless they are to go, too
SELECT error_of($x$SELECT redis_export_drop('away')$x$);
SET client_min_messages = error;
SELECT redis_export_drop('away', force => true);
SET client_min_messages = notice;
DROP SERVER away;
SELECT redis_export_drop('pieces');
SELECT (SELECT count(*) FROM redis_scan('redis', 'redis_export:*')) AS own, count(*) FROM redis_scan('redis', 'p:*') AS key WHERE key !~ 'x$';
SELECT redis_export_define('pieces', 'SELECT id, doc FROM piece', 'p:#{id}');
CALL redis_export_run('pieces') \gset
SELECT redis_export_drop('pieces', keys => true);
SELECT count(*) FROM redis_scan('redis', 'p:*') AS key WHERE key !~ 'x$';
SELECT redis_command('redis', 'KEYS', 'redis_export:*');
SELECT error_of($x$SELECT redis_export_drop('pieces')$x$);
-- books of another definition with its name are left alone
SELECT redis_export_define('pieces', 'SELECT id, doc FROM piece', 'p:#{id}');
SELECT redis_command('redis', 'HSET', 'redis_export:{pieces}', 'id', 'another', 'role', 'somebody', 'database', 'elsewhere');
SELECT error_of($x$CALL redis_export_run('pieces')$x$);
SELECT redis_export_drop('pieces');
SELECT redis_command('redis', 'HGET', 'redis_export:{pieces}', 'id');
SELECT count(*) FROM redis_exports;
RESET client_min_messages;
DROP TABLE piece;
DELETE FROM redis_export_definition;
SELECT redis_command('redis', 'FLUSHALL');
