# Commands that are more than one, or must not be sent twice, under faults: hashes that are replaced in a MULTI block, RPUSH and its like,
# expiries of each row, rows that are skipped. After each fault it is looked at what Redis holds: every hash as the query says and never
# without its fields, every id exactly once, or at most once and no more of them than are written or in doubt.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Fake;
use RedisExport::Jobs;
use RedisExport::Proxy;

my $redis = RedisExport::Redis->new(conf => { 'repl-ping-replica-period' => 100, 'repl-diskless-sync-delay' => 0, 'busy-reply-threshold' => 10 });
my $node = new_node($redis, conf => 'redis_export.notice_interval = 0');
my $session = session($node);
my $holder = session($node);

# A proxy that passes on to Redis one byte at a time.
package RedisExport::Drip
{
	use Socket qw(IPPROTO_TCP TCP_NODELAY);
	our @ISA = ('RedisExport::Proxy');

	sub _pass
	{
		my ($self, $pair, $from) = @_;
		return $self->SUPER::_pass($pair, $from) if $from == $pair->{redis};
		sysread($from, my $bytes, 65536) or return 0;
		$pair->{redis}->setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);
		for my $byte (split //, $bytes)
		{
			RedisExport::Fake::write_all($pair->{redis}, $byte) or return 0;
		}
		return 1;
	}
}

#
# Statements
#

sub more_arguments
{
	my (%arguments) = @_;
	return join '', map { ", $_ => $arguments{$_}" } sort keys %arguments;
}

