# What PostgreSQL itself can do to an export: a crash of some other process, shutdown, DDL under a running job, timeouts, no new
# process to be had, cancel in every state, and a session that exports all day long.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "restart_after_crash = on\nmax_worker_processes = 80\nredis_export.notice_interval = 0\n");
$node->safe_psql('postgres', q{
	CREATE TABLE few AS SELECT id FROM generate_series(1, 40) id;
	CREATE TABLE hidden AS SELECT 7 AS secret;
	CREATE FUNCTION peek() RETURNS int LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN (SELECT secret FROM hidden); END $$;
	CREATE DATABASE watch});
$node->safe_psql('watch', 'CREATE EXTENSION redis_export');

my $endless = 'SELECT id FROM generate_series(1, 100000) id';
my @slowly = (batch => 20, rate => 200);
my $by_user = qr/canceling statement due to user request/;

sub running_job
{
	my ($keys, %arguments) = @_;
	my $where = delete $arguments{in} // $node;
	my $id = start_job($where, $endless, "$keys:#{id}", @slowly, %arguments);
	until_written($node, $id, 20);
	return $id;
}

# A server that holds these keys is well enough for an export from the start to the end.
sub export_works
{
	my ($on, $keys) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($on->safe_psql('postgres', export_sql('SELECT id FROM generate_series(1, 30) id', key_template => "'$keys:#{id}'")) =~ s/.*\|//r,
		'done', 'an export works');
	return is(redis_keys_count($redis, "$keys:*"), 30, 'all its rows are in Redis');
}

# ---- Crashes and shutdown ---------------------------------------------------------------------------------------------

for my $preloaded (0, 1)
{
	subtest $preloaded ? 'a crash of another process, the library preloaded' : 'a crash of another process' => sub {
		my $crashing = $node;
		$crashing = new_node($redis, name => 'preloaded', conf => "restart_after_crash = on\nshared_preload_libraries = 'redis_export'\n") if $preloaded;
		my ($keys, $next) = ("crash$preloaded", "again$preloaded");
		my ($victim, $waiting) = (session($crashing), session($crashing));
		my $id = start_job($crashing, $endless, "$keys:#{id}", @slowly);
		until_written($crashing, $id, 20);
		$waiting->send(export_sql($endless, key_template => q{'waited:#{id}'}, @slowly));
		poll_until($crashing, "SELECT count(*) = 1 FROM redis_export_progress WHERE job > $id AND rows_written > 0");
		my $before = job($crashing, $id);
		my $worker = $before->{pid};

		kill 'KILL', $victim->pid;
		like(($waiting->wait)[1], qr/because of crash of another server process|server closed the connection/, 'who waits is thrown out');
		ok(poll_until($crashing, 'SELECT count(*) = 0 FROM redis_export_progress'), 'the server is back, and the view is empty');
		ok(!kill(0, $worker), 'the worker is gone');
		cmp_ok(redis_keys_count($redis, "$keys:*"), '>=', $before->{rows_written}, 'what was acknowledged is in Redis');
		export_works($crashing, $next);
		is(job($crashing)->{job}, 1, 'numbers begin anew');
		ledger_ok($crashing);
		no_worker_left($crashing);
		$crashing->stop('fast') if $preloaded;
	};
}

subtest 'a crash of the worker' => sub {
	my $id = running_job('killed');
	kill 'KILL', job($node, $id)->{pid};
	ok(poll_until($node, 'SELECT count(*) = 0 FROM redis_export_progress'), 'the server is back, and the view is empty');
	export_works($node, 'afterwards');
};

for my $mode (qw(smart fast immediate))
{
	subtest "$mode shutdown" => sub {
		my $id = running_job($mode);
		my $before = job($node, $id);
		my $begun = time;
		$node->stop($mode);
		cmp_ok(time - $begun, '<', 50, 'it takes no time');
		ok(!kill(0, $before->{pid}), 'the worker is gone');
		unlike($redis->cli('CLIENT', 'LIST'), qr/name=redis_export/, 'and so is its connection');
		cmp_ok(redis_keys_count($redis, "$mode:*"), '>=', $before->{rows_written}, 'what was acknowledged is in Redis');
		my $log = slurp_file($node->logfile);
		like($log, qr/export job $id to server "redis" failed: \d+ rows written, .*\n.*terminating background worker/, 'the log has its end')
			if $mode ne 'immediate';
		$node->start;
		is($node->safe_psql('postgres', 'SELECT count(*) FROM redis_export_progress'), 0, 'the view is empty');
		export_works($node, "next$mode");
	};
}

