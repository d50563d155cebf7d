-- What an export takes as a query, and what it does not
CREATE TABLE things (id int PRIMARY KEY, name text);
INSERT INTO things SELECT n, 'thing ' || n FROM generate_series(1, 3) AS n;
CREATE VIEW all_things AS SELECT * FROM things;
CREATE TABLE parted (id int, name text) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);

\pset format unaligned
\pset tuples_only
-- refused
SELECT error_of($x$SELECT redis_json_export('', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('  -- nothing', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELEC 1', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM missing', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id FROM things WHERE id = $1', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT 1 AS id; SELECT 2 AS id', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('INSERT INTO things VALUES (4)', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('INSERT INTO things VALUES (4) RETURNING id', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('UPDATE things SET name = id RETURNING id', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('DELETE FROM things RETURNING id', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('WITH gone AS (DELETE FROM things RETURNING id) SELECT * FROM gone', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id FROM things FOR UPDATE', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id FROM (SELECT id FROM things FOR SHARE) AS t', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id INTO copy FROM things', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('CREATE TABLE other AS SELECT 1 AS id', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SHOW work_mem', 'q:#{work_mem}')$x$);
SELECT error_of($x$SELECT redis_json_export('EXPLAIN SELECT 1 AS id', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('COPY things TO STDOUT', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('BEGIN', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('DO $$ BEGIN END $$', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT FROM things', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id, name AS id FROM things', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT 1, 2', 'q:#{?column?}')$x$);
PREPARE prepared AS SELECT 1 AS id;
SELECT error_of($x$SELECT redis_json_export('EXECUTE prepared', 'q:#{id}')$x$);
DEALLOCATE prepared;

-- a worker does not see temporary tables, and a permanent one in the shadow of such is not meant
CREATE TEMP TABLE scratch AS SELECT 1 AS id;
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM scratch', 'q:#{id}')$x$);
SELECT error_of($x$SELECT redis_json_export('SELECT id FROM things WHERE id IN (SELECT id FROM scratch)', 'q:#{id}')$x$);
CREATE TEMP TABLE things AS SELECT 99 AS id;
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM things', 'q:#{id}')$x$);
DROP TABLE pg_temp.things, scratch;

-- nor what this transaction has not committed
BEGIN;
INSERT INTO things VALUES (4, 'not committed');
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM things', 'q:#{id}')$x$);
ROLLBACK;
BEGIN;
INSERT INTO things VALUES (4, 'not committed');
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM all_things', 'q:#{id}')$x$);
ROLLBACK;
BEGIN;
INSERT INTO parted_1 VALUES (4, 'not committed');
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM parted', 'q:#{id}')$x$);
ROLLBACK;
BEGIN;
CREATE TABLE fresh AS SELECT 1 AS id;
SELECT error_of($x$SELECT redis_json_export('SELECT * FROM fresh', 'q:#{id}')$x$);
ROLLBACK;
SELECT count(*) FROM redis_export_progress;

-- the check keeps no locks
BEGIN;
SELECT state FROM redis_json_export('SELECT * FROM things', 'q:#{id}', value => '*');
SELECT count(*) FROM pg_locks WHERE relation = 'things'::regclass AND pid = pg_backend_pid();
COMMIT;

-- taken
SELECT state, rows_written FROM redis_json_export('VALUES (1, ''a''), (2, ''b'')', 'v:#{column1}', value => '*');
SELECT state, rows_written FROM redis_json_export('TABLE things;', 't:#{id}', value => '*');
SELECT state, rows_written FROM redis_json_export('WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 7) SELECT id FROM n', 'r:#{id}');
SELECT state, rows_written FROM redis_json_export('SELECT id FROM things WHERE false', 'none:#{id}');
SELECT state, rows_written FROM redis_json_export('SELECT name, "Key"  FROM (SELECT id AS "Key", name FROM things) AS t', '#{Key}:#{name}');
SELECT redis_command('redis', 'JSON.GET', 't:2'), redis_command('redis', 'JSON.GET', 'v:2'), redis_command('redis', 'JSON.GET', '3:thing 3');

-- read only
CREATE SEQUENCE counter;
SELECT error_of($x$SELECT redis_json_export('SELECT nextval(''counter'') AS id', 'n:#{id}')$x$);
CREATE FUNCTION writes() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO things VALUES (77); RETURN 77; END $$;
SELECT error_of($x$SELECT redis_json_export('SELECT writes() AS id', 'n:#{id}')$x$);
SELECT count(*) FROM things;

SELECT redis_command('redis', 'FLUSHALL');
DROP FUNCTION writes();
DROP SEQUENCE counter;
DROP VIEW all_things;
DROP TABLE things, parted;
