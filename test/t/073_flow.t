# That a job always comes to an end, and to the right one: no lane stands still with rows that are not settled, a row is blamed for a
# connection that breaks only when others pass, who makes progress is not given up, nothing is sent again without need, and no wait is
# without a limit.
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Fake;
use RedisExport::Jobs;
use RedisExport::Named;
use RedisExport::Proxy;
use RedisExport::Rows;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\nstatement_timeout = '40s'");
my $session = session($node);

# An export into hashes, as export_sql() is one into documents.
sub hash_sql
{
	my ($query, %arguments) = @_;
	return export_sql($query, %arguments) =~ s/redis_json_export/redis_hash_export/r;
}

# An export of a kind; with books => 1 it has a name, and keeps these.
sub any_sql
{
	my ($kind, $query, %arguments) = @_;
	return run_sql($node, $kind, $query, 'k:#{id}', type => "'$kind'", %arguments) if delete $arguments{books};
	$node->safe_psql('postgres', 'DELETE FROM redis_export_definition');
	return $kind eq 'json' ? export_sql($query, %arguments) : hash_sql($query, %arguments);
}

# Rows 1 to count, those whose numbers are given too large by far for a Redis that takes 1 MB.
sub oversize
{
	my ($count, @large) = @_;
	my $list = join ',', @large;
	return "SELECT i AS id, repeat('x', CASE WHEN i = ANY ('{$list}') THEN 6000000 ELSE 100 END) AS v FROM generate_series(1, $count) AS i";
}

# Runs an export and says how it ended; one that stands still ends by statement_timeout.
sub run_job
{
	my ($sql) = @_;
	$redis->cli('FLUSHALL');
	my $before = last_job($node);
	my $begun = time;
	my ($out, $err) = $session->send($sql)->wait;
	my $job = job($node);
	die "no job: $out$err" if !$job || $job->{job} == $before;
	$job->{took} = time - $begun;
	$job->{message} = $err;
	no_worker_left($node);
	ledger_ok($node);
	return $job;
}

sub failed_keys
{
	my ($job) = @_;
	return $node->safe_psql('postgres',
		"SELECT coalesce(string_agg(key, ' ' ORDER BY row_number), '') FROM redis_export_failures($job->{job})");
}

# The job is done, and just these rows have failed; Redis has the others.
sub only_these_failed
{
	my ($job, $count, @bad) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($job->{state}, 'done', 'the job is done') or diag $job->{message};
	is(failed_keys($job), join(' ', map { "k:$_" } @bad), 'these rows have failed: ' . (join(', ', @bad) || 'none'));
	is($job->{rows_written} + $job->{rows_unchanged}, $count - @bad, 'the others are written');
	is(redis_keys_count($redis, 'k:*'), $count - @bad, 'and in Redis');
	return;
}

subtest 'a row that breaks the connection, with all that may follow a write' => sub {
	my $replica = RedisExport::Redis->new(conf => { replicaof => '127.0.0.1 ' . $redis->port });
	$redis->cli('CONFIG', 'SET', 'repl-diskless-sync-delay', 0);
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '1mb');
	my %ways = (
		'books' => [ books => 1 ],
		'an expiry' => [ ttl => q{'1 hour'} ],
		'both' => [ books => 1, ttl => q{'1 hour'} ],
		'replicas' => [ wait_replicas => 1 ],
		'all of it' => [ books => 1, ttl => q{'1 hour'}, wait_replicas => 1 ]);
	for my $way (sort keys %ways)
	{
		for my $kind ('json', 'hash')
		{
			my @arguments = (@{ $ways{$way} }, on_error => q{'ignore'}, retry_timeout => q{'10 s'}, $kind eq 'json' ? (value => q{'*'}) : ());
			my $sql = sub { return any_sql($kind, @_) };
			subtest "$way, $kind" => sub {
				only_these_failed(run_job($sql->(oversize(5, 3), @arguments)), 5, 3);
				only_these_failed(run_job($sql->(oversize(9, 1, 5, 6, 9), @arguments, batch => 3)), 9, 1, 5, 6, 9);
			};
		}
	}
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '512mb');
	$replica->stop;
};

