# Redis stopped by SIGSTOP in the middle of an export: it takes connections and bytes, and never answers. What ends an export, or
# the whole server, must do so at once then too, and nobody else may be held up. All limits here are far below the option timeout
# of the foreign server (60 s), after which the export would do something by itself.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

my $SOON = 50;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis);
$node->safe_psql('postgres', q{
	CREATE TABLE numbers AS SELECT id FROM generate_series(1, 100000) id;
	CREATE TABLE few AS SELECT id FROM generate_series(1, 50) id});

my $endless = 'SELECT id FROM numbers';
my @slowly = (batch => 20, rate => 200);

# Runs the code and says that it was done soon.
sub soon
{
	my ($name, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $begun = time;
	my $result = $code->();
	my $took = time - $begun;
	cmp_ok($took, '<', $SOON, "$name: soon");
	return $result;
}

# Stops Redis when some rows are there, and waits until the job is stuck: its window is full of rows without an answer.
sub freeze
{
	my ($id) = @_;
	until_written($node, $id, 20);
	$redis->freeze;
	poll_until($node, "SELECT rows_in_doubt >= 60 FROM redis_export_progress WHERE job = $id");
	return;
}

sub frozen_job
{
	my ($keys, @arguments) = @_;
	my $id = start_job($node, $endless, "$keys:#{id}", @slowly, @arguments);
	freeze($id);
	return $id;
}

sub frozen_wait
{
	my ($keys, $before) = @_;
	my $session = session($node);
	$session->query($before) if $before;
	$session->query('\set VERBOSITY verbose');
	my $id = next_job($node, sub { $session->send(export_sql($endless, key_template => "'$keys:#{id}'", @slowly)) });
	freeze($id);
	return ($session, $id);
}

sub until_ended
{
	my ($id) = @_;
	return poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
}

# The end of a job that was stuck: after the thaw, Redis takes what the kernel had kept for it.
sub frozen_job_ends
{
	my ($id, %expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $row = job($node, $id);
	cmp_ok($row->{rows_in_doubt}, '>', 0, 'rows without an answer are in doubt');
	$redis->thaw;
	return job_ends($node, $redis, $id, %expected);
}

my $by_user = qr/canceling statement due to user request/;

subtest 'redis_export_cancel' => sub {
	my $id = frozen_job('a');
	soon 'cancel', sub { $node->safe_psql('postgres', "SELECT redis_export_cancel($id)"); until_ended($id) };
	frozen_job_ends($id, state => 'canceled', error => qr/^the export was canceled by role "postgres"$/, keys => 'a:*');
};

subtest 'pg_cancel_backend of the worker' => sub {
	my $id = frozen_job('b');
	soon 'cancel', sub { $node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . job($node, $id)->{pid} . ')'); until_ended($id) };
	frozen_job_ends($id, state => 'canceled', error => qr/^$by_user$/, keys => 'b:*');
};

subtest 'pg_terminate_backend of the worker' => sub {
	my ($session, $id) = frozen_wait('c');
	soon 'terminate', sub {
		$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . job($node, $id)->{pid} . ')');
		like(($session->wait)[1], qr/ERROR:  57P01: terminating background worker/, 'who waits is told');
		until_ended($id);
	};
	frozen_job_ends($id, state => 'failed', error => qr/due to administrator command/, keys => 'c:*');
};

subtest 'Ctrl-C of who waits' => sub {
	my ($session, $id) = frozen_wait('d');
	soon 'cancel', sub {
		$session->{run}->signal('INT');
		like(($session->wait)[1], qr/ERROR:  57014: $by_user/, 'it is canceled');
		until_ended($id);
	};
	frozen_job_ends($id, state => 'canceled', error => qr/^$by_user$/, keys => 'd:*');
};

subtest 'pg_terminate_backend of who waits' => sub {
	my ($session, $id) = frozen_wait('e');
	soon 'terminate', sub {
		$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $session->pid . ')');
		until_ended($id);
	};
	frozen_job_ends($id, state => 'canceled', error => qr/^the session that waited for the export has ended$/, keys => 'e:*');
};

subtest 'the client is killed' => sub {
	# a notice would find out, in time
	my ($session, $id) = frozen_wait('f', 'SET redis_export.notice_interval = 0');
	soon 'its job ends', sub { $session->kill_client; until_ended($id) };
	frozen_job_ends($id, state => 'canceled', error => qr/^the session that waited for the export has ended$/, keys => 'f:*');
};

my $timeout = qr/canceling statement due to statement timeout/;

