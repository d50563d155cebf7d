# Order and delivery: for each key the last row of the query wins, however often rows are refused or the connection is cut; each row is
# counted once; an expiry follows only what was written. Seen in the commands that a fake Redis was sent, and in what a real one holds.
use strict;
use warnings;
use POSIX ();
use RedisExport::Test;
use RedisExport::Fake;
use RedisExport::Jobs qw(next_job);
use RedisExport::Proxy;
use RedisExport::Rows;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => 'redis_export.notice_interval = 0');
my $session = session($node);

# The fake, and its server's name as an argument.
my $fakes = 0;
sub fake_redis
{
	my ($sub) = @_;
	my $fake = RedisExport::Fake->new($sub);
	my $name = 'fake_' . ++$fakes;
	add_server($node, $fake, name => $name);
	return ($fake, "'$name'");
}

sub failures
{
	return split /\n/, $node->safe_psql('postgres',
		'SELECT row_number, key, sqlstate, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress))');
}

# Until the fake has been sent so many rows, and sends no more.
sub until_sent
{
	my ($fake, $count, $name) = @_;
	my $sent = 0;
	for (1 .. 600)
	{
		last if ($sent = () = $fake->commands($name // 'JSON.SET')) >= $count;
		sleep 0.05;
	}
	return $sent;
}

sub cancel
{
	my ($job) = @_;
	$node->safe_psql('postgres', "SELECT redis_export_cancel(job) FROM redis_export_progress ORDER BY job DESC LIMIT 1");
	return $session->wait;
}

subtest 'a refused row, and later rows of its key that went through' => sub {
	my ($fake, $server) = fake_redis(sub {
		my ($fake, $client, $name, $key, $path, $document) = @_;
		return '-OOM no room' if $document =~ /"n":10,/ && !$fake->{refused}++;
		return '+OK';
	});
	$session->send(export_sql(q{SELECT i AS n, i % 7 AS id FROM generate_series(1, 60) AS i}, value => q{'*'}, batch => 20, server => $server))->wait;
	job_ended($node, 'done', rows_written => 60, rows_failed => 0, reconnects => 0);
	my @sent = map { { n => $_->{words}[3] =~ /"n":(\d+)/, key => $_->{words}[1], good => $_->{reply} eq '+OK' } } $fake->commands('JSON.SET');
	my ($refused) = grep { !$sent[$_]{good} } 0 .. $#sent;
	is($sent[$refused]{n}, 10, 'row 10 was refused');
	ok((grep { $sent[$_]{n} == 17 } 0 .. $#sent) > 1, 'row 17, of the same key, went through before, and once more');
	my ($again) = grep { $_ > $refused && $sent[$_]{n} == 10 } 0 .. $#sent;
	is_deeply([ map { $_->{n} } @sent[ $again .. $#sent ] ], [ 10 .. 60 ], 'everything was sent again from row 10 on, in order');
	my %last = map { $_->{key} => $_->{n} } grep { $_->{good} } @sent;
	is_deeply(\%last, { map { ("k:" . $_ % 7) => $_ } 54 .. 60 }, 'for each key the last row of the query won');
};

subtest 'a frozen Redis that wakes up with a connection given up' => sub {
	# What it had been sent on that one, all rows of the query here, must not come after what it is sent on the next.
	add_server($node, $redis, name => 'hasty', timeout => 0.3, connect_timeout => 30);
	my $holder = session($node);
	for my $round (1 .. 3)
	{
		$holder->query('SELECT pg_advisory_lock(1)');
		$session->send(export_sql(q{SELECT i AS n, i % 7 AS id, repeat('x', 100) AS v FROM generate_series(1, 8000) AS i
				WHERE i > 1 OR pg_advisory_xact_lock_shared(1) IS NOT NULL},
			value => q{'*'}, batch => 2000, server => q{'hasty'}));
		poll_until($node, q{SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE backend_type = 'redis_export worker'});
		$redis->freeze;
		$holder->query('SELECT pg_advisory_unlock(1)');
		poll_until($node, q{SELECT state = 'retrying' FROM redis_export_progress ORDER BY job DESC LIMIT 1});
		$redis->thaw;
		$session->wait;
		job_ended($node, 'done', rows_written => 8000, reconnects => 1);
		is_deeply([ map { $redis->cli('JSON.GET', 'k:' . $_ % 7, '$.n') } 7994 .. 8000 ], [ map { "[$_]" } 7994 .. 8000 ],
			'for each key the last row of the query won');
	}
	$redis->cli('FLUSHALL');
	$holder->quit;
};

subtest 'a row that breaks the connection' => sub {
	my ($fake, $server) = fake_redis(sub { return $_[3] eq 'k:13' ? CLOSE : '+OK' });
	$session->send(rows(40, batch => 10, server => $server, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 39, rows_failed => 1, reconnects => 4);
	like((failures())[0], qr/^13\|k:13\|08006\|the connection broke 4 times at this row: lost the connection to Redis server "fake_\d+" .*: the server closed it$/,
		'it has failed');
	my @sent = $fake->commands('JSON.SET');
	my @bad = grep { $_->{words}[1] eq 'k:13' } @sent;
	is(scalar @bad, 4, 'it was tried four times');
	cmp_ok($bad[0]{behind}, '>', 0, 'at first with others behind it');
	is($bad[3]{behind}, 0, 'at last alone');
	my %accepted = map { $_->{words}[1] => 1 } grep { $_->{reply} eq '+OK' } @sent;
	is(scalar keys %accepted, 39, 'all others have arrived');

	my $error = sql_error($node, rows(40, batch => 10, server => $server), verbose => 1);
	like($error, qr/^ERROR:  08006: row 13 with key "k:13" failed: the connection broke 4 times at this row: .*HINT:  Is its value larger than Redis' proto-max-bulk-len, or than maxmemory-clients or client-query-buffer-limit let/ms,
		'without on_error the job fails');
	my $job = job_ended($node, 'failed', rows_failed => 1);
	cmp_ok($job->{rows_written}, '>=', 12, 'those before it are counted');
};

subtest 'a value over proto-max-bulk-len' => sub {
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '1mb');
	my $query = q{SELECT i AS id, repeat('x', CASE i WHEN 50 THEN 2000000 ELSE 100 END) AS v FROM generate_series(1, 100) AS i};
	$session->send(export_sql($query, value => q{'*'}, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 99, rows_failed => 1);
	like((failures())[0], qr/^50\|k:50\|/, 'that row has failed');
	is(redis_keys_count($redis), 99, 'the others are in Redis');
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '512mb');
	$redis->cli('FLUSHALL');
};

subtest 'a connection that is cut, here and there' => sub {
	my @cuts = (10, 100, 1000, 5000, 20_000, 70_000, 100_000);
	my $proxy = RedisExport::Proxy->new($redis, cut_after => \@cuts);
	add_server($node, $proxy, name => 'cut');
	$session->send(rows(5000, batch => 100, server => q{'cut'}))->wait;
	my $job = job_ended($node, 'done', rows_written => 5000, rows_failed => 0, redis_restarts => 0);
	is($proxy->connections, @cuts + 1, 'each connection was cut but the last');
	cmp_ok($job->{reconnects}, '>=', 4, 'it came back');
	is(redis_keys_count($redis), 5000, 'all keys are in Redis');
	is(wrong_rows($redis, 5000), 0, 'with their values');
	$redis->cli('FLUSHALL');
};

subtest 'answers that come byte by byte' => sub {
	my $proxy = RedisExport::Proxy->new($redis, trickle => 20_000);
	add_server($node, $proxy, name => 'slow');
	$redis->cli('SET', 'k:700', 'of another type');
	$session->send(rows(1000, batch => 100, server => q{'slow'}, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 999, rows_failed => 1, reconnects => 0);
	like((failures())[0], qr/^700\|k:700\|42809\|/, 'each answer is for its row');
	is(wrong_rows($redis, 699), 0, 'the rows are in Redis');
	$redis->cli('FLUSHALL');
};

subtest 'an error within an answer that comes in pieces' => sub {
	my ($fake, $server) = fake_redis(sub {
		my ($fake, $client) = @_;
		for my $piece ("*2\r\n-WRONGTYPE with", "in\r\n", ":1\r\n")
		{
			RedisExport::Fake::write_all($client->{socket}, $piece);
			sleep 0.05;
		}
		return undef;
	});
	$session->send(rows(1, server => $server, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 0, rows_failed => 1);
	like((failures())[0], qr/^1\|k:1\|42809\|Redis answered: WRONGTYPE within$/, 'is found');
};

subtest 'a line that stalls' => sub {
	my $proxy = RedisExport::Proxy->new($redis);
	add_server($node, $proxy, name => 'stalls');
	next_job($node, sub { $session->send(rows(4000, batch => 100, rate => 2000, server => q{'stalls'})) });
	poll_until($node, 'SELECT rows_written > 0 FROM redis_export_progress ORDER BY job DESC LIMIT 1');
	$proxy->raise('stall');
	sleep 1;
	my $stalled = job($node)->{rows_written};
	sleep 0.5;
	is(job($node)->{rows_written}, $stalled, 'nothing is acknowledged meanwhile');
	$proxy->lower('stall');
	$session->wait;
	job_ended($node, 'done', rows_written => 4000, reconnects => 0);
	is(wrong_rows($redis, 4000), 0, 'all rows are in Redis');
	$redis->cli('FLUSHALL');
};

# What the old connection still holds would be carried out after the resend.
subtest 'a line that stalls, is given up, and delivers all the same' => sub {
	my $proxy = RedisExport::Proxy->new($redis);
	add_server($node, $proxy, name => 'delivers', timeout => 1);
	my $query = q{SELECT i % 10 AS id, i AS n FROM generate_series(1, 6000) AS i};
	next_job($node, sub { $session->send(export_sql($query, batch => 100, rate => 2000, server => q{'delivers'})) });
	poll_until($node, 'SELECT rows_written > 100 FROM redis_export_progress ORDER BY job DESC LIMIT 1');
	$proxy->raise('hold');
	$session->wait;
	job_ended($node, 'done', rows_written => 6000, reconnects => 1);
	my $last = sub { join ' ', map { $redis->cli('JSON.GET', "k:$_", '$.n') } 0 .. 9 };
	my $newest = join ' ', map { "[$_]" } 6000, 5991 .. 5999;
	is($last->(), $newest, 'the last row of each key is there');
	$proxy->lower('hold');
	my $deadline = time + 60;
	sleep 0.05 until $proxy->released || time > $deadline;
	ok($proxy->released, 'the old connection has delivered what it had, and ended');
	is($last->(), $newest, 'and nothing of it came after');
	$redis->cli('FLUSHALL');
};

subtest 'expiry: on a real Redis' => sub {
	$redis->cli('SET', 'k:7', 'of somebody else');
	my $error = sql_error($node, rows(20, ttl => q{'1 hour'}));
	like($error, qr/ERROR:  row 7 with key "k:7" failed/, 'a write that is refused');
	job_ended($node, 'failed', rows_written => 19, rows_failed => 1);
	is($redis->cli('PTTL', 'k:7'), -1, 'is followed by no expiry');
	my @ttl = map { scalar $redis->cli('PTTL', "k:$_") } grep { $_ != 7 } 1 .. 20;
	is((grep { $_ > 3_000_000 && $_ <= 3_600_000 } @ttl), 19, 'the rows that were written expire, though the job has failed');

	$redis->cli('DEL', 'k:7');
	$session->query(rows(20));
	cmp_ok($redis->cli('PTTL', 'k:1'), '>', 0, 'without a ttl an old expiry stays');
	is($redis->cli('PTTL', 'k:7'), -1, 'and there is no new one');
	$session->query(rows(20, ttl => q{'0'}));
	is($redis->cli('PTTL', 'k:1'), -1, "a ttl of '0' removes it");
	$session->query(rows(1000, ttl => q{'90 s'}, batch => 7));
	job_ended($node, 'done', rows_written => 1000);
	my $expiring = $redis->cli('EVAL', q{
		local n = 0
		for i = 1, 1000 do
			local left = redis.call('PTTL', 'k:' .. i)
			if left > 0 and left <= 90000 then n = n + 1 end
		end
		return n}, 0);
	is($expiring, 1000, 'many small batches: each key expires');
	$redis->cli('FLUSHALL');
};

subtest 'expiry: only after the acknowledgement' => sub {
	# After the 15th row it is silent.
	my ($fake, $server) = fake_redis(sub {
		my ($fake, $client, $name, $key) = @_;
		return $client->{rows}++ < 15 ? '+OK' : undef;
	});
	$session->send(rows(60, batch => 10, ttl => q{'1 min'}, server => $server));
	until_sent($fake, 40);
	until_sent($fake, 10, 'PEXPIRE');
	my @expiries = $fake->commands('PEXPIRE');
	is_deeply([ map { $_->{words}[1] } @expiries ], [ map { "k:$_" } 1 .. 10 ], 'of the batch that was acknowledged, each key expires');
	is($expiries[0]{words}[2], 60_000, 'after so many milliseconds');
	cancel();
	is(scalar(() = $fake->commands('PEXPIRE')), 10, 'others do not, of which some were acknowledged');
	job_ended($node, 'canceled', rows_written => 0, rows_in_doubt => scalar(() = $fake->commands('JSON.SET')));
};

subtest 'expiry: refused' => sub {
	my ($fake, $server) = fake_redis(sub {
		my ($fake, $client, $name, $key) = @_;
		return '+OK' if $name eq 'JSON.SET';
		return ':0' if ($key eq 'k:3' && !$fake->flag('full')) || ($key eq 'k:4' && !$fake->{gone}++);
		return '-OOM no room' if $key eq 'k:5' && ($fake->flag('full') || !$fake->{refused}++);
		return ':1';
	});
	$session->send(rows(10, ttl => q{'1 min'}, server => $server, on_error => q{'ignore'}))->wait;
	job_ended($node, 'done', rows_written => 9, rows_failed => 1);
	like((failures())[0], qr/^3\|k:3\|38000\|the key was gone before its expiry could be set$/, 'a key that is gone by then, again and again, is a failed row');
	is(scalar(grep { $_->{words}[1] eq 'k:3' } $fake->commands('PEXPIRE')), 4, 'at the fourth time');
	cmp_ok(scalar(grep { $_->{words}[1] eq 'k:4' } $fake->commands('JSON.SET')), '>=', 2, 'one that was gone once is written again');
	my ($again) = grep { $_->{words}[1] eq 'k:5' && $_->{reply} eq ':1' } $fake->commands('PEXPIRE');
	ok($again, 'a refusal for the moment is tried again');

	$fake->raise('full');
	my $error = sql_error($node, rows(10, ttl => q{'1 min'}, server => $server, on_error => q{'ignore'}, retry_timeout => q{'0.3 s'}));
	like($error, qr/ERROR:  gave up after .*OOM/, 'a refusal for good is an error');
	job_ended($node, 'failed', rows_read => 10, rows_written => 9, rows_failed => 0, rows_in_doubt => 1);
};

subtest 'what was sent and not answered is in doubt' => sub {
	my ($fake, $server) = fake_redis(sub { return $_[3] =~ /^k:(\d+)$/ && $1 <= 15 ? '+OK' : undef });
	$session->send(rows(1000, batch => 10, server => $server));
	cmp_ok(until_sent($fake, 50), '>=', 50, 'a window of four batches, and no more, is sent ahead');
	poll_until($node, 'SELECT rows_written = 15 FROM redis_export_progress ORDER BY job DESC LIMIT 1');
	is(job($node)->{rows_in_doubt}, scalar(() = $fake->commands('JSON.SET')) - 15, 'the view shows it while the job runs');
	my (undef, $err) = cancel();
	like($err, qr/ERROR:  the export was canceled/, 'cancelled');
	my $sent = () = $fake->commands('JSON.SET');
	cmp_ok($sent, '<=', 60, 'no more than the window was sent');
	job_ended($node, 'canceled', rows_written => 15, rows_failed => 0, rows_in_doubt => $sent - 15, rows_read => $sent);
};

subtest 'cancelled in the midst of many failures' => sub {
	# A warning in the log serves interrupts; one that comes between two answers must not make the ledger wrong.
	my ($fake, $server) = fake_redis(sub {
		my ($fake, $client, $name, $key) = @_;
		return undef if $key ne 'k:100';
		for (1 .. 1000)
		{
			last if $fake->flag('go');
			sleep 0.01;
		}
		my $pid = slurp_file("$fake->{dir}/pid");
		my $errors = "-ERR no such key\r\n" x 50;
		RedisExport::Fake::write_all($client->{socket}, $errors);
		my $moment = time + 0.00005 * ($fake->{tries}++ % 6);
		1 while time < $moment;
		kill 'INT', $pid;
		sleep 0.02;
		RedisExport::Fake::write_all($client->{socket}, $errors);
		return undef;
	});
	my @sums;
	for (1 .. 18)
	{
		$fake->lower('go');
		$session->send(rows(100, server => $server, on_error => q{'ignore'}));
		poll_until($node, q{SELECT state = 'finishing' FROM redis_export_progress ORDER BY job DESC LIMIT 1});
		append_to_file("$fake->{dir}/pid.new", job($node)->{pid});
		rename "$fake->{dir}/pid.new", "$fake->{dir}/pid";
		$fake->raise('go');
		$session->wait;
		my $job = job($node);
		push @sums, join ' ', $job->{rows_read}, $job->{rows_written}, $job->{rows_failed} + $job->{rows_in_doubt};
	}
	is_deeply(\@sums, [ ('100 0 100') x @sums ], 'each row has failed or is in doubt, and none is counted twice');
};

subtest 'reject_limit' => sub {
	$redis->cli('SET', "k:$_", 'of another type') for 5, 10, 15;
	$session->query(rows(20, on_error => q{'ignore'}, reject_limit => 3));
	job_ended($node, 'done', rows_written => 17, rows_failed => 3);
	my $error = sql_error($node, rows(20, on_error => q{'ignore'}, reject_limit => 2), verbose => 1);
	like($error, qr/^ERROR:  42809: more rows failed than the reject_limit of 2 allows, the last with key "k:15": Redis answered: /m, 'one more is an error');
	job_ended($node, 'failed', rows_failed => 3);
	$redis->cli('FLUSHALL');
};

subtest 'more than a hundred failed rows' => sub {
	$redis->cli('SET', "k:$_", 'of another type') for 1 .. 130;
	my $before = -s $node->logfile;
	$session->query(rows(200, on_error => q{'ignore'}));
	job_ended($node, 'done', rows_written => 70, rows_failed => 130);
	my @failures = failures();
	is(scalar @failures, 100, 'a hundred are kept');
	like($failures[99], qr/^100\|k:100\|/, 'the first hundred');
	my $warnings = () = slurp_file($node->logfile, $before) =~ /WARNING:  row \d+ with key/g;
	is($warnings, 100, 'and told in the log');
	is(redis_keys_count($redis), 200, 'the others are in Redis');
	$redis->cli('FLUSHALL');
};

subtest 'rows of many megabytes' => sub {
	$session->query(export_sql(q{SELECT i AS id, repeat('x', i * 20000000) AS v FROM generate_series(1, 3) AS i}, value => q{'*'}));
	cmp_ok(job_ended($node, 'done', rows_written => 3)->{bytes_sent}, '>', 120_000_000, 'all was sent');
	is($redis->cli('JSON.STRLEN', 'k:3', '$.v'), 60_000_000, 'a value of 60 MB is whole');
	$redis->cli('FLUSHALL');
};

subtest 'rate' => sub {
	my ($fake, $server) = fake_redis(sub { return '+OK' });
	my $holder = session($node);
	$holder->query('SELECT pg_advisory_lock(1)');
	$session->send(export_sql(q{SELECT i AS id FROM generate_series(1, 7000) AS i WHERE i <> 3001 OR pg_advisory_xact_lock_shared(1) IS NOT NULL},
		value => q{'*'}, batch => 100, rate => 2000, server => $server));
	poll_until($node, q{SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE backend_type = 'redis_export worker'});
	sleep 2;
	$holder->query('SELECT pg_advisory_unlock(1)');
	$session->wait;
	job_ended($node, 'done', rows_written => 7000);
	my @at = map { $_->{at} } $fake->commands('JSON.SET');
	cmp_ok($at[2400] - $at[0], '>', 2400 / 2000 * 0.9, 'no faster than the rate');
	cmp_ok($at[6999] - $at[3001], '>', 4000 / 2000 * 0.8, 'nor after a pause: what was not used is not made up for');
	my ($most, $from) = (0, 0);
	for my $to (0 .. $#at)
	{
		$from++ while $at[$to] - $at[$from] > 0.1;
		$most = $to - $from + 1 if $most < $to - $from + 1;
	}
	cmp_ok($most, '<', 1000, 'no burst');
	$holder->quit;
};

subtest 'a connection that is closed during the back-off' => sub {
	$redis->cli('CONFIG', 'SET', 'maxmemory', 1);
	$session->send(rows(10, retry_timeout => q{'1 min'}));
	poll_until($node, q{SELECT state = 'retrying' FROM redis_export_progress ORDER BY job DESC LIMIT 1});
	my $pid = job($node)->{pid};
	my $cpu = sub {
		my @times = (split / /, slurp_file("/proc/$pid/stat") =~ s/.*\) //r)[ 11, 12 ];
		return ($times[0] + $times[1]) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
	};
	my $before = $cpu->();
	for (1 .. 20)
	{
		sleep 0.2;
		$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	}
	cmp_ok($cpu->() - $before, '<', 0.4, 'is waited for without work');
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	$session->wait;
	job_ended($node, 'done', rows_written => 10);
};

$session->quit;
done_testing;
