# Every line of the table of answers: what Redis says, and what becomes of the job, its rows and the error that the caller sees. The
# real Redis says it where it can be made to, a fake one does the rest.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Fake;
use RedisExport::Jobs qw(next_job);
use RedisExport::Rows;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => 'redis_export.notice_interval = 0');
my $session = session($node);

# What the caller gets of an export, with SQLSTATE, detail and hint.
sub failed_export
{
	my ($count, %arguments) = @_;
	return sql_error($node, rows($count, %arguments), verbose => 1);
}

# The failed rows of the newest job, one a line.
sub failures
{
	return $node->safe_psql('postgres',
		'SELECT row_number, key, sqlstate, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress))');
}

sub until_retrying
{
	my ($pattern) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until($node, q{SELECT state = 'retrying' FROM redis_export_progress ORDER BY job DESC LIMIT 1});
	return like(job($node)->{last_error}, $pattern, 'the view says what it waits for');
}

# An export of so many rows that is held up in the midst of them, after the 1,000th, until it may go on.
my $holder = session($node);
sub start_export
{
	my ($count, %arguments) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$holder->query('SELECT pg_advisory_lock(1)');
	next_job($node, sub { $session->send(export_sql("SELECT i AS id, 'value ' || i AS v FROM generate_series(1, $count) AS i
			WHERE i <> 1001 OR pg_advisory_xact_lock_shared(1) IS NOT NULL",
		value => q{'*'}, batch => 100, %arguments)) });
	poll_until($node, q{SELECT rows_written > 0 OR finished_at IS NOT NULL FROM redis_export_progress ORDER BY job DESC LIMIT 1});
	return is(job($node)->{state}, 'running', 'it runs');
}
sub go_on { return $holder->query('SELECT pg_advisory_unlock(1)') }

# A fake that says this to the write of row 5, so often; the job, its name being that of the server.
my $fakes = 0;
sub fake_answers
{
	my ($answer, $times) = @_;
	my $fake = RedisExport::Fake->new(sub {
		my ($fake, $client, $name, $key) = @_;
		return $answer if $key eq 'k:5' && $fake->{said}++ < $times;
		return '+OK';
	});
	my $name = 'fake_' . ++$fakes;
	add_server($node, $fake, name => $name);
	return ($fake, "'$name'");
}

subtest 'OOM' => sub {
	$redis->cli('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
	start_export(4000);
	$redis->cli('CONFIG', 'SET', 'maxmemory', 1);
	go_on;
	until_retrying(qr/^Redis answered: OOM command not allowed/);
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	my ($out, $err) = $session->wait;
	like($err, qr/WARNING:  export job \d+ tries again: Redis answered: OOM /, 'so is the caller told');
	job_ended($node, 'done', rows_written => 4000, reconnects => 0);
	is(redis_keys_count($redis), 4000, 'all rows are in Redis');

	$redis->cli('CONFIG', 'SET', 'maxmemory', 1);
	my $error = failed_export(50, retry_timeout => q{'0.3 s'});
	like($error, qr/^ERROR:  53200: gave up after no row was acknowledged for [\d.]+ seconds: Redis answered: OOM .*HINT:  Redis has reached its maxmemory/ms,
		'without room for good: an error');
	job_ended($node, 'failed', rows_read => 0, rows_in_doubt => 0);
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
};

subtest 'MISCONF' => sub {
	my $sick = RedisExport::Redis->new(conf => { save => '3600 1' });
	add_server($node, $sick, name => 'sick');
	$sick->cli('SET', 'a', 1);
	mkdir $sick->dir . '/dump.rdb';    # so that it cannot be written
	$sick->cli('BGSAVE');
	wait_until('it could not save', sub { $sick->info('rdb_last_bgsave_status') eq 'err' });
	$session->send(rows(100, server => q{'sick'}));
	until_retrying(qr/^Redis answered: MISCONF /);
	$sick->cli('CONFIG', 'SET', 'stop-writes-on-bgsave-error', 'no');
	$session->wait;
	job_ended($node, 'done', rows_written => 100, reconnects => 0);
	is(redis_keys_count($sick, 'k:*'), 100, 'all rows are in Redis');
	$sick->kill9;    # it would not stop without having saved
};

subtest 'BUSY' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('CONFIG', 'SET', 'busy-reply-threshold', 10);
	my $script = IO::Socket::INET->new(PeerAddr => $redis->host, PeerPort => $redis->port);
	print $script "EVAL 'while true do end' 0\r\n";
	wait_until('the script runs', sub { $redis->cli('PING') =~ /BUSY/ });
	$session->send(rows(100));
	until_retrying(qr/BUSY Redis is busy running a script/);
	$redis->cli('SCRIPT', 'KILL');
	$session->wait;
	job_ended($node, 'done', rows_written => 100);
	is(redis_keys_count($redis, 'k:*'), 100, 'all rows are in Redis');
	$redis->cli('CONFIG', 'SET', 'busy-reply-threshold', 5000);
};