sub command_sql
{
	my ($query, $words, %arguments) = @_;
	my $array = join ', ', map { "'" . s/'/''/gr . "'" } @$words;
	return "SELECT job, state FROM redis_command_export(\$query\$$query\$query\$, ARRAY[$array]" . more_arguments(%arguments) . ')';
}

# Hashes that are replaced, under keys that begin with the prefix; without the column id.
sub replace_sql
{
	my ($query, $prefix, %arguments) = @_;
	return "SELECT job, state FROM redis_hash_export(\$query\$$query\$query\$, '$prefix#{id}', replace => true, exclude => '{id}'"
		. more_arguments(%arguments) . ')';
}

# Held up after the 1,000th row until it may go on.
sub held  { return "$_[0] WHERE i <> 1001 OR pg_advisory_xact_lock_shared(1) IS NOT NULL" }
sub hold  { return $holder->query('SELECT pg_advisory_lock(1)') }
sub go_on { return $holder->query('SELECT pg_advisory_unlock(1)') }

# The ids from 1 on; and the rows of hashes: a field may be null, and in each 50th row all are.
sub ids { return "SELECT i AS id FROM generate_series(1, $_[0]) AS i" }
sub hashes
{
	my ($count) = @_;
	return "SELECT i AS id, CASE WHEN i % 50 > 0 THEN 'value ' || i END AS v, CASE WHEN i % 50 > 0 AND i % 3 > 0 THEN i END AS n
		FROM generate_series(1, $count) AS i";
}

sub fake_redis
{
	my ($sub, %options) = @_;
	my $fake = RedisExport::Fake->new($sub);
	my $name = 'fake_' . $fake->port;
	add_server($node, $fake, name => $name, %options);
	return ($fake, "'$name'");
}

sub proxy
{
	my ($class, $at, %options) = @_;
	my $proxy = $class->new($at, %options);
	my $name = 'proxy_' . $proxy->port;
	add_server($node, $proxy, name => $name);
	return ($proxy, "'$name'");
}

#
# How it ended
#

# The job, with rows_skipped in its ledger.
sub ended
{
	my ($id, $state, %expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	my $job = job($node, $id);
	my $error = delete $expected{error};
	is($job->{state}, $state, "the job is $state") or diag $job->{last_error};
	like($job->{last_error} // '', $error, 'its error') if $error;
	is($job->{$_}, $expected{$_}, "$_ is $expected{$_}") for sort keys %expected;
	my ($read, @parts) = @$job{qw(rows_read rows_written rows_failed rows_skipped rows_in_doubt)};
	my $sum = 0;
	$sum += $_ for @parts;
	ok($read == $sum && ($state ne 'done' || $parts[3] == 0), 'its rows add up') or diag "$read: @parts";
	return $job;
}
sub last_ended { my ($state, %expected) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return ended(last_job($node), $state, %expected) }

# The statement from start to end; returns what it said.
sub run_export { my ($sql) = @_; return ($session->send($sql)->wait)[1] }

# How many hashes are not as the query says, or expire.
sub wrong_hashes
{
	my ($at, $count, $prefix) = @_;
	return $at->cli('EVAL', q{
		local wrong = 0
		for i = 1, ARGV[1] do
			local have, want, n, good = redis.call('HGETALL', ARGV[2] .. i), {}, 0, redis.call('PTTL', ARGV[2] .. i) < 0
			if i % 50 > 0 then
				want.v, n = 'value ' .. i, 1
				if i % 3 > 0 then want.n, n = tostring(i), 2 end
			end
			good = good and #have == 2 * n
			for j = 1, #have, 2 do good = good and want[have[j]] == have[j + 1] end
			if not good then wrong = wrong + 1 end
		end
		return wrong}, 0, $count, $prefix // 'h:');
}

# What is there before: hashes of other fields, some that expire, and values of other types.
sub fill_with_old
{
	my ($at, $count, $prefix) = @_;
	return $at->cli('EVAL', q{
		for i = 1, ARGV[1] do
			local key = ARGV[2] .. i
			redis.call('DEL', key)
			if i % 10 == 3 then redis.call('SET', key, 'text')
			elseif i % 10 == 4 then redis.call('RPUSH', key, 'a', 'b')
			elseif i % 10 == 5 then redis.call('JSON.SET', key, '$', '{}')
			else redis.call('HSET', key, 'stale', 'x', 'v', 'old') end
			if i % 4 == 0 then redis.call('EXPIRE', key, 1000) end
		end
		return 1}, 0, $count, $prefix // 'h:');
}

# A process that looks all the time, until it is stopped, whether all keys hold what was there before or what is there now. Returns
# a sub that stops it and tells how often it looked, and the worst that it saw.
sub watch
{
	my ($at, $count, @prefixes) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $script = q{
		local wrong = 0
		for p = 1, #KEYS do
			for i = 1, ARGV[1] do
				local key = KEYS[p] .. i
				local type = redis.call('TYPE', key).ok
				if type == 'none' and i % 50 > 0 then wrong = wrong + 1
				elseif type == 'hash' then
					local is = redis.call('HMGET', key, 'v', 'stale')
					if is[1] ~= (is[2] and 'old' or 'value ' .. i) then wrong = wrong + 1 end
				end
			end
		end
		return wrong};
	my $pid = RedisExport::Fake::spawn(sub {
		my $link = IO::Socket::INET->new(PeerAddr => $at->host, PeerPort => $at->port);
		my @words = ('EVAL', $script, scalar @prefixes, @prefixes, $count);
		my $request = join '', '*' . @words . "\r\n", map { '$' . length($_) . "\r\n$_\r\n" } @words;
		my ($looks, $worst) = (0, 0);
		until (-e "$dir/stop")
		{
			print $link $request;
			my ($wrong) = (readline($link) // ':999') =~ /(\d+)/;
			$looks++;
			$worst = $wrong if $worst < $wrong;
		}
		append_to_file("$dir/result", "$looks $worst");
	});
	return sub {
		append_to_file("$dir/stop", '');
		waitpid $pid, 0;
		return split / /, slurp_file("$dir/result");
	};
}

sub nothing_was_missing
{
	my ($stop) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($looks, $worst) = $stop->();
	cmp_ok($looks, '>', 10, 'somebody looked all the while');
	return is($worst, 0, 'and never saw a key without its hash, or with half of it');
}

# The ids in a list.
sub listed { my ($at, $list) = @_; return $at->cli('LRANGE', $list // 'l', 0, -1) }

sub repeated
{
	my %count;
	$count{$_}++ for @_;
	return join ' ', grep { $count{$_} > 1 } sort { $a <=> $b } keys %count;
}

sub once_each
{
	my ($count, @ids) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(repeated(@ids), '', 'no id is there twice');
	return is(scalar @ids, $count, 'each is there');
}

# What there must be of ids after a job that failed, or was cancelled.
sub at_most_once
{
	my ($job, @ids) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(repeated(@ids), '', 'no id is there twice');
	my ($written, $doubt, $there) = (@$job{qw(rows_written rows_in_doubt)}, scalar @ids);
	my $good = ok($written <= $there && $there <= $written + $doubt, 'as many are there as are written, and some that are in doubt');
	diag "$there there, $written written, $doubt in doubt" unless $good;
	return $good;
}

#
# Hashes that are replaced: MULTI, DEL, HSET, EXEC
#

subtest 'replace: cut after so many bytes' => sub {
	# several at once, each of whose connections ends some bytes after the one before
	my @prefixes = map { "cut:$_:" } 1 .. 4;
	fill_with_old($redis, 120, $_) for @prefixes;
	my $stop = watch($redis, 120, @prefixes);
	my (@jobs, @proxies);
	for my $i (0 .. $#prefixes)
	{
		my ($proxy, $server) = proxy('RedisExport::Proxy', $redis, cut_after => [ map { 600 + 2 * ($_ * @prefixes + $i) } 0 .. 15 ]);
		push @proxies, $proxy;
		push @jobs, $session->query(replace_sql(hashes(120), $prefixes[$i], server => $server, batch => 10, wait => 'false')) =~ s/\|.*//r;
	}
	ended($_, 'done', rows_written => 120, rows_failed => 0, redis_restarts => 0) for @jobs;
	is($_->connections, 17, 'each connection was cut but the last') for @proxies;
	nothing_was_missing($stop);
	is(wrong_hashes($redis, 120, $_), 0, 'all hashes are as the query says') for @prefixes;
};

subtest 'replace: byte by byte, both ways' => sub {
	fill_with_old($redis, 150);
	my $stop = watch($redis, 150, 'h:');
	my ($proxy, $server) = proxy('RedisExport::Drip', $redis, trickle => 1_000_000);
	run_export(replace_sql(hashes(150), 'h:', server => $server, batch => 20));
	last_ended('done', rows_written => 150, rows_failed => 0, reconnects => 0);
	nothing_was_missing($stop);
	is(wrong_hashes($redis, 150), 0, 'all hashes are as the query says');
};

subtest 'replace: hashes of many megabytes' => sub {
	# Redis answers MULTI before the rest has come.
	$redis->cli('FLUSHALL');
	my $big = q{SELECT i AS id, repeat('x', 3000000) AS v FROM generate_series(1, 12) AS i};
	run_export(replace_sql($big, 'big:', retry_timeout => q{'10 s'}));
	last_ended('done', rows_written => 12, rows_failed => 0, reconnects => 0);
	is($redis->cli('HSTRLEN', 'big:12', 'v'), 3_000_000, 'they are whole');

	# one that comes in pieces: nothing else is outstanding when MULTI is answered
	my ($proxy, $server) = proxy('RedisExport::Proxy', $redis, cut_after => [ 1_000_000, 4_000_000 ]);
	run_export(replace_sql($big, 'big:', server => $server, retry_timeout => q{'10 s'}));
	last_ended('done', rows_written => 12, rows_failed => 0, reconnects => 2);

	# of some that do not fit, only they fail
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '1mb');
	run_export(replace_sql(q{SELECT i AS id, repeat('y', CASE WHEN i % 10 = 0 THEN 2000000 ELSE 100 END) AS v FROM generate_series(1, 20) AS i},
		'large:', on_error => q{'ignore'}));
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '512mb');
	last_ended('done', rows_written => 18, rows_failed => 2);
	is(redis_keys_count($redis, 'large:*'), 18, 'the others are in Redis');
};

subtest 'replace: Redis killed and started again, its data kept' => sub {
	my $kept = RedisExport::Redis->new(conf => { appendonly => 'yes', appendfsync => 'always' });
	add_server($node, $kept, name => 'kept');
	fill_with_old($kept, 3000);
	my $id = next_job($node, sub { $session->send(replace_sql(hashes(3000), 'h:', server => q{'kept'}, batch => 100, rate => 3000)) });
	until_written($node, $id, 500);
	$kept->kill9->start;
	$session->wait;
	ended($id, 'done', rows_written => 3000, rows_failed => 0, redis_restarts => 1);
	is(wrong_hashes($kept, 3000), 0, 'all hashes are as the query says');

	# and for what must not be repeated
	$id = next_job($node, sub { $session->send(command_sql(ids(5000), [ 'RPUSH', 'l', '#{id}' ], server => q{'kept'}, batch => 20)) });
	until_written($node, $id, 40);
	$kept->kill9;
	my ($out, $err) = $session->wait;
	$kept->start;
	my $job = job($node, $id);
	if ($job->{state} eq 'done')
	{
		once_each(5000, listed($kept));
	}
	else
	{
		$job = ended($id, 'failed', error => qr/lost the connection/);
		like($err, qr/DETAIL:  Of some rows it is not known whether Redis has carried out their command/, 'RPUSH: the job fails, and says why');
		at_most_once($job, listed($kept));
	}
	$kept->stop;
};

subtest 'replace: a bit more memory, again and again' => sub {
	# It is used up at any command of a block: HSET is refused, or EXEC is.
	$redis->cli('FLUSHALL');
	$redis->cli('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
	my $room = sub { $redis->cli('CONFIG', 'SET', 'maxmemory', $redis->info('used_memory') + $_[0]) };
	$room->(300_000);
	my $id = next_job($node, sub { $session->send(replace_sql(hashes(20_000), 'h:', on_error => q{'ignore'})) });
	for my $round (1 .. 8)
	{
		poll_until($node, "SELECT state = 'retrying' OR finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
		my $written = job($node, $id)->{rows_written};
		$room->(30_000 + 17 * $round);
		poll_until($node, "SELECT rows_written > $written OR finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	}
	my $job = job($node, $id);
	cmp_ok($job->{rows_written}, '<', 20_000, 'what there was of memory was used up each time');
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	$session->wait;
	ended($id, 'done', rows_written => 20_000, rows_failed => 0, reconnects => 0);
	is(wrong_hashes($redis, 20_000), 0, 'all hashes are as the query says');
};

# A Redis that answers so to the fourth row's EXEC, or to another command of its block, the first time.
sub block_refused
{
	my ($at, $answer) = @_;
	return fake_redis(sub {
		my ($fake, $client, $name, $key) = @_;
		$client->{row} = 0 if !defined $client->{row};
		$client->{row}++ if $name eq 'MULTI';
		if ($name eq $at && $client->{row} == 4 && !$fake->{refused}++)
		{
			$client->{aborted} = 1 if $name ne 'EXEC';
			return $answer;
		}
		return '+OK' if $name eq 'MULTI';
		return '+QUEUED' if $name ne 'EXEC';
		return '-EXECABORT Transaction discarded because of previous errors.' if delete $client->{aborted};
		return "*2\r\n:1\r\n:2";
	});
}

subtest 'replace: why a block was refused' => sub {
	my $discarded = '-EXECABORT Transaction discarded because of: ';
	my @later = ('OOM command not allowed', 'MISCONF Redis is configured to save', 'BUSY Redis is busy', 'NOREPLICAS Not enough good replicas', 'READONLY You can\'t write', 'LOADING Redis is loading');
	for my $case ([ 'HSET', map { "-$_" } @later[ 0, 4, 5 ] ], [ 'DEL', "-$later[4]" ], [ 'EXEC', map { "$discarded$_" } @later ])
	{
		my ($at, @answers) = @$case;
		for my $answer (@answers)
		{
			my ($fake, $server) = block_refused($at, $answer);
			run_export(replace_sql('SELECT i AS id, i AS n FROM generate_series(1, 10) AS i', 'h:', server => $server, on_error => q{'ignore'}));
			last_ended('done', rows_written => 10, rows_failed => 0);
			my $blocks = () = $fake->commands('EXEC');
			is($blocks, 17, "$at, $answer: all from that row on are sent once more");
		}
	}
	for my $case ([ 'HSET', '-NOPERM User x has no permissions to run the \'hset\' command' ],
		[ 'EXEC', "${discarded}NOPERM User x has no permissions to run the 'exec' command" ])
	{
		my ($fake, $server) = block_refused(@$case);
		like(run_export(replace_sql('SELECT i AS id, i AS n FROM generate_series(1, 10) AS i', 'h:', server => $server, on_error => q{'ignore'})),
			qr/ERROR:  Redis answered: .*NOPERM /, "$case->[0], $case->[1]: an error at once");
		last_ended('failed', rows_failed => 0);
	}
	my ($fake, $server) = block_refused('HSET', '-NOPERM No permissions to access a key');
	run_export(replace_sql('SELECT i AS id, i AS n FROM generate_series(1, 10) AS i', 'h:', server => $server, on_error => q{'ignore'}));
	last_ended('done', rows_written => 9, rows_failed => 1);
	is($node->safe_psql('postgres', 'SELECT row_number, key, sqlstate, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress))'),
		'4|h:4|42501|Redis answered: NOPERM No permissions to access a key', 'a row that is refused for its key is told with it');
};

subtest 'replace: users of Redis without some right' => sub {
	for my $right (qw(hset del exec multi))
	{
		fill_with_old($redis, 1000);
		$redis->cli('ACL', 'SETUSER', "no_$right", 'reset', 'on', '>pw', '~*', '+@all', "-$right");
		add_server($node, $redis, name => "no_$right");
		$node->safe_psql('postgres', "CREATE USER MAPPING FOR CURRENT_USER SERVER no_$right OPTIONS (username 'no_$right', password 'pw')");
		like(run_export(replace_sql(hashes(1000), 'h:', server => "'no_$right'", on_error => q{'ignore'})), qr/ERROR:  Redis answered: .*NOPERM .*'$right' command/,
			"-$right: an error at once");
		changed_as_told(last_ended('failed', rows_failed => 0), 1000);
	}
};

# Of the hashes that were there before, those that are another now are written or in doubt.
sub changed_as_told
{
	my ($job, $count) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $changed = $redis->cli('EVAL', q{
		local n = 0
		for i = 1, ARGV[1] do
			local key = 'h:' .. i
			local type = redis.call('TYPE', key).ok
			if type == 'none' or type == 'hash' and redis.call('HEXISTS', key, 'stale') == 0 then n = n + 1 end
		end
		return n}, 0, $count);
	my ($written, $doubt) = @$job{qw(rows_written rows_in_doubt)};
	my $good = ok($written <= $changed && $changed <= $written + $doubt, 'what was changed is written or in doubt');
	diag "$changed changed, $written written, $doubt in doubt" unless $good;
	return $good;
}

subtest 'replace: cancelled' => sub {
	fill_with_old($redis, 3000);
	hold();
	my $id = next_job($node, sub { $session->send(replace_sql(held(hashes(3000)), 'h:', batch => 100)) });
	until_written($node, $id, 500);
	$redis->freeze;
	go_on();
	poll_until($node, "SELECT rows_in_doubt > 100 AND rows_read > 1000 FROM redis_export_progress WHERE job = $id");
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	$session->wait;
	$redis->thaw;
	$redis->cli('PING');
	changed_as_told(ended($id, 'canceled', rows_failed => 0), 3000);

	# in the midst of a block: what of it was carried out is nothing
	$redis->cli('FLUSHALL');
	hold();
	$id = next_job($node, sub {
		$session->send(replace_sql(q{SELECT 1 AS id, repeat('x', 50000000) AS v WHERE pg_advisory_xact_lock_shared(1) IS NOT NULL}, 'big:'));
	});
	until_state($node, $id, 'running');
	$redis->freeze;
	go_on();
	poll_until($node, "SELECT bytes_sent > 0 FROM redis_export_progress WHERE job = $id");
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	$session->wait;
	$redis->thaw;
	ended($id, 'canceled', rows_read => 0, rows_in_doubt => 0);
	is($redis->cli('DBSIZE'), 0, 'a block that was sent half is not in doubt, and nothing is there');
};

subtest 'replace: READONLY, BUSY, paused' => sub {
	my $count = 3000;
	my $faults = {
		READONLY => [ sub { $redis->cli('REPLICAOF', '127.0.0.1', 1) }, sub { $redis->cli('REPLICAOF', 'NO', 'ONE') } ],
		BUSY => [ \&keep_busy, sub { $redis->cli('SCRIPT', 'KILL') } ],
		paused => [ sub { $redis->cli('CLIENT', 'PAUSE', 60_000, 'WRITE') }, sub { $redis->cli('CLIENT', 'UNPAUSE') } ],
	};
	for my $name (sort keys %$faults)
	{
		my ($begin, $end) = @{ $faults->{$name} };
		fill_with_old($redis, $count);
		hold();
		my $id = next_job($node, sub { $session->send(replace_sql(held(hashes($count)), 'h:', batch => 100)) });
		until_written($node, $id, 500);
		$begin->();
		go_on();
		if ($name eq 'paused')
		{
			poll_until($node, "SELECT rows_in_doubt > 0 AND rows_read > 1200 FROM redis_export_progress WHERE job = $id");
		}
		else
		{
			poll_until($node, "SELECT state = 'retrying' AND last_error ~ '$name' FROM redis_export_progress WHERE job = $id");
		}
		$end->();
		$session->wait;
		ended($id, 'done', rows_written => $count, rows_failed => 0, redis_restarts => 0);
		is(wrong_hashes($redis, $count), 0, "$name: all hashes are as the query says");
	}
};

# A script that runs until it is killed.
sub keep_busy
{
	my $script = IO::Socket::INET->new(PeerAddr => $redis->host, PeerPort => $redis->port);
	print $script "EVAL 'while true do end' 0\r\n";
	wait_until('the script runs', sub { $redis->cli('PING') =~ /BUSY/ });
	return $script;
}

subtest 'replace: an expiry, and a later row that deletes the key' => sub {
	$redis->cli('FLUSHALL');
	run_export(replace_sql('SELECT i % 10 AS id, CASE WHEN i <= 10 OR i > 25 THEN i END AS n FROM generate_series(1, 30) AS i', 'd:', ttl => q{'1 hour'}));
	last_ended('done', rows_written => 30, rows_failed => 0);
	is(join(' ', map { $redis->cli('HGET', "d:$_", 'n') || '-' } 0 .. 9), '30 - - - - - 26 27 28 29', 'the last row of each key has won');
	cmp_ok($redis->cli('PTTL', 'd:9'), '>', 3_000_000, 'with its expiry');
};

#
# Commands that must not be sent twice
#

my %commands = (
	RPUSH => [ 'RPUSH', 'l', '#{id}' ],
	XADD => [ 'XADD', 'x', '*', 'id', '#{id}' ],
	INCRBY => [ 'INCRBY', 'n:#{id}', '1' ],
	EVAL => [ 'EVAL', q{return redis.call('RPUSH', KEYS[1], ARGV[1])}, '1', 'e', '#{id}' ],
);

# The ids that each has left in Redis; twice for one that was counted up twice.
sub left_behind
{
	my ($name) = @_;
	return listed($redis, $name eq 'RPUSH' ? 'l' : 'e') if $name ne 'XADD' && $name ne 'INCRBY';
	my $script = $name eq 'XADD' ? q{for _, entry in ipairs(redis.call('XRANGE', 'x', '-', '+')) do ids[#ids + 1] = entry[2][2] end}
		: q{for i = 1, 4000 do for j = 1, tonumber(redis.call('GET', 'n:' .. i) or 0) do ids[#ids + 1] = i end end};
	return $redis->cli('EVAL', "local ids = {} $script return ids", 0);
}

subtest 'not twice: refused for a while' => sub {
	my $faults = {
		OOM => [ sub { $redis->cli('CONFIG', 'SET', 'maxmemory', 1) }, sub { $redis->cli('CONFIG', 'SET', 'maxmemory', 0) } ],
		READONLY => [ sub { $redis->cli('REPLICAOF', '127.0.0.1', 1) }, sub { $redis->cli('REPLICAOF', 'NO', 'ONE') } ],
		BUSY => [ \&keep_busy, sub { $redis->cli('SCRIPT', 'KILL') } ],
	};
	for my $fault (sort keys %$faults)
	{
		my ($begin, $end) = @{ $faults->{$fault} };
		$redis->cli('FLUSHALL');
		hold();
		my %job;
		for my $name (sort keys %commands)
		{
			$job{$name} = $session->query(command_sql(held(ids(3000)), $commands{$name}, batch => 100, wait => 'false')) =~ s/\|.*//r;
		}
		until_written($node, $_, 500) for values %job;
		$begin->();
		go_on();
		for my $id (values %job)
		{
			poll_until($node, "SELECT state = 'retrying' AND last_error ~ '$fault' FROM redis_export_progress WHERE job = $id");
		}
		$end->();
		for my $name (sort keys %commands)
		{
			ended($job{$name}, 'done', rows_written => 3000, rows_failed => 0);
			note "$fault, $name";
			once_each(3000, left_behind($name));
		}
	}
};

subtest 'not twice: refused for good' => sub {
	$redis->cli('FLUSHALL');
	hold();
	my $id = next_job($node, sub { $session->send(command_sql(held(ids(3000)), $commands{RPUSH}, batch => 100, retry_timeout => q{'0.5 s'})) });
	until_written($node, $id, 500);
	$redis->cli('CONFIG', 'SET', 'maxmemory', 1);
	go_on();
	like(($session->wait)[1], qr/ERROR:  gave up after .*OOM/, 'an error');
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	my $job = ended($id, 'failed', rows_in_doubt => 0, rows_failed => 0);
	once_each($job->{rows_written}, listed($redis));
};

subtest 'not twice: some of many refused, at any of their commands' => sub {
	for my $more ([], [ ttl => q{'1 min'} ], [ wait_replicas => 1 ], [ ttl => q{'1 min'}, wait_replicas => 1 ])
	{
		my ($fake, $server) = fake_redis(sub {
			my ($fake, $client, $name, $key) = @_;
			return ':' . ($fake->{waits}++ % 2) if $name eq 'WAIT';
			my ($number) = $key =~ /(\d+)/;
			my $tries = $fake->{"$name $number"}++;
			return '-OOM no room' if $number % 7 == 3 && $tries < $number % 3;
			return '-READONLY a replica' if $name eq 'RPUSH' && $number == 44 && $tries < 1;
			return '-BUSY a script' if $name eq 'PEXPIRE' && $number % 11 == 5 && $tries < 1;
			return '-LOADING its data' if $name eq 'PEXPIRE' && $number == 60 && $tries < 1;
			return ':1';
		});
		# A reconnect while rows are held for replicas is another matter.
		my $query = ids({ @$more }->{wait_replicas} ? 43 : 100);
		run_export(command_sql($query, [ 'RPUSH', 'l:#{id}', '#{id}' ], batch => 10, server => $server, @$more));
		my $count = $query =~ /\(1, (\d+)/ ? $1 : 0;
		note "@$more";
		last_ended('done', rows_written => $count, rows_failed => 0);
		once_each($count, map { $_->{words}[2] } grep { $_->{reply} eq ':1' } $fake->commands('RPUSH'));
		next unless { @$more }->{ttl};
		my %expires = map { $_->{words}[1] => 1 } grep { $_->{reply} eq ':1' } $fake->commands('PEXPIRE');
		is(scalar keys %expires, $count, 'each key has its expiry');
	}
};

subtest 'not twice: cut after so many bytes' => sub {
	# A job ends with its first connection, unless nothing was in doubt on it.
	my @cuts = map { 100 + 61 * $_ + 23 * $_ * $_ } 0 .. 19;
	my ($proxy, $server) = proxy('RedisExport::Proxy', $redis, cut_after => \@cuts);
	my ($failed, $doubtful) = (0, 0);
	$redis->cli('FLUSHALL');
	for my $run (1 .. 40)
	{
		last if $proxy->connections >= @cuts;
		run_export(command_sql(ids(2000), [ 'RPUSH', "l:$run", '#{id}' ], batch => 10, server => $server));
		my $job = job($node);
		ended($job->{job}, $job->{state}, rows_failed => 0);
		if ($job->{state} eq 'done')
		{
			once_each(2000, listed($redis, "l:$run"));
			next;
		}
		$failed++;
		$doubtful++ if $job->{rows_in_doubt} > 0;
		at_most_once($job, listed($redis, "l:$run"));
	}
	is($proxy->connections, scalar @cuts, 'each connection was cut');
	cmp_ok($failed, '>', 10, 'jobs have failed by it');
	is($doubtful, $failed, 'each with rows in doubt');
};

subtest 'not twice: a Redis that is silent' => sub {
	add_server($node, $redis, name => 'hasty', timeout => 0.5);
	$redis->cli('FLUSHALL');
	hold();
	my $id = next_job($node, sub { $session->send(command_sql(held(ids(3000)), $commands{RPUSH}, batch => 100, server => q{'hasty'})) });
	until_written($node, $id, 500);
	$redis->freeze;
	go_on();
	my $err = ($session->wait)[1];
	$redis->thaw;
	like($err, qr/ERROR:  lost the connection .*no answer for 0\.5 seconds.*DETAIL:  Of some rows it is not known/s, 'an error');
	my $job = ended($id, 'failed', rows_failed => 0, reconnects => 0);
	like($err, qr/, $job->{rows_in_doubt} in doubt\./, 'that says how many are in doubt');
	cmp_ok($job->{rows_in_doubt}, '>', 0, 'which some are');
	$redis->cli('PING');
	at_most_once($job, listed($redis));
};

subtest 'not twice: cancelled and terminated' => sub {
	for my $how ("redis_export_cancel(%d)", 'pg_terminate_backend((SELECT pid FROM redis_export_progress WHERE job = %d))')
	{
		$redis->cli('FLUSHALL');
		hold();
		my $id = next_job($node, sub { $session->send(command_sql(held(ids(3000)), $commands{RPUSH}, batch => 100)) });
		until_written($node, $id, 500);
		$redis->freeze;
		go_on();
		poll_until($node, "SELECT rows_in_doubt > 100 AND rows_read > 1000 FROM redis_export_progress WHERE job = $id");
		$node->safe_psql('postgres', 'SELECT ' . sprintf($how, $id));
		$session->wait;
		$redis->thaw;
		$redis->cli('PING');
		my $job = ended($id, $how =~ /cancel/ ? 'canceled' : 'failed', rows_failed => 0);
		cmp_ok($job->{rows_in_doubt}, '>', 0, 'some are in doubt');
		at_most_once($job, listed($redis));
	}
};

subtest 'not twice: cut with nothing unanswered' => sub {
	# Its answers lie there, unread, when the connection is closed.
	$redis->cli('FLUSHALL');
	hold();
	my $id = next_job($node, sub { $session->send(command_sql(held(ids(3000)), $commands{RPUSH}, batch => 100)) });
	until_written($node, $id, 500);
	wait_until('what was sent is there', sub { $redis->cli('LLEN', 'l') == 1000 });
	$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	go_on();
	$session->wait;
	ended($id, 'done', rows_written => 3000, reconnects => 1);
	once_each(3000, listed($redis));

	# again and again, each time that the query stands still
	$redis->cli('FLUSHALL');
	$holder->query('SELECT pg_advisory_lock(i * 20) FROM generate_series(1, 5) AS i');
	$id = next_job($node, sub {
		$session->send(command_sql('SELECT i AS id FROM generate_series(1, 110) AS i WHERE CASE WHEN i % 20 = 0 THEN pg_advisory_xact_lock_shared(i) ELSE pg_sleep(0.01) END IS NOT NULL',
			$commands{RPUSH}, batch => 1));
	});
	for my $round (1 .. 5)
	{
		poll_until($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $round * 20 AND NOT granted");
		my $job = job($node, $id);
		my $sent = $job->{rows_written} + $job->{rows_in_doubt};
		for (1 .. 500)
		{
			last if $redis->cli('LLEN', 'l') == $sent;
			sleep 0.02;
		}
		$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
		$holder->query("SELECT pg_advisory_unlock($round * 20)");
	}
	$session->wait;
	cmp_ok(ended($id, 'done', rows_written => 110)->{reconnects}, '>=', 3, 'it came back');
	once_each(110, listed($redis));
};

subtest 'not twice: an expiry that is not answered' => sub {
	my ($fake, $server) = fake_redis(sub {
		my ($fake, $client, $name, $key) = @_;
		return CLOSE if $name eq 'PEXPIRE' && $key eq 'l:5' && !$fake->{closed}++;
		return ':1';
	});
	run_export(command_sql(ids(20), [ 'RPUSH', 'l:#{id}', '#{id}' ], server => $server, ttl => q{'1 min'}));
	last_ended('done', rows_written => 20, reconnects => 1);
	once_each(20, map { $_->{words}[2] } $fake->commands('RPUSH'));
	my %expires = map { $_->{words}[1] => 1 } grep { $_->{client} == 2 } $fake->commands('PEXPIRE');
	is(join(' ', grep { !$expires{"l:$_"} } 5 .. 20), '', 'only expiries are asked for again');

	# with writes unanswered too, it is in doubt
	($fake, $server) = fake_redis(sub {
		my ($fake, $client, $name, $key) = @_;
		return CLOSE if $name eq 'PEXPIRE';
		return $key =~ /(\d+)/ && $1 > 10 ? undef : ':1';
	});
	run_export(command_sql(ids(20), [ 'RPUSH', 'l:#{id}', '#{id}' ], server => $server, ttl => q{'1 min'}, batch => 10));
	last_ended('failed', rows_written => 0, rows_in_doubt => 20);
	once_each(20, map { $_->{words}[2] } $fake->commands('RPUSH'));
};

#
# Rows that are held for replicas
#

subtest 'held for replicas: a replica that is paused' => sub {
	$redis->cli('FLUSHALL');
	add_server($node, $redis, name => 'replicated', timeout => 1);    # half of it is how long a WAIT takes
	my $replica = RedisExport::Redis->new(conf => { replicaof => '127.0.0.1 ' . $redis->port });
	wait_until('the replica is in step', sub { ($replica->info('master_link_status') // '') eq 'up' });
	my $begin = sub {
		my @words = @_;
		$replica->freeze;
		my $id = next_job($node, sub { $session->send(command_sql(ids(200), \@words, server => q{'replicated'}, batch => 100, wait_replicas => 1)) });
		poll_until($node, "SELECT state = 'retrying' AND last_error ~ 'only 0 of 1' FROM redis_export_progress WHERE job = $id");
		return $id;
	};

	my $id = $begin->('RPUSH', 'l', '#{id}');
	is(job($node, $id)->{rows_written}, 0, 'no row counts as written');
	$replica->thaw;
	$session->wait;
	ended($id, 'done', rows_written => 200, reconnects => 0);
	once_each(200, listed($replica));

	# A cut: what the replica does not have must not count, whatever WAIT says on another connection.
	$redis->cli('DEL', 'l');
	$id = $begin->('RPUSH', 'l', '#{id}');
	$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	$session->wait;
	my $job = ended($id, 'failed', rows_written => 0, rows_in_doubt => 200);
	at_most_once($job, listed($redis));
	$replica->thaw;

	# What may be repeated is, but Redis has nothing more to do then, and its replicas nothing to wait for.
	$id = $begin->('SADD', 's', '#{id}');
	$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	poll_until($node, "SELECT reconnects >= 1 AND state = 'retrying' AND last_error ~ 'only 0 of 1' OR finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	is(job($node, $id)->{rows_written}, 0, 'after a cut, no row counts as written while the replica is paused');
	$replica->thaw;
	$session->wait;
	ended($id, 'done', rows_written => 200);
	is($replica->cli('SCARD', 's'), 200, 'it has them all then');
	$replica->stop;
};

subtest 'held for replicas: the connection lost' => sub {
	my $cases = {
		'while WAIT is not answered' => sub {
			my ($fake, $client, $name) = @_;
			return $name ne 'WAIT' || $client->{number} > 1 ? ':1' : CLOSE;
		},
		'after WAIT was answered with too few' => sub {
			my ($fake, $client, $name) = @_;
			return ':1' if $name ne 'WAIT' || $client->{number} > 1;
			RedisExport::Fake::spawn(sub { sleep 0.02; shutdown $client->{socket}, 2 });
			return ':0';
		},
		'because a later row calls for another one' => sub {
			my ($fake, $client, $name, $key, $id) = @_;
			return $client->{number} > 1 ? ':1' : undef if $name eq 'WAIT';
			return $id == 15 && !$fake->{refused}++ ? '-READONLY a replica' : ':1';
		},
	};
	for my $case (sort keys %$cases)
	{
		my ($fake, $server) = fake_redis($cases->{$case}, timeout => 2);
		like(run_export(command_sql(ids(20), $commands{RPUSH}, server => $server, batch => 10, wait_replicas => 1)),
			qr/ERROR: .*DETAIL:  Of some rows it is not known/s, "$case: an error");
		my $job = last_ended('failed', rows_written => 0);
		cmp_ok($job->{rows_in_doubt}, '>=', 10, 'what was held is in doubt');
		is(repeated(map { $_->{words}[2] } grep { ($_->{reply} // '') eq ':1' } $fake->commands('RPUSH')), '', 'no id was written twice');
	}
};

#
# Expiries of each row
#

# The moments, in seconds, of the rows: none, never, passed, or so much later than the rest.
my $base = int(time) + 10_000;
sub moment { my ($i) = @_; return ('none', 'never', 'past')[ $i % 11 ] // $base + $i }
my $moment = "CASE i % 11 WHEN 0 THEN NULL WHEN 1 THEN 'infinity' WHEN 2 THEN now() - interval '1 day' ELSE to_timestamp($base + i) END";

# What the rows must have come to, key by key: value and expiry in milliseconds. Only a hash that is replaced forgets its expiry.
sub expected_of
{
	my ($count, $replace, $id) = @_;
	my %expected;
	for my $i (1 .. $count)
	{
		my $key = $id->($i);
		my $expiry = moment($i);
		my $before = $replace ? -1 : ($expected{$key} // [ 0, -1 ])->[1];
		$expected{$key} = [ $i, $expiry eq 'none' ? $before : $expiry eq 'never' ? -1 : $expiry . '000' ];
		delete $expected{$key} if $expiry eq 'past';
	}
	return { map { $_ => "@{ $expected{$_} }" } keys %expected };
}

sub values_and_expiries
{
	my @lines = $redis->cli('EVAL', q{
		local lines = {}
		for _, key in ipairs(redis.call('KEYS', 't:*')) do
			lines[#lines + 1] = key:sub(3) .. ' ' .. redis.call('HGET', key, 'n') .. ' ' .. redis.call('PEXPIRETIME', key)
		end
		return lines}, 0);
	return { map { split / /, $_, 2 } @lines };
}

subtest 'expiries that differ: cuts, and no memory for a while' => sub {
	for my $replace (0, 1)
	{
		$redis->cli('FLUSHALL');
		my ($proxy, $server) = proxy('RedisExport::Proxy', $redis, cut_after => [ 700, 1100, 2000, 3500, 5000, 6100, 7003 ]);
		# a key comes again at once, soon, and late
		my $key = sub { my ($i) = @_; return $i % 13 == 0 ? ($i - 1) * 37 % 101 : $i * 37 % 101 };
		my $query = "SELECT CASE WHEN i % 13 = 0 THEN (i - 1) * 37 % 101 ELSE i * 37 % 101 END AS id, i AS n, $moment AS m FROM generate_series(1, 2000) AS i";
		hold();
		my $id = next_job($node, sub {
			$session->send("SELECT job FROM redis_hash_export(\$\$${\ held($query)}\$\$, 't:#{id}', exclude => '{id,m}', ttl_column => 'm', batch => 7, server => $server, replace => "
				. ($replace ? 'true' : 'false') . ')');
		});
		until_written($node, $id, 800);
		$redis->cli('CONFIG', 'SET', 'maxmemory', 1);
		go_on();
		until_state($node, $id, 'retrying');
		$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
		$session->wait;
		ended($id, 'done', rows_written => 2000, rows_failed => 0);
		is($proxy->connections, 8, 'each connection was cut but the last');
		is_deeply(values_and_expiries(), expected_of(2000, $replace, $key), 'for each key the last row has won, with its expiry');
	}
};

subtest 'expiries that differ: other commands' => sub {
	my ($proxy, $server) = proxy('RedisExport::Proxy', $redis, cut_after => [ 500, 900, 1500 ]);
	$redis->cli('FLUSHALL');
	run_export(command_sql("SELECT i % 10 AS id, i AS n, $moment AS m FROM generate_series(1, 305) AS i", [ 'SET', 's:#{id}', '#{n}' ],
		ttl_column => q{'m'}, batch => 3, server => $server));
	last_ended('done', rows_written => 305);
	# SET takes an old expiry away
	my $expected = expected_of(305, 1, sub { $_[0] % 10 });
	is_deeply({ map { my $n = $redis->cli('GET', "s:$_"); $n eq '' ? () : ($_ => "$n " . $redis->cli('PEXPIRETIME', "s:$_")) } 0 .. 9 }, $expected,
		'SET: for each key the last row has won');

	$redis->cli('FLUSHALL');
	run_export(command_sql('SELECT i, i % 3 AS id, i * 100 AS s FROM generate_series(1, 300) AS i', [ 'RPUSH', 'r:#{id}', '#{i}' ], ttl_column => q{'s'}, batch => 5));
	last_ended('done', rows_written => 300);
	once_each(300, map { listed($redis, "r:$_") } 0 .. 2);
	my @left = map { scalar $redis->cli('TTL', "r:$_") } 0 .. 2;
	ok($left[0] > 29_900 && $left[1] > 29_700 && $left[1] <= 29_800 && $left[2] > 29_800 && $left[2] <= 29_900, 'RPUSH: the last expiry of each list') or diag "@left";

	$redis->cli('FLUSHALL');
	run_export(export_sql("SELECT i % 10 AS id, i AS n, $moment AS m FROM generate_series(1, 305) AS i", key_template => q{'t:#{id}'}, ttl_column => q{'m'}, batch => 3));
	last_ended('done', rows_written => 305);
	$expected = expected_of(305, 0, sub { $_[0] % 10 });
	is_deeply({ map { my ($n) = $redis->cli('JSON.GET', "t:$_", '$.n') =~ /(\d+)/; $n ? ($_ => "$n " . $redis->cli('PEXPIRETIME', "t:$_")) : () } 0 .. 9 }, $expected,
		'JSON.SET: for each key the last row has won');
};

#
# Rows that are skipped
#

my $third = q{SELECT i AS id, CASE WHEN i % 3 > 0 THEN i END AS v FROM generate_series(1, 3000) AS i};

subtest 'skipped rows, under faults' => sub {
	$redis->cli('FLUSHALL');
	my ($proxy, $server) = proxy('RedisExport::Proxy', $redis, cut_after => [ 500, 2000, 5000, 20_000 ]);
	hold();
	my $id = next_job($node, sub { $session->send(command_sql(held($third), [ 'SET', 'v:#{id}', '#{v}' ], on_null => q{'skip'}, batch => 50, server => $server)) });
	until_written($node, $id, 300);
	$redis->cli('CONFIG', 'SET', 'maxmemory', 1);
	go_on();
	until_state($node, $id, 'retrying');
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	$session->wait;
	ended($id, 'done', rows_read => 3000, rows_written => 2000, rows_skipped => 1000);
	is(redis_keys_count($redis), 2000, 'the others are in Redis');

	# failed, with rows in doubt
	$redis->cli('FLUSHALL');
	($proxy, $server) = proxy('RedisExport::Proxy', $redis, cut_after => [ 20_000 ]);
	run_export(command_sql($third, [ 'RPUSH', 'l', '#{v}' ], on_null => q{'skip'}, batch => 50, server => $server));
	my $job = last_ended('failed', rows_failed => 0);
	cmp_ok($job->{rows_skipped}, '>', 0, 'some were skipped before');
	at_most_once($job, listed($redis));

	# cancelled
	$redis->cli('FLUSHALL');
	hold();
	$id = next_job($node, sub { $session->send(command_sql(held($third), [ 'RPUSH', 'l', '#{v}' ], on_null => q{'skip'}, batch => 50)) });
	until_written($node, $id, 300);
	$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
	$session->wait;
	go_on();
	at_most_once(ended($id, 'canceled', rows_failed => 0), listed($redis));
};

subtest 'rows before many that are skipped, or fail' => sub {
	# They are sent though no other comes behind them, and the view shows how many were skipped.
	for my $case ([ skip => on_null => q{'skip'} ], [ fail => on_error => q{'ignore'} ])
	{
		my ($name, @arguments) = @$case;
		my $column = $name eq 'skip' ? 'rows_skipped' : 'rows_failed';
		$redis->cli('FLUSHALL');
		my $id = next_job($node, sub {
			$session->send(command_sql('SELECT i AS id, CASE WHEN i < 5 THEN i END AS v FROM generate_series(1, 2000) AS i WHERE i < 5 OR pg_sleep(0.02) IS NOT NULL',
				[ 'SET', 'v:#{id}', '#{v}' ], @arguments));
		});
		my $seen = eval { poll_until($node, "SELECT rows_written = 4 AND $column > 10 FROM redis_export_progress WHERE job = $id", 5) };
		ok($seen, "$name: the view shows it") or diag explain job($node, $id);
		is($redis->cli('DBSIZE'), 4, 'and Redis has them');
		$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
		$session->wait;
		ended($id, 'canceled', rows_written => 4, rows_in_doubt => 0);
	}
};

$_->quit for $session, $holder;
done_testing;
