# Exports with a name, as far as one session does not show it: a run that is waited for holds no snapshot; whose rights and
# settings a run has; what is left when roles, servers and tables change; dump, restore and replicas.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis);

$node->safe_psql('postgres', q{
	CREATE TABLE item (id int PRIMARY KEY, n int);
	INSERT INTO item SELECT i, i FROM generate_series(1, 100000) AS i;
	SELECT redis_export_define('items', 'SELECT id, n FROM item', 'item:#{id}', type => 'hash');
});

# Does this statement's session hold a snapshot, or a transaction's number, while it waits for a job?
sub held_while_waiting
{
	my ($statement) = @_;
	my $session = session($node);
	my $pid = $session->pid;
	my $id = next_job($node, sub { $session->send($statement) });
	until_written($node, $id, 20);
	poll_until($node, "SELECT wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = $pid");
	my $held = $node->safe_psql('postgres', "SELECT state, backend_xmin IS NOT NULL OR backend_xid IS NOT NULL FROM pg_stat_activity WHERE pid = $pid");
	my $locks = $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype = 'relation'");
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	my (undef, $error) = $session->wait;
	like($error, qr/the export was canceled by role "postgres"/, 'the end of the job is told');
	is($session->query('SELECT 1'), 1, 'and the session goes on');
	return "$held|$locks";
}

# In PL/pgSQL each INOUT argument takes a variable.
my $variables = 'DECLARE j bigint; s text; r bigint; w bigint; u bigint; f bigint; k bigint; e text;';
my $into = 'job => j, state => s, rows_read => r, rows_written => w, rows_unchanged => u, rows_failed => f, keys_deleted => k, last_error => e';

