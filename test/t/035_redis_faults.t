# More of what Redis, or the way to it, can do to an export in its midst, each on a real Redis: values of hundreds of megabytes, the
# addresses of a name, a socket that comes back, passwords and rights that change, a master that becomes a replica, memory that is
# short. After each job that failed, a second run completes the rest.
use strict;
use warnings;
use IO::Socket::IP;
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Proxy;
use RedisExport::Rows;
use Socket qw(SOMAXCONN);

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => 'redis_export.notice_interval = 0');
my $session = session($node);
my $holder = session($node);

# An export of so many rows that is held up after the 1,000th, most of which are acknowledged, until it may go on. Returns its number.
sub start_held
{
	my ($count, %arguments) = @_;
	$holder->query('SELECT pg_advisory_lock(1)');
	my $id = next_job($node, sub {
		$session->send(export_sql("SELECT i AS id, 'value ' || i AS v FROM generate_series(1, $count) AS i
				WHERE i <> 1001 OR pg_advisory_xact_lock_shared(1) IS NOT NULL",
			value => q{'*'}, batch => 100, %arguments));
	});
	until_written($node, $id, 500);
	return $id;
}
sub go_on { return $holder->query('SELECT pg_advisory_unlock(1)') }

# Of the caller that waits: its error and warnings.
sub messages { return ($session->wait)[1] }

# How many of the rows 1 to count Redis does not hold as they are, or holds besides.
sub wrong_keys
{
	my ($at, $count) = @_;
	return wrong_rows($at, $count) + abs($at->cli('DBSIZE') - $count);
}