# ---- DDL under a running job ------------------------------------------------------------------------------------------

subtest 'DROP DATABASE' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE doomed');
	$node->safe_psql('doomed', 'CREATE EXTENSION redis_export');
	$node->safe_psql('doomed', 'CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (port \'' . $redis->port . '\')');
	my $doomed = session($node, dbname => 'doomed');
	my $id = running_job('doomed', in => $doomed);
	$doomed->quit;
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('postgres', 'DROP DATABASE other');
	is(job($node, $id)->{state}, 'running', 'another: the job goes on');
	like(sql_error($node, 'DROP DATABASE doomed', timeout => 60), qr/is being accessed by other users\nDETAIL:  There is 1 other session/, 'its own: an error');
	is(job($node, $id)->{state}, 'running', 'and the job goes on');
	$node->safe_psql('postgres', 'DROP DATABASE doomed WITH (FORCE)');
	my $row = job_ends($node, $redis, $id, state => 'failed', error => qr/due to administrator command/, keys => 'doomed:*');
	is($row->{datname}, undef, 'WITH (FORCE): it ends, and has no database any more');
};

# All that the job needs of the catalogs it has from the start, also to connect again.
subtest 'DROP SERVER and DROP USER MAPPING' => sub {
	my $locked = RedisExport::Redis->new(conf => { requirepass => 'hush' });
	add_server($node, $locked, name => 'locked');
	$node->safe_psql('postgres', q{CREATE USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (password 'hush')});
	my $id = start_job($node, 'SELECT id FROM generate_series(1, 600) id', 'dropped:#{id}', server => q{'locked'}, batch => 20, rate => 200);
	until_written($node, $id, 20);
	$node->safe_psql('postgres', 'SET lock_timeout = \'10 s\'; DROP USER MAPPING FOR CURRENT_USER SERVER locked; DROP SERVER locked');
	$locked->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	my $row = job_ends($node, $locked, $id, state => 'done', error => qr/lost the connection/, keys => 'dropped:*');
	is($row->{rows_written}, 600, 'the job goes on');
	cmp_ok($row->{reconnects}, '>=', 1, 'though it had to connect again');
	is($row->{server}, 'locked', 'the view still says where to');
	like(sql_error($node, export_sql('SELECT 1 AS id', server => q{'locked'})), qr/server "locked" does not exist/, 'the next one does not start');
	$locked->stop;
};

subtest 'ALTER TABLE and DROP TABLE' => sub {
	$node->safe_psql('postgres', 'CREATE TABLE altered AS SELECT id FROM generate_series(1, 600) id');
	my $id = start_job($node, 'SELECT * FROM altered', 'altered:#{id}', @slowly);
	until_written($node, $id, 20);
	my $session = session($node);
	for my $ddl ('ALTER TABLE altered ADD late int DEFAULT 5', 'DROP TABLE altered', 'TRUNCATE altered')
	{
		like(sql_error($node, "SET lock_timeout = '100 ms'; $ddl"), qr/canceling statement due to lock timeout/, "$ddl waits for the query");
	}
	$session->send('ALTER TABLE altered ADD late int DEFAULT 5; DROP TABLE altered');
	is(($session->wait)[1], '', 'until all rows are read');
	is(job_ends($node, $redis, $id, state => 'done', keys => 'altered:*')->{rows_written}, 600, 'all rows are written');
	is($redis->cli('JSON.GET', 'altered:600'), '{"id":600}', 'as they were');
};

