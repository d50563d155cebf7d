# The background worker as the caller's stand-in: it starts or says why not, sees what the caller sees or refuses, waits for locks
# but never for its own caller, has the caller's rights and settings and no others, reads only, in parallel where the caller would,
# and knows its way into Redis.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "max_worker_processes = 16\nmax_parallel_workers = 8\n");
my $version = $node->safe_psql('postgres', 'SHOW server_version_num');
$node->safe_psql('postgres', q{
	CREATE TABLE plain AS SELECT id FROM generate_series(1, 10) id;
	CREATE VIEW plain_view AS SELECT id FROM plain;
	CREATE TABLE other AS SELECT id FROM generate_series(1, 10) id;
	CREATE TABLE parts (id int) PARTITION BY RANGE (id);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (11);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (11) TO (21);
	INSERT INTO parts SELECT generate_series(1, 20);
	CREATE TABLE hidden AS SELECT 7 AS secret;
	CREATE FUNCTION peek() RETURNS int LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN (SELECT secret FROM hidden); END $$;
	CREATE ROLE alice LOGIN;
	GRANT USAGE ON FOREIGN SERVER redis TO alice;
	GRANT EXECUTE ON FUNCTION redis_json_export TO alice});

# The error of a statement in the session, SQLSTATE included.
sub error_in
{
	my ($session, $sql) = @_;
	my (undef, $err) = $session->send("\\set VERBOSITY verbose\n$sql")->wait;
	return $err;
}

