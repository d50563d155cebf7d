-- Only what is newer: watermark_column, mark and overlap
SET client_min_messages = error;
SET timezone = 'Asia/Kolkata';
CREATE TABLE stamped (id int PRIMARY KEY, name text, changed timestamptz, day date, local timestamp, number bigint, amount numeric, "Odd ""name""" timestamptz);
INSERT INTO stamped SELECT i, 'stamped ' || i, timestamptz '2026-02-03 00:00+00' + i * interval '1 minute', date '2026-02-01' + i, timestamp '2026-02-03 00:00' + i * interval '1 minute', i, i / 4.0,
	timestamptz '2026-02-03 00:00+00' + i * interval '1 minute' FROM generate_series(1, 10) AS i;
-- state, and how many rows were read and written
CREATE FUNCTION run(query text, template text, column_name name, mark text, more text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT concat_ws('' '', state, rows_read, rows_written) FROM redis_hash_export(%L, %L, watermark_column => %L, mark => %L%s)', query, template, column_name, mark, more) INTO result;
	RETURN result;
END
$$;
CREATE FUNCTION mark_of(name text) RETURNS text LANGUAGE sql AS $$ SELECT concat_ws(' | ', value, type, "column", key_template, rows) FROM redis_export_marks('redis') WHERE mark = name $$;

-- the first run reads all, the next what is above the highest less the overlap, in whatever time zone
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a');
SELECT mark_of('a');
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a');
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a', $$, overlap => '0'$$);
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a', $$, overlap => '90 seconds'$$);
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a', $$, overlap => '1 day'$$);
SET timezone = 'America/St_Johns';
SET datestyle = 'SQL, DMY';
INSERT INTO stamped (id, changed) VALUES (11, '2026-02-03 00:11+00'), (12, '2026-02-03 00:12:00.123456+00'), (13, NULL), (14, '2026-02-03 00:03+00');
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a', $$, overlap => '0'$$);
SELECT mark_of('a');
-- what there is of it in Redis
SELECT jsonb_object_keys(fields) AS field FROM redis_hash_scan('redis', 'redis_export:{a}') ORDER BY 1;
SELECT fields->>'value' AS value, fields->>'role' = current_user AS role, fields->>'database' = current_database() AS database, fields->>'moved_at' ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$' AS moved_at FROM redis_hash_scan('redis', 'redis_export:{a}');
SELECT role = current_user AS role, database = current_database() AS database, now() - moved_at BETWEEN '0' AND '1 min' AS moved_at FROM redis_export_marks('redis') WHERE mark = 'a';
RESET datestyle;
-- no newer row: the value stays, rows and moved_at are new
SELECT extract(epoch FROM moved_at) AS before FROM redis_export_marks('redis') WHERE mark = 'a' \gset
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a', $$, overlap => '0'$$);
SELECT mark_of('a');
SELECT extract(epoch FROM moved_at) > :before AS moved FROM redis_export_marks('redis') WHERE mark = 'a';
-- nothing moves it back
SELECT run('SELECT id, name, changed FROM stamped WHERE id < 12', 'a:#{id}', 'changed', 'a', $$, overlap => '1 day'$$);
SELECT mark_of('a');

-- infinity says nothing of how far an export got
INSERT INTO stamped (id, changed) VALUES (15, 'infinity');
SELECT run('SELECT id, changed FROM stamped', 'a:#{id}', 'changed', 'a', $$, overlap => '0'$$);
SELECT mark_of('a');
DELETE FROM stamped WHERE id > 10;

-- no row, and no value: no mark
SELECT run('SELECT id, changed FROM stamped WHERE false', 'b:#{id}', 'changed', 'b');
SELECT run('SELECT id, NULL::timestamptz AS changed FROM stamped', 'b:#{id}', 'changed', 'b');
SELECT run('SELECT id, float8 ''NaN'' AS n FROM stamped', 'b:#{id}', 'n', 'b', $$, overlap => '0'$$);
SELECT mark_of('b') IS NULL AS none;

-- a date is a whole day: that of the mark, and that on which the overlap begins
SELECT run('SELECT id, day FROM stamped', 'd:#{id}', 'day', 'day');
SELECT mark_of('day');
SELECT run('SELECT id, day FROM stamped', 'd:#{id}', 'day', 'day', $$, overlap => '0'$$);
SELECT run('SELECT id, day FROM stamped', 'd:#{id}', 'day', 'day', $$, overlap => '1 minute'$$);
SELECT run('SELECT id, day FROM stamped', 'd:#{id}', 'day', 'day', $$, overlap => '1 day'$$);
SELECT run('SELECT id, day FROM stamped', 'd:#{id}', 'day', 'day', $$, overlap => '25 hours'$$);

-- timestamps without a time zone
SELECT run('SELECT id, local FROM stamped', 't:#{id}', 'local', 'local');
SELECT mark_of('local');
SELECT run('SELECT id, local FROM stamped', 't:#{id}', 'local', 'local');

-- numbers, texts and all that has an order, without an overlap
SELECT run('SELECT id, number FROM stamped', 'n:#{id}', 'number', 'number', $$, overlap => '0'$$);
SELECT mark_of('number');
INSERT INTO stamped (id, number, amount) VALUES (20, 11, 100.50), (21, 12, -1), (22, 9, NULL);
SELECT run('SELECT id, number FROM stamped', 'n:#{id}', 'number', 'number', $$, overlap => '0'$$);
SELECT mark_of('number');
SELECT run('SELECT id, amount FROM stamped', 'n:#{id}', 'amount', 'amount', $$, overlap => '0'$$);
SELECT mark_of('amount');
SELECT run('SELECT id, amount FROM stamped UNION ALL SELECT 23, 100.51 UNION ALL SELECT 24, 20', 'n:#{id}', 'amount', 'amount', $$, overlap => '0'$$);
SELECT mark_of('amount');
SELECT run('SELECT id::smallint, id::int2 AS n FROM stamped', 'n:#{id}', 'n', 'int2', $$, overlap => '0'$$);
SELECT run('SELECT i AS id, lpad(i::text, 32, ''0'')::uuid AS u FROM generate_series(1, 3) AS i', 'u:#{id}', 'u', 'uuid', $$, overlap => '0'$$);
SELECT run('SELECT i AS id, lpad(i::text, 32, ''0'')::uuid AS u FROM generate_series(1, 5) AS i', 'u:#{id}', 'u', 'uuid', $$, overlap => '0'$$);
SELECT mark_of('uuid');
CREATE DOMAIN moment AS timestamptz CHECK (value > '2000-01-01');
SELECT run('SELECT id, changed::moment FROM stamped WHERE id <= 10', 'm:#{id}', 'changed', 'domain');
SELECT run('SELECT id, changed::moment FROM stamped WHERE id <= 10', 'm:#{id}', 'changed', 'domain');
SELECT mark_of('domain');
CREATE TYPE step AS ENUM ('new', 'old', 'ancient');
SELECT run('SELECT i AS id, (ARRAY[''old'', ''ancient'', ''new''])[i]::step AS s FROM generate_series(1, 3, 2) AS i', 'e:#{id}', 's', 'enum', $$, overlap => '0'$$);
SELECT run('SELECT i AS id, (ARRAY[''old'', ''ancient'', ''new''])[i]::step AS s FROM generate_series(1, 3) AS i', 'e:#{id}', 's', 'enum', $$, overlap => '0'$$);
SELECT mark_of('enum');

-- texts (of other collations in test/t/060_watermark.t)
CREATE TABLE stamped_word (id int, w text COLLATE "POSIX", c varchar(20) COLLATE "C", f char(5));
INSERT INTO stamped_word VALUES (1, 'v9', 'v9', 'v9'), (2, 'v10', 'v10', 'v10'), (3, 'v2', 'v2', 'v2');
SELECT run('SELECT id, w FROM stamped_word', 'w:#{id}', 'w', 'w', $$, overlap => '0'$$), mark_of('w');
SELECT run('SELECT id, c FROM stamped_word', 'w:#{id}', 'c', 'c', $$, overlap => '0'$$), mark_of('c');
SELECT run('SELECT id, f FROM stamped_word', 'w:#{id}', 'f', 'f', $$, overlap => '0'$$), mark_of('f');
INSERT INTO stamped_word VALUES (4, 'v11', 'v11', 'v11'), (5, E'v9\\ ''''"; DROP TABLE stamped_word; --', E'v9\\ ''"; --', 'v9''"'), (6, 'V10', 'V10', 'V10');
SELECT run('SELECT id, w FROM stamped_word', 'w:#{id}', 'w', 'w', $$, overlap => '0'$$), mark_of('w');
SELECT run('SELECT id, c FROM stamped_word', 'w:#{id}', 'c', 'c', $$, overlap => '0'$$), mark_of('c');
SELECT run('SELECT id, f FROM stamped_word', 'w:#{id}', 'f', 'f', $$, overlap => '0'$$), mark_of('f');
-- quotes and backslashes of the mark are its own, also where a string may have escapes; it cannot since PostgreSQL 19
SELECT current_setting('server_version_num')::int < 190000 AS can \gset
\if :can
SET standard_conforming_strings = off;
SET escape_string_warning = off;
\endif
SELECT run('SELECT id, c FROM stamped_word', 'w:#{id}', 'c', 'c', ', overlap => ''0''');
\if :can
RESET standard_conforming_strings;
RESET escape_string_warning;
\endif
-- long ones, kept elsewhere, in any order
SELECT run('SELECT i AS id, repeat(chr(64 + i), 100000) AS w FROM generate_series(1, 20) AS i ORDER BY i % 7', 'l:#{id}', 'w', 'long', $$, overlap => '0', exclude => '{w}'$$);
SELECT left(value, 3) AS value, length(value) FROM redis_export_marks('redis') WHERE mark = 'long';
SELECT run('SELECT i AS id, repeat(chr(64 + i), 100000) AS w FROM generate_series(1, 21) AS i ORDER BY i % 7', 'l:#{id}', 'w', 'long', $$, overlap => '0', exclude => '{w}'$$);

-- whatever the query is
SELECT run('SELECT id, changed FROM stamped WHERE id <= 10', 'q:#{id}', 'changed', 'q');
SELECT run('SELECT id, changed FROM stamped WHERE id <= 10; -- and no more', 'q:#{id}', 'changed', 'q');
SELECT run('SELECT id, changed FROM stamped WHERE id <= 10 -- ) the end', 'q:#{id}', 'changed', 'q');
SELECT run(E'/* first; */ ;; SELECT id, changed FROM stamped WHERE id <= 10 ; ; /* ; */ -- \n', 'q:#{id}', 'changed', 'q');
SELECT run('SELECT id, changed FROM stamped WHERE id <= 10 ORDER BY changed DESC', 'q:#{id}', 'changed', 'q');
SELECT run('WITH w AS (SELECT * FROM stamped WHERE id <= 10) SELECT id, changed FROM w', 'q:#{id}', 'changed', 'q');
SELECT run('WITH w AS MATERIALIZED (SELECT * FROM stamped WHERE id <= 10) SELECT id, changed FROM w', 'q:#{id}', 'changed', 'q');
SELECT run('(SELECT id, changed FROM stamped WHERE id <= 5) UNION ALL (SELECT id, changed FROM stamped WHERE id BETWEEN 6 AND 10)', 'q:#{id}', 'changed', 'q');
SELECT run($$VALUES (1, timestamptz '2026-02-03 00:01+00'), (10, '2026-02-03 00:10+00')$$, 'q:#{column1}', 'column2', 'q2');
SELECT run($$VALUES (1, timestamptz '2026-02-03 00:01+00'), (10, '2026-02-03 00:10+00')$$, 'q:#{column1}', 'column2', 'q2');
SELECT run('TABLE stamped', 'q:#{id}', 'changed', 'q');
SELECT run('SELECT changed, count(*) AS redis_export, min(id) AS id FROM stamped WHERE id <= 10 GROUP BY changed', 'q:#{id}', 'changed', 'q');
-- a limit comes before
SELECT run('SELECT id, changed FROM stamped ORDER BY id LIMIT 7', 'q:#{id}', 'changed', 'q');
-- names
SELECT run('SELECT id, "Odd ""name""" FROM stamped', 'q:#{id}', 'Odd "name"', 'odd name: "ünï" ''x'' } {%s} \');
SELECT run('SELECT id, "Odd ""name""" FROM stamped', 'q:#{id}', 'Odd "name"', 'odd name: "ünï" ''x'' } {%s} \');
SELECT mark, value, "column" FROM redis_export_marks('redis') WHERE mark LIKE 'odd%';
SELECT redis_command('redis', 'HGET', 'redis_export:{odd name: "ünï" ''x'' } {%s} \}', 'column');
-- the search path has another > before that of the type
CREATE SCHEMA trap;
CREATE FUNCTION trap.nothing(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR trap.> (FUNCTION = trap.nothing, LEFTARG = timestamptz, RIGHTARG = timestamptz);
CREATE DOMAIN trap.timestamptz AS text;
SET search_path = trap, public, pg_catalog;
SELECT public.run('SELECT id, changed FROM public.stamped', 'q:#{id}', 'changed', 'q');
RESET search_path;
-- the view shows the query as it was given
SELECT query FROM redis_export_progress ORDER BY job DESC LIMIT 1;
-- other exports
SELECT state, rows_read, rows_written FROM redis_json_export('SELECT id, changed FROM stamped', 'j:#{id}', watermark_column => 'changed', mark => 'j');
SELECT state, rows_read, rows_written FROM redis_json_export('SELECT id, changed FROM stamped', 'j:#{id}', watermark_column => 'changed', mark => 'j', overlap => '2 min');
SELECT state, rows_read, rows_written, rows_skipped FROM redis_command_export('SELECT id, changed, name FROM stamped', ARRAY['SET', 'c:#{id}', '#{name}'], on_null => 'skip', watermark_column => 'changed', mark => 'command');
SELECT state, rows_read, rows_written, rows_skipped FROM redis_command_export('SELECT id, changed, name FROM stamped', ARRAY['SET', 'c:#{id}', '#{name}'], on_null => 'skip', watermark_column => 'changed', mark => 'command');
SELECT mark_of('command');
-- preview and verify look at all rows
SELECT count(*) FROM redis_export_preview('SELECT id, changed FROM stamped', 'j:#{id}', rows => 100);
SELECT expected, missing, different, unknown FROM redis_export_verify('SELECT id, changed FROM stamped', 'j:#{id}');

-- rows that fail leave the mark where it is
SELECT run('SELECT id, changed FROM stamped WHERE id < 6', 'f:#{id}', 'changed', 'failing');
SELECT run('SELECT nullif(id, 8) AS id, changed FROM stamped', 'f:#{id}', 'changed', 'failing', $$, on_error => 'ignore'$$);
SELECT mark_of('failing');
SELECT * FROM error_of($x$SELECT run('SELECT nullif(id, 8) AS id, changed FROM stamped', 'f:#{id}', 'changed', 'failing')$x$) LIMIT 1;
SELECT * FROM error_of($x$SELECT run('SELECT id / (id - 8) AS id, changed FROM stamped', 'f:#{id}', 'changed', 'failing')$x$) LIMIT 1;
SELECT mark_of('failing');
SELECT run('SELECT id, changed FROM stamped', 'f:#{id}', 'changed', 'failing');
SELECT mark_of('failing');

-- all marks, in order
SELECT redis_command('redis', 'SET', 'redis_export:{a string}', 'x'), redis_command('redis', 'HSET', 'redis_export:x', 'value', 'y'), redis_command('redis', 'HSET', 'redis_export:{ab}', 'other', 'fields');
SELECT mark, value FROM redis_export_marks('redis') WHERE mark ~ '^[abc]|^odd';
SELECT string_agg(mark, ',') = string_agg(mark, ',' ORDER BY mark COLLATE "C") AS in_order, count(*) FROM redis_export_marks('redis');
SELECT redis_command('redis', 'DEL', 'redis_export:{a string}', 'redis_export:x', 'redis_export:{ab}');

-- reset: to a value, in the settings of the session, or to nothing
SET timezone = 'Asia/Kolkata';
SELECT extract(epoch FROM moved_at) AS before FROM redis_export_marks('redis') WHERE mark = 'a' \gset
SELECT redis_export_reset_mark('redis', 'a', '2026-02-03 05:35:00');
SELECT mark_of('a');
SELECT extract(epoch FROM moved_at) > :before AS moved, role = current_user AS role FROM redis_export_marks('redis') WHERE mark = 'a';
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a', $$, overlap => '0'$$);
SELECT mark_of('a');
SELECT redis_export_reset_mark('redis', 'day', '2026-02-09'), redis_export_reset_mark('redis', 'number', '7'), redis_export_reset_mark('redis', 'enum', 'old'), redis_export_reset_mark('redis', 'f', 'v''\');
SELECT redis_export_reset_mark('redis', 'w', E'it''s \\ here');
SELECT mark_of('day'), mark_of('number'), mark_of('enum'), mark_of('w');
SELECT redis_export_reset_mark('redis', 'a');
SELECT redis_export_reset_mark('redis', 'a'), redis_export_reset_mark('redis', 'a', 'now'), redis_export_reset_mark('redis', '');
SELECT run('SELECT id, name, changed FROM stamped WHERE id <= 10', 'a:#{id}', 'changed', 'a', $$, overlap => '0'$$);
SELECT error_of($x$SELECT redis_export_reset_mark('redis', 'a', 'yesteryear')$x$);
SELECT error_of($x$SELECT redis_export_reset_mark('redis', 'number', '9223372036854775808')$x$);
SELECT error_of($x$SELECT redis_export_reset_mark('redis', NULL)$x$);
SELECT error_of($x$SELECT redis_export_reset_mark(NULL, 'a')$x$);
SELECT error_of($x$SELECT redis_export_reset_mark('nowhere', 'a')$x$);
SELECT error_of($x$SELECT redis_export_marks('nowhere')$x$);
SELECT error_of($x$SELECT redis_export_marks(NULL)$x$);

-- what cannot be
SELECT max(job) AS jobs FROM redis_export_progress \gset
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', NULL, 'x')$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', NULL)$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', '')$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', 'x', $$, prune => true$$)$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', 'x', $$, overlap => '-1 s'$$)$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', 'x', $$, overlap => NULL$$)$x$);
SELECT error_of($x$SELECT run('SELECT id, changed FROM stamped', 'x:#{id}', 'Changed', 'x')$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'number', 'x')$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'name', 'x', $$, overlap => '1 s'$$)$x$);
SELECT error_of($x$SELECT run('SELECT id, json ''1'' AS doc FROM stamped', 'x:#{id}', 'doc', 'x', $$, overlap => '0'$$)$x$);
SELECT error_of($x$SELECT run('SELECT id, ROW(id) AS r FROM stamped', 'x:#{id}', 'r', 'x', $$, overlap => '0'$$)$x$);
SELECT error_of($x$SELECT run('SELECT id, w FROM stamped_word UNION ALL SELECT id, c FROM stamped_word', 'x:#{id}', 'w', 'x', $$, overlap => '0'$$)$x$);
SELECT max(job) = :jobs AS none_was_started FROM redis_export_progress;
SELECT mark_of('x') IS NULL AS none;
-- a mark of something else
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'local', 'a')$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', 'a')$x$);
SELECT error_of($x$SELECT run('SELECT id, changed::timestamp FROM stamped', 'x:#{id}', 'changed', 'a')$x$);
SELECT redis_command('redis', 'HSET', 'redis_export:{half}', 'value', '1');
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', 'half')$x$);
SELECT redis_command('redis', 'HSET', 'redis_export:{a}', 'value', 'x'' OR true --');
SELECT error_of($x$SELECT run('TABLE stamped', 'a:#{id}', 'changed', 'a')$x$);
-- what anybody has written there does not keep the others from being listed
SELECT redis_command('redis', 'HSET', 'redis_export:{odd ' || i || '}', 'value', '1', 'rows', rows, 'moved_at', moved)
	FROM (VALUES (1, 'many', 'late'), (2, '99999999999999999999', '2026-13-45T00:00:00Z'), (3, '', ''), (4, '7 ', 'infinity'), (5, '7', repeat('2026-01-01 ', 100)), (6, '-7', '2026-01-02T03:04:05.5Z')) AS _ (i, rows, moved);