subtest 'retry_timeout counts from the last row that was settled' => sub {
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '1mb');
	my $query = q{SELECT i AS id, repeat('x', CASE WHEN i % 100 = 0 THEN 2000000 ELSE 100 END) AS v FROM generate_series(1, 2000) AS i};
	my @arguments = (value => q{'*'}, on_error => q{'ignore'}, retry_timeout => q{'1 s'});
	only_these_failed(run_job(export_sql($query, @arguments)), 2000, map { $_ * 100 } 1 .. 20);

	# the answers to the rows before it come together with the end of the connection
	my $lazy = RedisExport::Proxy->new($redis, lazy => 0.2);
	add_server($node, $lazy, name => 'lazy');
	my $job = run_job(export_sql($query =~ s/2000000/12000000/r, @arguments, server => q{'lazy'}, retry_timeout => q{'0.5 s'}));
	only_these_failed($job, 2000, map { $_ * 100 } 1 .. 20);
	cmp_ok($job->{took}, '>', 1, 'it took much longer than that');
	$redis->cli('CONFIG', 'SET', 'proto-max-bulk-len', '512mb');
};

subtest 'a line that breaks is no row\'s fault' => sub {
	my $number = 0;
	for my $kind ([], [ books => 1 ], [ ttl => q{'1 hour'} ])
	{
		for my $rows (1, 3, 50)
		{
			for my $times (@$kind ? (5) : (3, 5, 8))
			{
				my $proxy = RedisExport::Proxy->new($redis, cut_after => [ (5000) x $times ]);
				my $name = 'breaks_' . ++$number;
				add_server($node, $proxy, name => $name);
				my $job = run_job(any_sql('json', "SELECT i AS id, repeat('x', 20000) AS v FROM generate_series(1, $rows) AS i",
					value => q{'*'}, on_error => q{'ignore'}, server => "'$name'", @$kind));
				is("$job->{state} $job->{rows_written} $job->{rows_failed}", "done $rows 0", "@$kind: cut $times times at the first of $rows rows")
					or diag $job->{message};
				is($proxy->connections, $times + 1 + ("@$kind" =~ /books/), 'that often');	# (the books are counted over a connection of their own)
				RedisExport::Fake::finish($proxy);
			}
		}
	}
};

subtest 'a line that lives for so many bytes' => sub {
	my $proxy = RedisExport::Proxy->new($redis, cut_after => [ (3000) x 1000 ]);
	add_server($node, $proxy, name => 'lives');
	my $job = run_job(rows(150, on_error => q{'ignore'}, server => q{'lives'}));
	is("$job->{state} $job->{rows_written} $job->{rows_failed}", 'done 150 0', 'all rows are written');
	cmp_ok($proxy->connections, '>', 4, 'over some connections');
	is(wrong_rows($redis, 150), 0, 'and right');
};

subtest 'a server that hangs up at certain rows without a word' => sub {
	my $number = 0;
	for my $case ([ 20, 1 ], [ 20, 10 ], [ 20, 20 ], [ 1, 1 ], [ 20, 4, 5 ], [ 12, 1 .. 10 ], [ 3, 1 .. 3 ])
	{
		my ($count, @bad) = @$case;
		my %bad = map { ("k:$_" => 1) } @bad;
		my $fake = RedisExport::Fake->new(sub { return $_[2] eq 'ECHO' ? '+pong' : $bad{ $_[3] } ? CLOSE : '+OK' });
		my $name = 'mute_' . ++$number;
		add_server($node, $fake, name => $name);
		my $job = run_job(rows($count, on_error => q{'ignore'}, server => "'$name'"));
		is("$job->{state} $job->{rows_written}", 'done ' . ($count - @bad), "of $count rows @bad: the others are written") or diag $job->{message};
		is(failed_keys($job), join(' ', map { "k:$_" } @bad), 'these have failed');
		cmp_ok($job->{took}, '<', 100, 'long before retry_timeout');
		my %sent = map { $_->{words}[1] => 1 } grep { $_->{reply} eq '+OK' } $fake->commands('JSON.SET');
		is(scalar keys %sent, $count - @bad, 'and the others have arrived');
		$fake->stop;
	}
	is($node->safe_psql('postgres', "SELECT message ~ '^the connection broke [0-9]+ times at this row: lost the connection' FROM redis_export_failures((SELECT max(job) FROM redis_export_progress)) LIMIT 1"),
		't', 'the reason is told');
};

