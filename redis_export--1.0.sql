/* redis_export--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION redis_export" to load this file. \quit

-- Where Redis is: foreign servers and user mappings, for nothing but their options

CREATE FUNCTION redis_export_validator(text[], oid)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT;

CREATE FOREIGN DATA WRAPPER redis_export VALIDATOR redis_export_validator;

-- Watching

-- what is known of a job. A type of its own, to which an upgrade can add attributes at its end; that of a view it could not
CREATE TYPE redis_export_job AS (
	job bigint,
	pid int,
	datid oid,
	datname name,
	usename name,
	export text,
	server name,
	command text,
	key_template text,
	query text,
	state text,
	nodes int,
	rows_estimated bigint,
	rows_read bigint,
	rows_written bigint,
	rows_unchanged bigint,
	rows_failed bigint,
	rows_skipped bigint,
	rows_in_doubt bigint,
	keys_deleted bigint,
	bytes_sent bigint,
	reconnects bigint,
	redis_restarts bigint,
	index_failures bigint,
	rows_per_second float8,
	percent float8,
	time_left interval,
	started_at timestamptz,
	finished_at timestamptz,
	last_error text);

COMMENT ON TYPE redis_export_job IS
'an export, as it runs or has ended: a row of the view redis_export_progress';

CREATE FUNCTION redis_export_jobs()
RETURNS SETOF redis_export_job
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION redis_export_jobs() IS
'the exports that run, and those that have ended, as shown by the view redis_export_progress';

CREATE VIEW redis_export_progress AS
	SELECT * FROM redis_export_jobs();

COMMENT ON VIEW redis_export_progress IS
'the exports that run, and those that have ended';

-- as with pg_stat_activity everyone may look; texts are shown to whom they concern
GRANT SELECT ON redis_export_progress TO PUBLIC;

CREATE FUNCTION redis_export_job_nodes(
	OUT job bigint,
	OUT host text,
	OUT port int,
	OUT slots int,
	OUT state text,
	OUT rows_written bigint,
	OUT rows_with_redis bigint,
	OUT bytes_sent bigint,
	OUT reconnects bigint,
	OUT last_error text)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION redis_export_job_nodes() IS
'the nodes of Redis that exports write to, as shown by the view redis_export_nodes';

CREATE VIEW redis_export_nodes AS
	SELECT * FROM redis_export_job_nodes() ORDER BY job, host, port;

COMMENT ON VIEW redis_export_nodes IS
'the nodes of Redis that exports write to';

GRANT SELECT ON redis_export_nodes TO PUBLIC;

CREATE FUNCTION redis_export_failures(
	job bigint,
	OUT row_number bigint,
	OUT key text,
	OUT sqlstate text,
	OUT message text)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION redis_export_failures(bigint) IS
'the first hundred rows of an export that failed';

-- Exporting

CREATE FUNCTION redis_json_export(
	query text,
	key_template text,
	batch int DEFAULT 500,
	server name DEFAULT 'redis',
	value name DEFAULT NULL,
	path text DEFAULT '$',
	exclude text[] DEFAULT NULL,
	merge boolean DEFAULT false,
	ttl interval DEFAULT NULL,
	ttl_column name DEFAULT NULL,
	rate int DEFAULT NULL,
	on_error text DEFAULT 'stop',
	reject_limit bigint DEFAULT NULL,
	retry_timeout interval DEFAULT '5 min',
	wait_replicas int DEFAULT 0,
	wait_index text DEFAULT NULL,
	wait boolean DEFAULT true)
RETURNS redis_export_job
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_json_export IS
'export the rows of a query to Redis, one JSON.SET or JSON.MERGE a row';

CREATE FUNCTION redis_hash_export(
	query text,
	key_template text,
	batch int DEFAULT 500,
	server name DEFAULT 'redis',
	exclude text[] DEFAULT NULL,
	replace boolean DEFAULT false,
	ttl interval DEFAULT NULL,
	ttl_column name DEFAULT NULL,
	rate int DEFAULT NULL,
	on_error text DEFAULT 'stop',
	reject_limit bigint DEFAULT NULL,
	retry_timeout interval DEFAULT '5 min',
	wait_replicas int DEFAULT 0,
	wait_index text DEFAULT NULL,
	wait boolean DEFAULT true)
RETURNS redis_export_job
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_hash_export IS
'export the rows of a query to Redis, one HSET a row';

CREATE FUNCTION redis_command_export(
	query text,
	command_template text[],
	batch int DEFAULT 500,
	server name DEFAULT 'redis',
	on_null text DEFAULT 'fail',
	ttl interval DEFAULT NULL,
	ttl_column name DEFAULT NULL,
	rate int DEFAULT NULL,
	on_error text DEFAULT 'stop',
	reject_limit bigint DEFAULT NULL,
	retry_timeout interval DEFAULT '5 min',
	wait_replicas int DEFAULT 0,
	wait_index text DEFAULT NULL,
	wait boolean DEFAULT true)
RETURNS redis_export_job
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_command_export IS
'send one command to Redis for each row of a query';

-- Exports with a name: what Redis is to hold, defined once and run by name

CREATE TABLE redis_export_definition (
	name text COLLATE "C" PRIMARY KEY,
	id uuid NOT NULL DEFAULT gen_random_uuid(),
	owner regrole NOT NULL,
	query text NOT NULL,
	key_template text NOT NULL,
	server name NOT NULL,
	type text NOT NULL,
	value name,
	exclude text[],
	replace boolean NOT NULL,
	ttl interval,
	ttl_column name,
	watermark_column name,
	overlap interval,
	wait_index text,
	settings text[] NOT NULL);

COMMENT ON TABLE redis_export_definition IS
'the exports that are defined, made by redis_export_define() and shown by the view redis_exports';

REVOKE ALL ON redis_export_definition FROM PUBLIC;

-- Who could write a row could have a query run as its owner: a grant on the table, default privileges or pg_write_all_data are not enough.
ALTER TABLE redis_export_definition ENABLE ROW LEVEL SECURITY;

-- a role that is gone would be dumped as its OID, which may be another role's where the dump is restored
SELECT pg_extension_config_dump('redis_export_definition', 'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');

CREATE FUNCTION redis_export_define(
	name text,
	query text,
	key_template text,
	server name DEFAULT 'redis',
	type text DEFAULT 'json',
	value name DEFAULT NULL,
	exclude text[] DEFAULT NULL,
	replace boolean DEFAULT false,
	ttl interval DEFAULT NULL,
	ttl_column name DEFAULT NULL,
	watermark_column name DEFAULT NULL,
	overlap interval DEFAULT NULL,
	wait_index text DEFAULT NULL,
	or_replace boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_define IS
'define an export: what Redis is to hold';

CREATE FUNCTION redis_export_drop(name text, keys boolean DEFAULT false, force boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_drop(text, boolean, boolean) IS
'drop an export, with what Redis keeps for it, and if asked for its keys';

CREATE FUNCTION redis_export_record(
	name text,
	OUT running_by text,
	OUT ended_at timestamptz,
	OUT state text,
	OUT rows_read bigint,
	OUT rows_written bigint,
	OUT rows_unchanged bigint,
	OUT rows_failed bigint,
	OUT rows_skipped bigint,
	OUT keys_deleted bigint,
	OUT mark text,
	OUT mark_at timestamptz,
	OUT keys bigint,
	OUT error text)
RETURNS record
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_record(text) IS
'what Redis keeps for an export, as shown by the view redis_exports; null for who does not have the privileges of its owner';

CREATE VIEW redis_exports AS
	SELECT d.name, d.owner, d.server, d.type, d.key_template,
		CASE WHEN pg_has_role(d.owner, 'USAGE') THEN d.query END AS query,
		d.value, d.exclude, d.replace, d.ttl, d.ttl_column, d.watermark_column, d.overlap, d.wait_index, r.*
	FROM redis_export_definition AS d CROSS JOIN LATERAL redis_export_record(d.name) AS r
	ORDER BY d.name;

COMMENT ON VIEW redis_exports IS
'the exports that are defined, and what Redis keeps for them: who runs each, how its last run ended, its mark, and how many keys it has';

GRANT SELECT ON redis_exports TO PUBLIC;

CREATE PROCEDURE redis_export_run(
	name text,
	rows text DEFAULT 'changed',
	prune boolean DEFAULT false,
	prune_limit float8 DEFAULT 0.1,
	batch int DEFAULT 500,
	rate int DEFAULT NULL,
	on_error text DEFAULT 'stop',
	reject_limit bigint DEFAULT NULL,
	retry_timeout interval DEFAULT '5 min',
	wait_replicas int DEFAULT 0,
	if_running text DEFAULT 'fail',
	wait boolean DEFAULT true,
	INOUT job bigint DEFAULT NULL,
	INOUT state text DEFAULT NULL,
	INOUT rows_read bigint DEFAULT NULL,
	INOUT rows_written bigint DEFAULT NULL,
	INOUT rows_unchanged bigint DEFAULT NULL,
	INOUT rows_failed bigint DEFAULT NULL,
	INOUT keys_deleted bigint DEFAULT NULL,
	INOUT last_error text DEFAULT NULL)
AS 'MODULE_PATHNAME'
LANGUAGE C;

COMMENT ON PROCEDURE redis_export_run IS
'run an export that is defined';

CREATE FUNCTION redis_export_preview(
	name text,
	rows int DEFAULT 5,
	prune boolean DEFAULT false)
RETURNS TABLE (
	row_number bigint,
	action text,
	command text,
	error text)
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_preview(text, int, boolean) IS
'what a run of an export would do with its first rows';

CREATE FUNCTION redis_export_preview(
	query text,
	key_template text,
	server name DEFAULT 'redis',
	type text DEFAULT 'json',
	value name DEFAULT NULL,
	path text DEFAULT '$',
	exclude text[] DEFAULT NULL,
	merge boolean DEFAULT false,
	replace boolean DEFAULT false,
	ttl interval DEFAULT NULL,
	ttl_column name DEFAULT NULL,
	rows int DEFAULT 5)
RETURNS TABLE (
	row_number bigint,
	action text,
	command text,
	error text)
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_preview(text, text, name, text, name, text, text[], boolean, boolean, interval, name, int) IS
'what an export of documents or hashes would do with its first rows';

CREATE FUNCTION redis_export_preview(
	query text,
	command_template text[],
	server name DEFAULT 'redis',
	on_null text DEFAULT 'fail',
	ttl interval DEFAULT NULL,
	ttl_column name DEFAULT NULL,
	rows int DEFAULT 5)
RETURNS TABLE (
	row_number bigint,
	action text,
	command text,
	error text)
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_preview(text, text[], name, text, interval, name, int) IS
'what redis_command_export would do with its first rows';

CREATE FUNCTION redis_export_verify(
	name text,
	examples int DEFAULT 10,
	OUT expected bigint,
	OUT missing bigint,
	OUT different bigint,
	OUT extra bigint,
	OUT unknown bigint,
	OUT unwritable bigint,
	OUT missing_keys text[],
	OUT different_keys text[],
	OUT extra_keys text[],
	OUT unknown_keys text[],
	OUT unwritable_keys text[])
RETURNS record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_verify(text, int) IS
'compare what Redis holds with what a run of an export would write';

CREATE FUNCTION redis_export_verify(
	query text,
	key_template text,
	server name DEFAULT 'redis',
	type text DEFAULT 'json',
	value name DEFAULT NULL,
	exclude text[] DEFAULT NULL,
	replace boolean DEFAULT false,
	examples int DEFAULT 10,
	OUT expected bigint,
	OUT missing bigint,
	OUT different bigint,
	OUT extra bigint,
	OUT unknown bigint,
	OUT unwritable bigint,
	OUT missing_keys text[],
	OUT different_keys text[],
	OUT extra_keys text[],
	OUT unknown_keys text[],
	OUT unwritable_keys text[])
RETURNS record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_verify(text, text, name, text, name, text[], boolean, int) IS
'compare what Redis holds with what an export of documents or hashes would write';

CREATE FUNCTION redis_export_wait(job bigint, timeout interval DEFAULT NULL)
RETURNS redis_export_job
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_wait(bigint, interval) IS
'wait for the end of an export';

CREATE FUNCTION redis_export_cancel(job bigint)
RETURNS boolean
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_cancel(bigint) IS
'cancel an export';

CREATE FUNCTION redis_export_set_rate(job bigint, rate int)
RETURNS boolean
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_set_rate(bigint, int) IS
'let an export write at most this many rows a second from now on, or any number for null';

-- What Redis keeps for exports with a name

CREATE FUNCTION redis_export_set_mark(name text, mark text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_set_mark(text, text) IS
'let the next run with rows => ''new'' begin above this value of the watermark column, or for null with all rows';

CREATE FUNCTION redis_export_reset(name text)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_export_reset(text) IS
'forget the books that Redis keeps for an export, and its mark: the next run writes all rows';

-- Talking to Redis

CREATE FUNCTION redis_command(server name, VARIADIC words "any")
RETURNS jsonb
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION redis_command(name, "any") IS
'send one command to Redis, and return its answer';

CREATE FUNCTION redis_scan(
	server name,
	pattern text DEFAULT '*',
	type text DEFAULT NULL,
	skip_invalid boolean DEFAULT false)
RETURNS SETOF text
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100000;

COMMENT ON FUNCTION redis_scan(name, text, text, boolean) IS
'the keys of Redis that match a pattern, each once';

CREATE FUNCTION redis_json_scan(
	server name,
	pattern text DEFAULT '*',
	path text DEFAULT '$',
	skip_invalid boolean DEFAULT false)
RETURNS TABLE (
	key text,
	document jsonb)
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100000;

COMMENT ON FUNCTION redis_json_scan(name, text, text, boolean) IS
'the documents of Redis whose keys match a pattern, in order of the keys';

CREATE FUNCTION redis_hash_scan(
	server name,
	pattern text DEFAULT '*',
	skip_invalid boolean DEFAULT false)
RETURNS TABLE (
	key text,
	fields jsonb)
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100000;

COMMENT ON FUNCTION redis_hash_scan(name, text, boolean) IS
'the hashes of Redis whose keys match a pattern, in order of the keys';

-- What writes to Redis, or stops who does, is for whom it is granted to

REVOKE ALL ON FUNCTION redis_json_export FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_hash_export FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_command_export FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_define FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_drop(text, boolean, boolean) FROM PUBLIC;
REVOKE ALL ON PROCEDURE redis_export_run FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_preview(text, int, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_preview(text, text, name, text, name, text, text[], boolean, boolean, interval, name, int) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_preview(text, text[], name, text, interval, name, int) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_verify(text, int) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_verify(text, text, name, text, name, text[], boolean, int) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_failures(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_wait(bigint, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_cancel(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_set_rate(bigint, int) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_set_mark(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_export_reset(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_command(name, "any") FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_scan(name, text, text, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_json_scan(name, text, text, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION redis_hash_scan(name, text, boolean) FROM PUBLIC;
