# Redis goes away in mid-job, or is not there, or refuses to be entered for a while: the export waits, comes back, sends again what
# was not answered, and tells what may be lost. Each subtest is one such fault, seen in the view, in the caller's messages and in Redis.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Fake;
use RedisExport::Jobs qw(next_job);
use RedisExport::Rows;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => 'redis_export.notice_interval = 0');

# A job on its own, at a rate that leaves time to do something to it; returns when so many rows are acknowledged.
sub start_job
{
	my ($session, $count, $written, %arguments) = @_;
	next_job($node, sub { $session->send(rows($count, rate => 2500, batch => 200, %arguments)) });
	poll_until($node, "SELECT rows_written >= $written OR finished_at IS NOT NULL FROM redis_export_progress ORDER BY job DESC LIMIT 1");
	my $job = job($node);
	die "it is $job->{state}: " . ($job->{last_error} // '') if $job->{finished_at};
	return;
}

sub ended_well
{
	my ($count) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $job = job($node);
	is($job->{state}, 'done', 'done') or diag $job->{last_error};
	is($job->{rows_written}, $count, 'each row is counted once');
	ledger_ok($node);
	return $job;
}

my $session = session($node);

subtest 'killed and started again, its data kept' => sub {
	my $kept = RedisExport::Redis->new(conf => { appendonly => 'yes', appendfsync => 'always' });
	add_server($node, $kept, name => 'kept');
	start_job($session, 12_000, 2000, server => q{'kept'});
	$kept->kill9;
	poll_until($node, q{SELECT state = 'retrying' FROM redis_export_progress ORDER BY job DESC LIMIT 1});
	$kept->start;
	my ($out, $err) = $session->wait;
	my $job = ended_well(12_000);
	cmp_ok($job->{reconnects}, '>=', 1, 'it came back');
	is($job->{redis_restarts}, 1, 'and saw that Redis is another process');
	is(redis_keys_count($kept), 12_000, 'all keys are in Redis');
	is(wrong_rows($kept, 12_000), 0, 'with the values of the query');
	like($err, qr/WARNING:  export job \d+ tries again: lost the connection to Redis server "kept" at "127\.0\.0\.1", port \d+: /,
		'the caller hears of the trouble');
	like($err, qr/WARNING:  Redis was restarted after \d+ rows of export job \d+ were acknowledged\n.*HINT:  .*appendonly yes/s,
		'and of the restart');
	$kept->stop;
};

subtest 'killed and started again, its data lost' => sub {
	start_job($session, 8000, 2000);
	$redis->kill9;
	poll_until($node, q{SELECT state = 'retrying' FROM redis_export_progress ORDER BY job DESC LIMIT 1});
	my $acknowledged = job($node)->{rows_written};
	$redis->start;
	my ($out, $err) = $session->wait;
	my $job = ended_well(8000);
	is($job->{redis_restarts}, 1, 'one restart');
	like($err, qr/WARNING:  Redis was restarted after $acknowledged rows of export job $job->{job} were acknowledged$/m,
		'the warning says how many rows were acknowledged before');
	like(slurp_file($node->logfile), qr/WARNING:  Redis was restarted after $acknowledged rows were acknowledged/, 'so does the log');
	my $keys = redis_keys_count($redis);
	cmp_ok($keys, '>=', 8000 - $acknowledged, 'every row that was not acknowledged before is in Redis');
	cmp_ok($keys, '<', 8000, 'what was, is not');
};

subtest 'down for longer than retry_timeout' => sub {
	start_job($session, 8000, 1000, retry_timeout => q{'1 s'});
	$redis->kill9;
	my ($out, $err) = $session->wait;
	like($err, qr/ERROR:  gave up after no row was acknowledged for \d+\.\d seconds: could not connect to Redis server "redis" at "127\.0\.0\.1", port \d+: Connection refused/,
		'the error says what it is about');
	like($err, qr/DETAIL:  Export job \d+: \d+ rows read, \d+ written, 0 failed, \d+ in doubt\./, 'with the ledger');
	like($err, qr/HINT:  See that Redis runs there/, 'and a hint');
	my $job = job($node);
	is($job->{state}, 'failed', 'failed');
	cmp_ok($job->{rows_written}, '>=', 1000, 'what was written stays counted');
	ledger_ok($node);
	$redis->start;
};

subtest 'not there at the start, and later is' => sub {
	$redis->stop;
	$session->send(rows(500));
	poll_until($node, q{SELECT state = 'retrying' FROM redis_export_progress ORDER BY job DESC LIMIT 1});
	wait_until('a warning', sub { $session->messages =~ /WARNING/ });
	like($session->messages, qr/WARNING:  export job \d+ tries again: could not connect to Redis server "redis"/, 'a warning at once');
	$redis->start;
	$session->wait;
	my $job = ended_well(500);
	is($job->{redis_restarts}, 0, 'that is no restart');
	is(wrong_rows($redis, 500), 0, 'the rows are in Redis');
};

subtest 'never there' => sub {
	$redis->stop;
	my $error = sql_error($node, rows(500, retry_timeout => q{'0.5 s'}), verbose => 1);
	like($error, qr/^ERROR:  08001: gave up after no row was acknowledged for [\d.]+ seconds: could not connect/m, 'an error in the end');
	is(job($node)->{rows_read}, 0, 'no row was read for nothing');
	ledger_ok($node);
	$redis->start;
};

subtest 'no such host' => sub {
	add_server($node, $redis, name => 'nowhere', host => 'nowhere..invalid');
	my $error = sql_error($node, rows(500, server => q{'nowhere'}), verbose => 1);
	like($error, qr/^ERROR:  08001: could not find the address of Redis server "nowhere", host "nowhere..invalid": /m, 'an error at once');
	is(job($node)->{state}, 'failed', 'the job has failed');
};

subtest 'no such socket' => sub {
	add_server($node, $redis, name => 'no_socket', host => '/no/such/socket');
	my $error = sql_error($node, rows(5, server => q{'no_socket'}, retry_timeout => q{'0.2 s'}));
	like($error, qr/could not connect to Redis server "no_socket" at "\/no\/such\/socket": No such file or directory/, 'an error');
};

subtest 'loading its data after a restart' => sub {
	# It answers LOADING to the login of the first two connections and, on the third, to a row; then it has loaded.
	my $loading = RedisExport::Fake->new(all => sub {
		my ($fake, $client, $name) = @_;
		my $words = '-LOADING Redis is loading the dataset in memory';
		return $words if $name eq 'JSON.SET' && $client->{number} <= 3;
		return $words if $name eq 'INFO' && $client->{number} == 1;
		my $info = "run_id:" . 'a' x 40 . "\r\nloading:" . ($client->{number} == 2 ? 1 : 0) . "\r\n";
		return '$' . length($info) . "\r\n$info" if $name eq 'INFO';
		return '+OK';
	});
	add_server($node, $loading, name => 'loading');
	my ($out, $err) = $session->send(rows(50, batch => 10, server => q{'loading'}))->wait;
	is(job($node)->{state}, 'done', 'done');
	ledger_ok($node);
	like($err, qr/tries again: could not log in to Redis server "loading" .*: Redis answered: LOADING /, 'it said what it waits for');
	my @accepted = grep { $_->{reply} eq '+OK' } $loading->commands('JSON.SET');
	is_deeply([ map { $_->{words}[1] } @accepted ], [ map { "k:$_" } 1 .. 50 ], 'every row was written once loaded, in order');
	is(scalar(grep { $_->{client} <= 2 } $loading->commands('JSON.SET')), 0, 'and none sent before');
};

subtest 'connection killed again and again' => sub {
	$redis->cli('FLUSHALL');
	start_job($session, 8000, 500);
	for my $kill (1 .. 4)
	{
		my $before = job($node)->{rows_written};
		$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
		poll_until($node, "SELECT reconnects >= $kill AND rows_written > $before FROM redis_export_progress ORDER BY job DESC LIMIT 1");
	}
	$session->wait;
	my $job = ended_well(8000);
	cmp_ok($job->{reconnects}, '>=', 4, 'four reconnects');
	is($job->{redis_restarts}, 0, 'no restart');
	is(wrong_rows($redis, 8000), 0, 'every row is in Redis');
};

subtest 'paused' => sub {
	$redis->cli('FLUSHALL');
	start_job($session, 6000, 500);
	$redis->cli('CLIENT', 'PAUSE', 1500, 'WRITE');
	$session->wait;
	is(ended_well(6000)->{reconnects}, 0, 'a pause shorter than the timeout is waited for');
	is(wrong_rows($redis, 6000), 0, 'every row is in Redis');
};

subtest 'paused for many timeouts' => sub {
	# The same row is first in line at each of these silences, and yet is not to blame.
	add_server($node, $redis, name => 'hasty', timeout => 0.3, connect_timeout => 5);
	$redis->cli('FLUSHALL');
	start_job($session, 4000, 500, server => q{'hasty'});
	$redis->cli('CLIENT', 'PAUSE', 60_000, 'WRITE');
	poll_until($node, 'SELECT reconnects >= 4 FROM redis_export_progress ORDER BY job DESC LIMIT 1');
	$redis->cli('CLIENT', 'UNPAUSE');
	my ($out, $err) = $session->wait;
	ended_well(4000);
	is(job($node)->{rows_failed}, 0, 'no row was blamed');
	like($err, qr/tries again: lost the connection .*: no answer for 0\.3 seconds/, 'the caller hears that Redis is silent');
	is(wrong_rows($redis, 4000), 0, 'every row is in Redis');
};

subtest 'frozen for longer than the timeout' => sub {
	add_server($node, $redis, name => 'impatient', timeout => 1, connect_timeout => 1);
	$redis->cli('FLUSHALL');
	start_job($session, 6000, 500, server => q{'impatient'});
	$redis->freeze;
	poll_until($node, q{SELECT state = 'retrying' FROM redis_export_progress ORDER BY job DESC LIMIT 1});
	$redis->thaw;
	$session->wait;
	cmp_ok(ended_well(6000)->{reconnects}, '>=', 1, 'it came back');
	is(wrong_rows($redis, 6000), 0, 'every row is in Redis');

	start_job($session, 6000, 500, server => q{'impatient'}, retry_timeout => q{'2 s'});
	$redis->freeze;
	my ($out, $err) = $session->wait;
	like($err, qr/ERROR:  gave up after no row was acknowledged for [\d.]+ seconds: /, 'frozen for good: an error');
	is(job($node)->{state}, 'failed', 'failed');
	cmp_ok(job($node)->{rows_in_doubt}, '>', 0, 'what it had been sent is in doubt');
	ledger_ok($node);
	$redis->thaw;
};

subtest 'no more clients allowed' => sub {
	# However busy it is, one client more than there are is let in: the one of redis-cli, which is ours.
	$redis->cli('CONFIG', 'SET', 'maxclients', 1);
	my $blocker = IO::Socket::INET->new(PeerAddr => $redis->host, PeerPort => $redis->port);
	print $blocker "PING\r\n";
	is(scalar <$blocker>, "+PONG\r\n", 'one client holds the only place');
	$session->send(rows(100));
	poll_until($node, q{SELECT state = 'retrying' FROM redis_export_progress ORDER BY job DESC LIMIT 1});
	like(job($node)->{last_error}, qr/Redis answered: ERR max number of clients reached/, 'the view says why');
	print $blocker "CONFIG SET maxclients 100\r\n";
	is(scalar <$blocker>, "+OK\r\n", 'more are allowed');
	$session->wait;
	ended_well(100);
};

subtest 'gone while the query computes' => sub {
	# Rows are with Redis, which dies before it answers, and twice the retry_timeout passes before the query returns another row: time
	# that is not Redis' fault, and must not be counted.
	my $locker = session($node);
	$locker->query('SELECT pg_advisory_lock(i) FROM generate_series(1, 2) AS i');
	my $until_locked = sub {
		poll_until($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $_[0] AND NOT granted");
	};
	$session->send(export_sql(q{SELECT i AS id, 'value ' || i AS v FROM generate_series(1, 5000) AS i
			WHERE i NOT IN (3000, 4500) OR pg_advisory_xact_lock_shared(CASE i WHEN 3000 THEN 1 ELSE 2 END) IS NOT NULL},
		value => q{'*'}, batch => 500, retry_timeout => q{'1 s'}));
	$until_locked->(1);
	# Frozen with less behind it, it would hold up the query before its second wait: no more than four batches are on their way.
	# The answers are out when it has answered once more.
	wait_until('Redis has the first rows', sub { redis_keys_count($redis) >= 2000 });
	is($redis->cli('PING'), 'PONG', 'it has answered');
	$redis->freeze;
	$locker->query('SELECT pg_advisory_unlock(1)');
	$until_locked->(2);
	$redis->kill9->start;
	sleep 2;
	$locker->query('SELECT pg_advisory_unlock(2)');
	$session->wait;
	is(ended_well(5000)->{reconnects}, 1, 'one reconnect');
	is($redis->cli('JSON.GET', 'k:5000'), '{"id":5000,"v":"value 5000"}', 'the last row is in Redis');
	cmp_ok(redis_keys_count($redis), '>=', 2000, 'so are all that were not acknowledged');
	$locker->quit;
};

$session->quit;
done_testing;