subtest 'a server that hangs up at every write' => sub {
	my $fake = RedisExport::Fake->new(sub { return $_[2] eq 'ECHO' ? '+pong' : CLOSE });
	add_server($node, $fake, name => 'none');
	my $job = run_job(rows(100, batch => 10, on_error => q{'ignore'}, server => q{'none'}, retry_timeout => q{'2 s'}));
	is("$job->{state} $job->{rows_failed}", 'failed 0', 'no row has failed, but the job');
	like($job->{message}, qr/ERROR:  gave up after no row was acknowledged for [\d.]+ seconds: lost the connection/, 'after retry_timeout');
};

subtest 'a server that a row brings down each time' => sub {
	my $fake = RedisExport::Fake->new(all => sub {
		my ($fake, $client, $name, $key) = @_;
		return '+OK' if $name eq 'CLIENT' || $name eq 'DEL';
		if ($name eq 'INFO')
		{
			my $info = sprintf "run_id:%040d\r\nloading:0\r\n", $fake->{crashes} // 0;
			return '$' . length($info) . "\r\n$info";
		}
		return '+OK' if $key ne 'k:5';
		$fake->{crashes}++;
		return CLOSE;
	});
	add_server($node, $fake, name => 'crashes');
	my $job = run_job(rows(20, on_error => q{'ignore'}, server => q{'crashes'}, retry_timeout => q{'2 s'}));
	is("$job->{state} $job->{rows_failed}", 'failed 0', 'no row has failed, but the job');
	like($job->{message}, qr/ERROR:  gave up after no row was acknowledged for [\d.]+ seconds: Redis was restarted each of \d+ times when row 5 with key "k:5" was sent to it: /,
		'and it says at which row');
};

subtest 'values that are larger than Redis takes' => sub {
	for my $limit ([ 'proto-max-bulk-len' => '1mb', '512mb' ], [ 'client-query-buffer-limit' => '1mb', '1gb' ], [ 'maxmemory-clients' => '4mb', '0' ])
	{
		my ($name, $low, $high) = @$limit;
		is($redis->cli('CONFIG', 'SET', $name, $low), 'OK', "$name $low");
		for my $bad ([ 1 ], [ 7 ], [ 20 ], [ 7, 8 ])
		{
			my $job = run_job(export_sql(oversize(20, @$bad), value => q{'*'}, on_error => q{'ignore'}));
			only_these_failed($job, 20, @$bad);
			cmp_ok($job->{took}, '<', 100, 'long before retry_timeout');
		}
		only_these_failed(run_job(export_sql(oversize(1, 1), value => q{'*'}, on_error => q{'ignore'})), 1, 1);

		# what may not be repeated is sent once
		my $job = run_job(q{SELECT job, state FROM redis_command_export($$} . oversize(20, 7, 12)
			. q{$$, ARRAY['RPUSH', 'k:#{id}', '#{v}'], on_error => 'ignore')});
		only_these_failed($job, 20, 7, 12) if $name eq 'proto-max-bulk-len';
		is((grep { $redis->cli('LLEN', "k:$_") > 1 } 1 .. 20), 0, 'nothing is there twice');
		$redis->cli('CONFIG', 'SET', $name, $high);
	}
};

