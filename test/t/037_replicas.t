# For those who protect the target and the source: wait_replicas holds rows back until replicas of Redis have them, keys that Redis
# evicts are told, and the rate of a running export can be changed.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Jobs;

my $redis = RedisExport::Redis->new(conf => { 'repl-ping-replica-period' => 1, 'repl-diskless-sync-delay' => 0 });
my $replica = RedisExport::Redis->new(conf => { replicaof => '127.0.0.1 ' . $redis->port });
my $node = new_node($redis, conf => 'redis_export.notice_interval = 0');

wait_until('the replica is in step', sub { ($replica->info('master_link_status') // '') eq 'up' });

# What the replica holds is looked at with the master gone, so that nothing can come after.
subtest 'what is acknowledged, the replica has' => sub {
	for my $ttl (undef, q{'1 hour'})
	{
		$redis->cli('FLUSHALL');
		my $out = $node->safe_psql('postgres',
			export_sql('SELECT i AS id FROM generate_series(1, 3000) AS i', batch => 100, wait_replicas => 1, $ttl ? (ttl => $ttl) : ()));
		like($out, qr/\|done$/, 'it ends well');
		is(job($node)->{rows_written}, 3000, 'all rows are acknowledged');
		is(redis_keys_count($replica, 'k:*'), 3000, 'the replica has them at that moment');
		cmp_ok($replica->cli('PTTL', 'k:3000'), '>', 3_000_000, 'and their expiry') if $ttl;
		ledger_ok($node);
	}
};

subtest 'a replica that is paused holds the rows back' => sub {
	$redis->cli('FLUSHALL');
	my $session = session($node);
	$replica->freeze;
	my $id = next_job($node, sub {
		$session->send(export_sql('SELECT i AS id FROM generate_series(1, 2000) AS i', batch => 100, wait_replicas => 1));
	});
	until_state($node, $id, 'retrying');
	my $row = job($node, $id);
	is($row->{rows_written}, 0, 'no row counts as written');
	like($row->{last_error}, qr/^only 0 of 1 replicas of Redis have acknowledged the rows$/, 'the view says why');
	$replica->thaw;
	my ($out, $err) = $session->wait;
	like($out, qr/\|done$/, 'it goes on when the replica does');
	like($err, qr/WARNING:  export job $id tries again: only 0 of 1 replicas/, 'and the caller has heard of it');
	is(job($node, $id)->{rows_written}, 2000, 'each row is counted once');
	is(redis_keys_count($replica, 'k:*'), 2000, 'the replica has them all');
	ledger_ok($node, $id);
	$session->quit;
};

subtest 'more replicas than there are' => sub {
	$redis->cli('FLUSHALL');
	like(sql_error($node, export_sql('SELECT i AS id FROM generate_series(1, 50) AS i', wait_replicas => 2, retry_timeout => q{'1 s'}), verbose => 1),
		qr/ERROR:  57P03: gave up after no row was acknowledged for [\d.]+ seconds: only 1 of 2 replicas of Redis have acknowledged the rows.*HINT: /s,
		'the job gives up after retry_timeout');
	my $row = job($node);
	is($row->{rows_written}, 0, 'nothing counts as written');
	is($row->{rows_in_doubt}, 50, 'what the master has is in doubt');
	is(redis_keys_count($redis, 'k:*'), 50, 'and it has it');
	ledger_ok($node);
};

subtest 'a master that may not WAIT' => sub {
	$redis->cli('ACL', 'SETUSER', 'nowait', 'on', '>pw', '~*', '+@all', '-wait');
	add_server($node, $redis, name => 'nowait');
	$node->safe_psql('postgres', q{CREATE USER MAPPING FOR CURRENT_USER SERVER nowait OPTIONS (username 'nowait', password 'pw')});
	like(sql_error($node, export_sql('SELECT 1 AS id', server => q{'nowait'}, wait_replicas => 1), verbose => 1),
		qr/ERROR:  42501: Redis answered: NOPERM .*wait/, 'is an error at once');
	ledger_ok($node);
};

subtest 'keys that Redis evicts are told' => sub {
	my $small = RedisExport::Redis->new(conf => { 'maxmemory-policy' => 'allkeys-random' });
	add_server($node, $small, name => 'small');
	$small->cli('CONFIG', 'SET', 'maxmemory', $small->info('used_memory') + 10_000_000);
	my ($rc, $out, $err) = $node->psql('postgres',
		export_sql(q{SELECT i AS id, repeat(md5(i::text), 300) AS v FROM generate_series(1, 3000) AS i}, value => q{'*'}, server => q{'small'}));
	like($out, qr/\|done$/, 'the export is done');
	my ($evicted) = $err =~ /WARNING:  Redis evicted (\d+) keys during export job \d+\n/;
	ok($evicted, 'with a warning') or diag $err;
	is($small->cli('DBSIZE') + ($evicted // 0), 3000, 'that counts them right') or diag $small->info('evicted_keys');
	ledger_ok($node);
	$small->stop;
};

subtest 'the rate of a running export' => sub {
	$redis->cli('FLUSHALL');
	my $id = start_job($node, 'SELECT i AS id FROM generate_series(1, 20000) AS i', 'k:#{id}', rate => 10);
	until_written($node, $id, 5);
	is($node->safe_psql('postgres', "SELECT redis_export_set_rate($id, 1)"), 't', 'slower');
	my $before = redis_keys_count($redis);
	cmp_ok($before, '<', 1000, 'it is slow');
	is($node->safe_psql('postgres', "SELECT redis_export_set_rate($id, NULL)"), 't', 'no limit');
	is($node->safe_psql('postgres', "SELECT state FROM redis_export_wait($id, '60 s')"), 'done', 'then it is done in no time');
	is(redis_keys_count($redis), 20000, 'and all is there');
	is($node->safe_psql('postgres', "SELECT redis_export_set_rate($id, 5)"), 'f', 'an export that has ended has no rate');
	ledger_ok($node, $id);

	$id = start_job($node, 'SELECT i AS id FROM generate_series(1, 1000000) AS i', 'k:#{id}', rate => 10);
	$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN; GRANT EXECUTE ON FUNCTION redis_export_set_rate TO stranger');
	like(sql_error($node, "SET ROLE stranger; SELECT redis_export_set_rate($id, NULL)", verbose => 1),
		qr/ERROR:  42501: permission denied to control export job $id/, 'it is not for strangers');
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	job_ends($node, $redis, $id, state => 'canceled');
};

done_testing;
