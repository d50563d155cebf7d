# The page of the nightly job, docs/nightly.md: each of its statements runs, word for word and in its order, and does what the page
# says. The jobs that it schedules are run by hand, as pg_cron has them in its table, and at the end by pg_cron itself.
use strict;
use warnings;
use FindBin;
use RedisExport::Test;
use RedisExport::Jobs;

chomp(my ($sharedir, $version) = qx{pg_config --sharedir --version});
plan skip_all => "$version has no pg_cron here" unless -e "$sharedir/extension/pg_cron.control";

# The statements of each section, in their order.
my (%statements, @unseen);
{
	my ($section, $inside, $statement) = ('', 0, '');
	for my $line (split /\n/, slurp_file("$FindBin::Bin/../../docs/nightly.md"))
	{
		$section = $1 if $line =~ /^#+ (.*)/ && !$inside;
		if ($line =~ /^```/)
		{
			$inside = $line eq '```sql';
			next;
		}
		next if !$inside;
		$statement .= "$line\n";
		next if $line !~ /;$/;
		push @{ $statements{$section} }, $statement =~ s/^\n+//r;
		push @unseen, $statement =~ s/^\n+//r;
		$statement = '';
	}
}
cmp_ok(scalar @unseen, '>', 10, 'the page has statements');

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "shared_preload_libraries = 'pg_cron'\ncron.use_background_workers = on\nmax_worker_processes = 16\nredis_export.notice_interval = 0\n");
$node->restart;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_cron');

# Runs the next statement of a section, and returns what it returns.
sub run_next
{
	my ($section) = @_;
	my $statement = shift @{ $statements{$section} } // die "no statement is left in section $section";
	@unseen = grep { $_ ne $statement } @unseen;
	return $node->safe_psql('postgres', $statement);
}

sub run_job
{
	my ($name) = @_;
	my $command = $node->safe_psql('postgres', "SELECT command FROM cron.job WHERE jobname = '$name'");
	my ($status, $out, $err) = $node->psql('postgres', $command);
	return $err;
}

# The last job's state and rows: written, unchanged, pruned.
sub how_it_ended
{
	my $job = job($node);
	ledger_ok($node, $job->{job});
	return "$job->{state} $job->{rows_written} $job->{rows_unchanged} $job->{rows_pruned}";
}

my $section = 'The nightly job';
run_next($section) for 1 .. 2;
$node->safe_psql('postgres', q{INSERT INTO appointments SELECT i, json_build_object('n', i)::text, now() - interval '1 day' - i * interval '1 hour' FROM generate_series(1, 1000) AS i});
my $changed = q{UPDATE appointments SET doc = '{"n":"changed"}' WHERE appointment_id = };

subtest 'the first load, and one that was stopped' => sub {
	is(run_next('The first load'), 'done|1000|0', 'all are written');
	$redis->cli('DEL', "appointment:$_") for 1 .. 10;
	my $again = 'SELECT state, rows_written, rows_unchanged FROM redis_json_export(\'SELECT appointment_id, doc FROM appointments\', \'appointment:#{appointment_id}\', changed_only => true)';
	is($node->safe_psql('postgres', $again), 'done|10|990', 'the same call goes on');
};

subtest 'what is new' => sub {
	run_next('Every ten minutes: what is new');
	is(run_job('appointments: new'), '', 'the job');
	is(how_it_ended(), 'done 0 1000 0', 'without a mark it reads all rows');
	like(run_next('Every ten minutes: what is new'), qr/^appointments\|\d{4}-\d\d-\d\d .*\|/, 'the mark');
	$node->safe_psql('postgres', q{INSERT INTO appointments VALUES (1001, '{}')});
	$node->safe_psql('postgres', $changed . 2 . q{; UPDATE appointments SET doc = '{"n":"later"}', updated_at = now() WHERE appointment_id = 3});
	run_job('appointments: new');
	is(job($node)->{rows_written}, 2, 'what is stamped since is written');
	is($redis->cli('JSON.GET', 'appointment:3'), '{"n":"later"}', 'so it is');
	run_job('appointments: new');
	is(how_it_ended(), 'done 0 2 0', 'what is within the overlap is read once more');
	is(run_next('Every ten minutes: what is new'), 't', 'the mark is forgotten');
	run_job('appointments: new');
	is(job($node)->{rows_read}, 1001, 'and all are read again');
	$node->safe_psql('postgres', q{UPDATE appointments SET updated_at = '2025-12-31' WHERE appointment_id = 4});
	is(run_next('Every ten minutes: what is new'), 't', 'it is set back');
	run_job('appointments: new');
	is(job($node)->{rows_read}, 1000, 'and all since that moment are read again');
};

subtest 'what has changed, and what is gone' => sub {
	run_next('Every night: what has changed, whatever the time stamp says');
	$redis->cli('DEL', 'appointment:5');
	$node->safe_psql('postgres', $changed . 6);
	is(run_job('appointments: changed'), '', 'the job');
	is(how_it_ended(), 'done 2 999 0', 'what is gone in Redis is written, and what changed without a stamp');
	run_next('Every week: what is gone, too');
	$node->safe_psql('postgres', 'DELETE FROM appointments WHERE appointment_id BETWEEN 11 AND 20');
	is(run_job('appointments: prune'), '', 'the weekly job');
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
	my @alerts = splice @{ $statements{Alerts} };
	@unseen = grep { my $statement = $_; !grep { $_ eq $statement } @alerts } @unseen;
	is(scalar @alerts, 4, 'there are four');
	is($node->safe_psql('postgres', $_), '', 'silence') for @alerts;
	$node->safe_psql('postgres', 'DELETE FROM appointments WHERE appointment_id > 500');
	$redis->cli('DEL', 'appointment:1');
	$redis->cli('HSET', 'redis_export:{appointments}', 'moved_at', '2026-01-01T00:00:00Z');
	$node->safe_psql('postgres', q{DELETE FROM cron.job_run_details; SELECT cron.unschedule('appointments: new'); SELECT cron.unschedule('appointments: changed')});
	$node->restart;
	poll_until($node, q{SELECT count(*) = 2 FROM cron.job_run_details WHERE status IN ('succeeded', 'failed')});
	like($node->safe_psql('postgres', $alerts[0]), qr/^\d+\|.*\|appointment:#\{appointment_id\}\|prune would delete 501 of 991 keys/, 'a failed job');
	like($node->safe_psql('postgres', $alerts[1]), qr/^appointments: prune\|.*prune would delete/, 'a failed run');
	like($node->safe_psql('postgres', $alerts[2]), qr/\|490\|[01]\|0\|\|501\|/, 'a difference');
	like($node->safe_psql('postgres', $alerts[3]), qr/^appointments\|2026-01-01/, 'a mark that does not move');
};

subtest 'on a replica' => sub {
	$node->safe_psql('postgres', $_) for
		q{SELECT cron.schedule('appointments: new', '0 0 1 1 *', 'SELECT 1')}, q{SELECT cron.schedule('appointments: changed', '0 0 1 1 *', 'SELECT 1')};
	run_next('On a replica');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM cron.job WHERE nodename = 'replica.example.com' AND nodeport = 5432}), 3, 'three jobs are meant for it');
};

is("@unseen", '', 'no statement of the page was left out');

done_testing;
