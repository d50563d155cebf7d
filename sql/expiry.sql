-- When keys expire: ttl for all, or ttl_column for each
SET client_min_messages = error;
SELECT state FROM redis_json_export('SELECT 1 AS id, 2 AS n', 'e:#{id}', ttl => '1 hour');
SELECT (redis_command('redis', 'TTL', 'e:1'))::int BETWEEN 3500 AND 3600 AS expires;
SELECT state FROM redis_hash_export('SELECT 2 AS id, 2 AS n', 'e:#{id}', ttl => '1 hour');
SELECT (redis_command('redis', 'TTL', 'e:2'))::int BETWEEN 3500 AND 3600 AS expires;
SELECT state FROM redis_command_export('SELECT 3 AS id, 2 AS n', ARRAY['SET', 'e:#{id}', '#{n}'], ttl => '1 hour');
SELECT (redis_command('redis', 'TTL', 'e:3'))::int BETWEEN 3500 AND 3600 AS expires;
SELECT state FROM redis_command_export('SELECT 3 AS id', ARRAY['EVAL', 'return redis.call("SET", KEYS[1], "v")', '1', 'e:script:#{id}'], ttl => '1 hour');
SELECT (redis_command('redis', 'TTL', 'e:script:3'))::int BETWEEN 3500 AND 3600 AS expires;

CREATE VIEW timed AS SELECT * FROM (VALUES
	(1, 100, interval '100 s', now() + interval '100 s'),
	(2, 0, '0', 'infinity'),
	(3, NULL, NULL, NULL)) AS _ (id, seconds, span, moment);
CREATE FUNCTION ttls() RETURNS text LANGUAGE sql AS
$$ SELECT string_agg(CASE WHEN t BETWEEN 90 AND 100 THEN 'soon' WHEN t BETWEEN 900 AND 1000 THEN 'as before' WHEN t = -1 THEN 'never' ELSE t::text END, ', ' ORDER BY i)
   FROM generate_series(1, 3) AS i, LATERAL (SELECT redis_command('redis', 'TTL', 'e:' || i)::int) AS _ (t) $$;
CREATE FUNCTION keep() RETURNS void LANGUAGE sql AS $$ SELECT redis_command('redis', 'EXPIRE', 'e:' || i, '1000') FROM generate_series(1, 3) AS i $$;
-- documents: any type of number; the column does not change what the row becomes
SELECT redis_command('redis', 'FLUSHALL');
SELECT state FROM redis_json_export('SELECT id, ''x'' AS v FROM timed', 'e:#{id}', value => '*');
SELECT FROM keep();
SELECT state FROM redis_json_export('SELECT id, ''x'' AS v, seconds FROM timed', 'e:#{id}', value => '*', ttl_column => 'seconds');
SELECT ttls(), redis_command('redis', 'JSON.GET', 'e:1');
SELECT FROM keep();
SELECT state FROM redis_json_export('SELECT id, ''x'' AS v, seconds::numeric FROM timed', 'e:#{id}', ttl_column => 'seconds', exclude => '{id}');
SELECT ttls(), redis_command('redis', 'JSON.GET', 'e:1');
SELECT FROM keep();
SELECT state FROM redis_json_export('SELECT id, ''{"d":1}''::json AS doc, span FROM timed', 'e:#{id}', value => 'doc', ttl_column => 'span');
SELECT ttls(), redis_command('redis', 'JSON.GET', 'e:1');
SELECT redis_command('redis', 'FLUSHALL');
-- hashes
SELECT state FROM redis_hash_export('SELECT id, ''x'' AS v FROM timed', 'e:#{id}');
SELECT FROM keep();
SELECT state FROM redis_hash_export('SELECT id, ''x'' AS v, moment FROM timed', 'e:#{id}', ttl_column => 'moment', exclude => '{moment}');
SELECT ttls(), redis_command('redis', 'HGETALL', 'e:1');
SELECT FROM keep();
SELECT state FROM redis_hash_export('SELECT id, ''y'' AS v, moment FROM timed', 'e:#{id}', ttl_column => 'moment', exclude => '{moment}', replace => true);
SELECT ttls(), redis_command('redis', 'HGETALL', 'e:1');
SELECT redis_command('redis', 'FLUSHALL');
SELECT state FROM redis_hash_export('SELECT id, ''x'' AS v, seconds FROM timed', 'e:#{id}', ttl_column => 'seconds');
SELECT ttls(), redis_command('redis', 'HGETALL', 'e:1');
SELECT redis_command('redis', 'FLUSHALL');
-- commands (SET takes an expiry away)
SELECT state FROM redis_command_export('SELECT * FROM timed', ARRAY['SET', 'e:#{id}', 'v'], ttl_column => 'seconds');
SELECT ttls();
-- a moment that has passed
SELECT state, rows_written FROM redis_hash_export($$SELECT 1 AS id, t::timestamptz AS t FROM unnest('{1999-01-01,-infinity,0044-03-15 BC}'::text[]) AS t$$, 'past:#{id}', ttl_column => 't');
SELECT redis_command('redis', 'EXISTS', 'past:1');
-- for rows with one key the last one counts, its expiry included
SELECT state, rows_written FROM redis_hash_export($$SELECT * FROM (VALUES (1, 1, now() - interval '1 day'), (1, 2, NULL), (2, 1, now() + '1 day'), (2, 2, now() + '100 s'), (3, 1, NULL), (3, 2, 'infinity')) AS _ (id, n, t)$$, 'e:#{id}', ttl_column => 't', replace => true);
SELECT ttls(), redis_command('redis', 'HGET', 'e:1', 'n'), redis_command('redis', 'HGET', 'e:2', 'n');
SELECT state, rows_read, rows_written FROM redis_command_export('SELECT i % 3 AS id, i AS v, CASE WHEN i % 2 = 0 THEN 100 END AS s FROM generate_series(1, 2003) AS i', ARRAY['SET', 'last:#{id}', '#{v}'], ttl_column => 's', batch => 7);
SELECT i, redis_command('redis', 'GET', 'last:' || i), redis_command('redis', 'TTL', 'last:' || i)::int > 0 AS expires FROM generate_series(0, 2) AS i;
-- what cannot be
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id, -1 AS t', 'e:#{id}', ttl_column => 't')$x$);
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id, ''NaN''::float8 AS t', 'e:#{id}', ttl_column => 't')$x$);
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id, interval ''-1 s'' AS t', 'e:#{id}', ttl_column => 't')$x$);
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id, 1e12 AS t', 'e:#{id}', ttl_column => 't')$x$);
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id, ''5'' AS t', 'e:#{id}', ttl_column => 't')$x$);
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id, now()::timestamp AS t', 'e:#{id}', ttl_column => 't')$x$);
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id', 'e:#{id}', ttl_column => 't')$x$);
SELECT error_of($x$SELECT redis_hash_export('SELECT 1 AS id, 2 AS t', 'e:#{id}', ttl_column => 't', ttl => '1 h')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT 1 AS id, ''{}''::jsonb AS d, 2 AS t', 'e:#{id}', ttl_column => 'd')$x$);
SELECT redis_command('redis', 'FLUSHALL');
