# Exports on a hot standby: all is made on the primary and replicated, the export runs on the replica and writes nothing there, and
# what only a replica does to it: relations without rows, no serializable transactions, conflicts with recovery, restart, promotion.
use strict;
use warnings;
use File::Find ();
use RedisExport::Test;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new(conf => { requirepass => '0n-the-primary' });
my $primary = new_node($redis, name => 'primary', allows_streaming => 1, conf => "autovacuum = off\nlog_line_prefix = '%e '\n");
$primary->safe_psql('postgres', q{
	CREATE USER MAPPING FOR CURRENT_USER SERVER redis OPTIONS (password '0n-the-primary');
	CREATE TABLE few AS SELECT id, 'row ' || id AS name FROM generate_series(1, 100) id;
	CREATE TABLE numbers AS SELECT id FROM generate_series(1, 100000) id;
	CREATE TABLE texts AS SELECT id, CASE WHEN id % 10 = 0 THEN 'no document' ELSE '{}' END AS doc FROM generate_series(1, 100) id;
	CREATE UNLOGGED TABLE fleeting AS SELECT 1 AS id;
	CREATE VIEW fleeting_view AS SELECT id FROM few WHERE id IN (SELECT id FROM fleeting);
	CREATE TABLE parts (id int) PARTITION BY RANGE (id);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (11);
	CREATE UNLOGGED TABLE parts_2 PARTITION OF parts FOR VALUES FROM (11) TO (21);
	INSERT INTO parts SELECT generate_series(1, 20);
	SELECT redis_export_define('level', 'SELECT id FROM few', 'level:#{id}', watermark_column => 'id')});
$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->append_conf('postgresql.conf', "max_standby_streaming_delay = 1s\nhot_standby_feedback = off\nwal_receiver_status_interval = 1s\n");
$replica->start;
$primary->wait_for_catchup($replica);
is($replica->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 't', 'a replica');

# The error of a statement in the session, SQLSTATE included.
sub error_in
{
	my ($session, $sql) = @_;
	my (undef, $err) = $session->send("\\set VERBOSITY verbose\n$sql")->wait;
	return $err;
}

# The names of the replica's files that hold data of any kind; caches that every connection may write are none.
sub data_files
{
	my %files;
	File::Find::find(sub { $files{$File::Find::name} = -s _ if -f $_ && !/^pg_internal\.init|^pg_filenode\.map/ },
		map { $replica->data_dir . "/$_" } qw(base global pg_xact));
	return \%files;
}

subtest 'an export that is waited for, and one that is not' => sub {
	my $session = session($replica);
	my $files = data_files();
	my $id = next_job($replica, sub { like($session->query(export_sql('SELECT id, name FROM few', key_template => q{'a:#{id}'}, value => q{'*'})),
		qr/^\d+\|done$/, 'wait => true') });
	is(job_ends($replica, $redis, $id, state => 'done', keys => 'a:*')->{rows_written}, 100, 'all rows');
	is($redis->cli('JSON.GET', 'a:7'), '{"id":7,"name":"row 7"}', 'a document');

	$id = start_job($session, 'SELECT id, name FROM few', 'b:#{id}', value => q{'*'});
	is($session->query("SELECT state, rows_written FROM redis_export_wait($id)"), 'done|100', 'wait => false, and redis_export_wait');
	job_ends($replica, $redis, $id, state => 'done', keys => 'b:*');

	is($session->query(q{SELECT redis_command('redis', 'EXISTS', 'b:100')}), '1', 'redis_command');
	is_deeply(data_files(), $files, 'no file of the replica has changed');
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM redis_export_progress'), 0, 'the primary knows nothing of it');
	like(error_in($session, q{CREATE SERVER more FOREIGN DATA WRAPPER redis_export}), qr/ERROR:  25006: /, 'a server can only be made on the primary');
	$session->query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
	like($session->query(export_sql('SELECT id FROM few', key_template => q{'c:#{id}'})), qr/\|done$/, 'in a transaction of another isolation level');
	$session->query('COMMIT');
	is(redis_keys_count($redis, 'c:*'), 100, 'all rows');
};

