-- Any command, one a row
SET client_min_messages = error;
CREATE TABLE item (id int, name text, price numeric, tags text[], lon float8, lat float8);
INSERT INTO item VALUES (1, 'pen', 1.50, '{red,blue}', 13.4, 52.5), (2, 'cup', 7, '{}', 2.35, 48.85), (3, 'a "b" c', 3, '{x}', -0.1, 51.5);

SELECT state, rows_written, command, key_template FROM redis_command_export('SELECT * FROM item', ARRAY['SET', 'item:#{id}', '#{name}', 'EX', '1000']);
SELECT redis_command('redis', 'GET', 'item:3'), (redis_command('redis', 'TTL', 'item:3'))::int BETWEEN 900 AND 1000 AS expires;
SELECT state FROM redis_command_export('SELECT * FROM item WHERE tags <> ''{}''', ARRAY['SADD', 'tags:#{id}', '#{tags}']);
SELECT redis_command('redis', 'SMEMBERS', 'tags:3'), redis_command('redis', 'SCARD', 'tags:1');
SELECT state FROM redis_command_export('SELECT * FROM item ORDER BY id', ARRAY['RPUSH', 'names', '#{id}:#{name}']);
SELECT redis_command('redis', 'LRANGE', 'names', '0', '-1');
SELECT state FROM redis_command_export('SELECT * FROM item', ARRAY['ZADD', 'prices', '#{price}', '#{name}']);
SELECT redis_command('redis', 'ZRANGE', 'prices', '0', '-1', 'WITHSCORES');
SELECT state FROM redis_command_export('SELECT * FROM item ORDER BY id', ARRAY['XADD', 'stream', '*', 'id', '#{id}', 'name', '#{name}']);
SELECT redis_command('redis', 'XLEN', 'stream'), redis_command('redis', 'XRANGE', 'stream', '-', '+', 'COUNT', '1') #> '{0,1}';
SELECT state FROM redis_command_export('SELECT * FROM item', ARRAY['GEOADD', 'places', '#{lon}', '#{lat}', '#{name}']);
SELECT redis_command('redis', 'GEODIST', 'places', 'pen', 'cup', 'km') #>> '{}' LIKE '87%' AS far;
SELECT state FROM redis_command_export('SELECT * FROM item', ARRAY['FT.SUGADD', 'suggestions', '#{name}', '#{price}', 'PAYLOAD', '#{id}']);
SELECT redis_command('redis', 'FT.SUGGET', 'suggestions', 'c', 'WITHPAYLOADS');
SELECT state FROM redis_command_export('SELECT * FROM item', ARRAY['EXPIRE', 'tags:#{id}', '500']);
SELECT (redis_command('redis', 'TTL', 'tags:1'))::int BETWEEN 400 AND 500 AS expires;
SELECT state FROM redis_command_export('SELECT array_agg(''item:'' || id) AS keys FROM item WHERE id < 3', ARRAY['DEL', '#{keys}']);
SELECT redis_command('redis', 'KEYS', 'item:*');
SELECT state, rows_written FROM redis_command_export('SELECT * FROM item', ARRAY['PUBLISH', 'channel', '#{name}']);
SELECT state FROM redis_command_export('SELECT * FROM item ORDER BY id', ARRAY['EVAL', 'return redis.call("INCRBY", KEYS[1], ARGV[1])', '1', 'sum', '#{id}']);
SELECT redis_command('redis', 'GET', 'sum');
-- words: literal, empty, with several columns, and with what looks like one
SELECT state FROM redis_command_export('SELECT * FROM item WHERE id = 1', ARRAY['HSET', 'words', 'a', '', 'b', '#{id}-#{name}-#{id}', 'c', '##{id} #{id}', 'd', '#{price}']);
SELECT redis_command('redis', 'HGETALL', 'words');
SELECT state FROM redis_command_export($$SELECT '#{id}' AS a, E'\r\n$-1\r\n%s' AS b$$, ARRAY['HSET', 'injected', '#{a}', '#{b}']);
SELECT redis_command('redis', 'HGETALL', 'injected');
-- arrays: in the middle, several, of other types, of one element more than a few
SELECT state FROM redis_command_export($$SELECT 'k' AS k, ARRAY['f','1'] AS a, ARRAY['\x00ff','\x5c']::bytea[] AS b$$, ARRAY['HSET', 'arrays:#{k}', '#{a}', 'g', '2', '#{b}']);
SELECT redis_command('redis', 'HGETALL', 'arrays:k');
SELECT state FROM redis_command_export('SELECT array_agg(i) AS n FROM generate_series(1, 100000) AS i', ARRAY['SADD', 'numbers', '#{n}']);
SELECT redis_command('redis', 'SCARD', 'numbers');
SELECT state, rows_written, rows_failed FROM redis_command_export('SELECT * FROM item', ARRAY['SADD', 'tags:#{id}', '#{tags}'], on_error => 'ignore');
SELECT message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress));