# The view of another database shows the same jobs.
subtest 'DROP EXTENSION' => sub {
	my $waiting = session($node);
	my $query = 'SELECT id FROM generate_series(1, 600) id';
	my $id = start_job($node, $query, 'orphan:#{id}', @slowly);
	my $waited = next_job($node, sub { $waiting->send(export_sql($query, key_template => q{'watched:#{id}'}, @slowly)) });
	until_written($node, $_, 20) for $id, $waited;
	$node->safe_psql('postgres', q{SET lock_timeout = '10 s'; DROP EXTENSION redis_export CASCADE});
	is($node->safe_psql('watch', "SELECT string_agg(state, ' ') FROM redis_export_progress WHERE job IN ($id, $waited)"), 'running running',
		'the jobs go on');
	my (undef, $err) = $waiting->wait;
	ok($err eq '' || $err =~ /^ERROR: /, 'who waits gets a result or an error');
	is($waiting->query('SELECT 1'), 1, 'and its session goes on');
	$node->safe_psql('postgres', 'CREATE EXTENSION redis_export');
	add_server($node, $redis);
	is(job_ends($node, $redis, $id, state => 'done', keys => 'orphan:*')->{rows_written}, 600, 'to their end');
	is(job_ends($node, $redis, $waited, state => 'done', keys => 'watched:*')->{rows_written}, 600, 'both');
	export_works($node, 'reborn');
};

# ---- Timeouts ---------------------------------------------------------------------------------------------------------

# The caller parses the query and so locks its tables too; what a function reads is the worker's own.
subtest 'lock_timeout and statement_timeout in the worker' => sub {
	my $lock = session($node);
	$lock->query('BEGIN; LOCK TABLE hidden IN ACCESS EXCLUSIVE MODE');
	my $session = session($node);
	my $query = 'SELECT id, peek() AS v FROM few';

	$session->query(q{SET lock_timeout = '300 ms'});
	my $id = start_job($session, $query, 'lt:#{id}');
	my $error = qr/^canceling statement due to lock timeout$/;
	job_ends($node, $redis, $id, state => 'failed', error => $error, keys => 'lt:*');
	$id = next_job($node, sub { $session->send("\\set VERBOSITY verbose\n" . export_sql($query, key_template => q{'lt:#{id}'})) });
	like(($session->wait)[1], qr/ERROR:  55P03: canceling statement due to lock timeout\nDETAIL:  Export job $id: 0 rows read/, 'the error of who waits');
	job_ends($node, $redis, $id, state => 'failed', error => $error, keys => 'lt:*');

	$session->query(q{RESET lock_timeout; SET statement_timeout = '700 ms'});
	$id = start_job($session, $query, 'st:#{id}');
	$error = qr/^canceling statement due to statement timeout$/;
	job_ends($node, $redis, $id, state => 'canceled', error => $error, keys => 'st:*');
	$id = next_job($node, sub { $session->send(export_sql($query, key_template => q{'st:#{id}'})) });
	like(($session->wait)[1], qr/ERROR:  57014: canceling statement due to statement timeout/, 'the error of who waits');
	job_ends($node, $redis, $id, state => 'canceled', error => $error, keys => 'st:*');

	$lock->query('ROLLBACK');
	$session->query('RESET statement_timeout');
	like($session->query(export_sql($query, key_template => q{'lt:#{id}'})), qr/\|done$/, 'the same session, a moment later');
	is($redis->cli('JSON.GET', 'lt:40'), '{"id":40,"v":7}', 'all is there');
};

# ---- A worker that comes late or never --------------------------------------------------------------------------------

# With the postmaster stopped no worker comes up. A process may at any time allow itself fewer processes than it has, which makes
# its next fork fail.
sub postmaster { return (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0] }

sub stop_postmaster
{
	my $pid = postmaster();
	kill 'STOP', $pid;
	for (1 .. 500)
	{
		last if slurp_file("/proc/$pid/stat") =~ /\) T /;
		sleep 0.01;
	}
	return;
}

sub allow_processes
{
	my ($many) = @_;
	return system('prlimit', '--pid', postmaster(), "--nproc=$many:") == 0;
}

# Runs the code while the postmaster stands still.
sub while_stopped
{
	my ($code) = @_;
	stop_postmaster();
	my @result = eval { $code->() };
	my $error = $@;
	kill 'CONT', postmaster();
	die $error if $error;
	return @result;
}