subtest 'who waits for a run holds no snapshot' => sub {
	my $run = q{redis_export_run('items', rows => 'all', batch => 20, rate => 200};
	is(held_while_waiting("CALL $run)"), 'active|f|0', 'CALL by itself');
	is(held_while_waiting("DO \$\$ $variables BEGIN CALL $run, $into); END \$\$"), 'active|f|0', 'in a DO block');
	$node->safe_psql('postgres', "CREATE PROCEDURE nightly() LANGUAGE plpgsql AS \$\$ $variables BEGIN CALL $run, $into); END \$\$");
	is(held_while_waiting('CALL nightly()'), 'active|f|0', 'in another procedure');
	like(held_while_waiting("SELECT redis_hash_export('SELECT id, n FROM item', 'other:#{id}', 20, rate => 200)"), qr/^active\|t\|/,
		'a function does');
};

subtest 'in a transaction block, and in a block with EXCEPTION, it waits as functions do' => sub {
	my $call = q{CALL redis_export_run('items', rows => 'all')};
	is($node->safe_psql('postgres', "BEGIN; CREATE TABLE kept (); $call; ROLLBACK; SELECT to_regclass('kept') IS NULL") =~ s/^\d+/N/r,
		'N|done|100000|100000|0|0|0|' . "\nt", 'nothing is committed before its time');
	is($node->safe_psql('postgres', "DO \$\$ $variables BEGIN BEGIN CALL redis_export_run('items', rows => 'all', $into); EXCEPTION WHEN division_by_zero THEN NULL; END; END \$\$; SELECT 'well'"),
		'well', 'in a subtransaction');
};

subtest 'what a run returns' => sub {
	$node->safe_psql('postgres', q{CALL redis_export_run('items')});
	my $row = $node->safe_psql('postgres', q{CALL redis_export_run('items')});
	like($row, qr/^\d+\|done\|100000\|0\|100000\|0\|0\|$/, 'by CALL');
	$row = $node->safe_psql('postgres', "DO \$\$ $variables BEGIN CALL redis_export_run('items', $into); CREATE TABLE said AS SELECT s, r, w, u, f, k, e; END \$\$; SELECT * FROM said");
	is($row, 'done|100000|0|100000|0|0|', 'in variables');
};

# Three roles that may use the functions: alice owns exports, ann has her privileges, bob has not.
$node->safe_psql('postgres', q{
	CREATE ROLE alice LOGIN;
	CREATE ROLE ann LOGIN IN ROLE alice;
	CREATE ROLE bob LOGIN;
	GRANT USAGE ON FOREIGN SERVER redis TO alice;
	GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO alice, ann, bob;
	CREATE SCHEMA alice AUTHORIZATION alice;
	CREATE SCHEMA other;
	CREATE TABLE other.thing AS SELECT 1 AS id, 'not hers' AS what;
	GRANT ALL ON SCHEMA other TO PUBLIC;
	GRANT SELECT ON other.thing TO PUBLIC;
});
my %as = map { $_ => $node->connstr('postgres') . " user=$_" } qw(alice ann bob postgres);

# Run SQL as a role: what it returns, or its error with the SQLSTATE.
sub as_role
{
	my ($role, $sql) = @_;
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql", connstr => $as{$role});
	return $code == 0 && $err !~ /ERROR/ ? $out : $err =~ /ERROR:\s+(.*?)\nLOCATION/s ? $1 : $err;
}

sub hash { return $redis->cli('HGETALL', $_[0]) }

subtest 'who may run it, and as whom it runs' => sub {
	is(as_role('alice', q{
		CREATE TABLE alice.thing AS SELECT 1 AS id, 'hers' AS what;
		CREATE FUNCTION alice.who() RETURNS text LANGUAGE sql AS 'SELECT current_user::text';
		SET search_path = alice, public;
		SELECT redis_export_define('things', 'SELECT id, what, who() FROM thing', 'thing:#{id}', type => 'hash');
	}), '', 'she defines it');
	for my $role (qw(alice ann postgres))
	{
		$redis->cli('DEL', 'thing:1');
		like(as_role($role, q{CALL redis_export_run('things', rows => 'all')}), qr/^\d+\|done\|1\|1\|/, "$role runs it");
		is(join(' ', $redis->cli('HMGET', 'thing:1', 'what', 'who')), 'hers alice', '... as alice, and in her schema');
	}
	my $refused = qr/^42501: permission denied for export "things"\nDETAIL:  It takes the privileges of its owner, role "alice"\./;
	like(as_role('bob', q{CALL redis_export_run('things')}), $refused, 'somebody else may not run it');
	like(as_role('bob', q{SELECT * FROM redis_export_preview('things')}), $refused, '... nor look at what it would do');
	is($node->safe_psql('postgres', q{SELECT DISTINCT usename, export FROM redis_export_progress WHERE key_template = 'thing:#{id}'}), 'alice|things', 'the view says whose it is, and its name');
	is(as_role('bob', q{SELECT name, owner, query IS NULL, state IS NULL FROM redis_exports WHERE name = 'things'}), 'things|alice|t|t', 'somebody else sees that it is there');
	is(as_role('ann', q{SELECT name, owner, query IS NULL, state, keys FROM redis_exports WHERE name = 'things'}), 'things|alice|f|done|1', '... and who has the privileges all of it');
	$redis->cli('DEL', 'thing:1');
	is(as_role('ann', q{SELECT * FROM redis_export_preview('things')}), '1|write|HSET thing:1 id 1 what hers who alice|', 'a preview is hers, too');
};

subtest 'its meaning does not depend on who runs it' => sub {
	$node->safe_psql('postgres', q{
		CREATE FUNCTION other.who() RETURNS text LANGUAGE sql AS $$SELECT 'another ' || current_user$$;
		GRANT EXECUTE ON FUNCTION other.who() TO PUBLIC;
	});
	$redis->cli('DEL', 'thing:1');
	as_role('ann', q{SET search_path = other, public; CALL redis_export_run('things', rows => 'all')});
	is(join(' ', $redis->cli('HMGET', 'thing:1', 'what', 'who')), 'hers alice', 'search_path is that of the definition');
	$redis->cli('DEL', 'thing:1');
	is(as_role('ann', q{SET search_path = other, public; SELECT command FROM redis_export_preview('things'); SHOW search_path}),
		"HSET thing:1 id 1 what hers who alice\nother, public", '... in a preview, too, which leaves the session as it was');

	as_role('alice', q{
		SET TimeZone = 'Asia/Tokyo';
		SELECT redis_export_define('zones', $$SELECT 1 AS id, '2026-01-01 00:00'::timestamptz::text AS t, coalesce(current_setting('app.tenant', true), '') AS tenant$$,
			'zone:#{id}', type => 'hash');
	});
	as_role('ann', q{SET TimeZone = 'UTC'; SET app.tenant = 'anns'; CALL redis_export_run('zones', rows => 'all')});
	is(join(' ', $redis->cli('HMGET', 'zone:1', 't', 'tenant')), '2026-01-01 00:00:00+09', 'the time zone, and no setting of who runs it with a dot');
	$redis->cli('DEL', 'zone:1');
	is(as_role('ann', q{SET app.tenant = 'anns'; SELECT command FROM redis_export_preview('zones'); SHOW app.tenant}),
		qq{HSET zone:1 id 1 t "2026-01-01 00:00:00+09" tenant ""\nanns}, '... nor in a preview');
	$node->safe_psql('postgres', q{ALTER ROLE alice SET app.tenant = 'alices'; ALTER ROLE ann SET app.tenant = 'anns'; ALTER DATABASE postgres SET app.tenant = 'everybodys'});
	as_role('ann', q{CALL redis_export_run('zones', rows => 'all')});
	is(join(' ', $redis->cli('HMGET', 'zone:1', 'tenant')), 'alices', 'but what its owner has by default');
};

subtest 'nobody runs code as somebody else' => sub {
	as_role('alice', q{
		CREATE FUNCTION alice.evil() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
			BEGIN RESET ROLE; RETURN current_user; EXCEPTION WHEN OTHERS THEN NULL; END;
			BEGIN SET SESSION AUTHORIZATION postgres; RETURN current_user; EXCEPTION WHEN OTHERS THEN NULL; END;
			BEGIN PERFORM set_config('role', 'postgres', false); RETURN current_user; EXCEPTION WHEN OTHERS THEN NULL; END;
			RETURN current_user; END $$;
		SELECT redis_export_define('evil', 'SELECT 1 AS id, alice.evil() AS who', 'evil:#{id}', type => 'hash');
	});
	like(as_role('postgres', q{CALL redis_export_run('evil')}), qr/\|done\|/, 'a superuser runs it');
	is($redis->cli('HGET', 'evil:1', 'who'), 'alice', '... as alice');
	$redis->cli('DEL', 'evil:1');
	is(as_role('postgres', q{SELECT command FROM redis_export_preview('evil')}), 'HSET evil:1 id 1 who alice', 'and so looks at it');
	is(as_role('postgres', q{SELECT different FROM redis_export_verify('SELECT 1 AS id, 2 AS two', 'none:#{id}', type => 'hash'); SELECT current_user, session_user}) =~ s/^0\n//r,
		'postgres|postgres', 'and is who he was');
	like(as_role('bob', q{INSERT INTO redis_export_definition SELECT * FROM redis_export_definition}), qr/^42501: permission denied for table/,
		'the table is written by nobody else');
	like(as_role('alice', q{UPDATE redis_export_definition SET owner = 'postgres'}), qr/^42501: permission denied for table/, '... and not by an owner');
};

# Statements on the table of definitions run with the rights of its owner: no operator of the caller's may be one of theirs.
subtest 'whoever defines and drops does not become the owner of the table' => sub {
	$node->safe_psql('postgres', q{
		CREATE ROLE mallory LOGIN;
		CREATE SCHEMA mallory AUTHORIZATION mallory;
		GRANT USAGE ON FOREIGN SERVER redis TO mallory;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory;
		SELECT redis_export_define('not hers', 'SELECT 1 AS id', 'nothers:#{id}', type => 'hash');
	});
	my $attack = q{
		SET search_path = mallory, pg_catalog, public;
		CREATE FUNCTION mallory.eq(text, text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
			IF current_user <> 'mallory' THEN EXECUTE 'ALTER ROLE mallory SUPERUSER'; END IF; RETURN true; END $$;
		CREATE OPERATOR mallory.= (LEFTARG = text, RIGHTARG = text, FUNCTION = mallory.eq);
		CREATE FUNCTION mallory.oid(regrole) RETURNS pg_catalog.oid LANGUAGE plpgsql AS $$ BEGIN
			IF current_user <> 'mallory' THEN EXECUTE 'ALTER ROLE mallory SUPERUSER'; END IF; RETURN 0; END $$;
		SELECT public.redis_export_define('hers', 'SELECT 1 AS id', 'hers:#{id}', type => 'hash');
		SELECT public.redis_export_define('hers', 'SELECT 1 AS id', 'hers:#{id}', type => 'hash');
		SELECT public.redis_export_define('hers', 'SELECT 2 AS id', 'hers:#{id}', type => 'hash', or_replace => true);
		SELECT public.redis_export_drop('hers');
		SHOW search_path;
	};
	my ($code, $out, $err) = $node->psql('postgres', $attack, extra_params => [ '-U', 'mallory' ]);
	like($out, qr/^mallory, pg_catalog, public$/m, 'the statements went through, and the search path is as it was') or diag $err;
	is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f', 'she has no more rights than before');
	is($node->safe_psql('postgres', q{SELECT string_agg(name, ',' ORDER BY name) FROM redis_export_definition WHERE name IN ('hers', 'not hers')}), 'not hers', 'and has dropped what was hers alone');

	# Grants on the table, by whatever way, give nobody the queries of others.
	$node->safe_psql('postgres', q{GRANT ALL ON redis_export_definition TO mallory; GRANT pg_write_all_data, pg_read_all_data TO mallory});
	my $write = q{UPDATE redis_export_definition SET query = 'SELECT mallory.evil() AS id'};
	$node->psql('postgres', $write, extra_params => [ '-U', 'mallory' ]);
	is($node->safe_psql('postgres', q{SELECT query FROM redis_export_definition WHERE name = 'not hers'}), 'SELECT 1 AS id', 'whoever may write the table changes no query');
	my $insert = q{INSERT INTO redis_export_definition SELECT (d).* FROM (SELECT NULL::redis_export_definition AS d) AS x};
	like(($node->psql('postgres', $insert, extra_params => [ '-U', 'mallory' ]))[2], qr/ERROR:/, 'and adds none');
	like($node->safe_psql('postgres', q{CALL redis_export_run('not hers')}), qr/\|done\|1\|/, 'its owner runs it');
	$node->safe_psql('postgres', q{SELECT redis_export_drop('not hers', keys => true);
		REVOKE ALL ON redis_export_definition FROM mallory; REVOKE pg_write_all_data, pg_read_all_data FROM mallory;
		DROP OWNED BY mallory; DROP ROLE mallory});
};

subtest 'a definition that is older than the transaction' => sub {
	my $session = session($node);
	$session->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$session->query('SELECT count(*) FROM item');
	$node->safe_psql('postgres', q{SELECT redis_export_define('late', 'SELECT 1 AS id', 'late:#{id}', type => 'hash'); CALL redis_export_run('late')});
	$session->send(q{SELECT redis_export_drop('late', keys => true)});
	like(($session->wait)[1], qr/ERROR:  could not serialize access to the definition of the export/, 'is not dropped as if it were there');
	$session->query('ROLLBACK');
	is($redis->cli('EXISTS', 'late:1'), 1, 'nor are its keys');
	$node->safe_psql('postgres', q{SELECT redis_export_drop('late', keys => true)});
	is($redis->cli('EXISTS', 'late:1'), 0, 'another transaction drops it');

	# Two at once that would write the same keys: the second waits for the first.
	my $first = session($node);
	$first->query('BEGIN');
	$first->query(q{SELECT redis_export_define('one', 'SELECT 1 AS id', 'same:#{id}', type => 'hash')});
	my $second = session($node);
	my $pid = $second->pid;
	$second->send(q{SELECT redis_export_define('two', 'SELECT 1 AS id', 'same:#{id}', type => 'hash')});
	poll_until($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid");
	$first->query('COMMIT');
	like(($second->wait)[1], qr/ERROR:  the keys "same:#\{id\}" are those of export "one"/, 'and is refused');
	$node->safe_psql('postgres', q{SELECT redis_export_drop('one')});

	# Intervals that are equal in comparisons, and are not the same.
	$node->safe_psql('postgres', q{SELECT redis_export_define('spans', 'SELECT 1 AS id', 'span:#{id}', type => 'hash', ttl => '1 year')});
	like(($node->psql('postgres', q{SELECT redis_export_define('spans', 'SELECT 1 AS id', 'span:#{id}', type => 'hash', ttl => '360 days')}))[2],
		qr/ERROR:  export "spans" already exists/, 'a year is not 360 days');
	$node->safe_psql('postgres', q{SELECT redis_export_drop('spans')});
};

subtest 'a run that commits first reads what the caller has written' => sub {
	$node->safe_psql('postgres', q{
		CREATE TABLE own (id int);
		CREATE FUNCTION own() RETURNS SETOF int LANGUAGE sql AS 'SELECT id FROM own';
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON own DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow();
		SELECT redis_export_define('own', 'SELECT id FROM own() AS t (id)', 'own:#{id}', type => 'hash');
	});
	$node->safe_psql('postgres', "DO \$\$ $variables BEGIN INSERT INTO own VALUES (1); CALL redis_export_run('own', $into); END \$\$");
	is($redis->cli('EXISTS', 'own:1'), 1, 'its row is there, though the commit took a second');
	$node->safe_psql('postgres', q{SELECT redis_export_drop('own', keys => true); DROP TABLE own CASCADE; DROP FUNCTION own(), slow()});
};

subtest 'no row is written to the keys in which exports keep their books' => sub {
	for my $attack (q{redis_json_export($q$SELECT 'redis_export:{items}:lease' AS k, 1 AS n$q$, '#{k}', value => '*', on_error => 'ignore')},
		q{redis_hash_export($q$SELECT 'redis_export:{items}' AS k, 'me' AS id$q$, '#{k}', on_error => 'ignore')},
		q{redis_command_export($q$SELECT 'redis_export:exports' AS k$q$, ARRAY['DEL', '#{k}'], on_error => 'ignore')})
	{
		is($node->safe_psql('postgres', "SELECT state, rows_written, rows_failed FROM $attack"), 'done|0|1', 'its row fails');
	}
	like($node->safe_psql('postgres', 'SELECT message FROM redis_export_failures(' . $node->safe_psql('postgres', 'SELECT max(job) FROM redis_export_progress') . ')'),
		qr/^the key begins with "redis_export:", which is reserved/, 'and says why');
};

subtest 'roles that go' => sub {
	$node->safe_psql('postgres', q{
		CREATE ROLE carol SUPERUSER;
		SET ROLE carol;
		SELECT redis_export_define('carols', 'SELECT 1 AS id', 'carol:#{id}', type => 'hash');
		RESET ROLE;
		ALTER ROLE carol RENAME TO caroline;
	});
	like($node->safe_psql('postgres', q{CALL redis_export_run('carols')}), qr/\|done\|/, 'one that is renamed');
	$node->safe_psql('postgres', 'DROP ROLE caroline');
	like(as_role('postgres', q{CALL redis_export_run('carols')}),
		qr/^42704: the owner of export "carols" does not exist any more\nDETAIL:  .*\nHINT:  A superuser can define it anew/, 'one that is dropped');
};

subtest 'servers and tables that change' => sub {
	$node->safe_psql('postgres', sprintf(q{
		CREATE SERVER second FOREIGN DATA WRAPPER redis_export OPTIONS (host '%s', port '%s');
		CREATE TABLE part (id int, doc jsonb, gone int);
		INSERT INTO part SELECT i, '{}' FROM generate_series(1, 3) AS i;
		SELECT redis_export_define('parts', 'SELECT * FROM part', 'part:#{id}', server => 'second', value => 'doc');
		ALTER SERVER second RENAME TO third}, $redis->host, $redis->port));
	my $run = q{CALL redis_export_run('parts')};
	like(as_role('postgres', $run), qr/^42704: server "second" does not exist/, 'a server that is renamed');
	like(as_role('postgres', q{SELECT error FROM redis_exports WHERE name = 'parts'}), qr/^server "second" does not exist/, '... as the view says');
	$node->safe_psql('postgres', q{SELECT redis_export_define('parts', 'SELECT * FROM part', 'part:#{id}', server => 'third', value => 'doc', or_replace => true)});
	like(as_role('postgres', $run), qr/\|done\|3\|3\|0\|/, '... and named anew');

	$node->safe_psql('postgres', 'ALTER TABLE part DROP COLUMN gone, ADD COLUMN new int DEFAULT 1');
	like(as_role('postgres', $run), qr/\|done\|3\|0\|3\|/, 'columns come and go: a document is what it was');
	$node->safe_psql('postgres', q{ALTER TABLE part ALTER COLUMN id TYPE text USING 'x' || id});
	like(as_role('postgres', $run), qr/\|done\|3\|3\|0\|/, 'a type that changes');
	$node->safe_psql('postgres', 'ALTER TABLE part RENAME COLUMN id TO number');
	like(as_role('postgres', $run), qr/^42703: .*\bid\b/, 'a column of the key that is gone');
	$node->safe_psql('postgres', 'ALTER TABLE part RENAME COLUMN number TO id; ALTER TABLE part RENAME COLUMN doc TO document');
	like(as_role('postgres', $run), qr/^42703: .*"doc"/, 'the column of the document is gone');
	$node->safe_psql('postgres', 'DROP TABLE part');
	like(as_role('postgres', $run), qr/^42P01: relation "part" does not exist/, 'the table is gone');
	like(as_role('postgres', q{SELECT * FROM redis_export_verify('parts')}), qr/^42P01: relation "part" does not exist/, '... for verify, too');

	is(redis_keys_count($redis, 'part:*'), 6, 'its keys are there');
	is(as_role('postgres', q{SELECT redis_export_drop('parts', keys => true)}), '', 'and can be dropped without it');
	is(redis_keys_count($redis, 'part:*'), 0, '... with its keys');

	$node->safe_psql('postgres', q{SELECT redis_export_define('parts', 'SELECT 1 AS id', 'part:#{id}', server => 'third'); DROP SERVER third});
	like(as_role('postgres', q{SELECT redis_export_drop('parts')}), qr/^42704: server "third" does not exist/, 'a server that is dropped');
	like(as_role('postgres', q{SELECT redis_export_drop('parts', force => true)}), qr/WARNING:.*left there: server "third" does not exist|^$/s, '... and the export with force');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM redis_exports WHERE name = 'parts'}), 0, 'it is gone');
};

