# The page of the nightly job, docs/nightly.md: each of its statements runs, word for word and in its order, and does what the page
# says. The jobs that it schedules are run by hand, as pg_cron has them in its table, and at the end by pg_cron itself.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Page;

chomp(my ($sharedir, $version) = qx{pg_config --sharedir --version});
plan skip_all => "$version has no pg_cron here" unless -e "$sharedir/extension/pg_cron.control";

my $page = RedisExport::Page->new('docs/nightly.md');
my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "shared_preload_libraries = 'pg_cron'\ncron.use_background_workers = on\nmax_worker_processes = 16\nredis_export.notice_interval = 0\n");
$node->restart;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_cron');

# Runs the next statement of a section, and returns what it returns.
sub run_next
{
	my ($section) = @_;
	return $node->safe_psql('postgres', $page->next($section));
}

sub run_job
{
	my ($name) = @_;
	my $command = $node->safe_psql('postgres', "SELECT command FROM cron.job WHERE jobname = '$name'");
	my ($status, $out, $err) = $node->psql('postgres', $command);
	return $err;
}

# The last job's state and rows: written, unchanged, and keys deleted.
sub how_it_ended
{
	my $job = job($node);
	ledger_ok($node, $job->{job});
	return "$job->{state} $job->{rows_written} $job->{rows_unchanged} $job->{keys_deleted}";
}

run_next('The nightly job') for 1 .. 2;
run_next('What Redis is to hold');
$node->safe_psql('postgres', q{INSERT INTO appointments SELECT i, json_build_object('n', i)::text, now() - interval '1 day' - i * interval '1 hour' FROM generate_series(1, 1000) AS i});
my $changed = q{UPDATE appointments SET doc = '{"n":"changed"}' WHERE appointment_id = };

my $load = 'The first load, and every night';
subtest $load => sub {
	my $run = $page->next($load);
	like($node->safe_psql('postgres', $run), qr/^\d+\|done\|1000\|1000\|0\|0\|0\|$/, 'all are written');
	$redis->cli('DEL', "appointment:$_") for 1 .. 10;
	like($node->safe_psql('postgres', $run), qr/^\d+\|done\|1000\|10\|990\|0\|0\|$/, 'the same call writes what Redis lacks');
	run_next($load);
	$redis->cli('DEL', 'appointment:5');
	$node->safe_psql('postgres', $changed . 6);
	is(run_job('appointments: changed'), '', 'the job');
	is(how_it_ended(), 'done 2 998 0', 'what is gone in Redis is written, and what changed without a stamp');
};

my $new = 'Every ten minutes: what is new';
subtest $new => sub {
	run_next($new);
	$node->safe_psql('postgres', q{INSERT INTO appointments VALUES (1001, '{}')});
	$node->safe_psql('postgres', $changed . 2 . q{; UPDATE appointments SET doc = '{"n":"later"}', updated_at = now() WHERE appointment_id = 3});
	is(run_job('appointments: new'), '', 'the job');
	is(job($node)->{rows_written}, 2, 'what is stamped since is written');
	is($redis->cli('JSON.GET', 'appointment:3'), '{"n":"later"}', 'so it is');
	run_job('appointments: new');
	is(how_it_ended(), 'done 0 2 0', 'what is within the overlap is read once more');
	run_next($new);
	$node->safe_psql('postgres', q{UPDATE appointments SET updated_at = '2025-12-31' WHERE appointment_id = 4});
	run_job('appointments: new');
	is(job($node)->{rows_read}, 1000, 'when the mark is set back, all since that moment are read again');
	run_next($new);
	run_job('appointments: new');
	is(job($node)->{rows_read}, 1001, 'and when it is forgotten, all');
};

my $gone = 'Every week: what is gone, too';
subtest $gone => sub {
	run_next($gone);
	$node->safe_psql('postgres', 'DELETE FROM appointments WHERE appointment_id BETWEEN 11 AND 20');
	is(run_job('appointments: prune'), '', 'the job');
	is(how_it_ended(), 'done 0 991 10', 'has deleted what is gone');
	is(redis_keys_count($redis, 'appointment:*'), 991, 'so it is');
};

subtest 'is it true?' => sub {
	run_next('Every week: is it true?') for 1 .. 2;
	is(run_job('appointments: verify'), '', 'the job');
	is($node->safe_psql('postgres', 'SELECT expected, missing, different, unknown FROM redis_checks'), '991|0|0|0', 'it is');
};

subtest 'pg_cron runs them all' => sub {
	is($node->safe_psql('postgres', q{SELECT string_agg(jobname, ', ' ORDER BY jobname) FROM cron.job}),
		'appointments: changed, appointments: new, appointments: prune, appointments: verify', 'there they are');
	$node->safe_psql('postgres', q{SELECT cron.alter_job(jobid, schedule => '@reboot') FROM cron.job});
	$node->restart;
	poll_until($node, q{SELECT count(*) = 4 FROM cron.job_run_details WHERE status IN ('succeeded', 'failed')});
	is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT status, ', ') FROM cron.job_run_details}), 'succeeded', 'all is well')
		or diag $node->safe_psql('postgres', 'SELECT jobname, return_message FROM cron.job_run_details JOIN cron.job USING (jobid)');
	no_worker_left($node);
};

# Each alert is silent when all is well, and is not when its fault is there.
subtest 'alerts' => sub {
	my @alerts = $page->rest('Alerts');
	is(scalar @alerts, 3, 'there are three');
	is($node->safe_psql('postgres', $_), '', 'silence') for @alerts;
	$node->safe_psql('postgres', 'DELETE FROM appointments WHERE appointment_id > 500');
	$redis->cli('DEL', 'appointment:1');
	$node->safe_psql('postgres', q{DELETE FROM cron.job_run_details; SELECT cron.unschedule('appointments: new'); SELECT cron.unschedule('appointments: changed')});
	$node->restart;
	poll_until($node, q{SELECT count(*) = 2 FROM cron.job_run_details WHERE status IN ('succeeded', 'failed')});
	like($node->safe_psql('postgres', $alerts[0]), qr/^\d+\|.*\|appointment:#\{appointment_id\}\|prune would delete 501 of 991 keys/, 'a failed job');
	like($node->safe_psql('postgres', $alerts[1]), qr/^appointments: prune\|.*prune would delete/, 'a failed run');
	like($node->safe_psql('postgres', $alerts[2]), qr/\|490\|[01]\|0\|501\|0\|/, 'a difference');
};

subtest 'on a replica' => sub {
	$node->safe_psql('postgres', $_) for
		q{SELECT cron.schedule('appointments: new', '0 0 1 1 *', 'SELECT 1')}, q{SELECT cron.schedule('appointments: changed', '0 0 1 1 *', 'SELECT 1')};
	run_next('On a replica');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM cron.job WHERE nodename = 'replica.example.com' AND nodeport = 5432}), 3, 'three jobs are meant for it');
};

is(join('', $page->unseen), '', 'no statement of the page was left out');

done_testing;
