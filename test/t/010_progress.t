# What is seen of an export: the view redis_export_progress from a second session while it runs and afterwards, the NOTICEs of who
# waits, redis_export_wait, redis_export_failures, and who may see and who may cancel what.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis);
$node->safe_psql('postgres', q{
	CREATE TABLE numbers AS SELECT id FROM generate_series(1, 1000) id;
	ANALYZE numbers;
	CREATE ROLE alice LOGIN;
	CREATE ROLE bob LOGIN;
	CREATE ROLE stats LOGIN IN ROLE pg_read_all_stats;
	CREATE ROLE police LOGIN IN ROLE pg_signal_backend;
	GRANT SELECT ON numbers TO alice;
	GRANT USAGE ON FOREIGN SERVER redis TO alice;
	GRANT EXECUTE ON FUNCTION redis_json_export TO alice;
	GRANT EXECUTE ON FUNCTION redis_export_cancel TO alice, bob, police;
	GRANT EXECUTE ON FUNCTION redis_export_failures, redis_export_wait TO alice, bob, stats});

# psql as another role
sub as
{
	my ($role, $sql) = @_;
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]);
}

sub error_as
{
	my ($role, $sql) = @_;
	return sql_error($node, $sql, verbose => 1, extra_params => [ '-U', $role ]);
}

