-- Arguments that cannot be are refused before there is a worker
\pset format unaligned
\pset tuples_only
CREATE TABLE people (id int PRIMARY KEY, name text, born date, extra jsonb);
INSERT INTO people VALUES (1, 'Ada', '1815-12-10', '{"a": 1}'), (2, 'Grace', '1906-12-09', '{"a": 2}');

SELECT error_of($x$SELECT redis_json_export(NULL, 'p:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', NULL)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', NULL)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', server => NULL)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', path => NULL)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', on_error => NULL)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', retry_timeout => NULL)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', wait => NULL)$x$);

SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', 0)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', 50001)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', rate => 0)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', rate => -5)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', ttl => '-1 s')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', ttl => '10 microseconds')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', ttl => '1000 years')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', retry_timeout => '-1 s')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', wait_replicas => -1)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', wait_replicas => NULL)$x$);
SELECT error_of($x$SELECT redis_export_set_rate(1, 0)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', on_error => 'skip')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', reject_limit => 5)$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', on_error => 'ignore', reject_limit => 0)$x$);

-- the server
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', server => 'nowhere')$x$);
CREATE FOREIGN DATA WRAPPER foreign_wrapper;
CREATE SERVER foreign_server FOREIGN DATA WRAPPER foreign_wrapper;
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', server => 'foreign_server')$x$);
DROP FOREIGN DATA WRAPPER foreign_wrapper CASCADE;

-- the key template
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', '')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:##{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{ID}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{ id }')$x$);

-- the document
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', value => 'nothing')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', value => 'born')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', exclude => '{born,age}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', exclude => '{born,NULL}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', exclude => '{id,name,born,extra}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM people', 'p:#{id}', value => 'extra', exclude => '{born}')$x$);

-- nothing of that has become a job, or reached Redis
SELECT count(*) FROM redis_export_progress;
SELECT redis_command('redis', 'DBSIZE');

-- redis_command
SELECT error_of($x$SELECT redis_command(NULL, 'PING')$x$);
SELECT error_of($x$SELECT redis_command('redis', NULL)$x$);
SELECT error_of($x$SELECT redis_command('redis', 'GET', NULL::text)$x$);
SELECT error_of($x$SELECT redis_command('redis', VARIADIC '{}'::text[])$x$);
SELECT error_of($x$SELECT redis_command('nowhere', 'PING')$x$);

-- jobs that are not there
SELECT redis_export_cancel(4711);
SELECT redis_export_set_rate(4711, 100);
SELECT error_of($x$SELECT redis_export_wait(4711)$x$);
SELECT error_of($x$SELECT * FROM redis_export_failures(4711)$x$);
SELECT redis_export_cancel(NULL) IS NULL AS cancel, redis_export_wait(NULL) IS NULL AS wait;
DROP TABLE people;
