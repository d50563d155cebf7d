# wait_index: the job ends when an index of Redis' search has taken everything, or says why it cannot; whatever happens to Redis, the
# index or the caller meanwhile, rows that are written stay counted. And redis_export_preview, which sends nothing, and what of all this
# is for whom.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Fake;
use RedisExport::Jobs;
use File::Path qw(remove_tree);

my $redis = RedisExport::Redis->new(conf => { appendonly => 'yes', appendfsync => 'no' });
my $node = new_node($redis, allows_streaming => 1, conf => "redis_export.notice_interval = 0\n");
my $session = session($node);

# So many hashes d:1 and so on; the first is number $from.
sub index_sql
{
	my ($from, $count, %arguments) = @_;
	my $more = join '', map { ", $_ => $arguments{$_}" } sort keys %arguments;
	return "SELECT job, state FROM redis_hash_export('SELECT i AS id, ''some words'' AS t, i AS n FROM generate_series($from, $from + $count - 1) AS i', "
		. "'d:#{id}', wait_index => 'idx'$more)";
}

sub start { my (@arguments) = @_; return next_job($node, sub { $session->send(index_sql(@arguments)) }) }
sub error_of_session { return ($session->wait)[1] }

#
# A real index, filled in the background
#

my $documents = 20_000;
my $words = q{
	local words = {}
	for j = 1, 100 do words[j] = 'w' .. ((i * 7919 + j * 104729) % 50021) end
	redis.call('HSET', 'd:' .. i, 't', table.concat(words, ' '), 'n', i)};

sub fill { my ($count) = @_; return $redis->cli('EVAL', "for i = 1, ARGV[1] do $words end", 0, $count) }

sub make_index
{
	$redis->cli('FT.DROPINDEX', 'idx');
	return $redis->cli(qw(FT.CREATE idx ON HASH PREFIX 1 d: SCHEMA t TEXT n NUMERIC));
}