for my $fate ('late', 'never')
{
	subtest "a worker that comes $fate, its caller gone" => sub {
		my ($canceled, $terminated, $background, $by_other, $admin) = map { session($node) } 1 .. 5;
		$admin->query('SELECT count(*) FROM redis_export_progress');
		my $allowed = `prlimit --pid @{[ postmaster() ]} --nproc -o SOFT --noheadings`;
		chomp $allowed;
		my $jobs = 'SELECT count(*) = %d FROM redis_export_progress WHERE job > %d AND state = \'starting\'';
		my $last = $admin->query('SELECT max(job) FROM redis_export_progress');
		my $begin = sub {
			my ($session, $count, $wait) = @_;
			$session->query('\set VERBOSITY verbose');
			$session->send(export_sql($endless, key_template => q{'late:#{id}'}, @slowly, wait => $wait));
			session_poll($admin, sprintf $jobs, $count, $last);
		};
		while_stopped(sub {
			$begin->($canceled, 1, 'true');
			$begin->($terminated, 2, 'true');
			$begin->($background, 3, 'false');
			$begin->($by_other, 4, 'true');
			$admin->query('SELECT pg_cancel_backend(' . $canceled->pid . '), pg_terminate_backend(' . $terminated->pid . '), pg_cancel_backend('
				. $background->pid . '), redis_export_cancel(' . ($last + 4) . ')');
			like(($_->wait)[1], qr/ERROR:  57014: $by_user/, 'canceled') for $canceled, $background;
			like(($terminated->wait)[1], qr/FATAL:  57P01/, 'terminated');
			ok(eval { session_poll($admin, sprintf($jobs, 0, $last), 20) }, 'no job is left starting') or diag $@;
			allow_processes(1) if $fate eq 'never';
		});
		like(($by_other->wait)[1], qr/ERROR:  57014: the export was canceled by role "postgres"/, 'canceled by somebody else');
		if ($fate eq 'never')
		{
			like(($canceled->send(export_sql('SELECT 1 AS id', key_template => q{'late:#{id}'}))->wait)[1],
				qr/ERROR:  XX000: the worker of the export could not start or ended unexpectedly\n.*HINT:  See the server's log/s, 'who waits for one is told');
			like(slurp_file($node->logfile), qr/could not fork (?:background )?worker process/, 'it never came');
			ok(allow_processes($allowed), 'now processes can be made again');
		}
		no_worker_left($node);
		is($admin->query("SELECT string_agg(job - $last || ' ' || state || ' ' || last_error, ', ' ORDER BY job) FROM redis_export_progress WHERE job BETWEEN $last + 1 AND $last + 4"),
			'1 canceled canceling statement due to user request, 2 canceled the session that waited for the export has ended, '
			. '3 canceled canceling statement due to user request, 4 canceled the export was canceled by role "postgres"', 'the view says why');
		ledger_ok($node, $last + $_) for 1 .. 4;
		is(redis_keys_count($redis, 'late:*'), 0, 'nothing was written');
		is(($canceled->query(export_sql('SELECT 1 AS id', key_template => "'came:$fate:#{id}'")) =~ s/.*\|//r), 'done', 'the next export of that session works');
	};
}

# ---- Cancel in every state --------------------------------------------------------------------------------------------

# Starting and running are in 011_cancel.t and 012_frozen.t.
add_server($node, $redis, name => 'closed', port => PostgreSQL::Test::Cluster::get_free_port());
my %state = (
	'retrying, refused' => [ 'retrying', $endless ],
	'retrying, no connection' => [ 'retrying', $endless, server => q{'closed'} ],
	'finishing' => [ 'finishing', 'SELECT id FROM few', batch => 10, rate => 2 ]);
my $ended = qr/^the session that waited for the export has ended$/;
my @ways = (
	[ 'redis_export_cancel', 'redis_export_cancel(JOB)', 'canceled', qr/^the export was canceled by role "postgres"$/, qr/ERROR:  57014: the export was canceled by role/ ],
	[ 'pg_cancel_backend of the worker', 'pg_cancel_backend(WORKER)', 'canceled', qr/^$by_user$/, qr/ERROR:  57014: $by_user/ ],
	[ 'pg_terminate_backend of the worker', 'pg_terminate_backend(WORKER)', 'failed', qr/due to administrator command/, qr/ERROR:  57P01: terminating background worker/ ],
	[ 'pg_cancel_backend of who waits', 'pg_cancel_backend(CALLER)', 'canceled', qr/^$by_user$/, qr/ERROR:  57014: $by_user/ ],
	[ 'pg_terminate_backend of who waits', 'pg_terminate_backend(CALLER)', 'canceled', $ended, qr/FATAL:  57P01/ ]);

for my $name (sort keys %state)
{
	subtest $name => sub {
		my ($state, $query, @arguments) = @{ $state{$name} };
		$redis->cli('CONFIG', 'SET', 'maxmemory', 1) if $name =~ /refused/;
		for my $i (0 .. $#ways)
		{
			my ($way, $call, $expected, $error, $told) = @{ $ways[$i] };
			my $keys = $name =~ s/\W+/_/gr . $i;
			my $session = session($node);
			$session->query('\set VERBOSITY verbose');
			my $id = next_job($node, sub { $session->send(export_sql($query, key_template => "'$keys:#{id}'", @arguments)) });
			until_state($node, $id, $state);
			my %value = (JOB => $id, WORKER => job($node, $id)->{pid}, CALLER => $session->pid);
			my $begun = time;
			is($node->safe_psql('postgres', 'SELECT ' . $call =~ s/(JOB|WORKER|CALLER)/$value{$1}/r), 't', $way);
			like(($session->wait)[1], $told, 'who waits is told');
			job_ends($node, $redis, $id, state => $expected, error => $error, keys => "$keys:*");
			cmp_ok(time - $begun, '<', 50, 'soon');
		}
		$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	};
}

# ---- Many -------------------------------------------------------------------------------------------------------------

subtest '64 jobs at once' => sub {
	my $session = session($node);
	my $before = last_job($node);
	# 60 rows at 20 a second take three seconds, and the last one starts soon after the first
	$session->query(q{SELECT count(redis_json_export('SELECT id FROM generate_series(1, 60) id', 'many:' || n || ':#{id}', batch => 5, rate => 1, wait => false))
		FROM generate_series(1, 64) n});
	ok(poll_until($node, "SELECT count(*) = 64 FROM redis_export_progress WHERE job > $before AND state IN ('running', 'finishing') AND rows_written > 0"), 'all run');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'redis_export worker'}), 64, 'each has its worker');
	$session->query("SELECT count(redis_export_cancel(job)) FROM redis_export_progress WHERE job > $before AND job % 2 = 0");
	ok(poll_until($node, "SELECT count(*) = 32 FROM redis_export_progress WHERE job > $before AND state = 'canceled'"), 'half of them are canceled');
	is($node->safe_psql('postgres', "SELECT count(*) FROM redis_export_progress WHERE job > $before AND state IN ('running', 'finishing')"), 32, 'the others run');
	$session->query("SELECT count(redis_export_cancel(job)) FROM redis_export_progress WHERE job > $before AND job % 2 = 1");
	no_worker_left($node);
	is($node->safe_psql('postgres', "SELECT count(*) FROM redis_export_progress WHERE job > $before AND rows_read = rows_written + rows_failed + rows_in_doubt"), 64, 'the rows of all add up');
	is($node->safe_psql('postgres', "SELECT sum(rows_written) FROM redis_export_progress WHERE job > $before"), redis_keys_count($redis, 'many:*'), 'and are in Redis');

	$before = last_job($node);
	$session->query(q{SELECT count(redis_json_export('SELECT id FROM generate_series(1, 500) id', 'quick:' || n || ':#{id}', wait => false)) FROM generate_series(1, 64) n});
	ok(poll_until($node, "SELECT count(*) = 64 FROM redis_export_progress WHERE job > $before AND state = 'done' AND rows_written = 500"), '64 without a brake are done');
	is(redis_keys_count($redis, 'quick:*'), 64 * 500, 'all rows are in Redis');
};

subtest 'a failed export and then a good one' => sub {
	my $session = session($node);
	my @bad = ('SELECT 1 / (id - id) AS id FROM few', 'SELECT id FROM nowhere', q{SELECT id, 'no json' AS doc FROM few}, 'SELECT NULL AS id FROM few');
	for my $begin ('', 'BEGIN; SAVEPOINT s')
	{
		for my $query (@bad)
		{
			$session->query($begin) if $begin;
			like(($session->send(export_sql($query, key_template => q{'bad:#{id}'}))->wait)[1], qr/^(?:psql:.*? )?ERROR: /m, $query . ($begin && ', in a transaction'));
			$session->query('ROLLBACK TO s') if $begin;
			like($session->query(export_sql('SELECT id FROM few', key_template => q{'good:#{id}'})), qr/\|done$/, 'the next one is done');
			$session->query('COMMIT') if $begin;
			ledger_ok($node);
		}
	}
	is(redis_keys_count($redis, 'good:*'), 40, 'and in Redis');
};

# Files tell how many segments of dynamic shared memory there are.
subtest '2,000 exports in one session' => sub {
	my $worn = new_node($redis, name => 'worn', conf => "dynamic_shared_memory_type = mmap\nredis_export.notice_interval = 0\nlog_min_messages = panic\n");
	my $session = session($worn);
	my $postmaster = (split /\n/, slurp_file($worn->data_dir . '/postmaster.pid'))[0];
	my $measure = sub {
		my ($contexts, $bytes) = split /\|/, $session->query('SELECT count(*), sum(total_bytes) FROM pg_backend_memory_contexts');
		my $files = sub { opendir my $dir, "/proc/$_[0]/fd" or die "fd: $!"; return scalar grep { /^\d/ } readdir $dir };
		my $mappings = () = slurp_file('/proc/' . $session->pid . '/maps') =~ /pg_dynshmem/g;
		my ($rss) = slurp_file('/proc/' . $session->pid . '/status') =~ /VmRSS:\s+(\d+)/;
		return {
			contexts => $contexts, bytes => $bytes, rss => $rss, mappings => $mappings,
			files => $files->($session->pid), 'files of the postmaster' => $files->($postmaster),
			segments => scalar(() = glob $worn->data_dir . '/pg_dynshmem/*'),
			clients => scalar(grep { /name=redis_export/ } $redis->cli('CLIENT', 'LIST')),
		};
	};
	# one of ten fails
	my $export = sub {
		my ($count) = @_;
		return $session->send("SELECT format(\$f\$SELECT redis_json_export('SELECT 1 / %s AS id', 'worn:%s:#{id}')\$f\$, (n % 10 <> 0)::int, n) FROM generate_series(1, $count) n \\gexec")->wait;
	};
	my @errors = ($export->(200))[1] =~ /ERROR:  division by zero/g;
	is(scalar @errors, 20, 'some to begin with, of which one in ten fails');
	my $before = $measure->();
	my $begun = time;
	@errors = ($export->(2000))[1] =~ /ERROR:  division by zero/g;
	is(scalar @errors, 200, 'and 2,000 more');
	note sprintf '2,000 exports took %.1f seconds', time - $begun;
	my $after = $measure->();
	is(last_job($worn), 2200, 'all were jobs');
	is($worn->safe_psql('postgres', q{SELECT count(*), bool_and(state IN ('done', 'failed')) FROM redis_export_progress}), '128|t', 'the view has the last ones');
	is(redis_keys_count($redis, 'worn:*'), 1800, 'the keys are in Redis');
	is($after->{$_}, $before->{$_}, "as many as before: $_") for 'contexts', 'mappings', 'files', 'files of the postmaster', 'segments', 'clients';
	cmp_ok($after->{bytes}, '<', $before->{bytes} + 1_000_000, 'no more memory in contexts') or diag explain [ $before, $after ];
	cmp_ok($after->{rss}, '<', $before->{rss} + 4_000, 'nor in the session as a whole') or diag explain [ $before, $after ];
	no_worker_left($worn);
};

done_testing;
