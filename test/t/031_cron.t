# Exports that pg_cron runs: success and failure in its records, runs that overlap, another role in another database, and a replica,
# where pg_cron does nothing by itself, from the primary's pg_cron. By pg_cron's connections first, then by its background workers.
#
# Jobs are scheduled @reboot and come with a restart; only those that shall overlap wait for the next full minute.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

chomp(my ($sharedir, $version) = qx{pg_config --sharedir --version});
plan skip_all => "$version has no pg_cron here" unless -e "$sharedir/extension/pg_cron.control";

my $redis = RedisExport::Redis->new;
my $primary = new_node($redis, name => 'primary', allows_streaming => 1,
	conf => "shared_preload_libraries = 'pg_cron'\ncron.use_background_workers = off\nmax_worker_processes = 16\nmax_connections = 50\n");
$primary->append_conf('postgresql.conf', "cron.host = '" . $primary->host . "'");
$primary->restart;
$primary->safe_psql('postgres', q{
	CREATE EXTENSION pg_cron;
	CREATE ROLE clerk LOGIN;
	CREATE TABLE few AS SELECT id FROM generate_series(1, 100) id;
	CREATE TABLE texts AS SELECT id, CASE WHEN id = 51 THEN 'no document' ELSE '{}' END AS doc FROM generate_series(1, 100) id;
	CREATE FUNCTION gate() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			WHILE NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory') LOOP PERFORM pg_sleep(0.05); END LOOP;
			RETURN 1;
		END $$;
	SELECT redis_export_define('by name', 'SELECT id FROM few', 'named:#{id}');
	CREATE DATABASE other});
$primary->safe_psql('other', q{
	CREATE EXTENSION redis_export;
	CREATE SERVER redis FOREIGN DATA WRAPPER redis_export OPTIONS (port '} . $redis->port . q{');
	GRANT USAGE ON FOREIGN SERVER redis TO clerk;
	GRANT EXECUTE ON FUNCTION redis_json_export TO clerk;
	CREATE TABLE files AS SELECT id FROM generate_series(1, 30) id;
	CREATE TABLE closed AS SELECT 1 AS id;
	GRANT SELECT ON files TO clerk});
$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
$replica->start;

# The row of the view for each export of this key template, oldest first.
sub jobs_of
{
	my ($node, $template) = @_;
	my @jobs = split /\n/, $node->safe_psql('postgres', "SELECT job FROM redis_export_progress WHERE key_template = '$template' ORDER BY job");
	return map { job($node, $_) } @jobs;
}

# What pg_cron has recorded of a job, the oldest run first, as [ status, message, role, database ].
sub runs_of
{
	my ($name) = @_;
	my $rows = $primary->safe_psql('postgres', qq{SELECT json_build_array(status, return_message, d.username, d.database)
		FROM cron.job_run_details d JOIN cron.job USING (jobid) WHERE jobname = '$name' ORDER BY runid});
	return map { JSON::PP->new->decode($_) } split /\n/, $rows;
}

sub until_ended
{
	my ($name, $count, $seconds) = @_;
	return poll_until($primary, qq{SELECT count(*) >= $count FROM cron.job_run_details JOIN cron.job USING (jobid)
		WHERE jobname = '$name' AND end_time IS NOT NULL AND status IN ('succeeded', 'failed')}, $seconds);
}

