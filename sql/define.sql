-- Exports with a name: defined once, run by name
SET client_min_messages = error;
CREATE TABLE piece (id int PRIMARY KEY, doc text, updated_at timestamptz DEFAULT now());
INSERT INTO piece SELECT i, json_build_object('n', i)::text FROM generate_series(1, 100) AS i;
SELECT redis_export_define('pieces', 'SELECT id, doc, updated_at FROM piece', 'piece:#{id}', value => 'doc', watermark_column => 'updated_at');
CALL redis_export_run('pieces');
CALL redis_export_run('pieces');
SELECT redis_command('redis', 'JSON.GET', 'piece:7');
DROP TABLE piece;
DELETE FROM redis_export_definition;
SELECT redis_command('redis', 'FLUSHALL');