subtest 'statement_timeout of who waits' => sub {
	my ($session, $id) = frozen_wait('g', q{SET statement_timeout = '6 s'});
	soon 'the timeout', sub {
		like(($session->wait)[1], qr/ERROR:  57014: $timeout/, 'it is the statement\'s error');
		until_ended($id);
	};
	frozen_job_ends($id, state => 'canceled', error => qr/^$timeout$/, keys => 'g:*');
};

subtest 'statement_timeout, and nobody waits' => sub {
	my $session = session($node);
	$session->query(q{SET statement_timeout = '6 s'});
	my $id = start_job($session, $endless, 'h:#{id}', @slowly);
	freeze($id);
	soon 'the timeout', sub { until_ended($id) };
	frozen_job_ends($id, state => 'canceled', error => qr/^$timeout$/, keys => 'h:*');
};

subtest 'a job that connects' => sub {
	$redis->freeze;
	my $id = start_job($node, $endless, 'i:#{id}', @slowly);
	poll_until($node, "SELECT pid IS NOT NULL FROM redis_export_progress WHERE job = $id");
	soon 'cancel', sub { $node->safe_psql('postgres', "SELECT redis_export_cancel($id)"); until_ended($id) };
	$redis->thaw;
	is(job_ends($node, $redis, $id, state => 'canceled', keys => 'i:*')->{rows_read}, 0, 'no row was read');

	$redis->freeze;
	$id = start_job($node, $endless, 'i:#{id}', @slowly);
	poll_until($node, "SELECT pid IS NOT NULL FROM redis_export_progress WHERE job = $id");
	soon 'terminate', sub { $node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . job($node, $id)->{pid} . ')'); until_ended($id) };
	$redis->thaw;
	job_ends($node, $redis, $id, state => 'failed', error => qr/due to administrator command/, keys => 'i:*');
};

subtest 'nobody else is held up' => sub {
	my $id = frozen_job('j');
	soon 'the view', sub { is(job($node, $id)->{state}, 'running', 'it is running') };
	soon 'DROP DATABASE', sub { $node->safe_psql('postgres', 'CREATE DATABASE other; '); $node->safe_psql('postgres', 'DROP DATABASE other') };
	soon 'writing to its table', sub { $node->safe_psql('postgres', 'INSERT INTO numbers VALUES (0); DELETE FROM numbers WHERE id = 0') };
	soon 'CHECKPOINT', sub { $node->safe_psql('postgres', 'CHECKPOINT') };

	# another Redis, another job
	my $healthy = RedisExport::Redis->new;
	add_server($node, $healthy, name => 'healthy');
	soon 'another job', sub {
		is($node->safe_psql('postgres', q[SELECT state FROM redis_json_export('TABLE few', 'k:#{id}', server => 'healthy')]), 'done', 'is done');
	};
	is(redis_keys_count($healthy), 50, 'in its own Redis');
	is(job($node, $id)->{state}, 'running', 'the job is still stuck');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	until_ended($id);
	frozen_job_ends($id, state => 'canceled', keys => 'j:*');
};

subtest 'DROP DATABASE of its own, WITH (FORCE)' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE doomed');
	$node->safe_psql('doomed', 'CREATE EXTENSION redis_export');
	$node->safe_psql('doomed', 'CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (port \'' . $redis->port . '\')');
	my $doomed = session($node, dbname => 'doomed');
	my $id = start_job($doomed, 'SELECT id FROM generate_series(1, 100000) id', 'q:#{id}', @slowly);
	$doomed->quit;
	freeze($id);
	soon 'DROP DATABASE', sub { $node->safe_psql('postgres', 'DROP DATABASE doomed WITH (FORCE)') };
	until_ended($id);
	frozen_job_ends($id, state => 'failed', error => qr/due to administrator command/, keys => 'q:*');
};

# When the query has been read to its end, the last answers are awaited without its snapshot and its locks.
subtest 'the last answers are awaited without a transaction' => sub {
	my $id = start_job($node, 'TABLE few', 'l:#{id}', batch => 20, rate => 10);
	until_state($node, $id, 'finishing');
	$redis->freeze;
	my $pid = job($node, $id)->{pid};
	is($node->safe_psql('postgres', "SELECT xact_start IS NULL AND backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $pid"), 't', 'no snapshot');
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE pid = $pid"), 0, 'no lock');
	$node->safe_psql('postgres', q{SET lock_timeout = '10 s'; ALTER TABLE few ADD extra int});
	$redis->thaw;
	is(job_ends($node, $redis, $id, state => 'done', keys => 'l:*')->{rows_written}, 50, 'all rows are written');
	$node->safe_psql('postgres', 'ALTER TABLE few DROP extra');
};