subtest 'dump and restore' => sub {
	my $dump = $node->basedir . '/dump.sql';
	$node->safe_psql('postgres', q{CALL redis_export_run('items')});
	$node->command_ok([ 'pg_dump', '--file', $dump, '--exclude-table', 'item', $node->connstr('postgres') ], 'pg_dump');
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	$node->command_ok([ 'psql', '--no-psqlrc', '--quiet', '--output', "$dump.log", '--set', 'ON_ERROR_STOP=1', '--file', $dump, $node->connstr('restored') ], 'restored');

	my $columns = q{SELECT string_agg(d::text, E'\n' ORDER BY name) FROM redis_export_definition AS d};
	is($node->safe_psql('restored', $columns), $node->safe_psql('postgres', "$columns WHERE name <> 'carols'"),
		'the definitions are those that were dumped, but for one whose owner is gone');
	$node->safe_psql('restored', 'CREATE TABLE item AS SELECT i AS id, i AS n FROM generate_series(1, 100000) AS i; UPDATE item SET n = 0 WHERE id = 1');
	like($node->safe_psql('restored', q{CALL redis_export_run('items')}), qr/\|done\|100000\|1\|99999\|/, 'one goes on with its books');
	like($node->safe_psql('restored', q{SET ROLE ann; CALL redis_export_run('things', rows => 'all')}), qr/\|done\|1\|1\|/, 'owner and settings are as they were');
	is($node->safe_psql('restored', q{SELECT count(*) FROM redis_exports WHERE name = 'items' AND state = 'done' AND keys = 100000}), 1, 'the view');
};

subtest 'exports whose owner is gone' => sub {
	my $define = q{SELECT redis_export_define('carols', 'SELECT 1 AS id', 'carol:#{id}', type => 'hash', or_replace => true)};
	like(as_role('alice', $define), qr/^42704: the owner of export "carols" does not exist any more/, 'not anybody takes one over');
	like(as_role('postgres', $define), qr/^(?!42704)/, 'a superuser does');
	like(as_role('postgres', q{CALL redis_export_run('carols')}), qr/\|done\|1\|0\|1\|/, '... with its books');
	$node->safe_psql('postgres', q{CREATE ROLE dave SUPERUSER; SET ROLE dave; SELECT redis_export_define('daves', 'SELECT 1 AS id', 'dave:#{id}', type => 'hash'); RESET ROLE; DROP ROLE dave});
	like(as_role('postgres', q{SELECT redis_export_drop('daves')}), qr/^42704: the owner of export "daves"/, 'one is dropped ...');
	is($node->safe_psql('postgres', q{SELECT redis_export_drop('daves', force => true); SELECT count(*) FROM redis_exports WHERE name = 'daves'}), "\n0", '... with force');
};

done_testing;
