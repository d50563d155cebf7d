# Exports on a read-only replica: a plain one, and one that recovery stops because it needs rows that the primary has removed.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new;
my $primary = new_node($redis, name => 'primary', allows_streaming => 1, conf => "autovacuum = off\n");
$primary->safe_psql('postgres', 'CREATE TABLE numbers AS SELECT id FROM generate_series(1, 100000) id; CREATE TABLE few AS SELECT generate_series(1, 100) AS id');
$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->append_conf('postgresql.conf', "max_standby_streaming_delay = 1s\nhot_standby_feedback = off\n");
$replica->start;

# The primary removes rows that a query of the replica still may see.
sub remove_rows
{
	$primary->safe_psql('postgres', 'DELETE FROM numbers WHERE id > 90000');
	$primary->safe_psql('postgres', 'VACUUM numbers');
	return;
}

subtest 'an export' => sub {
	is($replica->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 't', 'in recovery');
	my $id = start_job($replica, 'SELECT id FROM few', 'a:#{id}');
	is(job_ends($replica, $redis, $id, state => 'done', keys => 'a:*')->{rows_written}, 100, 'all rows');
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM redis_export_progress'), 0, 'the primary knows nothing of it');
};

my $conflict = qr/conflict with recovery/;

subtest 'a conflict with recovery, and nobody waits' => sub {
	my $id = start_job($replica, 'SELECT id FROM numbers', 'b:#{id}', batch => 20, rate => 200);
	until_written($replica, $id, 20);
	remove_rows();
	my $row = job_ends($replica, $redis, $id, state => 'failed', error => $conflict, keys => 'b:*');
	cmp_ok($row->{rows_written}, '>=', 20, 'what was written is counted');
};

subtest 'a conflict with recovery while Redis is frozen' => sub {
	$primary->safe_psql('postgres', 'INSERT INTO numbers SELECT generate_series(90001, 100000)');
	$primary->wait_for_catchup($replica);
	my $id = start_job($replica, 'SELECT id FROM numbers', 'c:#{id}', batch => 20, rate => 200);
	until_written($replica, $id, 20);
	$redis->freeze;
	poll_until($replica, "SELECT rows_in_doubt >= 60 FROM redis_export_progress WHERE job = $id");
	my $begun = time;
	remove_rows();
	$primary->wait_for_catchup($replica, 'replay');
	cmp_ok(time - $begun, '<', 20, 'recovery goes on soon');
	poll_until($replica, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	$redis->thaw;
	job_ends($replica, $redis, $id, state => 'failed', error => $conflict, keys => 'c:*');
};

# The conflict may meet the caller, whose statement has a snapshot too, before the worker: it is no cancel all the same.
subtest 'a conflict with recovery, and somebody waits' => sub {
	$primary->safe_psql('postgres', 'INSERT INTO numbers SELECT generate_series(90001, 100000)');
	$primary->wait_for_catchup($replica);
	my $session = session($replica);
	my $id = next_job($replica, sub { $session->send("\\set VERBOSITY verbose\n"
		. export_sql('SELECT id FROM numbers', key_template => q{'d:#{id}'}, batch => 20, rate => 200)) });
	until_written($replica, $id, 20);
	remove_rows();
	like(($session->wait)[1], qr/ERROR:  40001: .*$conflict/, 'the caller\'s error');
	job_ends($replica, $redis, $id, state => 'failed', error => $conflict, keys => 'd:*');
};

done_testing;