# Waits for the end of a job, while others may run, and looks at its rows: returns how many were written.
sub rows_of
{
	my ($node, $row, $state) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $row->{job}");
	$row = job($node, $row->{job});
	is($row->{state}, $state, "the job is $state");
	ledger_ok($node, $row->{job});
	is(redis_keys_count($redis, $row->{key_template} =~ s/#\{id\}/*/r), $row->{rows_written}, 'Redis holds the rows that were written');
	return $row->{rows_written};
}

sub schedule
{
	my ($name, $command) = @_;
	return $primary->safe_psql('postgres', "SELECT cron.schedule('$name', '\@reboot', \$cron\$$command\$cron\$)");
}

sub command
{
	my ($query, $prefix, %more) = @_;
	return export_sql($query, key_template => "'$prefix:#{id}'", %more);
}

schedule('good', command('SELECT id FROM few', 'good'));
schedule('named', q{CALL redis_export_run('by name', rows => 'all', batch => 10, rate => 40)});
schedule('refused', command('SELECT id FROM few', 'refused', server => q{'nowhere'}));
schedule('failing', command('SELECT id, doc FROM texts ORDER BY id', 'failing', batch => 10));
my $gated = 'SELECT id FROM few WHERE id <= 50 OR gate() = 1 ORDER BY id';
schedule('nightly', command($gated, 'nightly', batch => 50));
schedule('loose', command($gated, 'loose', batch => 50, wait => 'false'));
$primary->safe_psql('postgres', q{SELECT cron.schedule_in_database('clerk', '@reboot', $cron$} . command('SELECT id FROM files', 'clerk')
	. q{$cron$, 'other', 'clerk'); SELECT cron.schedule_in_database('thief', '@reboot', $cron$} . command('SELECT id FROM closed', 'thief')
	. q{$cron$, 'other', 'clerk')});

# To the replica: where a job runs is two columns of its row.
schedule('there', command('SELECT id, inet_server_port() AS port FROM few', 'there', value => q{'*'}));
schedule('there_failing', command('SELECT id, doc FROM texts ORDER BY id', 'there_failing', batch => 10));
$primary->safe_psql('postgres', q{UPDATE cron.job SET nodename = '127.0.0.1', nodeport = } . $replica->port . q{ WHERE jobname LIKE 'there%'});
$primary->wait_for_catchup($replica);

$primary->restart;
poll_until($primary, q{SELECT count(*) = 2 FROM redis_export_progress WHERE key_template IN ('nightly:#{id}', 'loose:#{id}') AND state = 'running'});

# The two jobs whose exports wait at the gate, which opens when somebody takes an advisory lock, are due again at the next full minute.
$primary->safe_psql('postgres', q{SELECT cron.alter_job(jobid, schedule => '* * * * *') FROM cron.job WHERE jobname IN ('nightly', 'loose')});

subtest 'success and failure' => sub {
	until_ended('good', 1);
	is_deeply([ runs_of('good') ], [ [ 'succeeded', '1 row', 'postgres', 'postgres' ] ], 'a good run');
	my ($row) = jobs_of($primary, 'good:#{id}');
	is(rows_of($primary, $row, 'done'), 100, 'its rows');

	until_ended('named', 1);
	is_deeply([ runs_of('named') ], [ [ 'succeeded', '1 row', 'postgres', 'postgres' ] ], 'a run of an export with a name');
	is(rows_of($primary, (jobs_of($primary, 'named:#{id}'))[0], 'done'), 100, 'its rows');

	until_ended('refused', 1);
	my ($run) = runs_of('refused');
	is($run->[0], 'failed', 'one that is refused');
	like($run->[1], qr/ERROR:  server "nowhere" does not exist/, 'and why');

	until_ended('failing', 1);
	($run) = runs_of('failing');
	is($run->[0], 'failed', 'one that fails');
	like($run->[1], qr/ERROR:  .*holds no JSON.*\nDETAIL:  .*50 written/s, 'and why, and after how many rows') or diag $run->[1];
	($row) = jobs_of($primary, 'failing:#{id}');
	is(rows_of($primary, $row, 'failed'), 50, 'it was that many');
};

subtest 'another role in another database' => sub {
	until_ended($_, 1) for qw(clerk thief);
	is_deeply([ runs_of('clerk') ], [ [ 'succeeded', '1 row', 'clerk', 'other' ] ], 'the run');
	my ($row) = jobs_of($primary, 'clerk:#{id}');
	is("$row->{usename} $row->{datname}", 'clerk other', 'the export is that role\'s in that database');
	is(rows_of($primary, $row, 'done'), 30, 'its rows');
	my ($run) = runs_of('thief');
	is($run->[0], 'failed', 'with no more rights than it has');
	like($run->[1], qr/ERROR:  permission denied for table closed/, 'as the record says');
	is(redis_keys_count($redis, 'thief:*'), 0, 'nothing got out');
};

subtest 'on a replica' => sub {
	until_ended($_, 1) for qw(there there_failing);
	is_deeply([ runs_of('there') ], [ [ 'succeeded', '1 row', 'postgres', 'postgres' ] ], 'a good run');
	my ($row) = jobs_of($replica, 'there:#{id}');
	is(rows_of($replica, $row, 'done'), 100, 'its export was the replica\'s');
	my ($run) = runs_of('there_failing');
	is($run->[0], 'failed', 'one that fails');
	like($run->[1], qr/ERROR:  .*holds no JSON/, 'and why');
	is(scalar jobs_of($primary, $_), 0, "none on the primary: $_") for 'there:#{id}', 'there_failing:#{id}';
	my $launchers = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher'};
	is($primary->safe_psql('postgres', $launchers), 1, 'the primary\'s pg_cron');
	is($replica->safe_psql('postgres', 'SHOW shared_preload_libraries'), 'pg_cron', 'the replica has it loaded');
	is($replica->safe_psql('postgres', $launchers), 0, 'but it does not run there');
};

# The same schedule, due while its run before has not ended: pg_cron holds back a statement that waits for its export until the one
# before has ended; exports that are not waited for run side by side.
subtest 'runs that overlap' => sub {
	is((job($primary, $_->{job}))->{state}, 'running', "the first export runs: $_->{key_template}") for jobs_of($primary, 'nightly:#{id}'), jobs_of($primary, 'loose:#{id}');
	until_ended('loose', 2, 75);
	my @loose = jobs_of($primary, 'loose:#{id}');
	is(scalar @loose, 2, 'a full minute later there are two exports of one that does not wait');
	is($loose[0]{state}, 'running', 'the first still runs');
	is(scalar runs_of('nightly'), 1, 'and there is one run of one that waits');
	is((runs_of('nightly'))[0][0], 'running', 'which is recorded as running');

	$primary->safe_psql('postgres', q{SELECT cron.alter_job(jobid, schedule => '@reboot') FROM cron.job WHERE jobname = 'loose'});
	my $gate = session($primary);
	$gate->query('SELECT pg_advisory_lock(1)');
	is(rows_of($primary, $_, 'done'), 100, 'each of the two writes all rows') for @loose;
	is_deeply([ map { $_->[0] } runs_of('loose') ], [ 'succeeded', 'succeeded' ], 'for pg_cron all is well');

	until_ended('nightly', 2);
	is_deeply([ map { $_->[0] } (runs_of('nightly'))[ 0, 1 ] ], [ 'succeeded', 'succeeded' ], 'the one that waits has run twice, too');
	is($primary->safe_psql('postgres', q{SELECT max(start_time) >= min(end_time) FROM (SELECT start_time, end_time
		FROM cron.job_run_details JOIN cron.job USING (jobid) WHERE jobname = 'nightly' ORDER BY runid LIMIT 2) r}), 't', 'one after the other');
	is(rows_of($primary, $_, 'done'), 100, 'all rows each time')
		for (jobs_of($primary, 'nightly:#{id}'))[ 0, 1 ];
};

subtest 'by background workers' => sub {
	$primary->safe_psql('postgres', q{SELECT cron.unschedule(jobid) FROM cron.job WHERE jobname IN ('nightly', 'loose', 'there', 'there_failing')});
	$primary->safe_psql('postgres', 'DELETE FROM cron.job_run_details');
	$primary->append_conf('postgresql.conf', "cron.use_background_workers = on\nredis_export.notice_interval = 1");
	schedule('slow', command('SELECT id FROM few', 'slow', rate => 40, batch => 10));
	$redis->cli('FLUSHALL');
	$primary->restart;
	my $waits = q{FROM pg_stat_activity WHERE query LIKE '%redis_export_run(%' AND backend_type = 'pg_cron' AND pid <> pg_backend_pid()};
	poll_until($primary, q{SELECT rows_written >= 10 FROM redis_export_progress WHERE key_template = 'named:#{id}'});
	is($primary->safe_psql('postgres', "SELECT count(*), bool_or(backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) $waits"), '1|f', 'who waits for a run holds no snapshot');
	until_ended($_, 1) for qw(good named refused failing clerk thief slow);

	is_deeply([ map { $_->[0] } map { runs_of($_) } qw(good named slow clerk) ], [ ('succeeded') x 4 ], 'success');
	is(redis_keys_count($redis, "$_->[0]:*"), $_->[1], "all rows: $_->[0]") for [ good => 100 ], [ named => 100 ], [ slow => 100 ], [ clerk => 30 ];
	is(job($primary, (jobs_of($primary, 'clerk:#{id}'))[0]{job})->{usename}, 'clerk', 'a role\'s export is its own');
	is_deeply([ map { $_->[0] } map { runs_of($_) } qw(refused failing thief) ], [ ('failed') x 3 ], 'failure');
	like((runs_of('refused'))[0][1], qr/server "nowhere" does not exist/, 'refused');
	like((runs_of('failing'))[0][1], qr/holds no JSON/, 'failed');
	like((runs_of('thief'))[0][1], qr/permission denied for table closed/, 'no right');
	is(redis_keys_count($redis, 'failing:*'), 50, 'rows before the failure');
	is(redis_keys_count($redis, 'thief:*'), 0, 'no row without the right');
	ledger_ok($primary, $_->{job}) for map { jobs_of($primary, "$_:#{id}") } qw(good slow failing clerk thief);
	no_worker_left($primary);
};

done_testing;
