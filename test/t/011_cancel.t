# Every way to end an export before its time, while Redis is well: cancel, terminate, Ctrl-C, a client that dies, statement_timeout.
# However it ends, the job says so in the view, the ledger adds up, no worker is left, and Redis holds what was counted.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis);

# An export that would take minutes, in the background and in its middle.
my $endless = 'SELECT id FROM generate_series(1, 100000) id';
my @slowly = (batch => 20, rate => 200);

sub endless_job
{
	my ($keys, @arguments) = @_;
	my $id = start_job($node, $endless, "$keys:#{id}", @slowly, @arguments);
	until_written($node, $id, 20);
	return $id;
}

# The same with a session that waits for it.
sub endless_wait
{
	my ($keys, $before) = @_;
	my $session = session($node);
	$session->query($before) if $before;
	$session->query('\set VERBOSITY verbose');
	my $id = next_job($node, sub { $session->send(export_sql($endless, key_template => "'$keys:#{id}'", @slowly)) });
	until_written($node, $id, 20);
	return ($session, $id);
}

my $by_user = qr/canceling statement due to user request/;

subtest 'redis_export_cancel' => sub {
	my $id = endless_job('a');
	is($node->safe_psql('postgres', "SELECT redis_export_cancel($id)"), 't', 'it is told');
	my $row = job_ends($node, $redis, $id, state => 'canceled', error => qr/^the export was canceled by role "postgres"$/, keys => 'a:*');
	cmp_ok($row->{rows_in_doubt}, '==', 0, 'answers that are on their way are awaited');
	like(slurp_file($node->logfile), qr/LOG:  export job $id to server "redis" was canceled: $row->{rows_written} rows written, 0 failed, 0 in doubt/,
		'the server\'s log says so');
};

subtest 'redis_export_cancel, and somebody waits' => sub {
	my ($session, $id) = endless_wait('b');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	my (undef, $err) = $session->wait;
	my $row = job_ends($node, $redis, $id, state => 'canceled', keys => 'b:*');
	like($err, qr/ERROR:  57014: the export was canceled by role "postgres"\nDETAIL:  Export job $id: $row->{rows_read} rows read, $row->{rows_written} written, 0 failed, 0 in doubt\./,
		'it is the error of who waits, with the ledger');
	is($session->query('SELECT 1'), 1, 'whose session goes on');
};

subtest 'redis_export_cancel during a slow query' => sub {
	my $id = start_job($node, 'SELECT id, pg_sleep(id - 1) IS NULL AS no FROM (VALUES (1), (600)) v (id)', 'c:#{id}', batch => 1);
	poll_until($node, "SELECT rows_read = 1 FROM redis_export_progress WHERE job = $id");
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	my $row = job_ends($node, $redis, $id, state => 'canceled', keys => 'c:*');
	is($row->{rows_written}, 1, 'the one row that was sent is counted');
};

subtest 'pg_cancel_backend of the worker' => sub {
	my $id = endless_job('d');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . job($node, $id)->{pid} . ')');
	job_ends($node, $redis, $id, state => 'canceled', error => qr/^$by_user$/, keys => 'd:*');
};

subtest 'pg_terminate_backend of the worker' => sub {
	my ($session, $id) = endless_wait('e');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . job($node, $id)->{pid} . ')');
	my (undef, $err) = $session->wait;
	like($err, qr/ERROR:  57P01: terminating background worker .* due to administrator command\nDETAIL:  Export job $id: /,
		'who waits gets the SQLSTATE and the ledger');
	job_ends($node, $redis, $id, state => 'failed', error => qr/due to administrator command/, keys => 'e:*');
};

subtest 'pg_cancel_backend of who waits' => sub {
	my ($session, $id) = endless_wait('f');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
	like(($session->wait)[1], qr/ERROR:  57014: $by_user/, 'it is canceled');
	job_ends($node, $redis, $id, state => 'canceled', error => qr/^$by_user$/, keys => 'f:*');
	is($session->query('SELECT 1'), 1, 'its session goes on');
};

subtest 'Ctrl-C in psql' => sub {
	my ($session, $id) = endless_wait('g');
	$session->{run}->signal('INT');
	like(($session->wait)[1], qr/Cancel request sent.*ERROR:  57014: $by_user/s, 'psql is told');
	job_ends($node, $redis, $id, state => 'canceled', error => qr/^$by_user$/, keys => 'g:*');
};

subtest 'pg_terminate_backend of who waits' => sub {
	my ($session, $id) = endless_wait('h');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $session->pid . ')');
	like(($session->wait)[1], qr/FATAL:  57P01: terminating connection/, 'it is terminated');
	job_ends($node, $redis, $id, state => 'canceled', error => qr/^the session that waited for the export has ended$/, keys => 'h:*');
};