# What is so after a job that has had its troubles; their last is left in last_error.
sub survived
{
	my ($at, $id, %expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return job_ends($node, $at, $id, state => 'done', error => qr/./, keys => 'k:*', %expected);
}

sub completed
{
	my ($at, $count, %arguments) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$session->query(rows($count, %arguments));
	job_ends($node, $at, last_job($node), state => 'done');
	return is(wrong_keys($at, $count), 0, 'a second run completes the rest');
}

# So many rows of so many bytes each, all of one key, so that Redis needs not hold them all.
sub huge_rows
{
	my ($column, %arguments) = @_;
	return export_sql(qq{SELECT 1 AS id, $column FROM huge, generate_series(1, 2) WHERE pg_advisory_xact_lock_shared(1) IS NOT NULL},
		%arguments);
}

sub anonymous_kb
{
	my ($pid) = @_;
	open my $status, '<', "/proc/$pid/status" or return 0;
	return join('', <$status>) =~ /^RssAnon:\s*(\d+)/m ? $1 : 0;
}

subtest 'hundreds of megabytes in one value' => sub {
	my $length = 300_000_000;
	$node->safe_psql('postgres', qq{
		CREATE TABLE huge AS SELECT repeat('x', $length - 3) || 'end' AS v, '{"v":"' || repeat('x', $length - 3) || 'end"}' AS doc});
	for my $as ([ 'v', value => q{'*'} ], [ 'doc', value => q{'doc'} ])
	{
		my ($column, @arguments) = @$as;
		$holder->query('SELECT pg_advisory_lock(1)');
		my $id = next_job($node, sub { $session->send(huge_rows($column, @arguments)) });
		until_state($node, $id, 'running');
		my $pid = job($node, $id)->{pid};
		my $before = anonymous_kb($pid);
		go_on;
		my $most = $before;
		for (1 .. 12_000)
		{
			my $now = anonymous_kb($pid) or last;
			$most = $now if $most < $now;
			sleep 0.005;
		}
		$session->wait;
		my $row = job_ends($node, $redis, $id, state => 'done');
		is($row->{rows_written}, 2, 'both rows are written');
		cmp_ok($row->{bytes_sent}, '>', 2 * $length, 'whole');
		cmp_ok($most - $before, '>', $length / 1024, 'what the worker took was seen');
		cmp_ok($most - $before, '<', 4 * $length / 1024 + 64 * 1024, 'it is no more than four rows and 64 MB');
		note sprintf 'worker with rows of 300 MB (%s): %.0f MB more', $column, ($most - $before) / 1024;
		is($redis->cli('JSON.STRLEN', 'k:1', '$.v'), $length, 'and the value is whole in Redis');
		$redis->cli('FLUSHALL', 'SYNC');
	}
};

subtest 'a value of hundreds of megabytes, cut in its midst' => sub {
	my $proxy = RedisExport::Proxy->new($redis, cut_after => [ 150_000_000 ]);
	add_server($node, $proxy, name => 'cut');
	my $id = next_job($node, sub { $session->send(huge_rows('v', value => q{'*'}, server => q{'cut'})) });
	$session->wait;
	my $row = job_ends($node, $redis, $id, state => 'done', error => qr/lost the connection/);
	is($row->{rows_written}, 2, 'both rows are written');
	is($row->{reconnects}, 1, 'with one reconnect');
	is($redis->cli('JSON.STRLEN', 'k:1', '$.v'), 300_000_000, 'the value is whole in Redis');

	# Cancelled in its midst, the value has not come whole, and so is not there at all.
	$redis->cli('FLUSHALL', 'SYNC');
	$holder->query('SELECT pg_advisory_lock(1)');
	$id = next_job($node, sub { $session->send(huge_rows('v', value => q{'*'})) });
	until_state($node, $id, 'running');
	$redis->freeze;
	go_on;
	poll_until($node, "SELECT bytes_sent > 0 FROM redis_export_progress WHERE job = $id");
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	$session->wait;
	$redis->thaw;
	$row = job_ends($node, $redis, $id, state => 'canceled', error => qr/canceled by role/);
	is("$row->{rows_read} $row->{rows_in_doubt}", '0 0', 'a row that was sent half is not in doubt');
	is(redis_keys_count($redis), 0, 'nothing is in Redis');
	$node->safe_psql('postgres', 'DROP TABLE huge');
};

my $six = IO::Socket::IP->new(LocalHost => '::1', LocalPort => 0, Listen => 1);

subtest 'IPv6' => sub {
	plan skip_all => 'this machine has no IPv6 loopback' unless $six;
	my $both = RedisExport::Redis->new(conf => { bind => '127.0.0.1 ::1', appendonly => 'yes', appendfsync => 'always' });
	add_server($node, $both, name => 'six', host => '::1');
	$session->query(rows(500, server => q{'six'}));
	is(wrong_keys($both, 500), 0, 'all rows are in Redis');

	my $id = start_held(3000, server => q{'six'});
	like($both->cli('CLIENT', 'LIST'), qr/ addr=\[::1\]:\d+ .* name=redis_export /, 'it came by IPv6');
	$both->kill9->start;
	go_on;
	like(messages(), qr/tries again: (?:lost the connection|could not connect) to Redis server "six" at "::1", port @{[ $both->port ]}: /,
		'after a restart it tries again');
	is(survived($both, $id)->{redis_restarts}, 1, 'and goes on');
	is(wrong_keys($both, 3000), 0, 'all rows are in Redis');
	is($node->safe_psql('postgres', q{SELECT redis_command('six', 'DBSIZE')}), 3000, 'redis_command() goes there too');
	$both->stop;
	like(sql_error($node, rows(5, server => q{'six'}, retry_timeout => q{'0.2 s'})),
		qr/could not connect to Redis server "six" at "::1", port \d+: Connection refused/, 'closed: an error');
};

# PostgreSQL is started anew where another /etc/hosts is mounted, which only it sees.
subtest 'a name with two addresses' => sub {
	plan skip_all => 'this machine has no IPv6 loopback' unless $six;
	my $name = 'two.test';
	my $hosts = PostgreSQL::Test::Utils::tempdir_short() . '/hosts';
	append_to_file($hosts, "127.0.0.1 localhost\n127.0.0.1 $name\n::1 $name\n");
	my @elsewhere = (qw(unshare --user --map-current-user --keep-caps --mount sh -c),
		q{mount --bind "$0" /etc/hosts && exec "$@"}, $hosts);
	my $addresses = '';
	eval { IPC::Run::run([ @elsewhere, 'getent', 'ahosts', $name ], '>', \$addresses, '2>', \my $err) };
	my @order = $addresses =~ /^(\S+)\s+STREAM/mg;
	plan skip_all => 'no other /etc/hosts can be mounted here' unless @order == 2;
	plan skip_all => "IPv6 does not come first here: @order" unless $order[0] eq '::1';

	$_->quit for $session, $holder;
	$node->stop;
	system_or_bail(@elsewhere, 'pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, 'start');
	$node->_update_pid(1);
	($session, $holder) = (session($node), session($node));

	add_server($node, $redis, name => 'two', host => $name, connect_timeout => 1);
	$redis->cli('FLUSHALL');
	my $id = start_held(3000, server => q{'two'});
	like($redis->cli('CLIENT', 'LIST'), qr/ addr=127\.0\.0\.1:\d+ .* name=redis_export /, 'the first is closed, so it came by the second');
	$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	go_on;
	$session->wait;
	is(survived($redis, $id)->{reconnects}, 1, 'and so once more after a cut');
	is(wrong_keys($redis, 3000), 0, 'all rows are in Redis');
	is($node->safe_psql('postgres', q{SELECT redis_command('two', 'DBSIZE')}), 3000, 'redis_command() finds it too');

	# The first accepts no more connections: its queue of those to come is full.
	my $silent = IO::Socket::IP->new(LocalHost => '::1', LocalPort => $redis->port, Listen => 1);
	my @queue = map { IO::Socket::IP->new(PeerHost => '::1', PeerPort => $redis->port, Timeout => 0.2) // () } 1 .. 20;
	cmp_ok(scalar @queue, '<', 20, 'the first address does not answer any more');
	$redis->cli('FLUSHALL');
	my $begun = time;
	$session->query(rows(500, server => q{'two'}));
	cmp_ok(time - $begun, '>', 0.9, 'that takes connect_timeout');
	is(wrong_keys($redis, 500), 0, 'and then the second is used');

	# Both are closed.
	close $_ for $silent, @queue;
	$redis->stop;
	like(sql_error($node, rows(5, server => q{'two'}, retry_timeout => q{'0.2 s'})),
		qr/could not connect to Redis server "two" at "two\.test", port \d+: Connection refused/, 'both are closed: an error');
	$redis->start;
	completed($redis, 5, server => q{'two'});

	$_->quit for $session, $holder;
	$node->restart;
	($session, $holder) = (session($node), session($node));
};

subtest 'a Unix socket, and Redis behind it comes and goes' => sub {
	my $kept = RedisExport::Redis->new(conf => { appendonly => 'yes', appendfsync => 'always' });
	add_server($node, $kept, name => 'socket', host => $kept->socket);
	my $id = start_held(6000, server => q{'socket'});
	like($kept->cli('CLIENT', 'LIST'), qr/ addr=\S*redis\.sock:0 .* name=redis_export /, 'it came by the socket');
	$kept->kill9;
	go_on;
	until_state($node, $id, 'retrying');
	poll_until($node, qq{SELECT last_error ~ 'could not connect to Redis server "socket" at ".*redis.sock": Connection refused'
		FROM redis_export_progress WHERE job = $id});
	ok(-S $kept->socket, 'a killed Redis leaves its socket behind, where nobody listens');
	$kept->start;
	like(messages(), qr/WARNING:  Redis was restarted after \d+ rows/, 'the caller hears of the restart');
	is(survived($kept, $id)->{redis_restarts}, 1, 'it went on');
	is(wrong_keys($kept, 6000), 0, 'all rows are in Redis');

	$kept->cli('FLUSHALL');
	$id = start_held(6000, server => q{'socket'});
	$kept->stop;
	go_on;
	poll_until($node, qq{SELECT last_error ~ 'could not connect to Redis server "socket" at ".*redis.sock": No such file or directory'
		FROM redis_export_progress WHERE job = $id});
	ok(!-e $kept->socket, 'one that was stopped leaves none');
	$kept->start;
	$session->wait;
	survived($kept, $id);
	is(wrong_keys($kept, 6000), 0, 'all rows are in Redis');

	$kept->cli('FLUSHALL');
	$id = start_held(3000, server => q{'socket'}, retry_timeout => q{'0.5 s'});
	$kept->stop;
	go_on;
	like(messages(), qr/ERROR:  gave up after no row was acknowledged for [\d.]+ seconds: could not connect to Redis server "socket"/,
		'gone for longer than retry_timeout: an error');
	$kept->start;
	job_ends($node, $kept, $id, state => 'failed', keys => 'k:*');
	completed($kept, 3000, server => q{'socket'});
	$kept->stop;
};

subtest 'loading its data' => sub {
	my $slow = RedisExport::Redis->new(conf => { 'key-load-delay' => 3000, 'loading-process-events-interval-bytes' => 1024 });
	add_server($node, $slow, name => 'slow');
	my $id = start_held(3000, server => q{'slow'});
	$slow->cli('SAVE');    # with all that was acknowledged; while the query is held up, nothing more is
	$slow->kill9;
	{
		no warnings 'redefine';
		local *RedisExport::Redis::_wait_until_it_answers = sub { };
		$slow->start;
	}
	go_on;
	poll_until($node, qq{SELECT last_error ~ 'could not log in to Redis server "slow" .*: Redis answered: LOADING '
		FROM redis_export_progress WHERE job = $id});
	pass('it waits until Redis has loaded');
	$session->wait;
	is(survived($slow, $id)->{redis_restarts}, 1, 'it went on');
	is(wrong_keys($slow, 3000), 0, 'all rows are in Redis');
	$slow->kill9;
};

# Redis with a password, and users of its own.
my $guarded = RedisExport::Redis->new(conf => { requirepass => 'pw-first' });
my %as;
for my $user ('', 'app')
{
	my $name = 'guarded_' . ($user || 'default');
	$as{$user} = "'$name'";
	add_server($node, $guarded, name => $name);
	$node->safe_psql('postgres', "CREATE USER MAPPING FOR CURRENT_USER SERVER $name OPTIONS (password 'pw-first'"
		. ($user ? ", username '$user')" : ')'));
}

sub mapped_password
{
	my ($server, $password) = @_;
	return $node->safe_psql('postgres', "ALTER USER MAPPING FOR CURRENT_USER SERVER " . $server =~ s/'//gr . " OPTIONS (SET password '$password')");
}

sub redis_password
{
	my ($password) = @_;
	$guarded->cli('CONFIG', 'SET', 'requirepass', $password);
	$guarded->{conf}{requirepass} = $password;
	return;
}

sub cut_clients { return $guarded->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes') }

subtest 'the password changed in mid-job, and no connection cut' => sub {
	my $id = start_held(3000, server => $as{''});
	redis_password('pw-second');
	mapped_password($as{''}, 'pw-second');
	go_on;
	$session->wait;
	is(job_ends($node, $guarded, $id, state => 'done', keys => 'k:*')->{reconnects}, 0, 'the job does not notice');
	is(wrong_keys($guarded, 3000), 0, 'all rows are in Redis');
};

subtest 'the password and the mapping changed in mid-job, and the connection cut' => sub {
	$guarded->cli('FLUSHALL');
	my $id = start_held(3000, server => $as{''});
	redis_password('pw-third');
	mapped_password($as{''}, 'pw-third');
	cut_clients;
	go_on;
	$session->wait;
	job_ends($node, $guarded, $id, state => 'done', error => qr/connection/, keys => 'k:*');
	is(wrong_keys($guarded, 3000), 0, 'the new password is used, and all rows are in Redis');
};

subtest 'the password changed and the mapping not' => sub {
	$guarded->cli('FLUSHALL');
	my $id = start_held(3000, server => $as{''});
	redis_password('pw-fourth');
	cut_clients;
	go_on;
	like(messages(), qr/ERROR:  could not log in .*: Redis answered: WRONGPASS /, 'the job fails at once');
	job_ends($node, $guarded, $id, state => 'failed', error => qr/WRONGPASS/, keys => 'k:*');
	like(sql_error($node, rows(3000, server => $as{''})), qr/WRONGPASS/, 'and so does the next');
	is(job($node)->{rows_read}, 0, 'with no row');
	mapped_password($as{''}, 'pw-fourth');
	completed($guarded, 3000, server => $as{''});
	my @told = grep { /pw-/ && !/ statement: (?:CREATE|ALTER) USER MAPPING/ } split /^/, slurp_file($node->logfile);
	is_deeply(\@told, [], 'no password is in the log') or diag @told;
};

subtest 'a user of Redis, changed in mid-job' => sub {
	my @user = (qw(ACL SETUSER app reset on >pw-first ~* +@all));
	my $changed = sub {
		my ($what, $error, @change) = @_;
		$guarded->cli(@user);
		$guarded->cli('FLUSHALL');
		my $id = start_held(3000, server => $as{app});
		$guarded->cli(@$_) for @change;
		go_on;
		like(messages(), qr/ERROR:  .*$error/, "$what: an error at once");
		job_ends($node, $guarded, $id, state => 'failed', error => $error, keys => 'k:*');
		$guarded->cli(@user);
		completed($guarded, 3000, server => $as{app});
	};
	$changed->('another password', qr/could not log in .*: Redis answered: WRONGPASS/, [ qw(ACL SETUSER app resetpass >pw-other) ], [ qw(CLIENT KILL TYPE normal SKIPME yes) ]);
	$changed->('switched off', qr/could not log in .*: Redis answered: WRONGPASS/, [ qw(ACL SETUSER app off) ], [ qw(CLIENT KILL TYPE normal SKIPME yes) ]);
	# which cuts its connections
	$changed->('deleted', qr/could not log in .*: Redis answered: WRONGPASS/, [ qw(ACL DELUSER app) ]);
	$changed->('without json.set', qr/Redis answered: NOPERM .*json\.set/, [ qw(ACL SETUSER app -json.set) ]);
	$changed->('without any rights', qr/Redis answered: NOPERM /, [ qw(ACL SETUSER app -@all) ]);
};

subtest 'a user of Redis whose pattern covers some rows' => sub {
	$guarded->cli('FLUSHALL');
	my @user = (qw(ACL SETUSER app reset on >pw-first +@all ~k:1*));
	$guarded->cli(@user);
	like(sql_error($node, rows(2000, server => $as{app})), qr/ERROR:  row 2 with key "k:2" failed: Redis answered: NOPERM .*key/, 'stop: an error');
	my $job = job_ends($node, $guarded, last_job($node), state => 'failed', keys => 'k:*');
	$session->send(rows(2000, server => $as{app}, on_error => q{'ignore'}))->wait;
	$job = job_ends($node, $guarded, last_job($node), state => 'done', error => qr/NOPERM/, keys => 'k:*');
	is("$job->{rows_written} $job->{rows_failed}", '1111 889', 'ignore: its rows are written, the others have failed');
	$guarded->cli(@user, '~k:*');
	completed($guarded, 2000, server => $as{app});

	# taken away in mid-job, all rows after that
	$guarded->cli('FLUSHALL');
	my $id = start_held(3000, server => $as{app}, on_error => q{'ignore'});
	$guarded->cli(@user, 'resetkeys', '~other:*');
	go_on;
	$session->wait;
	$job = job_ends($node, $guarded, $id, state => 'done', error => qr/NOPERM/, keys => 'k:*');
	cmp_ok($job->{rows_failed}, '>=', 2000, 'a pattern that was taken away: all rows after that');
	is($job->{rows_written} + $job->{rows_failed}, 3000, 'and each is counted');
	$guarded->cli(@user, '~k:*');
	completed($guarded, 3000, server => $as{app});
};

$guarded->stop;

subtest 'demoted and promoted again' => sub {
	$redis->cli('FLUSHALL');
	my $id = start_held(4000);
	# A replica of a master that does not answer keeps its data.
	$redis->cli('REPLICAOF', '127.0.0.1', 1);
	go_on;
	poll_until($node, "SELECT last_error ~ '^Redis answered: READONLY ' FROM redis_export_progress WHERE job = $id");
	$redis->cli('REPLICAOF', 'NO', 'ONE');
	$session->wait;
	survived($redis, $id);
	is(wrong_keys($redis, 4000), 0, 'its data kept: all rows are in Redis');

	$redis->cli('FLUSHALL');
	$id = start_held(4000, retry_timeout => q{'1 s'});
	$redis->cli('REPLICAOF', '127.0.0.1', 1);
	go_on;
	like(messages(), qr/ERROR:  gave up after no row was acknowledged for [\d.]+ seconds: Redis answered: READONLY .*HINT:  The server's options lead to a Redis replica/s,
		'for longer than retry_timeout: an error');
	job_ends($node, $redis, $id, state => 'failed', keys => 'k:*');
	$redis->cli('REPLICAOF', 'NO', 'ONE');
	completed($redis, 4000);
};

subtest 'a replica of another master for a while, whose data it takes over' => sub {
	my $other = RedisExport::Redis->new;
	$redis->cli('FLUSHALL');
	my $id = start_held(4000);
	$redis->cli('REPLICAOF', $other->host, $other->port);
	poll_until($node, q{SELECT redis_command('redis', 'INFO', 'replication')::text ~ 'master_link_status:up'});
	is(redis_keys_count($redis), 0, 'what was acknowledged is gone');
	go_on;
	poll_until($node, "SELECT last_error ~ '^Redis answered: READONLY ' FROM redis_export_progress WHERE job = $id");
	$redis->cli('REPLICAOF', 'NO', 'ONE');
	my $messages = messages();
	my $row = survived($redis, $id, keys => undef);
	is($row->{redis_restarts}, 1, 'that counts as a restart');
	like($messages, qr/WARNING:  Redis was restarted after \d+ rows of export job $id were acknowledged.*HINT:  Export again/s, 'and the caller is told');
	like(slurp_file($node->logfile), qr/WARNING:  Redis took over the data of another master after \d+ rows were acknowledged/, 'the log says which');
	completed($redis, 4000);
	$other->stop;
};

subtest 'a bit more memory, again and again' => sub {
	$redis->cli('FLUSHALL');
	$redis->cli('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
	my $used = $redis->info('used_memory');
	$redis->cli('CONFIG', 'SET', 'maxmemory', $used + 300_000);
	my $id = next_job($node, sub { $session->send(rows(20_000)) });
	for my $round (1 .. 3)
	{
		poll_until($node, "SELECT state = 'retrying' AND last_error ~ '^Redis answered: OOM ' FROM redis_export_progress WHERE job = $id");
		my $written = job($node, $id)->{rows_written};
		$redis->cli('CONFIG', 'SET', 'maxmemory', $redis->info('used_memory') + 300_000);
		until_written($node, $id, $written + 1);
	}
	my $row = job($node, $id);
	cmp_ok($row->{rows_written}, '<', 20_000, 'what there was of memory was used up each time');
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	$session->wait;
	$row = survived($redis, $id);
	is("$row->{rows_written} $row->{reconnects}", '20000 0', 'all rows are written, on one connection');
	is(wrong_keys($redis, 20_000), 0, 'all rows are in Redis');

	$redis->cli('FLUSHALL');
	$redis->cli('CONFIG', 'SET', 'maxmemory', $redis->info('used_memory') + 300_000);
	like(sql_error($node, rows(20_000, retry_timeout => q{'0.5 s'})), qr/ERROR:  gave up after .*: Redis answered: OOM .*HINT:  Redis has reached its maxmemory/s,
		'too little for good: an error');
	$row = job_ends($node, $redis, last_job($node), state => 'failed', keys => 'k:*');
	cmp_ok($row->{rows_written}, '>', 100, 'what there was room for is written');
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	completed($redis, 20_000);
};

$_->quit for $session, $holder;
done_testing;