subtest 'a job that runs, seen from another session' => sub {
	my $session = session($node);
	my $id = next_job($node, sub { $session->send(export_sql('SELECT id FROM numbers', key_template => q{'run:#{id}'}, batch => 20, rate => 200)) });
	until_written($node, $id, 1);

	my $first = job($node, $id);
	is($first->{state}, 'running', 'it is running');
	is($first->{server}, 'redis', 'server');
	is($first->{command}, 'JSON.SET', 'command');
	is($first->{datname}, 'postgres', 'database');
	is($first->{usename}, 'postgres', 'role');
	is($first->{key_template}, 'run:#{id}', 'key template');
	is($first->{query}, 'SELECT id FROM numbers', 'query');
	is($first->{rows_estimated}, 1000, 'the estimate is what the planner knows of the table');
	is($first->{finished_at}, undef, 'not finished');
	is($first->{last_error}, undef, 'no error');
	is($node->safe_psql('postgres', "SELECT datname, usename, application_name FROM pg_stat_activity
		WHERE backend_type = 'redis_export worker' AND pid = $first->{pid}"), 'postgres|postgres|redis_export',
		'its pid is the worker\'s in pg_stat_activity');

	until_written($node, $id, $first->{rows_written} + 100);
	my $second = job($node, $id);
	cmp_ok($second->{rows_written}, '>', $first->{rows_written}, 'rows_written grows');
	cmp_ok($second->{rows_read}, '>=', $second->{rows_written}, 'rows_read is no less');
	cmp_ok($second->{bytes_sent}, '>', $first->{bytes_sent}, 'bytes_sent grows');
	cmp_ok($second->{percent}, '>=', 10, 'percent says how far it is');
	cmp_ok($second->{percent}, '<', 100, 'and that this is not the end');
	cmp_ok($second->{rows_per_second}, '>', 0, 'rows_per_second');
	like($second->{time_left}, qr/^00:00:\d\d/, 'time_left');
	ok($session->busy, 'who started it waits');

	my ($out) = $session->wait;
	is($out, "$id|done", 'and gets the job\'s row at the end');
	job_ends($node, $redis, $id, state => 'done', keys => 'run:*');
	my $last = job($node, $id);
	is($last->{rows_written}, 1000, 'all rows were written');
	is($last->{percent}, 100, '100 per cent');
	is($last->{time_left}, undef, 'no time left');
	is($redis->cli('JSON.GET', 'run:1000'), '{"id":1000}', 'the last document');
	is($node->safe_psql('postgres', "SELECT finished_at > started_at FROM redis_export_progress WHERE job = $id"), 't', 'times');
};

subtest 'wait => false and redis_export_wait' => sub {
	my $id = start_job($node, 'SELECT id FROM numbers LIMIT 200', 'later:#{id}', rate => 100);
	is($node->safe_psql('postgres', "SELECT finished_at IS NULL FROM redis_export_progress WHERE job = $id"), 't',
		'the call returns before the job ends');
	is($node->safe_psql('postgres', "SELECT job, finished_at IS NULL FROM redis_export_wait($id, '0')"), "$id|t",
		'a timeout of nothing returns at once');
	is($node->safe_psql('postgres', "SELECT job, finished_at IS NULL FROM redis_export_wait($id, '50 ms')"), "$id|t",
		'a short one too, without an error');
	is($node->safe_psql('postgres', "SELECT job, state, rows_written FROM redis_export_wait($id)"), "$id|done|200",
		'without a timeout it waits for the end');
	is($node->safe_psql('postgres', "SELECT state FROM redis_export_wait($id, '1 hour')"), 'done', 'as it does with a long one');
	is($node->safe_psql('postgres', 'SELECT redis_export_wait(NULL) IS NULL'), 't', 'of no job it returns null');
	job_ends($node, $redis, $id, state => 'done', keys => 'later:*');

	my $failed = start_job($node, 'SELECT 1 / (3 - id) AS id FROM generate_series(1, 3) id', 'broken:#{id}');
	is($node->safe_psql('postgres', "SELECT state, last_error FROM redis_export_wait($failed)"), 'failed|division by zero',
		'waiting for a job that fails is no error');
	job_ends($node, $redis, $failed, state => 'failed', error => qr/^division by zero$/, keys => 'broken:*');
};

subtest 'notices while waiting' => sub {
	my $session = session($node);
	my $slow = export_sql('SELECT id FROM numbers LIMIT 300', key_template => q{'notice:#{id}'}, rate => 100);

	$session->query("SET redis_export.notice_interval = '1 s'");
	my (undef, $notices) = $session->send($slow)->wait;
	my $id = last_job($node);
	like($notices, qr{^(?:psql:\S+ )?NOTICE:  export job $id: \d+ of about 300 rows \(\d+\.\d%\), \d+ rows/s, about 0:00:\d\d left$}m,
		'rows of about how many, per cent, rows a second, time left');
	my @rows = $notices =~ /job $id: (\d+) of/g;
	cmp_ok(scalar @rows, '>=', 2, 'again and again');
	cmp_ok($rows[-1], '>', $rows[0], 'further each time');

	$session->query('SET redis_export.notice_interval = 0');
	is(($session->send($slow)->wait)[1], '', 'none with 0');
	is($session->query('RESET redis_export.notice_interval; SHOW redis_export.notice_interval'), '10s', 'ten seconds unless set');
	like(($session->send('SET redis_export.notice_interval = -1')->wait)[1], qr/outside the valid range/, 'no negative interval');
};

subtest 'who sees what' => sub {
	my $id = as('alice', export_sql('SELECT NULLIF(id, 2) AS id FROM numbers WHERE id < 5', key_template => q{'mine:#{id}'}, on_error => q{'ignore'})) =~ s{\|.*}{}r;
	my $texts = "SELECT key_template, query, last_error FROM redis_export_progress WHERE job = $id";
	my $null = 'SELECT key_template IS NULL AND query IS NULL AND last_error IS NULL AND rows_written = 3 AND usename = \'alice\''
		. " FROM redis_export_progress WHERE job = $id";
	my $failures = "SELECT row_number FROM redis_export_failures($id)";

	like(as('alice', $texts), qr/^mine:#\{id\}\|SELECT NULLIF.*\|.*null/i, 'its role sees the texts');
	like(as('stats', $texts), qr/^mine:/, 'so does pg_read_all_stats');
	like($node->safe_psql('postgres', $texts), qr/^mine:/, 'and a superuser');
	is(as('bob', $null), 't', 'another role sees the numbers, not the texts');
	is(as('bob', "SELECT query IS NULL AND key_template IS NULL AND last_error IS NULL FROM redis_export_wait($id)"), 't',
		'nor in the row of redis_export_wait');

	is(as('alice', $failures), 2, 'its role sees the failed rows');
	is(as('stats', $failures), 2, 'so does pg_read_all_stats');
	like(error_as('bob', $failures), qr/ERROR:  42501: permission denied to see the failed rows of export job $id/, 'another role does not');
	like(error_as('police', $failures), qr/ERROR:  42501: permission denied for function redis_export_failures/,
		'and without a grant nobody calls it');
	job_ends($node, $redis, $id, state => 'done', error => qr/null/i, keys => 'mine:*');

	my $own = session($node, user => 'bob');
	is($own->query("SELECT count(*) FROM redis_export_progress WHERE query IS NOT NULL AND usename <> 'bob'"), 0, 'of no job at all');
};

subtest 'who may cancel' => sub {
	my $start = sub {
		my ($role) = @_;
		my $session = session($node, user => $role);
		my $id = start_job($session, 'SELECT id FROM numbers', "$role:#{id}", batch => 20, rate => 20);
		until_state($node, $id, 'running');
		return $id;
	};
	my $cancel = 'SELECT redis_export_cancel(%d)';

	my $id = $start->('alice');
	like(error_as('bob', sprintf $cancel, $id), qr/ERROR:  42501: permission denied to control export job $id\nDETAIL:/, 'a stranger may not');
	like(error_as('stats', sprintf $cancel, $id), qr/ERROR:  42501: permission denied for function redis_export_cancel/, 'nor without a grant');
	is(job($node, $id)->{state}, 'running', 'it goes on');
	is(as('alice', sprintf $cancel, $id), 't', 'its owner may');
	job_ends($node, $redis, $id, state => 'canceled', error => qr/^the export was canceled by role "alice"$/, keys => 'alice:*');

	$redis->cli('FLUSHALL');
	$id = $start->('alice');
	is(as('police', sprintf $cancel, $id), 't', 'a member of pg_signal_backend may');
	job_ends($node, $redis, $id, state => 'canceled', error => qr/by role "police"/, keys => 'alice:*');

	$id = $start->('postgres');
	like(error_as('police', sprintf $cancel, $id), qr/ERROR:  42501: permission denied/, 'but not a superuser\'s');
	is($node->safe_psql('postgres', sprintf $cancel, $id), 't', 'which a superuser may');
	job_ends($node, $redis, $id, state => 'canceled', error => qr/by role "postgres"/, keys => 'postgres:*');

	my ($status, $out, $err) = $node->psql('postgres', sprintf $cancel, $id);
	is($out, 'f', 'to cancel what has ended is false');
	like($err, qr/WARNING:  export job $id is not running/, 'with a warning');
};

subtest 'a role and a database that are gone' => sub {
	$node->safe_psql('postgres', 'CREATE ROLE brief LOGIN SUPERUSER; CREATE DATABASE short');
	$node->safe_psql('short', 'CREATE EXTENSION redis_export');
	$node->safe_psql('short', 'CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (port \'' . $redis->port . '\')');
	my $id = $node->safe_psql('short', q{SELECT job FROM redis_json_export('SELECT 1 AS id', 'gone:#{id}')}, extra_params => [ '-U', 'brief' ]);
	is($node->safe_psql('postgres', "SELECT datname, usename FROM redis_export_progress WHERE job = $id"), 'short|brief',
		'a job of another database is seen');
	$node->safe_psql('postgres', 'DROP DATABASE short');
	$node->safe_psql('postgres', 'DROP ROLE brief');
	is($node->safe_psql('postgres', "SELECT datname IS NULL, usename IS NULL, state, query FROM redis_export_progress WHERE job = $id"),
		't|t|done|SELECT 1 AS id', 'and still is when database and role are gone');
	is(as('bob', "SELECT query IS NULL FROM redis_export_progress WHERE job = $id"), 't', 'by others without its texts');
};

subtest 'jobs that are not there' => sub {
	my ($status, $out, $err) = $node->psql('postgres', 'SELECT redis_export_cancel(999999)');
	is($out, 'f', 'redis_export_cancel');
	like($err, qr/WARNING:  export job 999999 is not running/, 'with a warning');
	for my $call ('redis_export_wait(999999)', 'redis_export_wait(-1)', 'redis_export_wait(0)',
		"redis_export_wait(999999, '1 s')", 'redis_export_failures(999999)', 'redis_export_failures(0)')
	{
		like(sql_error($node, "SELECT * FROM $call", verbose => 1), qr/ERROR:  42704: export job \S+ does not exist\nHINT:/, $call);
	}
	like(sql_error($node, q{SELECT redis_export_wait(1, '-1 s')}, verbose => 1), qr/ERROR:  22023:/, 'a negative timeout');
};

subtest 'more jobs than slots' => sub {
	$redis->cli('FLUSHALL');
	my $oldest = $node->safe_psql('postgres', 'SELECT min(job) FROM redis_export_progress');
	my $before = last_job($node);
	my $running = start_job($node, 'SELECT id FROM numbers', 'steady:#{id}', batch => 20, rate => 20);
	is($node->safe_psql('postgres', q{
		SELECT count(*) FROM generate_series(1, 130) i,
			LATERAL redis_json_export(format('SELECT %s AS id', i), 'tiny:#{id}') p WHERE p.state = 'done'}), 130, '130 exports');

	is(redis_keys_count($redis, 'tiny:*'), 130, 'all are in Redis');
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT job), max(job) FROM redis_export_progress'),
		'128|128|' . ($before + 131), 'the view has 128 of them, the last included');
	is(job($node, $oldest), undef, 'the oldest has gone');
	like(sql_error($node, "SELECT redis_export_wait($oldest)"), qr/job $oldest does not exist/, 'and is not known any more');
	is($node->safe_psql('postgres', "SELECT count(*) FROM redis_export_progress WHERE job BETWEEN $before + 5 AND $before + 131"),
		127, 'the newest have stayed');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM redis_export_progress WHERE state <> \'done\''), 1, 'all others are done');
	is(job($node, $running)->{state}, 'running', 'a job that runs keeps its slot');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($running)");
	job_ends($node, $redis, $running, state => 'canceled', keys => 'steady:*');
	ledger_ok($node);
};

done_testing;