subtest 'the client is killed' => sub {
	# a notice would find out, in time
	my ($session, $id) = endless_wait('i', 'SET redis_export.notice_interval = 0');
	my $backend = $session->pid;
	$session->kill_client;
	job_ends($node, $redis, $id, state => 'canceled', error => qr/^the session that waited for the export has ended$/, keys => 'i:*');
	ok(poll_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $backend"), 'its backend has ended too');
};

subtest 'the client is killed, and nobody waited' => sub {
	my $session = session($node);
	my $id = start_job($session, 'SELECT id FROM generate_series(1, 100) id', 'j:#{id}', rate => 50, batch => 20);
	$session->kill_client;
	my $row = job_ends($node, $redis, $id, state => 'done', keys => 'j:*');
	is($row->{rows_written}, 100, 'the job goes on');
};

subtest 'redis_export_wait ends, and the job goes on' => sub {
	my $id = endless_job('s');
	my $waiting = 'SELECT wait_event_type = \'Extension\' FROM pg_stat_activity WHERE pid = ';

	my $session = session($node);
	$session->send("SELECT redis_export_wait($id)");
	poll_until($node, $waiting . $session->pid);
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
	like(($session->wait)[1], qr/ERROR:  $by_user/, 'who waits is canceled');
	$session->send("SELECT redis_export_wait($id)");
	poll_until($node, $waiting . $session->pid);
	my $backend = $session->pid;
	$session->kill_client;
	ok(poll_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $backend"), 'or its client is killed');
	is(job($node, $id)->{state}, 'running', 'the job is running');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $redis, $id, state => 'canceled', keys => 's:*');
};

subtest 'statement_timeout of who waits' => sub {
	my ($session, $id) = endless_wait('k', q{SET statement_timeout = '3 s'});
	my $timeout = qr/canceling statement due to statement timeout/;
	like(($session->wait)[1], qr/ERROR:  57014: $timeout/, 'it is the statement\'s error');
	job_ends($node, $redis, $id, state => 'canceled', error => qr/^$timeout$/, keys => 'k:*');
};

subtest 'statement_timeout, and nobody waits' => sub {
	my $session = session($node);
	$session->query(q{SET statement_timeout = '1500 ms'});
	my $id = start_job($session, $endless, 'l:#{id}', @slowly);
	my $row = job_ends($node, $redis, $id, state => 'canceled', error => qr/^canceling statement due to statement timeout$/, keys => 'l:*');
	my $took = $node->safe_psql('postgres', "SELECT extract(epoch FROM finished_at - started_at) FROM redis_export_progress WHERE job = $id");
	cmp_ok($took, '>=', 1.4, 'not before its time');

	$id = start_job($session, 'SELECT id FROM generate_series(1, 20) id', 'm:#{id}');
	job_ends($node, $redis, $id, state => 'done', keys => 'm:*');
};

subtest 'rollback of who started it' => sub {
	my $session = session($node);
	$session->query('BEGIN');
	my $id = start_job($session, 'SELECT id FROM generate_series(1, 100) id', 'n:#{id}', rate => 50, batch => 20);
	$session->query('ROLLBACK');
	is(job_ends($node, $redis, $id, state => 'done', keys => 'n:*')->{rows_written}, 100, 'the job goes on');

	$session->query('BEGIN');
	$id = start_job($session, 'SELECT id FROM generate_series(1, 100) id', 'o:#{id}', rate => 50, batch => 20);
	like(($session->send('SELECT 1 / 0')->wait)[1], qr/division by zero/, 'an error afterwards');
	is(job_ends($node, $redis, $id, state => 'done', keys => 'o:*')->{rows_written}, 100, 'does not stop it either');
};

# A connection to a database begins with a look at the settings of role and database; who locks them holds up the worker there.
subtest 'while the worker starts' => sub {
	my ($lock, $caller, $other) = map { session($node) } 1 .. 3;
	$_->query('SELECT count(*) FROM redis_export_progress') for $caller, $other;
	$lock->query('BEGIN; LOCK TABLE pg_db_role_setting IN ACCESS EXCLUSIVE MODE');

	my $id = start_job($caller, $endless, 'p:#{id}', @slowly);
	session_poll($other, "SELECT pid IS NOT NULL AND state = 'starting' FROM redis_export_progress WHERE job = $id");
	is($other->query("SELECT redis_export_cancel($id)"), 't', 'it is canceled');
	session_poll($other, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	$caller->send(export_sql($endless, key_template => q{'q:#{id}'}, @slowly));
	session_poll($other, "SELECT pid IS NOT NULL AND state = 'starting' FROM redis_export_progress WHERE job > $id");
	my $waited = $other->query('SELECT max(job) FROM redis_export_progress');
	$other->query('SELECT pg_cancel_backend(' . $caller->pid . ')');
	like(($caller->wait)[1], qr/$by_user/, 'and so is one that is waited for');
	my $last = start_job($caller, $endless, 't:#{id}', @slowly);
	session_poll($other, "SELECT pid IS NOT NULL AND state = 'starting' FROM redis_export_progress WHERE job = $last");
	# it is in the view a moment before PostgreSQL knows it as one of its own
	session_poll($other, "SELECT pg_terminate_backend(pid) FROM redis_export_progress WHERE job = $last");
	session_poll($other, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $last");
	$lock->query('ROLLBACK');

	my $row = job_ends($node, $redis, $id, state => 'canceled', error => qr/^the export was canceled by role "postgres"$/, keys => 'p:*');
	is($row->{rows_read}, 0, 'no row was read');
	job_ends($node, $redis, $waited, state => 'canceled', error => qr/^$by_user$/, keys => 'q:*');
	job_ends($node, $redis, $last, state => 'failed', error => qr/due to administrator command/, keys => 't:*');
};

subtest 'canceled from a function that catches errors' => sub {
	my ($session) = session($node);
	my $id = next_job($node, sub { $session->send(qq{
		DO \$do\$ BEGIN
			PERFORM redis_json_export('$endless', 'r:#{id}', batch => 20, rate => 200);
		EXCEPTION WHEN query_canceled THEN
			RAISE NOTICE 'caught %', SQLERRM;
		END \$do\$}) });
	until_written($node, $id, 20);
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
	like(($session->wait)[1], qr/caught canceling statement/, 'it goes on');
	job_ends($node, $redis, $id, state => 'canceled', error => qr/^$by_user$/, keys => 'r:*');
};

done_testing;