subtest 'exports with a name' => sub {
	my $session = session($replica);
	like($session->query(q{CALL redis_export_run('level')}), qr/\|done\|100\|100\|0\|0\|0\|$/, 'a run');
	like($session->query(q{CALL redis_export_run('level', rows => 'new')}), qr/\|done\|0\|0\|0\|0\|0\|$/, '... which has left its mark');
	like($primary->safe_psql('postgres', q{CALL redis_export_run('level')}), qr/\|done\|100\|0\|100\|0\|0\|$/, 'the primary knows of it');
	is($session->query(q{SELECT row_number, action FROM redis_export_preview('level', 1)}), '1|unchanged', 'a preview');
	is($session->query(q{SELECT expected, missing, different, extra FROM redis_export_verify('level')}), '100|0|0|0', 'verify');
	is($session->query('SELECT name, state, mark, keys, error IS NULL FROM redis_exports'), 'level|done|100|100|t', 'the view');
	is($session->query(q{SELECT redis_export_set_mark('level', '90')}), '', 'a mark is set');
	like($session->query(q{CALL redis_export_run('level', rows => 'new')}), qr/\|done\|10\|0\|10\|0\|0\|$/, '... and rows above it are new');
	like(error_in($session, q{SELECT redis_export_define('another', 'SELECT id FROM few', 'another:#{id}')}),
		qr/25006: cannot execute redis_export_define\(\) in a read-only transaction/, 'what is defined comes from the primary');
	like(error_in($session, q{SELECT redis_export_drop('level', keys => true)}),
		qr/25006: cannot execute redis_export_drop\(\) in a read-only transaction/, '... and what is dropped');
	is(redis_keys_count($redis, 'level:*'), 100, 'of which nothing is deleted');
	is($session->query(q{SELECT redis_export_reset('level')}), '', 'its books are forgotten');
	like($session->query(q{CALL redis_export_run('level')}), qr/\|done\|100\|100\|0\|0\|0\|$/, '... and all rows written');
	is($session->query(q{SELECT redis_export_reset('level')}), '', 'once more, for what follows');
};

subtest 'progress and cancel' => sub {
	my $id = start_job($replica, 'SELECT id FROM numbers LIMIT 4000', 'd:#{id}', batch => 20, rate => 200);
	until_written($replica, $id, 40);
	my $row = job($replica, $id);
	is($row->{state}, 'running', 'the view shows that it runs');
	ok($row->{pid} && $row->{rows_estimated} > 1000 && $row->{percent} > 0 && $row->{percent} < 100, 'its worker and how far it is')
		or diag explain $row;
	is($replica->safe_psql('postgres', "SELECT redis_export_cancel($id)"), 't', 'it is cancelled');
	job_ends($replica, $redis, $id, state => 'canceled', error => qr/by role "postgres"/, keys => 'd:*');

	my $session = session($replica);
	$id = next_job($replica, sub { $session->send("\\set VERBOSITY verbose\n" . export_sql('SELECT id FROM numbers', key_template => q{'e:#{id}'},
		batch => 20, rate => 200)) });
	until_written($replica, $id, 20);
	$replica->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
	like(($session->wait)[1], qr/ERROR:  57014: /, 'who waits is cancelled');
	job_ends($replica, $redis, $id, state => 'canceled', keys => 'e:*');
};

subtest 'rows that fail' => sub {
	my $id = start_job($replica, 'SELECT id, doc FROM texts', 'f:#{id}', on_error => q{'ignore'});
	my $row = job_ends($replica, $redis, $id, state => 'done', error => qr/holds no JSON/, keys => 'f:*');
	is("$row->{rows_written} $row->{rows_failed}", '90 10', 'the others are written');
	is($replica->safe_psql('postgres', "SELECT count(*), min(row_number), min(key), min(sqlstate) FROM redis_export_failures($id)"),
		'10|10|f:10|22P02', 'and these are told');
	$id = start_job($replica, 'SELECT id, doc FROM texts ORDER BY id', 'g:#{id}', batch => 3);
	is(job_ends($replica, $redis, $id, state => 'failed', keys => 'g:*')->{rows_written}, 9, 'unless the first is the end');
	like(sql_error($replica, export_sql(q{SELECT id, nextval('pg_catalog.no_such') FROM few})), qr/does not exist/, 'a query that cannot be');
};

subtest 'unlogged relations' => sub {
	my $before = last_job($replica);
	for my $query ('SELECT id FROM fleeting', 'TABLE fleeting_view', 'SELECT id, (SELECT max(id) FROM fleeting) FROM few', 'SELECT id FROM parts_2')
	{
		like(sql_error($replica, export_sql($query, key_template => q{'never:#{id}'}), verbose => 1),
			qr/ERROR:  0A000: cannot export from unlogged relation "\w+" on a replica\nDETAIL:.*\nHINT:  Export on the primary/, $query);
	}
	is(last_job($replica), $before, 'no worker was started');
	like($replica->safe_psql('postgres', export_sql('SELECT id FROM parts WHERE id < 11', key_template => q{'h:#{id}'})), qr/\|done$/,
		'a partition that is not read is no obstacle');
	is(redis_keys_count($redis, 'h:*'), 10, 'the others are');
	like(sql_error($replica, export_sql('SELECT id FROM parts', key_template => q{'never:#{id}'}), verbose => 1),
		qr/ERROR:  0A000: .*unlogged relations/, 'one that is read');
	is(redis_keys_count($redis, 'never:*'), 0, 'nothing was sent');
	like($primary->safe_psql('postgres', export_sql('SELECT id FROM fleeting', key_template => q{'primary:#{id}'})), qr/\|done$/, 'on the primary it works');
};