-- nulls: the row fails, or is left out
SELECT error_of($x$SELECT redis_command_export($$VALUES (1, 'a'), (2, NULL)$$, ARRAY['SET', 'n:#{column1}', '#{column2}'])$x$);
SELECT error_of($x$SELECT redis_command_export($$VALUES (1, 'a'), (2, NULL)$$, ARRAY['SET', 'n:#{column1}', '<#{column2}>'])$x$);
SELECT error_of($x$SELECT redis_command_export($$SELECT ARRAY['a', NULL] AS a$$, ARRAY['SADD', 'n', '#{a}'])$x$);
SELECT state, rows_read, rows_written, rows_failed, rows_skipped, percent FROM redis_command_export($$VALUES (1, 'a'), (2, NULL), (3, 'c'), (NULL, 'd')$$, ARRAY['SET', 'n:#{column1}', '<#{column2}>'], on_null => 'skip');
SELECT state, rows_read, rows_written, rows_skipped FROM redis_command_export($$SELECT ARRAY['a', NULL] AS a$$, ARRAY['SADD', 'n', '#{a}'], on_null => 'skip');
SELECT redis_command('redis', 'EXISTS', 'n:1', 'n:2', 'n:3', 'n:');
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['SET', 'k', '#{a}'], on_null => 'fall')$x$);

-- what cannot be
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY[]::text[])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', NULL)$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['SET', NULL])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['#{a}', 'x'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['', 'x'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['SET k #{a}'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['SET k', 'v'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['SET', 'k', '#{b}'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['SET', 'k', '#{a'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['multi'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['Client', 'reply', 'off'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['BLPOP', 'k', '0'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['XREAD', 'block', '0', 'STREAMS', 's', '$'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['XREADGROUP', 'GROUP', 'streams', 'streams', 'BLOCK', '0', 'STREAMS', 's', '>'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['NOSUCH', '#{a}'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['PUBLISH', 'c', '#{a}'], ttl => '1 hour')$x$);
-- a condition that does not hold, and an error within a script, are the row's
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['SET', 'n:1', '#{a}', 'NX'])$x$);
SELECT error_of($x$SELECT redis_command_export('SELECT 1 AS a', ARRAY['EVAL', 'return redis.error_reply("MINE " .. ARGV[1])', '0', '#{a}'])$x$);
-- what a command does is told by the words of each row
SELECT row_number, command, error FROM redis_export_preview($$VALUES (1, 'XX'), (2, 'REPLY')$$, ARRAY['CLIENT', '#{column2}']);
SELECT row_number, command, error FROM redis_export_preview($$VALUES ('0'), ('1')$$, ARRAY['EVAL', 'return 1', '#{column1}', 'a'], ttl => '1 hour');
SELECT words, command FROM (VALUES (ARRAY['MSETEX', '1', 'a', 'v']), (ARRAY['ZMPOP', '1', 'a', 'MIN']), (ARRAY['LMPOP', '1', 'a', 'LEFT']),
	(ARRAY['EVALSHA', 'f', '1', 'a']), (ARRAY['MIGRATE', 'h', '1', 'a', '0', '9']), (ARRAY['BITOP', 'NOT', 'a', 'b'])) AS _ (words),
	redis_export_preview('SELECT 1 AS b', words, ttl => '1 hour') WHERE command LIKE 'PEXPIRE %';
SELECT redis_command('redis', 'FLUSHALL');
