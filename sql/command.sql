-- redis_command: replies as jsonb, arguments as bytes
SELECT redis_command('redis', 'SET', 'greeting', 'hello "world" \ ünï');
SELECT redis_command('redis', 'GET', 'greeting');
SELECT redis_command('redis', 'GET', 'missing');
SELECT redis_command('redis', 'INCRBY', 'counter', 9007199254740993);
SELECT error_of($x$SELECT redis_command('redis', 'RPUSH', 'list', 1, 2.50, true, NULL::text)$x$);
SELECT redis_command('redis', 'RPUSH', 'list', 1, 2.50, true, date '2026-02-03', '{"a": [1, null]}'::jsonb, 'x'::name);
SELECT redis_command('redis', 'LRANGE', 'list', 0, -1);
SELECT redis_command('redis', 'EVAL', 'return {1, {2, "three", false}, {}}', 0);
SELECT redis_command('redis', VARIADIC ARRAY['MSET'] || (SELECT array_agg(x) FROM (SELECT 'k' || n AS x FROM generate_series(1, 400) AS n) AS t));
SELECT redis_command('redis', 'DBSIZE');

-- bytes that are no text
SELECT redis_command('redis', 'SET', 'blob', '\x00ff0d0a25'::bytea);
SELECT redis_command('redis', 'GET', 'blob'), redis_command('redis', 'STRLEN', 'blob');
SELECT redis_command('redis', 'SET', 'vector', '{1,-2.5,0}'::real[]);
SELECT redis_command('redis', 'GET', 'vector');
SELECT error_of($x$SELECT redis_command('redis', 'SET', 'vector', '{1,NULL}'::real[])$x$);
SELECT redis_command('redis', 'SET', 'empty', '');
SELECT redis_command('redis', 'GET', 'empty'), redis_command('redis', 'EXISTS', 'empty');
SELECT redis_command('redis', 'SET', E'a key\r\n%s', '%d');
SELECT redis_command('redis', 'GET', E'a key\r\n%s');

-- values are written under fixed settings, which are then the session's again
SET DateStyle = 'German, DMY';
SET extra_float_digits = 0;
SET bytea_output = escape;
SELECT redis_command('redis', 'SET', 'fixed', timestamp '2026-02-03 04:05:06'), redis_command('redis', 'GET', 'fixed');
SELECT redis_command('redis', 'SET', 'fixed', 0.1::float8 + 0.2::float8), redis_command('redis', 'GET', 'fixed');
SELECT date '2026-02-03' AS german, 0.1::float8 + 0.2::float8 AS short, '\x00'::bytea AS escaped;
RESET DateStyle;
RESET extra_float_digits;
RESET bytea_output;

-- an error of Redis is an error, and the connection goes on
SELECT error_of($x$SELECT redis_command('redis', 'NOSUCHCOMMAND', 'x')$x$);
SELECT error_of($x$SELECT redis_command('redis', 'LPUSH', 'greeting', 'x')$x$);
SELECT error_of($x$SELECT redis_command('redis', 'GET')$x$);
SELECT redis_command('redis', 'PING');

-- commands that would change the connection
SELECT error_of($x$SELECT redis_command('redis', 'select', '1')$x$);
SELECT error_of($x$SELECT redis_command('redis', 'AUTH', 'x')$x$);
SELECT error_of($x$SELECT redis_command('redis', 'MULTI')$x$);
SELECT error_of($x$SELECT redis_command('redis', 'SUBSCRIBE', 'x')$x$);
SELECT error_of($x$SELECT redis_command('redis', 'MONITOR')$x$);
SELECT error_of($x$SELECT redis_command('redis', 'CLIENT', 'REPLY', 'OFF')$x$);
SELECT redis_command('redis', 'CLIENT', 'GETNAME');

-- several words in one
SELECT error_of($x$SELECT redis_command('redis', 'GET greeting')$x$);
SELECT error_of($x$SELECT redis_command('redis', E'auth\tsecret')$x$);

-- one connection a session, made anew after CLIENT KILL and when options change; it is killed by another connection, since Redis
-- answers before it closes the one that asks
\getenv redis_port REDIS_PORT
CREATE SERVER other FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port :'redis_port');
SELECT redis_command('redis', 'CLIENT', 'ID') = redis_command('redis', 'CLIENT', 'ID') AS same;
SELECT redis_command('redis', 'CLIENT', 'ID') AS id \gset
SELECT redis_command('other', 'CLIENT', 'KILL', 'ID', :id);
SELECT redis_command('redis', 'CLIENT', 'ID')::int > :id AS another;
DROP SERVER other;
ALTER SERVER redis OPTIONS (ADD client_name 'regress');
SELECT redis_command('redis', 'CLIENT', 'GETNAME');
ALTER SERVER redis OPTIONS (SET client_name '');
SELECT redis_command('redis', 'CLIENT', 'GETNAME');
ALTER SERVER redis OPTIONS (DROP client_name);
ALTER SERVER redis OPTIONS (ADD db '5');
SELECT redis_command('redis', 'DBSIZE');
ALTER SERVER redis OPTIONS (SET db '5000');
SELECT error_of($x$SELECT redis_command('redis', 'DBSIZE')$x$);
ALTER SERVER redis OPTIONS (DROP db);

-- silence
ALTER SERVER redis OPTIONS (ADD timeout '0.2');
SELECT error_of($x$SELECT redis_command('redis', 'BLPOP', 'nothing', 30)$x$);
SELECT redis_command('redis', 'PING');
ALTER SERVER redis OPTIONS (DROP timeout);

-- nobody there
CREATE SERVER closed FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port '1');
SELECT error_of($x$SELECT redis_command('closed', 'PING')$x$);
CREATE SERVER unknown_host FOREIGN DATA WRAPPER redis_export OPTIONS (host 'no-such-host.invalid');
\set VERBOSITY sqlstate
SELECT redis_command('unknown_host', 'PING');
\set VERBOSITY default
DROP SERVER closed;
DROP SERVER unknown_host;

-- rights
CREATE ROLE regress_redis_user;
SET ROLE regress_redis_user;
SELECT redis_command('redis', 'PING');
RESET ROLE;
GRANT EXECUTE ON FUNCTION redis_command TO regress_redis_user;
SET ROLE regress_redis_user;
SELECT redis_command('redis', 'PING');
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER redis TO regress_redis_user;
SET ROLE regress_redis_user;
SELECT redis_command('redis', 'PING');
RESET ROLE;
DROP OWNED BY regress_redis_user;
DROP ROLE regress_redis_user;
SELECT redis_command('redis', 'FLUSHALL');