# The documents of a pattern, decoded, by key.
sub documents
{
	my ($prefix) = @_;
	my %documents;
	for my $key ($redis->cli('--scan', '--pattern', "$prefix:*"))
	{
		$documents{ $key =~ s/^\Q$prefix\E://r } = JSON::PP->new->decode(scalar $redis->cli('JSON.GET', $key));
	}
	return \%documents;
}

sub ids { return join ' ', sort { $a <=> $b } keys %{ documents(@_) } }

# The statement that exports under keys of this prefix, and waits.
sub export_to
{
	my ($prefix, $query, %arguments) = @_;
	return export_sql($query, key_template => "'$prefix:#{id}'", %arguments);
}

subtest 'no worker to be had' => sub {
	# the logical replication launcher has the other one
	my $small = new_node($redis, name => 'small', conf => "max_worker_processes = 2\n");
	my $running = start_job($small, 'SELECT id FROM generate_series(1, 10000) id', 'w:#{id}', batch => 20, rate => 100);
	until_state($small, $running, 'running');
	for my $wait ('true', 'false')
	{
		my $error = sql_error($small, export_to('never', 'SELECT 1 AS id', wait => $wait), verbose => 1);
		like($error, qr/ERROR:  53400: no background worker is free for the export\nDETAIL:  All 2 background workers of max_worker_processes.*\nHINT:  .*raise max_worker_processes/,
			"an error at once, wait => $wait");
		my $row = job($small);
		is($row->{state}, 'failed', 'the job has failed');
		like($row->{last_error}, qr/no background worker is free/, 'and says why');
		ledger_ok($small);
	}
	is(redis_keys_count($redis, 'never:*'), 0, 'nothing was sent');
	is(job($small, $running)->{state}, 'running', 'the other job goes on');
	$small->safe_psql('postgres', "SELECT redis_export_cancel($running)");
	job_ends($small, $redis, $running, state => 'canceled', keys => 'w:*');

	my $next = start_job($small, 'SELECT id FROM generate_series(1, 10) id', 'x:#{id}');
	is(job_ends($small, $redis, $next, state => 'done', keys => 'x:*')->{rows_written}, 10, 'the next export works');
	$small->stop('fast');
};

subtest 'temporary relations' => sub {
	my $session = session($node);
	$session->query(q{
		CREATE TEMP TABLE fleeting AS SELECT 1 AS id;
		CREATE TEMP TABLE other AS SELECT 2 AS id;
		CREATE TEMP VIEW plain_view AS SELECT 3 AS id;
		CREATE TEMP VIEW over AS SELECT id FROM public.plain});
	my $before = last_job($node);
	for my $query ('SELECT id FROM fleeting', 'TABLE pg_temp.fleeting', 'SELECT id FROM other', 'SELECT id FROM plain_view',
		'SELECT id FROM over', 'SELECT id FROM plain WHERE id IN (SELECT id FROM fleeting)', 'WITH f AS (TABLE fleeting) SELECT id FROM f',
		'SELECT p.id FROM plain p, LATERAL (SELECT p.id AS same FROM fleeting) f', 'SELECT 0 AS id UNION ALL SELECT id FROM fleeting')
	{
		like(error_in($session, export_to('temp', $query)),
			qr/ERROR:  0A000: cannot export from temporary relation "\w+"\nDETAIL:/, $query);
	}
	is(last_job($node), $before, 'no job was started');
	is(redis_keys_count($redis, 'temp:*'), 0, 'nothing was sent');
	$session->query('CREATE TEMP TABLE child () INHERITS (public.plain)');
	like(error_in($session, export_to('temp', 'SELECT id FROM plain')),
		qr/ERROR:  0A000: cannot export from temporary relation "child"/, 'a temporary child');
	like(session($node)->query(export_to('child', 'SELECT id FROM plain')), qr/\|done$/, 'which is nothing to other sessions');
	$session->query('DROP TABLE child');
	like($session->query(export_to('temp', 'SELECT id FROM public.other')), qr/\|done$/, 'the permanent one by its full name');
	is(ids('temp'), '1 2 3 4 5 6 7 8 9 10', 'it was');
};

subtest 'rows that are not committed' => sub {
	my $session = session($node);
	my $before = last_job($node);
	for my $case (
		[ 'INSERT', 'INSERT INTO plain VALUES (11)', 'SELECT id FROM plain' ],
		[ 'UPDATE', 'UPDATE plain SET id = 12 WHERE id = 1', 'SELECT id FROM plain' ],
		[ 'DELETE', 'DELETE FROM plain', 'SELECT id FROM plain' ],
		[ 'COPY', "COPY plain FROM PROGRAM 'echo 13'", 'SELECT id FROM plain' ],
		[ 'TRUNCATE', 'TRUNCATE plain', 'SELECT id FROM plain' ],
		[ 'CREATE TABLE', 'CREATE TABLE fresh (id int)', 'SELECT id FROM fresh' ],
		[ 'CREATE TABLE AS', 'CREATE TABLE fresh AS SELECT 1 AS id', 'SELECT id FROM fresh' ],
		[ 'through a view', 'INSERT INTO plain VALUES (11)', 'SELECT id FROM plain_view' ],
		[ 'written through a view', 'INSERT INTO plain_view VALUES (11)', 'SELECT id FROM plain' ],
		[ 'in a subquery', 'INSERT INTO plain VALUES (11)', 'SELECT id FROM other WHERE EXISTS (TABLE plain)' ],
		[ 'a partition', 'INSERT INTO parts_2 VALUES (12)', 'SELECT id FROM parts' ],
		[ 'a partition through its table', 'INSERT INTO parts VALUES (12)', 'SELECT id FROM parts_2' ],
		[ 'in a subtransaction', 'SAVEPOINT s; INSERT INTO plain VALUES (11); RELEASE s', 'SELECT id FROM plain' ])
	{
		my ($name, $write, $query) = @$case;
		$session->query("BEGIN; $write");
		like(error_in($session, export_to('uncommitted', $query)),
			qr/ERROR:  55000: cannot export from relation "\w+" in a transaction that has written to it or locked it\nDETAIL:.*\nHINT:  Commit first/, $name);
		$session->query('ROLLBACK');
	}
	is(last_job($node), $before, 'no job was started');

	$session->query('BEGIN; SAVEPOINT s; INSERT INTO plain VALUES (11); ROLLBACK TO s');
	like($session->query(export_to('rolledback', 'SELECT id FROM plain')), qr/\|done$/, 'what was rolled back is no obstacle');
	is(ids('rolledback'), '1 2 3 4 5 6 7 8 9 10', 'nor is it in Redis');
	$session->query('COMMIT; BEGIN; INSERT INTO parts_2 VALUES (12)');
	like($session->query(export_to('parts', 'SELECT id FROM parts_1')), qr/\|done$/, 'nor is another partition');
	$session->query('INSERT INTO other SELECT 11');
	like($session->query(export_to('elsewhere', 'SELECT id FROM plain')), qr/\|done$/, 'nor another table');
	$session->query('ROLLBACK; BEGIN; INSERT INTO plain VALUES (11); COMMIT');
	like($session->query(export_to('committed', 'SELECT id FROM plain')), qr/\|done$/, 'after COMMIT');
	is(ids('committed'), '1 2 3 4 5 6 7 8 9 10 11', 'it is exported');
	$session->query('DELETE FROM plain WHERE id = 11');

	my $writer = session($node);
	$writer->query('BEGIN; INSERT INTO plain VALUES (99); UPDATE plain SET id = 98 WHERE id = 1');
	like($session->query(export_to('others', 'SELECT id FROM plain')), qr/\|done$/, 'what another session has not committed is no obstacle');
	is(ids('others'), '1 2 3 4 5 6 7 8 9 10', 'and not exported');
	$writer->query('ROLLBACK');
};

my $deadlock = qr/ERROR:  40P01: the export waits for a lock that this transaction holds\nDETAIL:.*\nHINT:  Commit first/;

subtest 'a lock that the caller holds' => sub {
	my $session = session($node);
	$session->query('BEGIN; LOCK TABLE hidden IN ACCESS EXCLUSIVE MODE');
	like(error_in($session, export_to('mine', 'SELECT id, peek() FROM plain')), $deadlock, 'an error, not a deadlock');
	$session->query('ROLLBACK');
	my $row = job_ends($node, $redis, last_job($node), state => 'failed', error => qr/waits for a lock/, keys => 'mine:*');
	is($row->{rows_read}, 0, 'no row was read');

	# the same for who waits afterwards
	$session->query('BEGIN; LOCK TABLE hidden IN ACCESS EXCLUSIVE MODE');
	my $id = start_job($session, 'SELECT id, peek() FROM plain', 'mine:#{id}');
	like(error_in($session, "SELECT redis_export_wait($id)"), $deadlock, 'redis_export_wait');
	$session->query('ROLLBACK');
	is($session->query("SELECT state, rows_written FROM redis_export_wait($id)"), 'done|10', 'after that error the job goes on');
	is($session->query("SELECT count(*) FROM pg_locks WHERE relation = 'hidden'::regclass"), 0, 'no lock is left');
};

subtest 'a lock that the caller holds, behind somebody else' => sub {
	my ($session, $third) = map { session($node) } 1 .. 2;
	for my $query ('SELECT id, peek() FROM plain', 'SELECT secret AS id FROM hidden')
	{
		$session->query('BEGIN; SELECT * FROM hidden');
		$third->send('ALTER TABLE hidden ADD more int');
		poll_until($node, q{SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = } . $third->pid);
		like(error_in($session, export_to('queued', $query)), $deadlock, $query);
		$session->query('ROLLBACK');
		is(($third->wait)[1], '', 'the other goes on');
		$third->query('ALTER TABLE hidden DROP more');
		job_ends($node, $redis, last_job($node), state => 'failed', error => qr/waits for a lock/, keys => 'queued:*');
	}
};

subtest 'a lock that somebody else holds' => sub {
	my ($session, $third) = map { session($node) } 1 .. 2;
	$third->query('BEGIN; LOCK TABLE hidden IN ACCESS EXCLUSIVE MODE');
	my $id = next_job($node, sub { $session->send(export_to('theirs', 'SELECT id, peek() FROM plain')) });
	poll_until($node, q{SELECT wait_event_type = 'Lock' FROM pg_stat_activity JOIN redis_export_progress USING (pid) WHERE job = } . $id);
	sleep 2.5;    # more than one look at who blocks whom
	ok($session->busy, 'it waits');
	$third->query('COMMIT');
	is($session->wait, "$id|done", 'and goes on');
	is(job_ends($node, $redis, $id, state => 'done', keys => 'theirs:*')->{rows_written}, 10, 'to its end');

	$third->query('BEGIN; LOCK TABLE hidden IN ACCESS EXCLUSIVE MODE');
	$session->query(q{SET lock_timeout = '500 ms'});
	like(error_in($session, export_to('timeout', 'SELECT id, peek() FROM plain')), qr/ERROR:  55P03: canceling statement due to lock timeout/,
		'lock_timeout is the caller\'s');
	job_ends($node, $redis, last_job($node), state => 'failed', keys => 'timeout:*');

	$session->query('RESET lock_timeout');
	$id = start_job($session, 'SELECT id, peek() FROM plain', 'stuck:#{id}');
	poll_until($node, q{SELECT wait_event_type = 'Lock' FROM pg_stat_activity JOIN redis_export_progress USING (pid) WHERE job = } . $id);
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $redis, $id, state => 'canceled', error => qr/by role "postgres"/, keys => 'stuck:*');
	$third->query('ROLLBACK');
};