# What is sent to the master while its replica stands still, as against an export that nothing holds up.
subtest 'a replica that stalls has nothing sent again but the WAIT' => sub {
	my $master = RedisExport::Redis->new(conf => { 'repl-ping-replica-period' => 1, 'repl-diskless-sync-delay' => 0 });
	my $replica = RedisExport::Redis->new(conf => { replicaof => '127.0.0.1 ' . $master->port });
	add_server($node, $master, name => 'master');
	for (1 .. 600)
	{
		last if ($replica->info('master_link_status') // '') eq 'up';
		sleep 0.1;
	}
	for my $kind ([], [ ttl => q{'1 hour'} ], [ books => 1, ttl => q{'1 hour'} ])
	{
		my $stalled = sub {
			my ($stalls, $meanwhile) = @_;
			$master->cli('FLUSHALL');
			$replica->freeze if $stalls;
			my $id = next_job($node, sub {
				$session->send(any_sql('json', q{SELECT i AS n, i % 1900 AS id, repeat('x', 500) AS v FROM generate_series(1, 6000) AS i}, value => q{'*'},
					batch => 500, wait_replicas => 1, server => q{'master'}, @$kind));
			});
			if ($stalls)
			{
				until_state($node, $id, 'retrying');
				$meanwhile->() if $meanwhile;
				sleep 3;
				$replica->thaw;
			}
			$session->wait;
			my $row = job_ends($node, $replica, $id, state => 'done', $stalls ? (error => qr/./) : ());
			is($row->{rows_written} + $row->{rows_unchanged}, 6000, 'each row is counted once');
			is($replica->cli('EVAL_RO', q{
				local wrong = 0
				for i = 4101, 6000 do
					if redis.call('JSON.GET', 'k:' .. i % 1900, '$.n') ~= '[' .. i .. ']' then wrong = wrong + 1 end
				end
				return wrong}, 0), 0, 'for each key the last row of the query is with the replica');
			return $row;
		};
		my $as_is = $stalled->(0)->{bytes_sent};
		my $row = $stalled->(1);
		cmp_ok($row->{bytes_sent}, '<', 1.03 * $as_is, "@$kind: no more is sent with a stall") or diag "$as_is without";
		cmp_ok($row->{bytes_sent}, '>', 0.97 * $as_is, 'nor less');
		is($row->{reconnects}, 0, 'on one connection');
		$row = $stalled->(1, sub { $master->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes') });
		is($row->{reconnects}, 1, 'once the connection is lost in a stall');
		cmp_ok($row->{bytes_sent}, '>', 1.1 * $as_is, 'what was in doubt is sent again');
	}
	$_->stop for $replica, $master;
};

# An index as FT.INFO tells of it: it moves a few times, and then stands still, or goes on after all.
subtest 'an index that stands still is not waited for without end' => sub {
	my $text = sub { return '$' . length($_[0]) . "\r\n$_[0]" };
	my $info = sub {
		my (%is) = (indexing => 1, percent_indexed => '0.25', num_docs => 5, hash_indexing_failures => 0, @_);
		return join "\r\n", '*8', map { ($text->($_), $text->($is{$_})) } sort keys %is;
	};
	my $number = 0;
	my $run = sub {
		my ($sub) = @_;
		my $fake = RedisExport::Fake->new(sub {
			my ($fake, $client, $name) = @_;
			return ':2' if $name ne 'FT.INFO';
			$fake->{begun} //= time if $fake->{asked}++;
			return $sub->(time - ($fake->{begun} // time));
		});
		my $name = 'index_' . ++$number;
		add_server($node, $fake, name => $name);
		my $job = run_job(hash_sql('SELECT i AS id FROM generate_series(1, 10) AS i', wait_index => q{'idx'}, server => "'$name'", retry_timeout => q{'1 s'}));
		is($job->{rows_written}, 10, 'all rows are written');
		$fake->stop;
		return $job;
	};

	my $job = $run->(sub { return $info->() });
	is($job->{state}, 'failed', 'one that never moves: the job fails');
	like($job->{message}, qr/ERROR:  gave up waiting for index "idx", which has stood still for 1\.\d seconds\n/, 'with an error that names it');
	like($job->{message}, qr/It has indexed 25\.0 % of what Redis holds for it, and has 5 documents\./, 'and how far it is');
	cmp_ok($job->{took}, '<', 100, 'soon');

	for my $what (qw(percent_indexed num_docs hash_indexing_failures))
	{
		$job = $run->(sub {
			my ($seconds) = @_;
			my $step = int($seconds / 0.6);
			return $info->($step >= 4 ? (indexing => 0, percent_indexed => 1) : ($what => $what =~ /percent/ ? "0.$step" : $step));
		});
		is($job->{state}, 'done', "one whose $what moves is waited for") or diag $job->{message};
		cmp_ok($job->{took}, '>', 2, 'for longer than retry_timeout');
	}
};

# A canceled job still sends what is to follow the rows that are written: not behind a question that it will not see answered, whose
# answer would be taken for that to the next command, nor on a connection that has not got as far as SELECT.
subtest 'nothing is sent behind a question that was broken off' => sub {
	my $broken_off = sub {
		my ($name, $question, $template, $sub) = @_;
		my $fake = RedisExport::Fake->new(all => sub { my ($fake, $client, @words) = @_; my $reply = $sub->($client, @words); return $reply eq 'login' ? $fake->_login($client, @words) : $reply eq 'none' ? undef : $reply });
		add_server($node, $fake, name => $name, db => 1);
		my $id = $node->safe_psql('postgres', qq{SELECT job FROM redis_command_export(\$\$SELECT i AS id, CASE i WHEN 1 THEN 'INCR' ELSE 'CH' END AS mode
			FROM generate_series(1, 2) AS i\$\$, $template, ttl => '1 hour', server => '$name', wait => false)});
		my $deadline = time + 60;
		sleep 0.1 while !grep({ !defined $_->{reply} } $fake->commands($question)) && time < $deadline;
		my ($asked) = grep { !defined $_->{reply} } $fake->commands($question);
		ok($asked, "$question is asked and not answered");
		my ($before) = scalar $fake->commands('PEXPIRE');
		$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
		poll_until($node, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
		no_worker_left($node);
		ledger_ok($node, $id);
		$node->safe_psql('postgres', "SELECT redis_command('$name', 'PING')");
		is(scalar $fake->commands('PEXPIRE'), $before, 'nothing comes behind it');
		my $row = job($node, $id);
		is("$row->{state} $row->{rows_written} $row->{rows_in_doubt}", 'canceled 0 ' . $row->{rows_read}, 'the rows are in doubt');
		$fake->stop;
	};
	$broken_off->('half_open', 'SELECT', q{ARRAY['RPUSH', 'list:#{id}', 'x']}, sub {
		my ($client, $name) = @_;
		return ':1' if $name eq 'RPUSH';
		return CLOSE if $name eq 'PEXPIRE' && $client->{number} == 1;
		return '+PONG' if $name eq 'PING';
		return $name eq 'SELECT' && $client->{number} == 2 ? 'none' : 'login';
	});
	$broken_off->('echoes', 'ECHO', q{ARRAY['ZADD', 'board:#{id}', '#{mode}', '1', 'x']}, sub {
		my ($client, $name, $key, $mode) = @_;
		return $mode eq 'INCR' ? "\$1\r\n1" : CLOSE if $name eq 'ZADD';
		return '+PONG' if $name eq 'PING';
		return $name =~ /^(?:ECHO|PEXPIRE)$/ ? 'none' : 'login';
	});
};

# No way leads there any more, as far as is known: so a debugger takes a row out of its way.
subtest 'a row of which nothing is due ends the job' => sub {
	my $gdb = sub {
		my ($pid, @commands) = @_;
		my $out = '';
		eval { IPC::Run::run([ 'gdb', '-batch', '-p', $pid, map { ('-ex', $_) } @commands ], '<', \undef, '>', \$out, '2>', \$out, IPC::Run::timeout(60)) };
		return $out;
	};
	$redis->cli('FLUSHALL');
	my $id = start_job($node, 'SELECT i AS id FROM generate_series(1, 20) AS i', 'k:#{id}', rate => 5);
	until_written($node, $id, 1);
	my $out = $gdb->(job($node, $id)->{pid}, 'break rexp_lane_work', 'continue',
		'print lane->window.ring[lane->window.head].rows[19].state = 4', 'delete', 'detach');
	if ($out !~ /^\$1 = 4/m)
	{
		$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
		no_worker_left($node);
		plan skip_all => 'there is no debugger that may look at the worker';
	}
	my $row = job_ends($node, $redis, $id, state => 'failed', error => qr/^rows are left of which nothing is due: row 20 is refused, 1 batches, 0 flights, flow 2$/,
		keys => 'k:*');
	is("$row->{rows_written} $row->{rows_in_doubt}", '19 0', 'the others are written');
};

$session->quit;
done_testing;
