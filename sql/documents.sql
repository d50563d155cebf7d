-- Whole-row documents: what row_to_json() gives, under fixed settings
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN percent_value AS int CHECK (VALUE BETWEEN 0 AND 100);
CREATE TABLE sample (
	i2 int2, i4 int4, i8 int8, n numeric, f4 float4, f8 float8, b bool, t text, v varchar(10), c char(5), nm name, by bytea, u uuid,
	d date, tm time, ttz timetz, ts timestamp, tstz timestamptz, iv interval, j json, jb jsonb, m mood, p pair, dm percent_value,
	ia int[], ta text[], tsa timestamptz[], r int4range, ip inet, bits bit(3), x tsvector, missing text, "odd ""name""" int);
INSERT INTO sample VALUES (
	-32768, 2147483647, -9223372036854775808, 1234567890123456789012345678901234567890.0987654321, 0.1, 0.1::float8 + 0.2, true,
	E'quote " backslash \\ newline \n tab \t control \x01 ünï € 𝄞' || U&'\2028', 'varchar', 'char', 'name', '\x00ff', '00000000-0000-0000-0000-00000000002a',
	'2026-02-03', '04:05:06.789', '04:05:06+05:30', '2026-02-03 04:05:06.789', '2026-02-03 04:05:06+05:30', '1 year 2 days 03:04:05',
	'{"b" : 1,  "b": 2}', '{"b": 2, "a": [1.50, null]}', 'happy', '(1,"x ""y""")', 42,
	'{{1,2},{3,NULL}}', '{a,"b c",NULL,"null"}', '{2026-02-03 04:05:06+05:30,infinity}', '[1,10)', '10.0.0.1/8', B'101', 'word:1', NULL, 7);

SELECT state FROM redis_json_export('SELECT 1 AS id, * FROM sample', 's:#{id}', exclude => '{id}');
\pset format unaligned
SELECT redis_command('redis', 'JSON.GET', 's:1') #>> '{}';

-- the same bytes, whatever the session's settings
SET DateStyle = 'German, DMY';
SET IntervalStyle = sql_standard;
SET TimeZone = 'Asia/Kolkata';
SET extra_float_digits = 0;
SET bytea_output = escape;
SELECT state FROM redis_json_export('SELECT 2 AS id, * FROM sample', 's:#{id}', exclude => '{id}');
SELECT redis_command('redis', 'JSON.GET', 's:1') = redis_command('redis', 'JSON.GET', 's:2') AS same;
-- while the query itself means what it means in the session
SELECT state FROM redis_json_export('SELECT 3 AS id, d::text AS d, f8::text AS f8, tstz::text AS tstz, by::text AS by FROM sample', 's:#{id}');
SELECT redis_command('redis', 'JSON.GET', 's:3') #>> '{}';
SELECT state FROM redis_json_export('SELECT tstz AS id, 1 AS n FROM sample', 'key:#{id}');
RESET DateStyle;
RESET IntervalStyle;
RESET TimeZone;
RESET extra_float_digits;
RESET bytea_output;
SELECT redis_command('redis', 'KEYS', 'key:*');

-- what JSON has no number or date for
SELECT state FROM redis_json_export($$SELECT 4 AS id, 'NaN'::float8 AS a, 'Infinity'::float4 AS b, '-Infinity'::float8 AS c, 'NaN'::numeric AS d,
	'infinity'::date AS e, '-infinity'::timestamptz AS f, '0044-03-15 BC'::date AS g, 1e300::float8 AS h, '-0'::float8 AS i$$, 's:#{id}');
SELECT redis_command('redis', 'JSON.GET', 's:4') #>> '{}';

