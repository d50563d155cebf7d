# The harness itself: what the other tests take for granted.
use strict;
use warnings;
use RedisExport::Test;

my $redis = RedisExport::Redis->new;
is($redis->cli('PING'), 'PONG', 'Redis answers');
like($redis->cli('MODULE', 'LIST'), qr/search.*ReJSON|ReJSON.*search/s, 'and has the search and JSON modules');
is($redis->cli('JSON.SET', 'a:1', '$', '{"b":[1,2]}'), 'OK', 'JSON.SET');
is($redis->cli('JSON.GET', 'a:1', '$.b'), '[[1,2]]', 'JSON.GET');
is(redis_keys_count($redis), 1, 'one key');
is(redis_keys_count($redis, 'a:*'), 1, 'one of this name');
is(redis_keys_count($redis, 'c:*'), 0, 'none of another name');

subtest 'freeze and thaw' => sub {
	my $frozen = $redis->pid;
	$redis->freeze;
	like(slurp_file("/proc/$frozen/status"), qr/^State:\s+T/m, 'it is stopped');
	$redis->thaw;
	is($redis->cli('PING'), 'PONG', 'and answers again');
};

subtest 'kill and start' => sub {
	my $run_id = $redis->info('run_id');
	$redis->kill9->start;
	isnt($redis->info('run_id'), $run_id, 'another process at the same port');
	is(redis_keys_count($redis), 0, 'its data is gone');

	my $kept = RedisExport::Redis->new(modules => 0, conf => { appendonly => 'yes', appendfsync => 'always', requirepass => 'hush' });
	isnt($kept->port, $redis->port, 'a second Redis has a port of its own');
	is($kept->cli('SET', 'a', 'x y'), 'OK', 'a password is handed over');
	$kept->kill9->start;
	is($kept->cli('GET', 'a'), 'x y', 'an append-only file keeps the data');
	$kept->freeze;
};

my $node = new_node($redis);
is($node->safe_psql('postgres', "SELECT fdwname FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = srvfdw WHERE srvname = 'redis'"),
	'redis_export', 'the extension is there and so is the server');
like(sql_error($node, 'SELECT nonsense'), qr/^ERROR:  column "nonsense" does not exist/, 'an error as text');

subtest 'a session in the background' => sub {
	my $session = session($node);
	is($session->query('SELECT 1; SELECT 2'), "1\n2", 'output');
	$session->send('SELECT pg_sleep(60)');
	poll_until($node, "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = " . $session->pid);
	ok($session->busy, 'busy');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
	my ($out, $err) = $session->wait;
	is($out, '', 'no output');
	like($err, qr/ERROR:  canceling statement due to user request/, 'an error');
	ok(!$session->busy, 'no longer busy');
	$session->send('SELECT pg_terminate_backend(pg_backend_pid())');
	($out, $err) = $session->wait;
	like($err, qr/terminating connection/, 'a terminated session tells so');
};

done_testing;