# A replica refuses serializable transactions, the caller's in the first place.
subtest 'serializable by default' => sub {
	$replica->safe_psql('postgres', q{ALTER SYSTEM SET default_transaction_isolation = 'serializable'});
	$replica->reload;
	my $export = export_sql('SELECT id FROM few', key_template => q{'i:#{id}'});
	my ($status, undef, $err) = (0);
	for (1 .. 100)    # the reload takes a moment
	{
		($status, undef, $err) = $replica->psql('postgres', $export);
		last if $status;
		sleep 0.1;
	}
	like($err, qr/cannot use serializable mode in a hot standby/, 'the statement itself is refused');
	$redis->cli('FLUSHALL');
	$replica->safe_psql('postgres', "BEGIN ISOLATION LEVEL REPEATABLE READ; $export; COMMIT");
	is(redis_keys_count($redis, 'i:*'), 100, 'one of another level is not, nor is its export');

	# and a run of an export with a name, which writes its mark after the query's transaction
	like($replica->safe_psql('postgres', q{BEGIN ISOLATION LEVEL REPEATABLE READ; CALL redis_export_run('level', rows => 'new'); COMMIT}),
		qr/\|done\|100\|100\|/, 'nor is a run of an export with a name');
	is($redis->cli('HGET', 'redis_export:{level}', 'mark'), 100, 'it has its mark');
	$replica->safe_psql('postgres', q{SET default_transaction_isolation = 'read committed'; ALTER SYSTEM RESET default_transaction_isolation});
	$replica->reload;
	poll_until($replica, q{SELECT current_setting('default_transaction_isolation') = 'read committed'});
};

my $conflict = qr/conflict with recovery/;

# The primary removes rows that a query of the replica still may see.
my $remaining = 100000;
sub remove_rows
{
	$remaining -= 1000;
	$primary->safe_psql('postgres', "DELETE FROM numbers WHERE id > $remaining");
	$primary->safe_psql('postgres', 'VACUUM numbers');
	return;
}

# The end of a job by a conflict: failed, and no row that was sent is without its answer, so Redis holds just what was acknowledged.
sub ends_by_conflict
{
	my ($id, $keys) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $row = job_ends($replica, $redis, $id, state => 'failed', error => $conflict, keys => $keys);
	is($row->{rows_in_doubt}, 0, 'no row is in doubt');
	is(redis_keys_count($redis), $row->{rows_written}, 'exactly what was acknowledged is in Redis');
	like(slurp_file($replica->logfile), qr/^40001 .*export job $id .* failed: $row->{rows_written} rows written/m, 'SQLSTATE and rows are in the log');
	return;
}

sub conflict_starts
{
	$redis->cli('FLUSHALL');
	$primary->wait_for_catchup($replica);
	return;
}

subtest 'a conflict with recovery, and nobody waits' => sub {
	conflict_starts();
	my $id = start_job($replica, 'SELECT id FROM numbers', 'k:#{id}', batch => 20, rate => 200);
	until_written($replica, $id, 20);
	remove_rows();
	ends_by_conflict($id, 'k:*');
};

# The conflict may meet the caller, whose statement has a snapshot too, before the worker: it is no cancel all the same.
subtest 'a conflict with recovery, and somebody waits' => sub {
	conflict_starts();
	my $session = session($replica);
	my $id = next_job($replica, sub { $session->send("\\set VERBOSITY verbose\n"
		. export_sql('SELECT id FROM numbers', key_template => q{'l:#{id}'}, batch => 20, rate => 200)) });
	until_written($replica, $id, 20);
	remove_rows();
	like(($session->wait)[1], qr/ERROR:  40001: .*$conflict/, 'the caller\'s error');
	ends_by_conflict($id, 'l:*');
	like($session->query(export_sql('SELECT id FROM few')), qr/\|done$/, 'the next export of the session works');
};