-- row_to_json() says the same
SET TimeZone = 'UTC';
SELECT state FROM redis_json_export('SELECT 5 AS id, * FROM sample', 's:#{id}');
-- (RedisJSON itself keeps numbers as doubles, and the last of members of one name)
SELECT key, ours.value, theirs.value
FROM jsonb_each((SELECT row_to_json(whole)::jsonb FROM (SELECT 5 AS id, * FROM sample) AS whole)) AS theirs
FULL JOIN jsonb_each((redis_command('redis', 'JSON.GET', 's:5') #>> '{}')::jsonb) AS ours USING (key)
WHERE ours.value IS DISTINCT FROM theirs.value;
RESET TimeZone;
\pset format aligned

-- large ones
SELECT state, rows_written FROM redis_json_export('SELECT id, repeat(''x'', 1000000) AS v FROM generate_series(1, 40) AS id', 'large:#{id}', value => '*');
SELECT state, rows_written FROM redis_json_export('SELECT 0 AS id, repeat(''x'', 20000000) AS v', 'large:#{id}', value => '*');
SELECT redis_command('redis', 'JSON.STRLEN', 'large:40', '$.v'), redis_command('redis', 'JSON.STRLEN', 'large:0', '$.v');

SELECT redis_command('redis', 'FLUSHALL');
DROP TABLE sample;
DROP DOMAIN percent_value;
DROP TYPE pair;
DROP TYPE mood;

-- which column is the document is told by the query and value alone, whatever else the columns are for
CREATE TABLE chosen (id int, n int, doc jsonb);
INSERT INTO chosen VALUES (1, 1000, '{"a":1}');
CREATE FUNCTION becomes(query text, more text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SELECT state FROM redis_json_export(%L, ''chosen:#{id}''%s)', query, more);
	RETURN redis_command('redis', 'JSON.GET', 'chosen:1') #>> '{}';
END $$;
SELECT query, becomes(query, '') AS plain, becomes(query, $$, ttl_column => 'id'$$) AS ttl,
	becomes(query, $$, path => '$.of#{id}'$$) IS NOT NULL AS part, redis_command('redis', 'JSON.GET', 'chosen:1', '$.of1') #>> '{}' AS of_path
FROM unnest(ARRAY['SELECT id, doc FROM chosen', 'SELECT doc, id FROM chosen', 'SELECT id, n, doc FROM chosen', 'SELECT id, doc::text FROM chosen',
	'SELECT id, n FROM chosen', 'SELECT id FROM chosen']) AS _ (query);
SELECT becomes('SELECT id, n, doc FROM chosen', $$, value => 'doc', ttl_column => 'n'$$);
SELECT becomes('SELECT id, n, doc FROM chosen', $$, exclude => '{id,n}', ttl_column => 'n'$$);
SELECT redis_command('redis', 'FLUSHALL');
DROP FUNCTION becomes;
DROP TABLE chosen;

-- settings of a cast's function are its own, and end with it: what stands behind is written as what stands before
CREATE TYPE place AS ENUM ('york');
CREATE FUNCTION place_json(place) RETURNS json LANGUAGE plpgsql SET TimeZone = 'America/New_York' SET DateStyle = 'German' AS $$
BEGIN
	RETURN to_json($1::text || timestamptz '2026-01-02 03:04:05+00');
END $$;
CREATE CAST (place AS json) WITH FUNCTION place_json(place);
SET TimeZone = 'Asia/Tokyo';
SET DateStyle = 'SQL, DMY';
SELECT state FROM redis_json_export($$SELECT i AS id, t, 'york'::place AS p, t AS again, tstzrange(t, t) AS r
	FROM generate_series(1, 2) AS i, LATERAL (SELECT timestamptz '2026-01-02 03:04:05+00' AS t) AS _$$, 'set:#{id}:#{t}');
SELECT redis_command('redis', 'JSON.GET', 'set:' || i || ':2026-01-02 03:04:05+00') #>> '{}' FROM generate_series(1, 2) AS i;
SELECT command FROM redis_export_preview($$SELECT 1 AS id, 'york'::place AS p, timestamptz '2026-01-02 03:04:05+00' AS t, tstzrange('-infinity', '2026-01-02 03:04:05+00') AS r$$, 'set:#{id}');
SELECT timestamptz '2026-01-02 03:04:05+00';
RESET TimeZone;
RESET DateStyle;
SELECT redis_command('redis', 'FLUSHALL');
DROP CAST (place AS json);
DROP FUNCTION place_json;
DROP TYPE place;