subtest 'NOREPLICAS' => sub {
	$redis->cli('FLUSHALL');
	start_export(3000);
	$redis->cli('CONFIG', 'SET', 'min-replicas-to-write', 1);
	go_on;
	until_retrying(qr/^Redis answered: NOREPLICAS /);
	$redis->cli('CONFIG', 'SET', 'min-replicas-to-write', 0);
	$session->wait;
	job_ended($node, 'done', rows_written => 3000, reconnects => 0);
	is(redis_keys_count($redis), 3000, 'all rows are in Redis');
};

subtest 'READONLY' => sub {
	$redis->cli('FLUSHALL');
	start_export(3000);
	$redis->cli('REPLICAOF', '127.0.0.1', 1);
	go_on;
	until_retrying(qr/^Redis answered: READONLY /);
	$redis->cli('REPLICAOF', 'NO', 'ONE');
	$session->wait;
	cmp_ok(job_ended($node, 'done', rows_written => 3000, redis_restarts => 0)->{reconnects}, '>=', 1, 'it looked for the master anew');
	is(redis_keys_count($redis), 3000, 'all rows are in Redis');
};

for my $answer ('MASTERDOWN Link with MASTER is down', 'CLUSTERDOWN The cluster is down', 'LOADING Redis is loading')
{
	subtest "$answer, for a while" => sub {
		my ($fake, $server) = fake_answers("-$answer", 2);
		my ($out, $err) = $session->send(rows(20, server => $server))->wait;
		job_ended($node, 'done', rows_written => 20, reconnects => 2);
		like($err, qr/tries again: Redis answered: $answer/, 'the caller is told');
		my @last = ($fake->commands('JSON.SET'))[-16 .. -1];
		is_deeply([ map { $_->{words}[1] } @last ], [ map { "k:$_" } 5 .. 20 ], 'the row and all after it were sent again, in order');
	};
}

for my $answer ('MOVED 866 127.0.0.1:7001', 'MOVED 866 :7001', 'ASK 866 127.0.0.1:7001', 'TRYAGAIN Multiple keys request')
{
	subtest $answer => sub {
		my (undef, $server) = fake_answers("-$answer", 1);
		my $error = failed_export(20, server => $server);
		like($error, qr/^ERROR:  0A000: Redis answered: $answer\n.*HINT:  This Redis is a node of a Redis Cluster\. Set the option "cluster" of the foreign server to true\./ms,
			'an error that names the option');
		job_ended($node, 'failed', rows_failed => 0, rows_in_doubt => 0, rows_written => 19);
	};
}