sub index_value
{
	my ($name) = @_;
	my @lines = $redis->cli('FT.INFO', 'idx');
	for my $i (0 .. $#lines - 1)
	{
		return $lines[ $i + 1 ] if $lines[$i] eq $name;
	}
	return undef;
}

subtest 'an index that is being filled: seen, cancelled, and Redis killed meanwhile' => sub {
	fill($documents);
	is(make_index(), 'OK', 'an index over documents that are there');
	my $other = start_job_of($documents + 1);
	my $id = start($documents + 2, 5);
	until_state($node, $_, 'indexing') for $id, $other;
	my $job = job($node, $id);
	is("$job->{rows_read} $job->{rows_written} $job->{index_failures}", '5 5 0', 'indexing: all rows are written') or diag explain $job;
	is($job->{finished_at}, undef, 'and the job goes on');

	is($node->safe_psql('postgres', "SELECT redis_export_cancel($id)"), 't', 'it is cancelled');
	like(error_of_session(), qr/ERROR:  the export was canceled by role.*DETAIL:  Export job $id: 5 rows read, 5 written, 0 failed, 0 in doubt/s, 'an error');
	is(index_value('indexing'), 1, 'the index is not there yet');
	is(job($node, $other)->{state}, 'indexing', 'another job still waits for it');
	is(job($node, $id)->{state}, 'canceled', 'this one has ended');
	ledger_ok($node, $id);

	$redis->kill9;
	until_state($node, $other, 'retrying');
	$redis->start;
	until_state($node, $other, 'indexing');

	# Redis fills an index when it has nothing else to do, which on a busy machine takes minutes: leave it less.
	$redis->cli('EVAL', q{for i = 101, ARGV[1] do redis.call('DEL', 'd:' .. i) end return 1}, 0, $documents);
	$job = job_ends_here($other, 'done', rows_written => 1, redis_restarts => 1, index_failures => 0);
	is(index_value('percent_indexed'), 1, 'it ends when the index is there again');
	is(($redis->cli(qw(FT.SEARCH idx * LIMIT 0 0)))[0], scalar $redis->cli('DBSIZE'), 'with everything');
};

# A job of one row that nobody waits for.
sub start_job_of
{
	my ($from) = @_;
	return $node->safe_psql('postgres', index_sql($from, 1, wait => 'false')) =~ s/\|.*//r;
}

# Looks at the job's end; Redis may not be there.
sub job_ends_here
{
	my ($id, $state, %expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $job = job_ends($node, $redis, $id, state => $state, error => delete $expected{error} // qr/^/);
	is($job->{$_}, $expected{$_}, "$_ is $expected{$_}") for sort keys %expected;
	return $job;
}

subtest 'an index that is dropped, or lost, while it is filled' => sub {
	fill(10_000);
	make_index();
	my $id = start($documents + 10, 3);
	until_state($node, $id, 'indexing');
	$redis->cli('FT.DROPINDEX', 'idx');
	like(error_of_session(), qr/ERROR:  could not look at index "idx": Redis answered: Unknown index name.*DETAIL:  Export job $id: 3 rows read, 3 written/s, 'dropped: an error');
	job_ends_here($id, 'failed', error => qr/Unknown index name/, rows_written => 3);

	make_index();
	$id = start($documents + 20, 3);
	until_state($node, $id, 'indexing');
	$redis->kill9;
	remove_tree($redis->dir . '/appendonlydir');
	$redis->start;
	my $err = error_of_session();
	like($err, qr/ERROR:  could not look at index "idx": Redis answered: Unknown index name/, 'lost with all data: an error');
	job_ends_here($id, 'failed', rows_written => 3, redis_restarts => 1);

	# not there at the start: no row is written
	like(sql_error($node, index_sql(1, 3), verbose => 1), qr/ERROR:  38000: could not look at index "idx": .*HINT:  wait_index names an index that is there/s, 'none: an error at once');
	job_ends_here(last_job($node), 'failed', rows_read => 0);
	is($redis->cli('DBSIZE'), 0, 'with nothing written');
};

subtest 'a frozen Redis, while indexing' => sub {
	fill(10_000);
	make_index();
	my $id = start($documents, 3);
	until_state($node, $id, 'indexing');
	$redis->freeze;
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	like(error_of_session(), qr/ERROR:  the export was canceled/, 'cancelled');
	job_ends_here($id, 'canceled', rows_written => 3);
	$redis->thaw;
};

subtest 'users of Redis who may not look' => sub {
	$redis->cli('FLUSHALL');
	make_index();
	$redis->cli(qw(ACL SETUSER blind on >pw ~* +@all -ft.info));
	add_server($node, $redis, name => 'blind');
	$node->safe_psql('postgres', q{CREATE USER MAPPING FOR CURRENT_USER SERVER blind OPTIONS (username 'blind', password 'pw')});
	like(sql_error($node, index_sql(1, 3, server => q{'blind'}), verbose => 1), qr/ERROR:  42501: could not look at index "idx": Redis answered: NOPERM .*HINT:  Grant the Redis user/s, 'an error at once');
	job_ends_here(last_job($node), 'failed', rows_read => 0);
	is($redis->cli('DBSIZE'), 0, 'with nothing written');

	# taken away while the query runs
	$redis->cli(qw(ACL SETUSER blind +ft.info));
	my $holder = session($node);
	$holder->query('SELECT pg_advisory_lock(1)');
	my $id = next_job($node, sub {
		$session->send(q{SELECT job FROM redis_hash_export('SELECT i AS id FROM generate_series(1, 2000) AS i WHERE i < 2000 OR pg_advisory_xact_lock_shared(1) IS NOT NULL',
			'd:#{id}', server => 'blind', batch => 100, wait_index => 'idx')});
	});
	until_written($node, $id, 1000);
	$redis->cli(qw(ACL SETUSER blind -ft.info));
	$holder->query('SELECT pg_advisory_unlock(1)');
	like(error_of_session(), qr/ERROR:  could not look at index "idx": Redis answered: NOPERM .*DETAIL:  Export job $id: 2000 rows read, 2000 written/s, 'an error at the end');
	job_ends_here($id, 'failed', rows_written => 2000);
	is($redis->cli('DBSIZE'), 2000, 'all rows are there');
	$holder->quit;
};

subtest 'what the index refuses' => sub {
	my $refused = sub {
		my ($from, $to, $text) = @_;
		return "SELECT state, index_failures, last_error FROM redis_hash_export('SELECT i AS id, ''$text'' AS n FROM generate_series($from, $to) AS i', 'd:#{id}', wait_index => 'idx')";
	};
	$redis->cli('FLUSHALL');
	make_index();
	my ($out, $err) = $session->send($refused->(1, 30, 'no number'))->wait;
	like($out, qr/^done\|30\|index "idx" refused the document of key "d:\d+": .*no number/s, 'is counted, and the last of it told');
	like($err, qr/WARNING:  an index of Redis refused documents 30 times during export job \d+$/m, 'with a warning to who waits');
	job_ends_here(last_job($node), 'done', rows_written => 30, rows_failed => 0, index_failures => 30);
	($out, $err) = $session->send($refused->(31, 40, '7'))->wait;
	is("$out$err", 'done|0|', 'the next job has nothing of it');

	# a job that nobody waits for, and what redis_export_wait says of it
	my $id = $session->query($refused->(41, 43, 'none') =~ s/state, index_failures, last_error/job/r =~ s/'idx'\)$/'idx', wait => false)/r);
	($out, $err) = $session->send("SELECT state, index_failures FROM redis_export_wait($id)")->wait;
	is($out, 'done|3', 'redis_export_wait');
};

#
# An index that is as a fake Redis says
#

sub resp { return join '', map { ref $_ ? '*' . @$_ . "\r\n" . resp(@$_) : '$' . length($_) . "\r\n$_\r\n" } @_ }

# FT.INFO's answer, without its last \r\n.
sub info
{
	my (%is) = (indexing => 1, percent => '0.5', failures => 0, error => 'N/A', key => 'N/A', @_);
	return resp([ index_name => 'idx', attributes => [ [ 'identifier', 't' ] ], hash_indexing_failures => $is{failures}, indexing => $is{indexing}, percent_indexed => $is{percent},
		'Index Errors' => [ 'indexing failures' => $is{failures}, 'last indexing error' => $is{error}, 'last indexing error key' => $is{key} ] ]) =~ s/\r\n\z//r;
}
my @complete = (indexing => 0, percent => 1);

# A fake Redis; the sub answers FT.INFO, and is told how often it was asked before.
sub fake_index
{
	my ($sub, %options) = @_;
	my $fake = RedisExport::Fake->new(sub {
		my ($fake, $client, $name) = @_;
		return $name eq 'FT.INFO' ? $sub->($fake, $client, $fake->{asked}++) : ':2';
	});
	my $name = 'fake_' . $fake->port;
	add_server($node, $fake, name => $name, %options);
	return ($fake, "'$name'");
}

subtest 'who waits for an index that is never there' => sub {
	my ($fake, $server) = fake_index(sub { return info() });
	my %ends = (
		pg_cancel_backend => [ 'canceled', qr/ERROR:  canceling statement due to user request/ ],
		pg_terminate_backend => [ 'canceled', qr/FATAL:  terminating connection due to administrator command/ ],
		'of the worker' => [ 'failed', qr/ERROR:  terminating background worker/ ],
		statement_timeout => [ 'canceled', qr/ERROR:  canceling statement due to statement timeout/ ],
		'the client goes away' => [ 'canceled', qr/^/ ],
	);
	for my $how (sort keys %ends)
	{
		my ($state, $message) = @{ $ends{$how} };
		my $waiting = session($node);
		$waiting->query(q{SET client_connection_check_interval = '100ms'});
		$waiting->query(q{SET statement_timeout = '1s'}) if $how eq 'statement_timeout';
		my $id = next_job($node, sub { $waiting->send(index_sql(1, 10, server => $server)) });
		poll_until($node, "SELECT state = 'indexing' OR finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
		$node->safe_psql('postgres', "SELECT $how(@{[ $waiting->pid ]})") if $how =~ /^pg_/;
		$node->safe_psql('postgres', "SELECT pg_terminate_backend(@{[ job($node, $id)->{pid} ]})") if $how =~ /worker/;
		$waiting->kill_client if $how =~ /client/;
		like(($waiting->wait)[1], $message, "$how: the session") if $how !~ /client/;
		job_ends_here($id, $state, rows_written => 10);
		$waiting->quit if $how !~ /client|terminate/;
	}

	# the worker's own, when nobody waits
	my $id = $node->safe_psql('postgres', "SET statement_timeout = '1s';" . index_sql(1, 10, server => $server, wait => 'false')) =~ s/\|.*//r;
	job_ends_here($id, 'canceled', error => qr/canceling statement due to statement timeout/, rows_written => 10);

	# a Redis that goes away for good
	$id = start(1, 10, server => $server, retry_timeout => q{'3 s'});
	until_state($node, $id, 'indexing');
	$fake->stop;
	like(error_of_session(), qr/ERROR:  gave up after no row was acknowledged for [\d.]+ seconds: could not connect/, 'a Redis that goes away for good: an error');
	job_ends_here($id, 'failed', rows_written => 10);
};

subtest 'answers to FT.INFO' => sub {
	# Each comes once: when it is asked for the first time, at the start, or the third, while indexing.
	for my $case ([ '-BUSY Redis is busy running a script', 0, 2 ], [ '-LOADING Redis is loading the dataset in memory', 2 ], [ '-OOM command not allowed', 2 ],
		[ CLOSE, 0, 2 ], [ undef, 2 ])
	{
		my ($answer, @times) = @$case;
		for my $time (@times)
		{
			my ($fake, $server) = fake_index(sub {
				my ($fake, $client, $asked) = @_;
				return $asked == $time ? $answer : info($asked > 2 ? @complete : ());
			}, timeout => 0.5);
			my (undef, $err) = $session->send(index_sql(1, 10, server => $server))->wait;
			like($err, qr/WARNING:  export job \d+ tries again: /, ($time ? 'while indexing: ' : 'at the start: ') . ($answer // 'silence') =~ s/\0//r);
			job_ends_here(last_job($node), 'done', rows_written => 10, index_failures => 0);
			is(scalar(() = $fake->commands('HSET')), 10, 'and nothing is sent twice');
		}
	}
	my ($fake, $server) = fake_index(sub { return $_[2] ? '?what' : info() });
	like(sql_error($node, index_sql(1, 10, server => $server), verbose => 1), qr/ERROR:  08P01: /, 'no RESP: an error');
	job_ends_here(last_job($node), 'failed', rows_written => 10);
};

subtest 'failures that rise while indexing, from what they were' => sub {
	my ($fake, $server) = fake_index(sub {
		my ($fake, $client, $asked) = @_;
		return info(failures => 3) if $asked == 0;
		return info(failures => 5, error => 'no number', key => 'd:4') if !$fake->flag('go');
		return info(failures => 1, error => 'anew', key => "d:\r\n5", $fake->{gone}++ ? @complete : ());
	});
	my $id = start(1, 10, server => $server);
	poll_until($node, "SELECT index_failures = 2 AND last_error = 'index \"idx\" refused the document of key \"d:4\": no number' FROM redis_export_progress WHERE job = $id");
	pass('the view shows them');
	$fake->raise('go');
	like(error_of_session(), qr/WARNING:  an index of Redis refused documents 3 times during export job $id\n.*DETAIL: /s, 'an index that is made anew counts from zero: a warning');
	job_ends_here($id, 'done', rows_written => 10, index_failures => 3);
};

#
# redis_export_preview
#

my @previews = (
	q{'SELECT i AS id, i AS n FROM generate_series(1, 3) AS i', 'h:#{id}'},
	q{'SELECT i AS id, i AS n FROM generate_series(1, 3) AS i', 'h:#{id}', type => 'hash', replace => true, ttl => '1 hour'},
	q{'SELECT i AS id, i AS n FROM generate_series(1, 3) AS i', ARRAY['XADD', 's', '*', 'n', '#{n}'], ttl_column => 'id', on_null => 'skip'},
);

subtest 'preview: nothing reaches Redis' => sub {
	my $fake = RedisExport::Fake->new(all => sub {
		my ($fake, $client) = @_;
		$fake->raise('contact');
		return '+OK';
	});
	add_server($node, $fake, name => 'watched');
	my $jobs = last_job($node);
	for my $arguments (@previews)
	{
		my $preview = "SELECT count(*) FROM redis_export_preview($arguments, server => 'watched')";
		cmp_ok($session->query($preview), '>=', 3, 'the commands are shown');
		$session->query('BEGIN; CREATE TABLE IF NOT EXISTS kept (id int); INSERT INTO kept VALUES (1)');
		cmp_ok($session->query($preview), '>=', 3, 'within a transaction that has written');
		$session->query('SAVEPOINT a');
		my (undef, $err) = $session->send("SELECT * FROM redis_export_preview('SELECT 1 / (i - 2) AS id FROM generate_series(1, 3) AS i', 'h:#{id}', server => 'watched')")->wait;
		like($err, qr/ERROR:  division by zero/, 'an error in the query');
		$session->query('ROLLBACK TO a; INSERT INTO kept VALUES (2); COMMIT');
		is($session->query('SELECT count(*) FROM kept'), 2, 'leaves the transaction to what it was');
		$session->query('DROP TABLE kept');
	}
	is(last_job($node), $jobs, 'there was no job');
	ok(!$fake->flag('contact') && !$fake->commands, 'nor a word to Redis');
	$session->query(q{SELECT redis_command('watched', 'PING')});
	ok($fake->flag('contact'), '(which would have been seen)');

	my $stats = sub { join "\n", grep { !/cmdstat_info/ } $redis->cli('INFO', 'commandstats') };
	my $connections = sub { $redis->info('total_connections_received') };
	my ($before, $count) = ($stats->(), $connections->());
	$session->query("SELECT * FROM redis_export_preview($_)") for @previews;
	is($connections->(), $count + 1, 'a real Redis has seen none but the one that looks');
	is($stats->(), $before, 'and no command');

	# that a reading statement is, no other
	$session->query('CREATE TABLE unchanged (id int); CREATE FUNCTION change() RETURNS int LANGUAGE sql AS $$ INSERT INTO unchanged VALUES (1) RETURNING id $$');
	like(sql_error($node, q{SELECT * FROM redis_export_preview('SELECT change() AS id', 'h:#{id}')}, verbose => 1), qr/ERROR:  25006: /, 'a query that writes is refused');
	is($session->query('SELECT count(*) FROM unchanged'), 0, 'and writes nothing');
};

subtest 'preview: cancelled' => sub {
	my $slow = q{SELECT * FROM redis_export_preview('SELECT pg_sleep(1000) IS NULL AS id', 'h:#{id}')};
	like(sql_error($node, "SET statement_timeout = '200ms'; $slow", verbose => 1), qr/ERROR:  57014: /, 'by statement_timeout');
	$session->send($slow);
	poll_until($node, "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = @{[ $session->pid ]}");
	$node->safe_psql('postgres', "SELECT pg_cancel_backend(@{[ $session->pid ]})");
	like(error_of_session(), qr/ERROR:  canceling statement due to user request/, 'by pg_cancel_backend');
	is($session->query("SELECT count(*) FROM redis_export_preview($previews[0])"), 3, 'the session goes on');
};

subtest 'preview: on a replica' => sub {
	$node->safe_psql('postgres', 'CREATE TABLE few AS SELECT i AS id FROM generate_series(1, 7) AS i');
	$node->backup('base');
	my $replica = PostgreSQL::Test::Cluster->new('replica');
	$replica->init_from_backup($node, 'base', has_streaming => 1);
	$replica->start;
	$node->wait_for_catchup($replica);
	my $before = $redis->info('total_connections_received');
	is($replica->safe_psql('postgres', q{SELECT count(*) FROM redis_export_preview('SELECT * FROM few', 'h:#{id}', type => 'hash', rows => 100)}), 7, 'it works');
	is($replica->safe_psql('postgres', q{BEGIN; SELECT count(*) FROM redis_export_preview('SELECT * FROM few', ARRAY['DEL', 'h:#{id}']); SELECT count(*) FROM few; COMMIT}),
		"5\n7", 'in a transaction');
	is($redis->info('total_connections_received') - $before, 1, 'and reaches nobody');
	$replica->stop;
};

#
# What is for whom
#

subtest 'preview: rights' => sub {
	$node->safe_psql('postgres', q{
		CREATE ROLE stranger LOGIN;
		CREATE TABLE secret AS SELECT 1 AS id;
		CREATE TABLE shown AS SELECT 1 AS id;
		GRANT SELECT ON shown TO stranger;
		GRANT ALL ON SCHEMA public TO stranger});
	my $preview = sub { my ($table) = @_; return "SET SESSION AUTHORIZATION stranger; SELECT * FROM redis_export_preview('SELECT * FROM $table', 'h:#{id}')" };
	like(sql_error($node, $preview->('shown'), verbose => 1), qr/ERROR:  42501: permission denied for function redis_export_preview/, 'not for all');
	$node->safe_psql('postgres', q{SELECT format('GRANT EXECUTE ON FUNCTION %s TO stranger', oid::regprocedure) FROM pg_proc WHERE proname = 'redis_export_preview' \gexec});
	like(sql_error($node, $preview->('shown'), verbose => 1), qr/ERROR:  42501: permission denied for foreign server redis/, 'who may not use the server');
	like(sql_error($node, $preview->('shown') =~ s/'h:#\{id\}'/ARRAY['DEL', '#{id}']/r, verbose => 1), qr/ERROR:  42501: permission denied for foreign server redis/, 'nor with a command');
	$node->safe_psql('postgres', 'GRANT USAGE ON FOREIGN SERVER redis TO stranger');
	is($node->safe_psql('postgres', $preview->('shown')), '1|write|JSON.SET h:1 $ "{\"id\":1}"|', 'who may');
	like(sql_error($node, $preview->('secret'), verbose => 1), qr/ERROR:  42501: permission denied for table secret/, 'but not read the table');
};

subtest 'preview: in a security-restricted operation' => sub {
	# The query of a materialized view of a stranger's, which the superuser refreshes; from 17 on, without a search_path.
	$node->safe_psql('postgres', q{
		SET SESSION AUTHORIZATION stranger;
		CREATE FUNCTION looks(how text) RETURNS bigint LANGUAGE plpgsql AS $$
			BEGIN RETURN (SELECT count(*) FROM public.redis_export_preview(how, 'h:#{id}')); END $$;
		CREATE FUNCTION does(how text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE how; RETURN 1; END $$;
		CREATE TABLE how AS SELECT '' AS how;
		CREATE MATERIALIZED VIEW view AS SELECT looks(how) FROM how WITH NO DATA});
	my $refreshed = sub {
		my ($how) = @_;
		$node->safe_psql('postgres', "UPDATE how SET how = \$how\$$how\$how\$");
		return sql_error($node, 'REFRESH MATERIALIZED VIEW view', verbose => 1);
	};
	like($refreshed->('SELECT * FROM public.secret'), qr/ERROR:  42501: permission denied/, "no table that is not the stranger's to read");
	like($refreshed->("SELECT public.does('$_') AS id"), qr/ERROR:  42501: /, "nor $_") for 'RESET ROLE', 'RESET SESSION AUTHORIZATION', 'SET ROLE postgres', 'SET SESSION AUTHORIZATION DEFAULT', 'SELECT * FROM public.secret';
	like($refreshed->(q{SELECT set_config('role', 'postgres', false) AS id}), qr/ERROR:  42501: /, 'nor set_config()');
	like($refreshed->('SELECT * FROM public.shown'), qr/^(?:ERROR:  42501: .*)?$/s, 'whether what is allowed elsewhere is here, or not');
};

subtest 'what is for PUBLIC' => sub {
	is($node->safe_psql('postgres', q{
		CREATE ROLE anybody LOGIN;
		SELECT string_agg(p.proname, ' ' ORDER BY p.proname)
		FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
			JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'redis_export'
		WHERE has_function_privilege('anybody', p.oid, 'EXECUTE')}), 'redis_export_job_nodes redis_export_jobs redis_export_record redis_export_validator', 'no functions but those of the views, and the validator');
	for my $call (q{redis_hash_export('SELECT 1 AS id', 'h:#{id}')}, q{redis_command_export('SELECT 1 AS id', ARRAY['DEL', '#{id}'])},
		q{redis_export_preview('SELECT 1 AS id', 'h:#{id}')}, q{redis_export_preview('SELECT 1 AS id', ARRAY['DEL', '#{id}'])})
	{
		my ($name) = $call =~ /^(\w+)/;
		like(sql_error($node, "SET SESSION AUTHORIZATION anybody; SELECT $call", verbose => 1), qr/ERROR:  42501: permission denied for function $name$/m, $call);
	}
};

subtest 'the view, for other roles' => sub {
	$redis->cli('FLUSHALL');
	make_index();
	my %jobs = (
		HSET => q{redis_hash_export('SELECT i AS id, ''secret'' AS n FROM generate_series(1, 4) AS i', 'd:#{id}', wait_index => 'idx')},
		SADD => q{redis_command_export('SELECT i AS id, CASE WHEN i < 3 THEN i END AS n FROM generate_series(1, 4) AS i', ARRAY['SADD', 'secret:#{id}', '#{n}'], on_null => 'skip')},
	);
	for my $command (sort keys %jobs)
	{
		my ($id) = $session->send("SELECT job FROM $jobs{$command}")->wait;
		my $row = $node->safe_psql('postgres', "SET SESSION AUTHORIZATION anybody; SELECT row_to_json(p) FROM redis_export_progress p WHERE job = $id");
		unlike($row, qr/secret|d:|#\{|idx/, "$command: nothing of its texts");
		my $shown = JSON::PP->new->decode($row);
		is(join(' ', grep { !defined $shown->{$_} } qw(job datname usename server command state rows_read rows_written rows_failed rows_skipped rows_in_doubt bytes_sent started_at finished_at)), '', 'all the rest');
		is($shown->{command}, $command, 'its command');
		is("$shown->{rows_written} $shown->{rows_skipped} " . ($shown->{index_failures} // 'none'), $command eq 'HSET' ? '4 0 4' : '2 2 none', 'its counts');
		is(join(' ', map { $shown->{$_} // 'null' } qw(key_template query last_error)), 'null null null', 'but template, query and error');
		my $own = job($node, $id);
		like($own->{key_template}, $command eq 'HSET' ? qr/^d:#\{id\}$/ : qr/^SADD secret:#\{id\} #\{n\}$/, 'which its owner sees');
	}
};

$session->quit;
done_testing;