SELECT mark, rows, moved_at = '2026-01-02 03:04:05.5+00' AS moved FROM redis_export_marks('redis') WHERE mark LIKE 'odd _';
SELECT redis_command('redis', 'DEL', 'redis_export:{odd ' || i || '}') FROM generate_series(1, 6) AS i;
SELECT redis_command('redis', 'SET', 'redis_export:{string}', '1');
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', 'string')$x$);
SELECT error_of($x$SELECT redis_export_reset_mark('redis', 'string', 'x')$x$);
SELECT count(*) FROM redis_scan('redis', 'x:*');

-- the watermark does not change what a row becomes: it is a part of the whole row
CREATE TABLE paper (id int, doc jsonb, changed timestamptz);
INSERT INTO paper VALUES (1, '{"a":1}', '2026-02-03 04:05:06+00');
SELECT state, rows_written FROM redis_json_export('TABLE paper', 'leaf:#{id}', value => 'doc', watermark_column => 'changed', mark => 'leaf');
SELECT redis_command('redis', 'JSON.GET', 'leaf:1');
SELECT expected, different FROM redis_export_verify('TABLE paper', 'leaf:#{id}', value => 'doc');
SELECT state, rows_written FROM redis_json_export('TABLE paper', 'paper:#{id}', value => '*', watermark_column => 'changed', mark => 'paper');
SELECT redis_command('redis', 'JSON.GET', 'paper:1');

RESET timezone;
SELECT redis_command('redis', 'FLUSHALL');
DROP TABLE stamped, stamped_word, paper;
DROP FUNCTION run, mark_of;
DROP DOMAIN moment;
DROP TYPE step;
DROP SCHEMA trap CASCADE;
RESET client_min_messages;
