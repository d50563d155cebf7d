-- The extension, the foreign server that all other tests use, and a Redis without keys.
\getenv redis_port REDIS_PORT
CREATE EXTENSION redis_export;
CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (host '127.0.0.1', port :'redis_port');
SELECT redis_command('redis', 'PING');
SELECT redis_command('redis', 'FLUSHALL');

-- How the tests look at an error: its class, message, detail and hint
CREATE FUNCTION error_of(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	class text;
	message text;
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN NEXT 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS class = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN NEXT class || ': ' || regexp_replace(message, 'port \d+', 'port N');
	RETURN QUERY SELECT 'detail: ' || line FROM string_to_table(regexp_replace(detail, 'job \d+', 'job N'), E'\n') AS line WHERE line <> '';
	RETURN QUERY SELECT 'hint: ' || hint WHERE hint <> '';
END
$$;

-- What all users may call, and what has to be granted
SELECT p.proname AS function,
	coalesce((SELECT bool_or(a.grantee = 0) FROM aclexplode(p.proacl) AS a), true) AS public
FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'redis_export'
ORDER BY p.proname, p.pronargs;