subtest 'a real cluster that is not to be taken for one' => sub {
	my @nodes = map { RedisExport::Redis->new(conf => { 'cluster-enabled' => 'yes', 'cluster-port' => PostgreSQL::Test::Cluster::get_free_port(),
		loadmodule => "$ENV{REDIS_BINARIES}/rejson.so" }) } 1 .. 2;
	add_server($node, $nodes[0], name => 'cluster');
	$node->safe_psql('postgres', q{ALTER SERVER cluster OPTIONS (ADD cluster 'false')});
	$session->send(rows(20, server => q{'cluster'}));
	until_retrying(qr/^Redis answered: CLUSTERDOWN Hash slot not served/);
	$nodes[0]->cli('CLUSTER', 'ADDSLOTSRANGE', 0, 16383);
	$session->wait;
	job_ended($node, 'done', rows_written => 20);
	is(redis_keys_count($nodes[0]), 20, 'a node that gets all slots has all rows');

	$nodes[0]->cli('FLUSHALL');
	$nodes[0]->cli('CLUSTER', 'DELSLOTSRANGE', 8192, 16383);
	$nodes[1]->cli('CLUSTER', 'ADDSLOTSRANGE', 8192, 16383);
	$nodes[0]->cli('CLUSTER', 'MEET', '127.0.0.1', $nodes[1]->port, $nodes[1]{conf}{'cluster-port'});
	my $port = $nodes[1]->port;
	wait_until('the nodes know each other', sub {
		$nodes[0]->cli('CLUSTER', 'INFO') =~ /^cluster_state:ok/m && $nodes[0]->cli('CLUSTER', 'SHARDS') =~ /\b$port\b/
	});
	my $error = failed_export(20, server => q{'cluster'});
	like($error, qr/^ERROR:  0A000: Redis answered: MOVED \d+ 127\.0\.0\.1:@{[ $nodes[1]->port ]}\n.*HINT:  This Redis is a node of a Redis Cluster/ms,
		'with half of them: an error');
	my $job = job_ended($node, 'failed', rows_failed => 0, rows_in_doubt => 0);
	is(redis_keys_count($nodes[0]), $job->{rows_written}, 'the rows that belong there are there');
	$_->kill9 for @nodes;
};

subtest 'NOAUTH and WRONGPASS' => sub {
	my $locked = RedisExport::Redis->new(conf => { requirepass => 'hush' });
	add_server($node, $locked, name => 'locked');
	my $error = failed_export(20, server => q{'locked'});
	like($error, qr/^ERROR:  28000: could not log in to Redis server "locked" at .*: Redis answered: NOAUTH .*HINT:  Give username and password in a user mapping/ms,
		'no password');
	job_ended($node, 'failed', rows_read => 0);

	$node->safe_psql('postgres', q{CREATE USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (password 'wrong-one')});
	$error = failed_export(20, server => q{'locked'});
	like($error, qr/^ERROR:  28P01: could not log in .*: Redis answered: WRONGPASS .*HINT:  See the username and password of the user mapping/ms,
		'a wrong password');
	unlike($error . join('', grep { !/ statement: / } split /^/, slurp_file($node->logfile)), qr/wrong-one/, 'which is not shown');
	job_ended($node, 'failed', rows_read => 0);

	$node->safe_psql('postgres', q{ALTER USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (SET password 'hush')});
	start_export(3000, server => q{'locked'});
	$locked->cli('CONFIG', 'SET', 'requirepass', 'changed');
	$locked->{conf}{requirepass} = 'changed';
	$locked->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	go_on;
	my (undef, $err) = $session->wait;
	like($err, qr/ERROR:  could not log in to Redis server "locked" at .*: Redis answered: WRONGPASS/, 'changed in mid-job, and the connection cut: an error at once');
	my $job = job_ended($node, 'failed');
	my $keys = redis_keys_count($locked);
	cmp_ok($keys, '>=', $job->{rows_written}, 'what was acknowledged is in Redis');
	cmp_ok($keys, '<=', $job->{rows_written} + $job->{rows_in_doubt}, 'and no more than what is in doubt');
	$locked->stop;
};

subtest 'logged out in mid-job' => sub {
	my (undef, $server) = fake_answers('-NOAUTH Authentication required.', 1);
	my $error = failed_export(20, server => $server);
	like($error, qr/^ERROR:  28000: Redis answered: NOAUTH Authentication required\./m, 'an error at once');
	job_ended($node, 'failed', rows_failed => 0);
};