subtest 'settings' => sub {
	my $session = session($node);
	$node->safe_psql('postgres', q{CREATE SCHEMA apart; CREATE TABLE apart.plain AS SELECT 41 AS id; CREATE TABLE apart.single AS SELECT 42 AS id});
	$session->query('SET search_path = apart, public');
	$session->query(export_to('path', 'TABLE plain UNION TABLE single'));
	is(ids('path'), '41 42', 'search_path');

	$session->query(q{SET TimeZone = 'Asia/Tokyo'; SET work_mem = '77 MB'; SET "my.Own" = 'it''s "so", \ and ü'});
	$session->query('BEGIN; SET LOCAL app.local = 8');
	$session->query(export_to('set', q{SELECT name AS id, name, current_setting(name) AS v
		FROM unnest(ARRAY['TimeZone', 'work_mem', 'my.Own', 'app.local', 'search_path']) name}));
	my $set = documents('set');
	is_deeply({ map { $_ => $set->{$_}{v} } keys %$set },
		{ TimeZone => 'Asia/Tokyo', work_mem => '77MB', 'my.Own' => 'it\'s "so", \\ and ü', 'app.local' => '8', search_path => 'apart, public' },
		'what the session has set, locally too') or diag explain $set;
	$session->query('ROLLBACK');

	# Settings of the role that the session does not have: it is older, or became this role only by SET SESSION AUTHORIZATION.
	$node->safe_psql('postgres', q{
		GRANT USAGE ON SCHEMA apart TO alice;
		GRANT SELECT ON plain, apart.plain TO alice;
		ALTER ROLE alice SET search_path = apart, public;
		ALTER ROLE alice SET app.tenant_id = '7';
		ALTER ROLE alice SET work_mem = '66MB'});
	my $older = session($node);
	$older->query('SET SESSION AUTHORIZATION alice');
	is($older->query('SELECT count(*) FROM plain'), 10, 'the session has another search_path than the role');
	$older->query(export_to('older', q{SELECT id, current_setting('work_mem') AS w, current_setting('app.tenant_id', true) AS t FROM plain}));
	is(ids('older'), '1 2 3 4 5 6 7 8 9 10', 'and so has the worker');
	is_deeply([ grep { $_->{w} ne '4MB' || ($_->{t} // '') ne '' } values %{ documents('older') } ], [], 'no setting of the role either');
	my $newer = session($node, user => 'alice');
	$newer->query(export_to('newer', q{SELECT id, current_setting('work_mem') AS w, current_setting('app.tenant_id') AS t FROM plain}));
	is_deeply(documents('newer'), { 41 => { id => 41, w => '66MB', t => '7' } }, 'which a session of the role has');
	$node->safe_psql('postgres', 'ALTER ROLE alice RESET ALL');
};

subtest 'row-level security' => sub {
	$node->safe_psql('postgres', q{
		CREATE TABLE owned AS SELECT id, id % 3 AS tenant FROM generate_series(1, 9) id;
		ALTER TABLE owned ENABLE ROW LEVEL SECURITY;
		CREATE POLICY tenants ON owned USING (tenant = current_setting('app.tenant_id')::int);
		GRANT SELECT ON owned TO alice});
	my $export = sub { return export_to($_[0], 'SELECT id FROM owned') };

	my $session = session($node);
	$session->query('SET ROLE alice; BEGIN; SET LOCAL app.tenant_id = 2');
	$session->query($export->('tenant2'));
	is(ids('tenant2'), '2 5 8', 'SET ROLE and SET LOCAL');
	is(job($node)->{usename}, 'alice', 'it is the role\'s job');
	$session->query(export_to('role', q{SELECT 1 AS id, current_user AS now, session_user AS session, current_setting('role') AS role}));
	is_deeply(documents('role'), { 1 => { id => 1, now => 'alice', session => 'postgres', role => 'alice' } }, 'its user, session user and role');
	$session->query('ROLLBACK; SET app.tenant_id = 1');
	$session->query($export->('tenant1'));
	is(ids('tenant1'), '1 4 7', 'another tenant');
	$session->query('RESET ROLE');
	$session->query($export->('all'));
	is(ids('all'), '1 2 3 4 5 6 7 8 9', 'a superuser has no policies');

	my $alice = session($node, user => 'alice');
	like(error_in($alice, $export->('none')), qr/ERROR:  42704: unrecognized configuration parameter "app.tenant_id"/, 'a session without a tenant');
	is(redis_keys_count($redis, 'none:*'), 0, 'gets nothing');
	$alice->query('SET app.tenant_id = 0');
	$alice->query($export->('tenant0'));
	is(ids('tenant0'), '3 6 9', 'a session of the role itself');
	$alice->query('SET row_security = off');
	like(error_in($alice, $export->('off')), qr/ERROR:  42501: query would be affected by row-level security policy/, 'row_security = off');
	like(error_in($alice, export_to('denied', 'SELECT secret AS id FROM hidden')), qr/ERROR:  42501: permission denied for table hidden/, 'no rights, no rows');
};

# The session is a superuser's, and the query that of somebody with less rights: nothing in it may get back to the superuser's.
subtest 'no way back to the rights of the session' => sub {
	$node->safe_psql('postgres', q{
		GRANT CREATE ON SCHEMA public TO alice;
		SET ROLE alice;
		CREATE FUNCTION by_alice(query text, prefix text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS
			$$ BEGIN RETURN (redis_json_export(query, prefix || ':#{id}')).state; END $$;
		CREATE FUNCTION by_set_config() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN PERFORM set_config('role', 'postgres', false); RETURN (SELECT secret FROM hidden); END $$;
		CREATE FUNCTION by_none() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN PERFORM set_config('role', 'none', false); RETURN (SELECT secret FROM hidden); END $$;
		CREATE FUNCTION by_reset() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN EXECUTE 'RESET ROLE'; RETURN (SELECT secret FROM hidden); END $$;
		CREATE FUNCTION by_set_role() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN EXECUTE 'SET ROLE postgres'; RETURN (SELECT secret FROM hidden); END $$;
		CREATE FUNCTION by_authorization() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN EXECUTE 'SET SESSION AUTHORIZATION postgres'; RETURN (SELECT secret FROM hidden); END $$;
		CREATE FUNCTION by_default() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN EXECUTE 'RESET SESSION AUTHORIZATION'; RETURN (SELECT secret FROM hidden); END $$;
		CREATE FUNCTION by_authorization_config() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN PERFORM set_config('session_authorization', 'postgres', false); RETURN (SELECT secret FROM hidden); END $$;
		CREATE FUNCTION after_error() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN
				BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END;
				BEGIN EXECUTE 'RESET ROLE'; EXCEPTION WHEN insufficient_privilege THEN NULL; END;
				RETURN (SELECT secret FROM hidden);
			END $$});
	my $session = session($node);
	$session->query(q{SELECT by_alice('SELECT 1 AS id, current_user AS now, session_user AS session', 'who')});
	is_deeply(documents('who'), { 1 => { id => 1, now => 'alice', session => 'postgres' } }, 'a SECURITY DEFINER function exports as its owner');
	is(job($node)->{usename}, 'alice', 'as the view says');
	like(error_in($session, q{SELECT by_alice('SELECT secret AS id FROM hidden', 'stolen')}), qr/ERROR:  42501: permission denied for table hidden/,
		'whose rights it has');
	$session->query('SET ROLE alice');
	for my $way (qw(by_set_config by_none by_reset by_set_role by_authorization by_default by_authorization_config after_error))
	{
		$session->query('RESET ROLE');
		like(error_in($session, "SELECT by_alice('SELECT 1 AS id, $way() AS secret', 'stolen')"), qr/ERROR:  42501: /, "$way in a SECURITY DEFINER function");
		$session->query('SET ROLE alice');
		like(error_in($session, export_to('stolen', "SELECT 1 AS id, $way() AS secret")), qr/ERROR:  42501: /, "$way after SET ROLE");
	}
	is(redis_keys_count($redis, 'stolen:*'), 0, 'nothing got out');
	no_worker_left($node);
};

subtest 'a session user who cannot log in' => sub {
	$node->safe_psql('postgres', q{
		CREATE ROLE nologin NOLOGIN;
		GRANT USAGE ON FOREIGN SERVER redis TO nologin;
		GRANT EXECUTE ON FUNCTION redis_json_export TO nologin});
	my $session = session($node);
	$session->query('SET SESSION AUTHORIZATION nologin');
	if ($version >= 170000)
	{
		like($session->query(export_to('nologin', 'SELECT 1 AS id')), qr/\|done$/, 'it works all the same');
	}
	else
	{
		like(error_in($session, export_to('nologin', 'SELECT 1 AS id')),
			qr/ERROR:  28000: cannot export as session user "nologin".*\nHINT:  Use SET ROLE/, 'an error with a hint');
		$session->query('RESET SESSION AUTHORIZATION; SET ROLE nologin');
		like($session->query(export_to('nologin', 'SELECT 1 AS id')), qr/\|done$/, 'which helps');
	}
	is(ids('nologin'), '1', 'it is in Redis');
};

# Who locks the settings of roles and databases holds up a worker that connects.
subtest 'rights that are lost before the worker starts' => sub {
	my ($lock, $alice, $admin) = (session($node), session($node, user => 'alice'), session($node));
	$_->query('SELECT count(*) FROM redis_export_progress') for $alice, $admin;
	$lock->query('BEGIN; LOCK TABLE pg_db_role_setting IN ACCESS EXCLUSIVE MODE');
	my $id = start_job($alice, 'SELECT 1 AS id', 'revoked:#{id}');
	session_poll($admin, "SELECT pid IS NOT NULL FROM redis_export_progress WHERE job = $id");
	$admin->query('REVOKE USAGE ON FOREIGN SERVER redis FROM alice');
	$lock->query('ROLLBACK');
	job_ends($node, $redis, $id, state => 'failed', error => qr/^permission denied for foreign server redis$/, keys => 'revoked:*');
	is(redis_keys_count($redis, 'revoked:*'), 0, 'nothing was sent');
	like(error_in($alice, export_to('revoked', 'SELECT 1 AS id')), qr/ERROR:  42501: permission denied for foreign server redis/, 'nor is it the next time');
	$admin->query('GRANT USAGE ON FOREIGN SERVER redis TO alice');
};

subtest 'a query that writes' => sub {
	$node->safe_psql('postgres', q{
		CREATE SEQUENCE counter;
		CREATE FUNCTION writes() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO other VALUES (77); RETURN 1; END $$;
		CREATE FUNCTION sneaks() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN PERFORM set_config('transaction_read_only', 'off', true); INSERT INTO other VALUES (78); RETURN 1; END $$});
	for my $call (q{nextval('counter')}, 'writes()', 'sneaks()', q{setval('counter', 5)})
	{
		like(sql_error($node, export_to('writes', "SELECT 1 AS id, $call AS v"), verbose => 1), qr/ERROR:  25(006|001): /, $call);
		job_ends($node, $redis, last_job($node), state => 'failed');
	}
	is($node->safe_psql('postgres', q{SELECT last_value, is_called FROM counter}), '1|f', 'the sequence is where it was');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM other WHERE id > 70}), 0, 'nothing was written');
	is(redis_keys_count($redis, 'writes:*'), 0, 'neither here nor there');
};

# With the leader only gathering, each row comes from a parallel worker, or there was none.
subtest 'parallel plans' => sub {
	$node->safe_psql('postgres', q{
		CREATE TABLE large AS SELECT id FROM generate_series(1, 3000) id;
		ANALYZE large;
		CREATE FUNCTION whose_process() RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN pg_backend_pid(); END $$});
	my $whose = 'SELECT *, pg_backend_pid() AS leader FROM (SELECT id, whose_process() AS process, current_user AS now FROM large WHERE id % 30 = 0 OFFSET 0) s';
	my $session = session($node);
	$session->query(q{
		SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
		SET parallel_leader_participation = off});
	$session->query(export_to('parallel', $whose));
	my $rows = documents('parallel');
	is(scalar keys %$rows, 100, 'all rows');
	is(scalar(grep { $_->{process} == $_->{leader} } values %$rows), 0, 'none was read by the leader');
	job_ends($node, $redis, last_job($node), state => 'done', keys => 'parallel:*');

	$session->query('SET max_parallel_workers_per_gather = 0');
	$session->query(export_to('serial', $whose));
	$rows = documents('serial');
	is(scalar(grep { $_->{process} == $_->{leader} } values %$rows), 100, 'all are where the session wants no parallel plan');
	$session->query('RESET max_parallel_workers_per_gather');

	# a parallel worker has the fenced-in rights too
	$node->safe_psql('postgres', q{
		GRANT SELECT ON large TO alice;
		CREATE FUNCTION parallel_escape() RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS
			$$ BEGIN PERFORM set_config('role', 'none', false); RETURN (SELECT secret FROM hidden); END $$});
	$session->query('SET ROLE alice');
	$session->query(export_to('asalice', $whose));
	$rows = documents('asalice');
	is(scalar(grep { $_->{now} eq 'alice' && $_->{process} != $_->{leader} } values %$rows), 100, 'with a role set');
	unlike(error_in($session, export_to('escaped', 'SELECT id, parallel_escape() AS s FROM large')), qr/^$/, 'no way out of a parallel worker');
	is(redis_keys_count($redis, 'escaped:*'), 0, 'nothing got out');
};

subtest 'the way into Redis' => sub {
	my $guarded = RedisExport::Redis->new(conf => { requirepass => 'hush-hush', user => 'app on >s3cret ~* &* +@all' });
	my $in = sub { return scalar $guarded->cli('-n', $_[0], 'DBSIZE') };
	my $session = session($node);
	my $export = sub {
		my ($server, $prefix) = @_;
		return export_to($prefix, 'SELECT id FROM plain', server => "'$server'");
	};

	add_server($node, $redis, name => 'socket', host => $redis->socket);
	$session->query($export->('socket', 'socket'));
	is(ids('socket'), '1 2 3 4 5 6 7 8 9 10', 'a Unix socket as host');

	add_server($node, $guarded, name => 'guarded', db => 3, client_name => 'my_exports');
	like(error_in($session, $export->('guarded', 'shut')), qr/ERROR:  28\w{3}: .*NOAUTH/, 'no password');
	$session->query(q{CREATE USER MAPPING FOR CURRENT_USER SERVER guarded OPTIONS (password 'wrong')});
	like(error_in($session, $export->('guarded', 'shut')), qr/ERROR:  28P01: .*WRONGPASS/, 'a wrong one');
	is($in->(3), 0, 'nothing was sent');
	$session->query(q{ALTER USER MAPPING FOR CURRENT_USER SERVER guarded OPTIONS (SET password 'hush-hush')});
	$session->query($export->('guarded', 'open'));
	is($in->(3), 10, 'a password; the rows are in database 3');
	is($in->(0), 0, 'and not in database 0');

	$session->query(q{ALTER USER MAPPING FOR CURRENT_USER SERVER guarded OPTIONS (ADD username 'app')});
	like(error_in($session, $export->('guarded', 'named')), qr/ERROR:  28P01: .*WRONGPASS/, 'a user name with the other\'s password');
	$session->query(q{ALTER USER MAPPING FOR CURRENT_USER SERVER guarded OPTIONS (SET password 's3cret')});
	my $id = start_job($node, 'SELECT id FROM generate_series(1, 1000) id', 'named:#{id}', server => q{'guarded'}, rate => 100, batch => 10);
	until_written($node, $id, 10);
	like($guarded->cli('CLIENT', 'LIST'), qr/ name=my_exports .* db=3 .* user=app /, 'user name, database and client name, as Redis sees them');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	my $row = job_ends($node, $guarded, $id, state => 'canceled');
	is($in->(3), 10 + $row->{rows_written} + $row->{rows_in_doubt}, 'its rows are there');
	unlike($guarded->cli('CLIENT', 'LIST'), qr/my_exports/, 'no connection is left');

	$id = start_job($node, 'SELECT id FROM generate_series(1, 1000) id', 'named:#{id}', rate => 100, batch => 10);
	until_written($node, $id, 10);
	like($redis->cli('CLIENT', 'LIST'), qr/ name=redis_export /, 'the client name unless another is set');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $redis, $id, state => 'canceled', keys => 'named:*');

	unlike(slurp_file($node->logfile) =~ s/^.*USER MAPPING.*$//gmr, qr/hush-hush|s3cret/, 'no password in the server\'s log');
};

# The session has loaded the library, and then another version of it is installed: here one whose arguments have another format.
subtest 'a worker of another version' => sub {
	my $session = session($node);
	my $export = export_sql('SELECT id FROM plain', key_template => q{'plain:#{id}'});
	like($session->query($export), qr/\|done$/, 'the session has the library');
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $library = $node->safe_psql('postgres', q{SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'}) . '/redis_export.so';
	my $bytes = slurp_file($library);
	is($bytes =~ s/redis_export payload \d+\0/redis_export payload X\0/g, 1, 'the format of the arguments is named in it');
	open(my $out, '>:raw', "$dir/redis_export.so") or die $!;
	print $out $bytes;
	close $out;
	$node->safe_psql('postgres', $_) for "ALTER SYSTEM SET dynamic_library_path = '$dir:\$libdir'", 'SELECT pg_reload_conf()';
	poll_until($node, "SELECT current_setting('dynamic_library_path') LIKE '$dir%'");
	like(error_in($session, $export), qr/ERROR:  55000: the session that started the export has loaded another version of redis_export\n.*HINT:  Connect again\./s, 'is told');
	$node->safe_psql('postgres', $_) for 'ALTER SYSTEM RESET dynamic_library_path', 'SELECT pg_reload_conf()';
	poll_until($node, q{SELECT current_setting('dynamic_library_path') = '$libdir'});
	like($session->query($export), qr/\|done$/, 'and the same session goes on when it fits');
};

done_testing;