subtest 'a conflict with recovery while Redis is frozen' => sub {
	conflict_starts();
	my $id = start_job($replica, 'SELECT id FROM numbers', 'm:#{id}', batch => 20, rate => 200);
	until_written($replica, $id, 20);
	$redis->freeze;
	poll_until($replica, "SELECT rows_in_doubt >= 60 FROM redis_export_progress WHERE job = $id");
	my $begun = time;
	remove_rows();
	$primary->wait_for_catchup($replica, 'replay');
	cmp_ok(time - $begun, '<', 50, 'recovery goes on soon');
	poll_until($replica, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	$redis->thaw;
	job_ends($replica, $redis, $id, state => 'failed', error => $conflict, keys => 'm:*');
};

subtest 'hot_standby_feedback' => sub {
	$replica->append_conf('postgresql.conf', 'hot_standby_feedback = on');
	$replica->reload;
	conflict_starts();
	poll_until($primary, 'SELECT backend_xmin IS NOT NULL FROM pg_stat_replication');
	my $session = session($replica);
	my $waited = next_job($replica, sub { $session->send(export_sql('SELECT id FROM numbers LIMIT 800', key_template => q{'n:#{id}'}, batch => 20, rate => 200)) });
	my $id = start_job($replica, 'SELECT id FROM numbers LIMIT 800', 'o:#{id}', batch => 20, rate => 200);
	until_written($replica, $_, 20) for $waited, $id;
	remove_rows();
	$primary->wait_for_catchup($replica, 'replay');
	is(job($replica, $id)->{state}, 'running', 'the removal does not disturb it');
	like($session->wait, qr/\|done$/, 'who waits gets to the end');
	is(job_ends($replica, $redis, $waited, state => 'done', keys => 'n:*')->{rows_written}, 800, 'all rows');
	is(job_ends($replica, $redis, $id, state => 'done', keys => 'o:*')->{rows_written}, 800, 'of both');
};

# Feedback keeps rows, but not locks away: what takes the whole table on the primary takes it on the replica, too.
subtest 'a conflict over a lock' => sub {
	conflict_starts();
	my $session = session($replica);
	my $id = next_job($replica, sub { $session->send("\\set VERBOSITY verbose\n"
		. export_sql('SELECT id FROM numbers', key_template => q{'w:#{id}'}, batch => 20, rate => 200)) });
	until_written($replica, $id, 20);
	$primary->safe_psql('postgres', 'ALTER TABLE numbers ADD more int');
	like(($session->wait)[1], qr/ERROR:  40001: .*$conflict/, 'the caller\'s error');
	ends_by_conflict($id, 'w:*');
};

subtest 'a restart of the replica' => sub {
	$redis->cli('FLUSHALL');
	my $session = session($replica);
	my $id = next_job($replica, sub { $session->send(export_sql('SELECT id FROM numbers', key_template => q{'p:#{id}'}, batch => 20, rate => 200)) });
	my $other = start_job($replica, 'SELECT id FROM numbers', 'q:#{id}', batch => 20, rate => 200);
	until_written($replica, $_, 20) for $id, $other;
	$replica->restart;
	like(($session->wait)[1], qr/terminating (?:connection|background worker "redis_export worker") due to administrator command/, 'who waits is told');
	$session->quit;
	my $log = slurp_file($replica->logfile);
	for my $case ([ $id, 'p:*' ], [ $other, 'q:*' ])
	{
		my ($job, $keys) = @$case;
		my ($written, $doubt) = $log =~ /export job $job .* failed: (\d+) rows written, \d+ failed, (\d+) in doubt/;
		ok(defined $written, 'the log has the end of the job') or next;
		my $count = redis_keys_count($redis, $keys);
		ok($count >= $written && $count <= $written + $doubt, 'and Redis what it says') or diag "$count keys, $written written, $doubt in doubt";
	}
	is($replica->safe_psql('postgres', 'SELECT count(*) FROM redis_export_progress'), 0, 'the view is empty');
	$id = start_job($replica, 'SELECT id FROM few', 'r:#{id}');
	is(job_ends($replica, $redis, $id, state => 'done', keys => 'r:*')->{rows_written}, 100, 'the next export works');
};

subtest 'promotion' => sub {
	$redis->cli('FLUSHALL');
	my $session = session($replica);
	my $id = next_job($replica, sub { $session->send(export_sql('SELECT id FROM numbers LIMIT 600', key_template => q{'s:#{id}'}, batch => 20, rate => 200)) });
	my $other = start_job($replica, 'SELECT id FROM numbers LIMIT 600', 't:#{id}', batch => 20, rate => 200);
	until_written($replica, $_, 20) for $id, $other;
	$replica->promote;
	is($replica->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 'f', 'it is a primary now');
	is(job($replica, $other)->{state}, 'running', 'the job goes on');
	like($session->wait, qr/^$id\|done$/, 'who waits gets to the end');
	is(job_ends($replica, $redis, $id, state => 'done', keys => 's:*')->{rows_written}, 600, 'all rows');
	is(job_ends($replica, $redis, $other, state => 'done', keys => 't:*')->{rows_written}, 600, 'of both');
	$replica->safe_psql('postgres', 'INSERT INTO few VALUES (101)');
	is($replica->safe_psql('postgres', export_sql('SELECT id FROM few', key_template => q{'u:#{id}'})) =~ s/.*\|//r, 'done', 'the next export');
	is(redis_keys_count($redis, 'u:*'), 101, 'has the new row');
};

done_testing;