subtest 'no JSON module' => sub {
	my $plain = RedisExport::Redis->new(modules => 0);
	add_server($node, $plain, name => 'plain');
	my $error = failed_export(2000, server => q{'plain'}, batch => 100);
	like($error, qr/^ERROR:  42883: Redis answered: ERR unknown command 'JSON\.SET'\n.*HINT:  This Redis has no JSON\. Load the module RedisJSON or valkey-json.*MODULE LIST/ms,
		'an error at once');
	unlike($error . slurp_file($node->logfile), qr/args beginning|"v":"value/, 'that shows no document');
	job_ended($node, 'failed', rows_written => 0, rows_failed => 0, rows_read => 0);
	is(redis_keys_count($plain), 0, 'nothing is in Redis');
	$plain->stop;
};

subtest 'NOPERM' => sub {
	my $acl = RedisExport::Redis->new(conf => { user => [
		'reader on >pw ~* +@all -json.set',
		'some on >pw ~k:1* +@all',
		'quiet on >pw ~* -@all +json.set' ] });
	for my $user (qw(reader some quiet))
	{
		add_server($node, $acl, name => "as_$user");
		$node->safe_psql('postgres', "CREATE USER MAPPING FOR CURRENT_USER SERVER as_$user OPTIONS (username '$user', password 'pw')");
	}
	my $error = failed_export(20, server => q{'as_reader'});
	like($error, qr/^ERROR:  42501: Redis answered: NOPERM .*json\.set.*HINT:  Grant the Redis user the command/ms, 'to run the command: an error at once');
	job_ended($node, 'failed', rows_failed => 0, rows_read => 0);
	is(redis_keys_count($acl), 0, 'nothing is in Redis');

	$error = failed_export(20, server => q{'as_some'});
	like($error, qr/^ERROR:  42501: row 2 with key "k:2" failed: Redis answered: NOPERM .*HINT:  Grant the Redis user the key/ms, 'to touch a key: that row');
	job_ended($node, 'failed', rows_written => 11);
	$acl->cli('FLUSHALL');
	(undef, my $err) = $session->send(rows(20, server => q{'as_some'}, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 11, rows_failed => 9);
	like($err, qr/WARNING:  9 rows of export job \d+ failed and were left out\nHINT:  See redis_export_failures\(\d+\)/, 'a warning says so');
	is(join(' ', map { (split /\|/)[1] } split /\n/, failures()), 'k:2 k:3 k:4 k:5 k:6 k:7 k:8 k:9 k:20', 'the keys that failed');
	is(redis_keys_count($acl), 11, 'the other rows are in Redis');

	$acl->cli('FLUSHALL');
	$session->send(rows(20, server => q{'as_quiet'}))->wait;
	job_ended($node, 'done', rows_written => 20);
	is(redis_keys_count($acl), 20, 'a user who may do nothing but JSON.SET can export');
	$acl->stop;
};

subtest 'a key of another type' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('SET', 'k:7', 'a string');
	my $error = failed_export(20);
	like($error, qr/^ERROR:  42809: row 7 with key "k:7" failed: Redis answered: .*wrong.*HINT:  The key holds a value of another type/msi, 'an error');
	job_ended($node, 'failed', rows_written => 19, rows_failed => 1);
	$session->send(rows(20, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 19, rows_failed => 1);
	like(failures(), qr/^7\|k:7\|42809\|/, 'the failed row');
	is($redis->cli('GET', 'k:7'), 'a string', 'the key is as it was');
	is($redis->cli('JSON.GET', 'k:20'), '{"id":20,"v":"value 20"}', 'the others are there');

	my (undef, $server) = fake_answers('-WRONGTYPE Operation against a key holding the wrong kind of value', 1);
	$session->send(rows(20, server => $server, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 19, rows_failed => 1);
	like(failures(), qr/^5\|k:5\|42809\|Redis answered: WRONGTYPE /, 'the other words for it');
};

subtest 'a path' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('JSON.SET', "k:$_", '$', '{"a":{}}') for 1 .. 3;
	$redis->cli('JSON.SET', 'k:2', '$', '{}');
	$session->send(rows(3, path => q{'$.a.b'}, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 2, rows_failed => 1);
	like(failures(), qr/^2\|k:2\|38000\|Redis answered nil: the document has no place for the path$/, 'its parent is missing: that row');
	is($redis->cli('JSON.GET', 'k:3'), '{"a":{"b":{"id":3,"v":"value 3"}}}', 'the others are set below it');
	is($redis->cli('JSON.GET', 'k:2'), '{}', 'that one is as it was');

	my $error = failed_export(3, path => q{'$.a['});
	like($error, qr/^ERROR:  38000: row 1 with key "k:1" failed: Redis answered: /m, 'a path that is none: the first row');
	job_ended($node, 'failed', rows_written => 0);
};

subtest 'a text that nobody knows' => sub {
	my (undef, $server) = fake_answers('-BANANA is no class', 2);
	$session->send(rows(20, server => $server, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 19, rows_failed => 1);
	like(failures(), qr/^5\|k:5\|38000\|Redis answered: BANANA is no class$/, "is that row's fault, if it is said again");

	(undef, $server) = fake_answers("-ERR \xff\e[31m binary \\", 2);
	$session->send(rows(20, server => $server, on_error => q{'ignore'}))->wait;
	like(failures(), qr/\Q|Redis answered: ERR \xff\x1b[31m binary \x5c\E$/, 'control characters and bytes that are no text are spelled out');
};

subtest 'what is no Redis' => sub {
	my $http = RedisExport::Fake->new(rubbish => "HTTP/1.1 400 Bad Request\r\n\r\n");
	add_server($node, $http, name => 'http');
	my $error = failed_export(20, server => q{'http'});
	like($error, qr/^ERROR:  08P01: could not log in to Redis server "http" at .*: Redis server "http" .* sent what is no reply of Redis: .*HINT:  A web server answers there\./ms,
		'an error at once');
	job_ended($node, 'failed', rows_read => 0);

	my (undef, $server) = fake_answers('<html>', 1);
	$error = failed_export(20, server => $server);
	like($error, qr/^ERROR:  08P01: Redis server .* sent what is no reply of Redis/m, 'in mid-job too');
	job_ended($node, 'failed', rows_written => 4, rows_in_doubt => 16);

	my $nobody = RedisExport::Fake->new(all => sub { return CLOSE });
	add_server($node, $nobody, name => 'nobody');
	$error = failed_export(20, server => q{'nobody'}, retry_timeout => q{'0.3 s'});
	like($error, qr/^ERROR:  08006: gave up after .*: could not log in to Redis server "nobody" .* the server closed it/m, 'one that hangs up at once');

	my $protected = RedisExport::Fake->new(all => sub { return '-DENIED Redis is running in protected mode' });
	add_server($node, $protected, name => 'protected');
	$error = failed_export(20, server => q{'protected'});
	like($error, qr/^ERROR:  42501: could not log in .*: Redis answered: DENIED Redis is running in protected mode/m, 'one in protected mode');
};

subtest 'database' => sub {
	$redis->cli('FLUSHALL');
	add_server($node, $redis, name => 'second', db => 2);
	$session->send(rows(20, server => q{'second'}))->wait;
	job_ended($node, 'done', rows_written => 20);
	is($redis->cli('-n', 2, 'DBSIZE'), 20, 'the rows are in the database of the option');
	is(redis_keys_count($redis), 0, 'and in no other');
	add_server($node, $redis, name => 'hundredth', db => 99);
	my $error = failed_export(20, server => q{'hundredth'});
	like($error, qr/could not log in .*: Redis answered: ERR DB index is out of range.*HINT:  See the option "db" of the foreign server/ms, 'one that is not there');
};

$_->quit for $session, $holder;
done_testing;
