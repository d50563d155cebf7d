-- Only what is newer: watermark_column, mark and overlap
SET client_min_messages = error;
SET timezone = 'Asia/Kolkata';
CREATE TABLE stamped (id int PRIMARY KEY, name text, changed timestamptz, day date, local timestamp, number bigint, amount numeric, "Odd ""name""" timestamptz);
INSERT INTO stamped SELECT i, 'stamped ' || i, timestamptz '2026-02-03 00:00+00' + i * interval '1 minute', date '2026-02-01' + i, timestamp '2026-02-03 00:00' + i * interval '1 minute', i, i / 4.0,
	timestamptz '2026-02-03 00:00+00' + i * interval '1 minute' FROM generate_series(1, 10) AS i;
-- a run with rows => 'new' of an export that is defined so, whatever it was before: state, and how many rows were read and written
CREATE FUNCTION run(query text, template text, column_name name, name text, more text DEFAULT '', how text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	job bigint;
	state text;
	rows_read bigint;
	rows_written bigint;
	other bigint;
	last_error text;
BEGIN
	DELETE FROM redis_export_definition;
	EXECUTE format('SELECT redis_export_define(%L, %L, %L, type => ''hash'', watermark_column => %L%s)', name, query, template, column_name, more);
	UPDATE redis_export_definition SET id = md5(run.name)::uuid;
	EXECUTE format('CALL redis_export_run(%L, rows => ''new''%s)', name, how) INTO job, state, rows_read, rows_written, other, other, other, last_error;
	RETURN concat_ws(' ', state, rows_read, rows_written);
END
$$;
CREATE FUNCTION mark_of(name text) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' | ', mark->>0, mark->>1, mark->>2) FROM redis_command('redis', 'HMGET', 'redis_export:{' || name || '}', 'mark', 'mark_type', 'mark_column') AS mark
$$;

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
SELECT field, value ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$' AS moment FROM redis_hash_scan('redis', 'redis_export:{a}'), jsonb_each_text(fields) AS _ (field, value) ORDER BY field;
RESET datestyle;
-- no newer row: the value stays
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a', $$, overlap => '0'$$);
SELECT mark_of('a');
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
SELECT left(mark_of('long'), 3) AS value, length(mark_of('long'));
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
SELECT mark_of('odd name: "ünï" ''x'' } {%s} \');
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
-- documents; a run that reads all rows moves the mark, too, and does not read it
DELETE FROM redis_export_definition;
SELECT redis_export_define('j', 'SELECT id, changed FROM stamped', 'j:#{id}', watermark_column => 'changed', overlap => '2 min');
CREATE FUNCTION called(how text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	job bigint;
	state text;
	rows_read bigint;
	rows_written bigint;
	rows_unchanged bigint;
	other bigint;
	last_error text;
BEGIN
	EXECUTE format('CALL redis_export_run(''j'', rows => %L)', how) INTO job, state, rows_read, rows_written, rows_unchanged, other, other, last_error;
	RETURN concat_ws(' ', state, rows_read, rows_written, rows_unchanged);
END
$$;
SELECT called('changed');
SELECT mark_of('j');
SELECT called('new');
SELECT called('all');
SELECT called('new');
DROP FUNCTION called;
-- preview and verify look at all rows
SELECT count(*) FROM redis_export_preview('j', rows => 100);

-- rows that fail leave the mark where it is
SELECT run('SELECT id, changed FROM stamped WHERE id < 6', 'f:#{id}', 'changed', 'failing');
SELECT run('SELECT nullif(id, 8) AS id, changed FROM stamped', 'f:#{id}', 'changed', 'failing', how => $$, on_error => 'ignore'$$);
SELECT mark_of('failing');
SELECT * FROM error_of($x$SELECT run('SELECT nullif(id, 8) AS id, changed FROM stamped', 'f:#{id}', 'changed', 'failing')$x$) LIMIT 1;
SELECT * FROM error_of($x$SELECT run('SELECT id / (id - 8) AS id, changed FROM stamped', 'f:#{id}', 'changed', 'failing')$x$) LIMIT 1;
SELECT mark_of('failing');
SELECT run('SELECT id, changed FROM stamped', 'f:#{id}', 'changed', 'failing');
SELECT mark_of('failing');

-- set: to a value, in the settings of the session, or to nothing
SET timezone = 'Asia/Kolkata';
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a', $$, overlap => '0'$$);
SELECT redis_export_set_mark('a', '2026-02-03 05:35:00');
SELECT mark_of('a');
SELECT run('SELECT id, name, changed FROM stamped', 'a:#{id}', 'changed', 'a', $$, overlap => '0'$$);
SELECT mark_of('a');
SELECT error_of($x$SELECT redis_export_set_mark('a', 'yesteryear')$x$);
SELECT redis_export_set_mark('a', NULL);
SELECT mark_of('a');
SELECT run('SELECT id, name, changed FROM stamped WHERE id <= 10', 'a:#{id}', 'changed', 'a', $$, overlap => '0'$$);
SELECT run('SELECT id, number FROM stamped', 'n:#{id}', 'number', 'number', $$, overlap => '0'$$);
SELECT redis_export_set_mark('number', '7');
SELECT mark_of('number');
SELECT error_of($x$SELECT redis_export_set_mark('number', '9223372036854775808')$x$);
SELECT run('SELECT id, w FROM stamped_word', 'w:#{id}', 'w', 'w');
SELECT redis_export_set_mark('w', E'it''s \\ here');
SELECT mark_of('w');
SELECT error_of($x$SELECT redis_export_set_mark(NULL, 'a')$x$);
SELECT error_of($x$SELECT redis_export_set_mark('nowhere', 'a')$x$);
-- one that Redis has of the column as it was is none
SELECT run('SELECT id, changed::timestamp AS changed FROM stamped', 'a:#{id}', 'changed', 'a');
SELECT mark_of('a');

-- what cannot be
SELECT max(job) AS jobs FROM redis_export_progress \gset
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', NULL, 'x')$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', NULL, 'x', $$, overlap => '1 s'$$)$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', '')$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', 'x', how => $$, prune => true$$)$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', 'x', $$, overlap => '-1 s'$$)$x$);
SELECT error_of($x$SELECT run('SELECT id, changed FROM stamped', 'x:#{id}', 'Changed', 'x')$x$);
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'number', 'x', $$, overlap => '1 s'$$)$x$);
SELECT error_of($x$SELECT run('SELECT id, json ''1'' AS doc FROM stamped', 'x:#{id}', 'doc', 'x')$x$);
SELECT error_of($x$SELECT run('SELECT id, ROW(id) AS r FROM stamped', 'x:#{id}', 'r', 'x')$x$);
SELECT error_of($x$SELECT run('SELECT id, w FROM stamped_word UNION ALL SELECT id, c FROM stamped_word', 'x:#{id}', 'w', 'x')$x$);
SELECT max(job) = :jobs AS none_was_started FROM redis_export_progress;
-- what anybody may have written there
SELECT run('TABLE stamped', 'a:#{id}', 'changed', 'a');
SELECT redis_command('redis', 'HSET', 'redis_export:{a}', 'mark', 'x'' OR true --');
SELECT error_of($x$SELECT run('TABLE stamped', 'a:#{id}', 'changed', 'a')$x$);
SELECT redis_command('redis', 'SET', 'redis_export:{string}', '1');
SELECT error_of($x$SELECT run('TABLE stamped', 'x:#{id}', 'changed', 'string')$x$);
SELECT error_of($x$SELECT redis_export_set_mark('string', 'now')$x$);
SELECT count(*) FROM redis_scan('redis', 'x:*');

-- the watermark does not change what a row becomes: it is a part of the whole row
CREATE TABLE paper (id int, doc jsonb, changed timestamptz);
INSERT INTO paper VALUES (1, '{"a":1}', '2026-02-03 04:05:06+00');
SELECT redis_export_define('leaf', 'TABLE paper', 'leaf:#{id}', value => 'doc', watermark_column => 'changed');
SELECT redis_export_define('paper', 'TABLE paper', 'paper:#{id}', watermark_column => 'changed');
SELECT command FROM redis_export_preview('leaf');
SELECT command FROM redis_export_preview('paper');

RESET timezone;
SELECT redis_command('redis', 'FLUSHALL');
DROP TABLE stamped, stamped_word, paper;
DELETE FROM redis_export_definition;
DROP FUNCTION run, mark_of;
DROP DOMAIN moment;
DROP TYPE step;
DROP SCHEMA trap CASCADE;
RESET client_min_messages;