# The query fails when 60 rows are sent, of which none is answered. All are awaited, unless somebody has no patience.
subtest 'a query that fails' => sub {
	$node->safe_psql('postgres', q{
		CREATE FUNCTION falter(id int) RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN
				IF id = 1 THEN PERFORM pg_advisory_xact_lock(1); END IF;
				RETURN 1 / (61 - id);
			END $$});
	my $start = sub {
		my ($keys) = @_;
		my $lock = session($node);
		$lock->query('SELECT pg_advisory_lock(1)');
		my $id = start_job($node, 'SELECT id, falter(id) FROM generate_series(1, 100) id', "$keys:#{id}", batch => 20);
		poll_until($node, "SELECT wait_event = 'advisory' FROM pg_stat_activity JOIN redis_export_progress USING (pid) WHERE job = $id");
		$redis->freeze;
		$lock->quit;
		poll_until($node, "SELECT rows_in_doubt = 60 AND xact_start IS NULL FROM pg_stat_activity JOIN redis_export_progress USING (pid) WHERE job = $id");
		return $id;
	};

	my $id = $start->('r');
	$redis->thaw;
	my $row = job_ends($node, $redis, $id, state => 'failed', error => qr/^division by zero$/, keys => 'r:*');
	is($row->{rows_written}, 60, 'what was sent is counted');

	$id = $start->('s');
	soon 'cancel', sub { $node->safe_psql('postgres', "SELECT redis_export_cancel($id)"); until_ended($id) };
	$row = frozen_job_ends($id, state => 'failed', error => qr/^division by zero$/, keys => 's:*');
	is($row->{rows_in_doubt}, 60, 'what was sent is in doubt');
};

subtest 'Redis goes on' => sub {
	my $id = start_job($node, 'SELECT id FROM numbers WHERE id <= 300', 'm:#{id}', @slowly);
	freeze($id);
	$redis->thaw;
	my $row = job_ends($node, $redis, $id, state => 'done', keys => 'm:*');
	is($row->{rows_written}, 300, 'and so does the job');
	is($row->{reconnects}, 0, 'on the same connection');
	is($redis->cli('JSON.GET', 'm:300'), '{"id":300}', 'the last document');
};

subtest 'a session that asks Redis itself' => sub {
	my $session = session($node);
	is($session->query(q{SELECT redis_command('redis', 'PING')}), '"PONG"', 'PING');
	$redis->freeze;
	$session->send(q{SELECT redis_command('redis', 'PING')});
	poll_until($node, 'SELECT wait_event_type = \'Extension\' FROM pg_stat_activity WHERE pid = ' . $session->pid);
	soon 'cancel', sub {
		$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
		like(($session->wait)[1], qr/ERROR:  $by_user/, 'it is canceled');
	};
	$redis->thaw;
	is($session->query(q{SELECT redis_command('redis', 'ECHO', 'mine')}), '"mine"', 'the next command has its own answer');
};

# The jobs are gone with the server's shared memory; the server's log keeps what has become of this one.
subtest 'fast shutdown of PostgreSQL' => sub {
	my ($session, $waited) = frozen_wait('n');
	$redis->thaw;
	my $id = frozen_job('o');
	soon 'pg_ctl stop -m fast', sub { $node->stop('fast') };
	like(($session->wait)[1], qr/FATAL:  57P01|server closed the connection|ERROR:  57P01/, 'who waits loses the connection');
	my $log = slurp_file($node->logfile);
	like($log, qr/LOG:  export job $id to server "redis" failed: \d+ rows written, 0 failed, [1-9]\d* in doubt/, 'the log has the ledger');
	like($log, qr/DETAIL:  terminating background worker .* due to administrator command/, 'and why');
	like($log, qr/LOG:  export job $waited to server "redis" (?:failed|was canceled): \d+ rows written/, 'of both jobs');
	my ($written, $doubt) = $log =~ /export job $id to .*?: (\d+) rows written, 0 failed, (\d+) in doubt/;

	$redis->thaw;
	my $keys = redis_keys_count($redis, 'o:*');
	ok($keys >= $written && $keys <= $written + $doubt, 'Redis holds the rows that were written') or diag "$keys keys, $written, $doubt";
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM redis_export_progress'), 0, 'there are no jobs after a restart');
	my $next = start_job($node, 'TABLE few', 'p:#{id}');
	is(job_ends($node, $redis, $next, state => 'done', keys => 'p:*')->{rows_written}, 50, 'and the next one works');
};

done_testing;
