# Runs of exports that have a name: rows that Redis holds already are not written, and however an export is broken off, no row is taken for one of these
# that is none. Looked at are the ledger, and what Redis holds, by redis_export_verify and directly.
#
# The fuzz follows from a seed, which is shown, but for where exactly an export is broken off. Round N has the seed plus N:
#
#   REDIS_EXPORT_SEED=7 REDIS_EXPORT_ROUNDS=1000 TEST_TIMEOUT=3000 test/run t/061_changed.t
use strict;
use warnings;
use RedisExport::Test;
use RedisExport::Cluster;
use RedisExport::Fake;
use RedisExport::Jobs;
use RedisExport::Named;
use RedisExport::Proxy;
use RedisExport::Raw;

my $redis = RedisExport::Redis->new;
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\nmax_worker_processes = 20\n");
my $session = session($node);

# The three ways to write a row (id, v), and how to read its v back in Lua. The document of a row has a field of some length that
# depends on v, so that cuts meet it in its midst.
my %kinds = (
	json => {
		key => 'j:#{id}',
		query => q{SELECT id, json_build_object('v', v, 'pad', repeat(chr(97 + v), 200 * (id % 3))) AS doc},
		value => q{tostring(cjson.decode(redis.call('JSON.GET', k) or '{"v":"-"}').v)},
	},
	hash => {
		key => 'h:#{id}',
		query => q{SELECT id, v, repeat(chr(97 + v), 200 * (id % 3)) AS pad},
		value => q{redis.call('HGET', k, 'v') or '-'},
		exclude => q('{id}'),
	},
	replace => {
		key => 'r:#{id}',
		query => q{SELECT id, v, CASE WHEN v = 1 THEN 'only then' END AS w},
		value => q{(redis.call('HGET', k, 'v') or '-') .. (redis.call('HGET', k, 'w') and 'w' or '')},
		exclude => q('{id}'),
		replace => 'true',
	});

# The statement that exports rows of a kind so, as $from says where they come from. Exports are defined in a session of its own.
my $definer = session($node);
sub export_as
{
	my ($kind, $from, %arguments) = @_;
	my $way = $kinds{$kind};
	%arguments = (type => $kind eq 'json' ? q{'json'} : q{'hash'}, map({ exists $way->{$_} ? ($_ => $way->{$_}) : () } qw(exclude replace)), %arguments);
	return run_sql($definer, $kind, "$way->{query} $from", $way->{key}, %arguments);
}

# "missing|different" by redis_export_verify.
sub verified
{
	my ($kind, $from, %arguments) = @_;
	my $way = $kinds{$kind};
	%arguments = (type => $kind eq 'json' ? q{'json'} : q{'hash'}, map({ exists $way->{$_} ? ($_ => $way->{$_}) : () } qw(exclude replace)), %arguments);
	my $more = join '', map { ", $_ => $arguments{$_}" } sort keys %arguments;
	return $node->safe_psql('postgres', "SELECT missing, different, missing_keys, different_keys FROM redis_export_verify(\$query\$$way->{query} $from\$query\$, '$way->{key}'$more)");
}

# How many of the rows 1 to count of a table a Redis holds with another v than the table, without any help of ours.
sub wrong_values
{
	my ($kind, $at, $table, $count) = @_;
	my $way = $kinds{$kind};
	my $values = RedisExport::Raw->new($at)->command('EVAL', 'local all = {} for i = 1, ARGV[1] do local k = ARGV[2] .. i all[i] = ' . $way->{value} . ' end return all',
		0, $count, $way->{key} =~ s/#\{id\}//r);
	my $w = $kind eq 'replace' ? q{ || CASE WHEN v = 1 THEN 'w' ELSE '' END} : '';
	my @expected = split /\n/, $node->safe_psql('postgres', "SELECT v$w FROM $table ORDER BY id");
	return scalar grep { $values->[$_] ne $expected[$_] } 0 .. $count - 1;
}

# The last export by a kind has left Redis as the table, and its ledger says what it has written.
sub clean_ok
{
	my ($kind, $table, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(verified($kind, "FROM $table"), '0|0|{}|{}', $name // 'redis_export_verify finds nothing');
	is(wrong_values($kind, $redis, $table, $count), 0, 'nor does a look of our own');
	return ledger_ok($node);
}

# The newest job's counts, in short.
sub counts { my $row = job($node); return "$row->{state}: $row->{rows_written} written, $row->{rows_unchanged} unchanged, $row->{rows_failed} failed" }

# Redis has taken to its end what it was sent by jobs that are gone.
sub until_hung_up
{
	my ($at) = @_;
	wait_for('no connection of an export is left', sub { $at->cli('CLIENT', 'LIST') !~ /name=redis_export/ });
	return;
}

sub one_of { return $_[rand @_] }

# ---- There and back again --------------------------------------------------------------------------------------------

# A table whose rows are changed to and fro between two values, so that a digest that was left over would be believed; exports of it
# that come to all sorts of ends; and after each round a whole one.
subtest 'fuzz' => sub {
	my $seed = int($ENV{REDIS_EXPORT_SEED} // time % 1_000_000_000);
	my $rounds = $ENV{REDIS_EXPORT_ROUNDS} // 1_000_000;
	my $deadline = $ENV{REDIS_EXPORT_ROUNDS} ? time + 1_000_000 : time + 18;
	diag "REDIS_EXPORT_SEED=$seed";
	my $rows = 2000;
	$session->query("CREATE TABLE fuzz AS SELECT i AS id, 0 AS v, 0 AS before FROM generate_series(1, $rows) AS i; ALTER TABLE fuzz ADD PRIMARY KEY (id)");
	add_server($node, $redis, name => 'line', timeout => 5);
	my $raw = RedisExport::Raw->new($redis);

	my $change = sub {
		my ($part, $random) = (one_of(0, 0.02, 0.3, 0.7, 1), rand);
		$session->query("SELECT setseed($random); UPDATE fuzz SET v = CASE WHEN random() < $part THEN 1 - v ELSE v END, before = v");
	};
	my $end = sub {
		my ($id, $how) = @_;
		$session->query($how eq 'cancel' ? "SELECT redis_export_cancel($id)" : "SELECT pg_terminate_backend(pid) FROM redis_export_progress WHERE job = $id");
		session_poll($session, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	};
	# so many bytes on, the connection is cut, and all that come after it soon; or only the first one is
	my $through_proxy = sub {
		my ($kind, %arguments) = @_;
		my $later = one_of([], [ (100) x 50 ], [ (100) x 50 ], [ map({ int rand 60_000 } 1 .. 6), (100) x 50 ]);
		my $proxy = RedisExport::Proxy->new($redis, cut_after => [ 300 + int rand 2 ** (9 + rand 10), @$later ]);
		$session->query("ALTER SERVER line OPTIONS (SET port '" . $proxy->port . "')");
		$session->send(export_as($kind, 'FROM fuzz ORDER BY id', %arguments, server => q{'line'}, retry_timeout => q{'0.1 s'}));
		$session->wait;
		$proxy->stop;
	};
	my %disturb = (
		whole => sub { my ($kind, %arguments) = @_; $session->send(export_as($kind, 'FROM fuzz ORDER BY id', %arguments))->wait },
		cut => $through_proxy,
		broken => sub {
			my ($kind, %arguments) = @_;
			my $how = one_of('cancel', 'terminate');
			my $id = $session->query(export_as($kind, 'FROM fuzz ORDER BY id', %arguments, wait => 'false', one_of(0, 1) ? (rate => one_of(5000, 20_000)) : ())) =~ s/\|.*//r;
			sleep rand 0.08;
			$end->($id, $how);
		},
		paused => sub {
			my ($kind, %arguments) = @_;
			my $id = $session->query(export_as($kind, 'FROM fuzz ORDER BY id', %arguments, wait => 'false', rate => 40_000)) =~ s/\|.*//r;
			sleep rand 0.06;
			$redis->freeze;
			sleep rand 0.03;
			if (rand() < 0.7) { $end->($id, one_of('cancel', 'terminate')) }
			$redis->thaw;
			session_poll($session, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
		});
	my ($good, $done, %ends, $unchanged) = (1, 0);
	for my $round (0 .. $rounds - 1)
	{
		last if time > $deadline;
		srand($seed + $round);
		my $kind = one_of(sort keys %kinds);
		my @happened;
		for (0 .. int rand 3)
		{
			$change->();
			my $prefix = $kinds{$kind}{key} =~ s/#.*//r;
			$raw->command('DEL', map { $prefix . (1 + int rand $rows) } 1 .. 20) if rand() < 0.5;
			$raw->command('PEXPIRE', $prefix . (1 + int rand $rows), 1 + int rand 20) if rand() < 0.5;
			my $what = one_of(qw(whole cut cut cut broken broken paused));
			my %arguments = (batch => one_of(1, 7, 100, 500, 3000));
			$arguments{ttl} = one_of(q{'1 hour'}, q{'0'}) if rand() < 0.3;
			$disturb{$what}->($kind, %arguments);
			my $row = JSON::PP->new->decode($session->query('SELECT row_to_json(p) FROM redis_export_progress AS p ORDER BY job DESC LIMIT 1'));
			push @happened, "$what(" . ($arguments{ttl} // 'no ttl') . ", batch $arguments{batch}): $row->{state} $row->{rows_written}+$row->{rows_unchanged}/$row->{rows_in_doubt}";
			$ends{ $row->{state} }++;
			my $sum = $row->{rows_written} + $row->{rows_unchanged} + $row->{rows_failed} + $row->{rows_in_doubt};
			push @happened, "the ledger is wrong: read $row->{rows_read}, but $sum" if $sum != $row->{rows_read};
			push @happened, "a row failed: $row->{last_error}" if $row->{rows_failed} && $what !~ /cut/;
			until_hung_up($redis);
		}
		my $then = rand;
		$session->query('UPDATE fuzz SET v = before') if $then < 0.4;
		$change->() if $then > 0.85;
		sleep 0.03;    # what is to expire has
		my $ttl = rand() < 0.3;
		my $batch = one_of(1, 50, 500);
		$session->query(export_as($kind, 'FROM fuzz ORDER BY id', batch => $batch, $ttl ? (ttl => q{'1 hour'}) : ()));
		my $row = job($node);
		$unchanged += $row->{rows_unchanged};
		my $found = join ' ', "$row->{state} " . ($row->{rows_written} + $row->{rows_unchanged}), verified($kind, 'FROM fuzz') =~ s/([^|]*\|[^|]*)\|.*/$1/r, wrong_values($kind, $redis, 'fuzz', $rows),
			grep({ /wrong|failed:/ } @happened), $ttl ? $raw->command('EVAL', "local n = 0 for i = 1, $rows do if redis.call('PTTL', KEYS[1] .. i) < 3000000 then n = n + 1 end end return n", 1, $kinds{$kind}{key} =~ s/#.*//r) : 0;
		$done++;
		next if $found eq "done $rows 0|0 0 0";
		$good = 0;
		diag "round $done, REDIS_EXPORT_SEED=@{[ $seed + $round ]}: $kind, ", join('; ', @happened), "; then with batch $batch: ", counts(), ": $found";
		last;
	}
	ok($good, 'after each round Redis holds what the table holds');
	cmp_ok($ends{$_} // 0, '>', 0, "exports have ended $_") for qw(done canceled failed);
	cmp_ok($unchanged, '>', 0, 'and rows were found unchanged');
	note "$done rounds, ", join(', ', map { "$_ $ends{$_}" } sort keys %ends), ", $unchanged rows unchanged";
	no_worker_left($node);
	$redis->cli('FLUSHALL');
};

# ---- What is sent, and when ------------------------------------------------------------------------------------------

# A fake that keeps documents and books as Redis does, transactions included. The sub is asked first, with the words of a command,
# and for EXEC with the keys of its commands: what it returns is answered instead, and nothing is done, unless it is
# [ 'after', CLOSE ]: that is done after it. What it returns for INSIDE and the words of a command is that command's answer in the
# transaction, of which the rest is done.
my $fakes = 0;
sub keeping_fake
{
	my ($sub) = @_;
	my $do = sub {
		my ($fake, $name, $key, @rest) = @_;
		my $store = $fake->{store} //= {};
		return exists $store->{$key} ? '+ReJSON-RL' : '+none' if $name eq 'TYPE';
		return ':' . (exists $store->{$key} ? 1 : 0) if $name eq 'PEXPIRE';
		return ':' . (defined delete $store->{$key}{ $rest[0] } ? 1 : 0) if $name eq 'HDEL';
		return ':' . keys %{ $store->{$key} // {} } if $name eq 'HLEN';
		if ($name eq 'HGET')
		{
			my $entry = $store->{$key}{ $rest[0] };
			return defined $entry ? '$' . length($entry) . "\r\n$entry" : '$-1';
		}
		return ':' . keys(%{ $store->{$key} // {} }) if $name eq 'HLEN';
		return ':1' if $name eq 'HSET' && do { $store->{$key}{ $rest[0] } = $rest[1]; 1 };
		return '+OK' if $name eq 'JSON.SET' && do { $store->{$key} = $rest[1]; 1 };
		return ':' . (delete $store->{$key} ? 1 : 0) if $name eq 'DEL';
		return "-ERR unknown command '$name'";
	};
	my $fake = RedisExport::Fake->new(sub {
		my ($fake, $client, @words) = @_;
		return record_does($fake, @words) if is_of_record(@words);
		if ($words[0] eq 'MULTI') { $client->{queue} = []; return '+OK' }
		if ($words[0] eq 'DISCARD') { return delete $client->{queue} ? '+OK' : '-ERR DISCARD without MULTI' }
		if ($words[0] eq 'EXEC')
		{
			my $queue = delete $client->{queue} or return '-ERR EXEC without MULTI';
			return '-EXECABORT Transaction discarded because of previous errors.' if delete $client->{refused};
			my $odd = $sub->($fake, $client, 'EXEC', map { $_->[1] } @$queue);
			return $odd if defined $odd && !ref $odd;
			my $reply = '*' . @$queue . join '', map { "\r\n" . ($sub->($fake, $client, 'INSIDE', @$_) // $do->($fake, @$_)) } @$queue;
			return $odd->[1] if ref $odd;
			return $reply;
		}
		my $odd = $sub->($fake, $client, @words);
		if (defined $odd && !ref $odd)
		{
			$client->{refused} = 1 if $client->{queue};
			return $odd;
		}
		return push(@{ $client->{queue} }, \@words) && '+QUEUED' if $client->{queue};
		my $reply = $do->($fake, @words);
		return ref $odd ? $odd->[1] : $reply;
	});
	add_server($node, $fake, name => 'kept_' . ++$fakes);
	return ($fake, "'kept_$fakes'");
}

# Plays what a fake was sent once more, and returns what was wrong with it:
#   - a write of a row by itself, or in a transaction that makes no entry of its key
#   - an entry that was made by itself, and says more than that the key is ours
#   - a moment at which a key has an entry that is not that of its document, but for one that was refused in its transaction; and
#     at the end for that, too, if $ended
# and how many writes and entries there were.
sub wrong_in
{
	my ($fake, $ended) = @_;
	my (%client, %document, %entry, %stands_for, %refused, @wrong, $writes, $entries);
	my $carry_out = sub {
		my ($all, @good) = @_;
		my %entered = map { ($_->[2] => 1) } grep { $_->[0] eq 'HSET' } @$all;
		for my $at (0 .. $#$all)
		{
			my ($name, $key, @rest) = @{ $all->[$at] };
			if ($name eq 'JSON.SET')
			{
				push @wrong, "$key was written without an entry" unless $entered{$key} && @$all > 1;
				$good[$at] ? $document{$key} = $rest[1] : $refused{$key}++;
				delete $refused{$key} if $good[$at];
				$writes++ if $good[$at];
			}
			elsif ($name eq 'HSET' && $good[$at])
			{
				push @wrong, "an entry of $rest[0] was made by itself" if @$all == 1 && $rest[1] ne '';
				delete $refused{ $rest[0] } if $rest[1] eq '';
				$entry{ $rest[0] } = substr $rest[1], 0, 8;
				$entries++ if $rest[1] ne '';
			}
		}
		for my $key (grep { $entry{$_} ne '' && !$refused{$_} } keys %entry)
		{
			my $document = $document{$key} // 'nothing';
			push @wrong, "$key has another entry than that of its document" if ($stands_for{"$key $entry{$key}"} //= $document) ne $document;
		}
	};
	for my $command ($fake->commands)
	{
		my ($words, $reply, $number) = @$command{qw(words reply client)};
		my $client = $client{$number} //= {};
		next if is_of_record(@$words);
		delete $client->{queue} if $words->[0] eq 'DISCARD';
		my $answered = ($reply //= '') ne CLOSE;
		my $good = $answered ? $reply !~ /^-/ : $fake->flag('done');
		if ($words->[0] eq 'MULTI') { $client->{queue} = [] }
		elsif ($words->[0] eq 'EXEC')
		{
			my $queue = delete $client->{queue} // [];
			my @each = $reply =~ /^\*/ ? split /\r\n/, $reply : ();
			$carry_out->($queue, map { @each ? $each[ $_ + 1 ] !~ /^-/ : $good } 0 .. $#$queue) if $good;
		}
		elsif ($client->{queue}) { push @{ $client->{queue} }, $words }
		else { $carry_out->([$words], $good) }
	}
	push @wrong, "the entry of $_ was not corrected" for $ended ? keys %refused : ();
	my %seen;
	return (join('; ', grep { !$seen{$_}++ } @wrong), $writes // 0, $entries // 0);
}

my $from_fake = q{SELECT i AS id, json_build_object('v', %s) AS doc FROM generate_series(1, 20) AS i};
sub fake_sql
{
	my ($server, $v, %arguments) = @_;
	my $template = delete $arguments{key_template} // 'k:#{id}';
	return run_sql($definer, $template, sprintf($from_fake, $v), $template, batch => 10, server => $server, retry_timeout => q{'20 s'}, %arguments);
}

# The fake misbehaves in the second export only, which changes all rows; the third one goes there and back.
sub faulty
{
	my ($sub, %arguments) = @_;
	my ($fake, $server) = keeping_fake(sub { return $_[0]->flag('odd') ? $sub->(@_) : undef });
	$session->query(fake_sql($server, 1));
	$fake->raise('odd');
	$fake->raise('done') if delete $arguments{done};
	my ($out, $err) = $session->send(fake_sql($server, 2, %arguments))->wait;
	return ($fake, $server, $err);
}

subtest 'the connection breaks' => sub {
	my $once = sub { my ($name, $key, $what) = @_; return sub { my ($fake, $client, @words) = @_; return $words[0] eq $name && $words[1] =~ $key && !$fake->{hits}++ ? $what : undef } };
	my $seventh = qr/^k:7\z/;
	my $nth_entry = sub { my ($name, $what) = @_; return sub { my ($fake, $client, @words) = @_; return $words[0] eq $name && ++$fake->{hits} == 7 ? $what : undef } };
	my %at = (
		'while it is asked for a key' => [ $once->('TYPE', $seventh, CLOSE) ],
		'while it is asked for an entry' => [ $nth_entry->('HGET', CLOSE) ],
		'before an entry' => [ $nth_entry->('HSET', CLOSE) ],
		'before a write' => [ $once->('JSON.SET', $seventh, CLOSE) ],
		'before both are carried out' => [ sub { my ($fake, $client, @words) = @_; return $words[0] eq 'EXEC' && $words[2] eq 'k:7' && !$fake->{hits}++ ? CLOSE : undef } ],
		'after that, before its answer' => [ sub { my ($fake, $client, @words) = @_; return $words[0] eq 'EXEC' && $words[2] eq 'k:7' && !$fake->{hits}++ ? [ 'after', CLOSE ] : undef }, done => 1 ],
		'before an expiry' => [ $once->('PEXPIRE', $seventh, CLOSE), ttl => q{'1 hour'} ]);
	for my $when (sort keys %at)
	{
		my ($sub, %arguments) = @{ $at{$when} };
		my ($fake, $server) = faulty($sub, %arguments);
		is(counts(), 'done: 20 written, 0 unchanged, 0 failed', "$when: all rows are written");
		cmp_ok(job($node)->{reconnects}, '>', 0, 'over another connection');
		ledger_ok($node);
		my ($wrong, $writes, $entries) = wrong_in($fake, 1);
		is($wrong, '', 'each write has its entry with it');
		cmp_ok($writes, '>=', 40, 'as was seen');
		$fake->lower('odd');
		$session->query(fake_sql($server, 2));
		is(counts(), 'done: 0 written, 20 unchanged, 0 failed', 'the same once more is unchanged');
		$session->query(fake_sql($server, 1));
		is(counts(), 'done: 20 written, 0 unchanged, 0 failed', 'and back again is not');
		$fake->stop;
	}
};

# Each once, or as long as it is to be, for the row 7 of 20.
subtest 'errors' => sub {
	my %error = (
		oom => '-OOM command not allowed', loading => '-LOADING Redis is loading', readonly => '-READONLY You cannot write', misconf => '-MISCONF errors', busy => '-BUSY running a script',
		run => q{-NOPERM this user has no permissions to run the 'x' command}, key => '-NOPERM this user has no permissions to access one of the keys', type => '-WRONGTYPE wrong kind of value');
	# what becomes of the job, if not that all is written: while Redis says so it waits, or opens another connection
	my %end = (
		'TYPE run' => 'failed', 'HGET run' => 'failed', 'HGET key' => 'failed', 'HGET type' => 'failed', 'HSET run' => 'failed', 'HSET key' => 'failed', 'HSET type' => 'failed',
		'JSON.SET run' => 'failed', 'JSON.SET key' => 'one failed', 'JSON.SET type' => 'one failed');
	for my $name (qw(TYPE HGET HSET JSON.SET))
	{
		for my $class (sort keys %error)
		{
			my ($fake, $server, $err) = faulty(sub {
				my ($fake, $client, @words) = @_;
				return undef if $words[0] ne $name || ($name =~ /^(?:TYPE|JSON.SET)\z/ ? $words[1] ne 'k:7' : ++$fake->{asked} != 7) || $fake->{hit}++;
				return $error{$class};
			}, on_error => q{'ignore'});
			my $end = $end{"$name $class"} // 'done';
			my $row = job($node);
			if ($end eq 'failed')
			{
				is($row->{state}, 'failed', "$name answered $class: the job fails");
				like($err, qr/ERROR: .*Redis answered: @{[ substr $error{$class}, 1, 6 ]}/, 'with that error');
			}
			else
			{
				is(counts(), $end eq 'done' ? 'done: 20 written, 0 unchanged, 0 failed' : 'done: 19 written, 0 unchanged, 1 failed', "$name answered $class: $end");
			}
			ledger_ok($node);
			is((wrong_in($fake, $end ne 'failed'))[0], '', 'no entry is there that is not right');
			$fake->lower('odd');
			$session->query(fake_sql($server, 1));
			is((wrong_in($fake, 1))[0], '', 'nor afterwards');
			$row = job($node);
			is("$row->{state} " . ($row->{rows_written} + $row->{rows_unchanged}), 'done 20', 'then all is well again');
			$fake->stop;
		}
	}
};

# Refused when it is queued, and when it is carried out: then the rest of its transaction is, too.
subtest 'of a row that fails the entry is corrected' => sub {
	for my $when ('JSON.SET', 'INSIDE')
	{
		my ($fake, $server) = faulty(sub {
			my ($fake, $client, @words) = @_;
			shift @words if $words[0] eq 'INSIDE' && $when eq 'INSIDE';
			return $words[0] eq 'JSON.SET' && $words[1] =~ /^k:(?:3|17)\z/ && ($when ne 'INSIDE' || !$client->{queue}) ? '-WRONGTYPE this one' : undef;
		}, on_error => q{'ignore'});
		is(counts(), 'done: 18 written, 0 unchanged, 2 failed', "$when: two rows fail");
		ledger_ok($node);
		my ($wrong, $writes, $entries) = wrong_in($fake, 1);
		is("$wrong $writes $entries", $when eq 'INSIDE' ? ' 38 40' : ' 38 38', 'their entries were corrected');
		$fake->lower('odd');
		$session->query(fake_sql($server, 2));
		is(counts(), 'done: 2 written, 18 unchanged, 0 failed', 'they are tried again the next time');
		$fake->stop;
	}
};

subtest 'the key of an unchanged row goes before its expiry is set' => sub {
	my ($fake, $server) = keeping_fake(sub {
		my ($fake, $client, @words) = @_;
		return undef if $words[0] ne 'PEXPIRE' || $words[1] ne 'k:5' || !$fake->flag('odd') || $fake->{gone}++;
		delete $fake->{store}{'k:5'};
		return ':0';
	});
	$session->query(fake_sql($server, 1, ttl => q{'1 hour'}));
	my $before = () = $fake->commands;
	$fake->raise('odd');
	$session->query(fake_sql($server, 1, ttl => q{'1 hour'}));
	is(counts(), 'done: 1 written, 19 unchanged, 0 failed', 'it is written');
	ledger_ok($node);
	my @sent = map { join ' ', $_->{words}[0], $_->{words}[1] // '' } ($fake->commands)[ $before .. $fake->commands - 1 ];
	is_deeply([ grep { /^JSON.SET/ } @sent ], ['JSON.SET k:5'], 'and no other is');
	is_deeply([ map { s/ .*//r } grep { / k:5\z/ } @sent ], [ qw(TYPE PEXPIRE TYPE JSON.SET PEXPIRE) ], 'with its expiry');
	is((wrong_in($fake, 1))[0], '', 'and its entry');
	$fake->stop;
};

# Redis carries out a command behind one that it has refused.
subtest 'books that may not be kept' => sub {
	$session->query("CREATE TABLE rights AS SELECT i AS id, 0 AS v FROM generate_series(1, 100) AS i");
	$redis->cli('ACL', 'SETUSER', 'app', 'on', '>pw', '~*', '+@all');
	add_server($node, $redis, name => 'app');
	$node->safe_psql('postgres', q{CREATE USER MAPPING FOR CURRENT_USER SERVER app OPTIONS (username 'app', password 'pw')});
	for my $kind (sort keys %kinds)
	{
		for my $rights (['-hset'], ['-multi'], [ 'resetkeys', '~[hjr]:*', '%R~redis_export:*' ])
		{
			my $app = sub { my ($v, @more) = @_; $session->query("UPDATE rights SET v = $v"); return ($session->send(export_as($kind, 'FROM rights', server => q{'app'}, @more))->wait)[1] };
			$app->(0);
			$redis->cli('ACL', 'SETUSER', 'app', @$rights);
			like($app->(1), qr/NOPERM/, "$kind, $rights->[0]: an error");
			ledger_ok($node);
			$redis->cli('ACL', 'SETUSER', 'app', 'allkeys', '+@all');
			$app->(0);
			clean_ok($kind, 'rights', 100, 'there and back again');
		}
	}
	$redis->cli('FLUSHALL');
};

# ---- Once more after a crash -----------------------------------------------------------------------------------------

# All at once, and with it the sessions that are given; it is there again after that.
sub kill_postgres
{
	my (@sessions) = @_;
	my $postmaster = (slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/)[0];
	my @children = split ' ', `ps -o pid= --ppid $postmaster`;
	kill 'KILL', $postmaster, @children;
	$_->kill_client for $session, $definer, @sessions;
	wait_for('all processes are gone', sub { !grep { kill 0, $_ } $postmaster, @children });
	$node->{_pid} = undef;
	$node->start;
	($session, $definer) = (session($node), session($node));
	until_hung_up($redis);

	# leases are those of a server that is no more, for half a minute
	$redis->cli('DEL', map { "redis_export:{$_}:lease" } keys %kinds);
	return;
}

subtest 'PostgreSQL is killed' => sub {
	my $rows = 20_000;
	$session->query("CREATE TABLE crash AS SELECT i AS id, i % 3 AS v FROM generate_series(1, $rows) AS i");
	for my $kind ('json', 'replace')
	{
		my $id = $session->query(export_as($kind, 'FROM crash ORDER BY id', batch => 200, rate => 40_000, wait => 'false')) =~ s/\|.*//r;
		session_poll($session, "SELECT rows_written > $rows / 3 FROM redis_export_progress WHERE job = $id");
		my $written = $session->query("SELECT rows_written FROM redis_export_progress WHERE job = $id");
		kill_postgres();
		cmp_ok($written, '<', $rows, "$kind: it was in its midst");
		$session->query(export_as($kind, 'FROM crash ORDER BY id', batch => 200));
		my $row = job($node);
		is("$row->{rows_written} $row->{rows_unchanged}", "$rows 0", 'what it had written is written again, and the rest');
		clean_ok($kind, 'crash', $rows);
	}
	$redis->cli('FLUSHALL');
};

# Redis makes the entry of a write that it refuses when it carries out their transaction. Whoever was to correct that is gone.
subtest 'a write that was refused, in a run that did not end' => sub {
	$session->query('CREATE TABLE refused AS SELECT i AS id, 0 AS v FROM generate_series(1, 20) AS i');
	for my $how ('cancel', 'kill')
	{
		$session->query('UPDATE refused SET v = 0');
		$session->query(export_as('hash', 'FROM refused ORDER BY id'));
		my @before = $redis->cli('HGETALL', 'h:3');
		$redis->cli('DEL', 'h:3');
		$redis->cli('SET', 'h:3', 'a string');
		$session->query('UPDATE refused SET v = 1 WHERE id <= 10');
		my $holder = session($node);
		$holder->query('SELECT pg_advisory_lock(1)');
		my $id = $session->query(export_as('hash', 'FROM (SELECT * FROM refused WHERE id < 20 UNION ALL SELECT * FROM refused WHERE id = 20 AND pg_advisory_xact_lock_shared(1) IS NOT NULL) AS r', batch => 1, on_error => q{'ignore'}, wait => 'false')) =~ s/\|.*//r;
		session_poll($session, "SELECT rows_failed = 1 FROM redis_export_progress WHERE job = $id");
		if ($how eq 'cancel')
		{
			$session->query("SELECT redis_export_cancel($id)");
			session_poll($session, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
			$holder->quit;
		}
		else { kill_postgres($holder) }
		is($redis->cli('HSTRLEN', 'redis_export:{hash}:keys', 'h:3'), 12, "$how: the books have an entry of what was refused");
		$redis->cli('DEL', 'h:3');
		$redis->cli('HSET', 'h:3', @before);
		$session->query(export_as('hash', 'FROM refused ORDER BY id'));
		my $row = job($node);
		is("$row->{state} " . ($row->{rows_written} + $row->{rows_unchanged}), 'done 20', 'with the old value there again, the next run');
		cmp_ok($row->{rows_unchanged}, '>=', 1, 'believes the entries of the run before');
		clean_ok('hash', 'refused', 20, 'and not those of the one that did not end');
	}
	$redis->cli('FLUSHALL');
};

# (By the second, as is the default, Redis may acknowledge what it has not even written to its file, while it syncs that.)
subtest 'Redis is killed' => sub {
	my $rows = 20_000;
	for my $saves (0, 1)
	{
		my $other = RedisExport::Redis->new(modules => 0, conf => { appendonly => $saves ? 'yes' : 'no', appendfsync => 'always' });
		my $name = $saves ? 'saves' : 'forgets';
		add_server($node, $other, name => $name, timeout => 5);
		my $from = 'FROM crash ORDER BY id';
		my $again = sub { $session->query(export_as('hash', $from, server => "'$name'", @_)); return job($node) };
		my $clean = sub {
			is(verified('hash', 'FROM crash', server => "'$name'"), '0|0|{}|{}', 'then redis_export_verify finds nothing');
			is(wrong_values('hash', $other, 'crash', $rows), 0, 'nor does a look of our own');
		};

		# when all was done
		$again->();
		$other->kill9->start;
		my $row = $again->();
		is("$row->{rows_written} $row->{rows_unchanged}", $saves ? "0 $rows" : "$rows 0", "$name: " . ($saves ? 'nothing' : 'all') . ' is written again');
		$clean->();

		# in the midst of rows that are changed, and that another row was unchanged before
		$session->query('UPDATE crash SET v = 2 - v');
		my $id = $session->query(export_as('hash', $from, server => "'$name'", rate => 20_000, batch => 200, wait => 'false')) =~ s/\|.*//r;
		session_poll($session, "SELECT rows_written > 3000 FROM redis_export_progress WHERE job = $id");
		$other->kill9->start;
		session_poll($session, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
		$row = job($node, $id);
		is("$row->{state} $row->{redis_restarts} " . ($row->{rows_written} + $row->{rows_unchanged}), "done 1 $rows", 'killed in its midst: it goes on, and tells of it');
		ledger_ok($node, $id);
		my $lost = $rows - $other->cli('EVAL', "local n = 0 for i = 1, $rows do n = n + redis.call('EXISTS', 'h:' .. i) end return n", 0);
		$row = $again->();
		$saves ? is($lost, 0, 'nothing was lost') : cmp_ok($lost, '>', 3000, 'what was acknowledged before is lost');
		is("$row->{rows_written} $row->{rows_unchanged}", "$lost " . ($rows - $lost), $saves ? 'and nothing is written again' : 'and all is written again that was lost');
		$clean->();

		# there and back: broken off by us while Redis dies
		$session->query('UPDATE crash SET v = 2 - v');
		$id = $session->query(export_as('hash', $from, server => "'$name'", rate => 20_000, batch => 200, wait => 'false')) =~ s/\|.*//r;
		session_poll($session, "SELECT rows_written > 3000 FROM redis_export_progress WHERE job = $id");
		$other->kill9;
		$session->query("SELECT redis_export_cancel($id)");
		session_poll($session, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
		ledger_ok($node, $id);
		$other->start;
		$session->query('UPDATE crash SET v = 2 - v');
		$again->();
		$clean->();
		$other->stop;
	}
};

# ---- Rows of one key -------------------------------------------------------------------------------------------------

subtest 'two rows of one key' => sub {
	for my $kind (sort keys %kinds)
	{
		my @wrong;
		for my $held (0, 1, 2)
		{
			for my $apart (1, 40)
			{
				for my $ttl (undef, q{'1 hour'})
				{
					my @arguments = (batch => 20, $ttl ? (ttl => $ttl) : ());
					my $rows = sub { my ($first, $last) = @_; return "FROM (SELECT i AS id, 5 AS v FROM generate_series(10, 60) AS i UNION ALL VALUES (0, $last)) AS r" =~ s/FROM \(/FROM (SELECT 0 AS id, $first AS v UNION ALL /r =~ s/generate_series\(10, 60\)/"generate_series(10, " . (10 + $apart) . ")"/er };
					$session->query(export_as($kind, "FROM (VALUES (0, $held)) AS r (id, v)", @arguments));
					$session->query(export_as($kind, $rows->(0, 1), @arguments)) for 1, 2;
					my $key = $kinds{$kind}{key} =~ s/#.*/0/r;
					my $found = $redis->cli('EVAL', "local k = '$key' return " . $kinds{$kind}{value}, 0);
					push @wrong, "held $held, $apart apart, " . ($ttl // 'no ttl') . ": $found" if $found !~ /^1w?\z/;
					ledger_ok($node);
				}
			}
		}
		is_deeply(\@wrong, [], "$kind: the last row has won, whatever Redis held");
	}
	$redis->cli('FLUSHALL');
};

# ---- Replicas and indexes --------------------------------------------------------------------------------------------

subtest 'replicas' => sub {
	my $master = RedisExport::Redis->new(modules => 0, conf => { 'repl-diskless-sync-delay' => 0 });
	my $replica = RedisExport::Redis->new(modules => 0, conf => { replicaof => '127.0.0.1 ' . $master->port });
	wait_for('the replica is in step', sub { ($replica->info('master_link_status') // '') eq 'up' });
	add_server($node, $master, name => 'master', timeout => 4);
	$session->query('CREATE TABLE copied AS SELECT i AS id, 0 AS v FROM generate_series(1, 1000) AS i');
	my @arguments = (server => q{'master'}, wait_replicas => 1, batch => 100);
	for my $ttl (undef, q{'1 hour'})
	{
		my @ttl = $ttl ? (ttl => $ttl) : ();
		$session->query('UPDATE copied SET v = v + 1');
		$session->query(export_as('hash', 'FROM copied', @arguments, @ttl));
		is(counts(), 'done: 1000 written, 0 unchanged, 0 failed', 'all are written');
		is(wrong_values('hash', $replica, 'copied', 1000), 0, 'the replica has them');
		$session->query('UPDATE copied SET v = v + 1 WHERE id % 100 = 7');
		$session->query(export_as('hash', 'FROM copied', @arguments, @ttl));
		is(counts(), 'done: 10 written, 990 unchanged, 0 failed', 'some are changed');
		is(wrong_values('hash', $replica, 'copied', 1000), 0, 'the replica has these, too');
		ledger_ok($node);
	}

	# what is changed waits for the replica
	$session->query('UPDATE copied SET v = v + 1 WHERE id % 100 = 8');
	$replica->freeze;
	my $id = $session->query(export_as('hash', 'FROM copied', @arguments, wait => 'false')) =~ s/\|.*//r;
	until_state($node, $id, 'retrying');
	my $row = job($node, $id);
	is($row->{rows_written}, 0, 'with the replica frozen no row is written');
	$replica->thaw;
	session_poll($session, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
	is(counts(), 'done: 10 written, 990 unchanged, 0 failed', 'then they are');
	ledger_ok($node);

	# the replica knows as much as its master did
	$master->stop;
	$replica->cli('REPLICAOF', 'NO', 'ONE');
	$session->query("ALTER SERVER master OPTIONS (SET port '" . $replica->port . "')");
	$session->query('UPDATE copied SET v = v - 1 WHERE id % 100 = 9');
	$session->query(export_as('hash', 'FROM copied', server => q{'master'}));
	is(counts(), 'done: 10 written, 990 unchanged, 0 failed', 'with the replica as the master nothing is written again');
	is(wrong_values('hash', $replica, 'copied', 1000), 0, 'and it has them all');
	$replica->stop;
};

subtest 'an index' => sub {
	$redis->cli('FT.CREATE', 'found', 'ON', 'JSON', 'PREFIX', '1', 'j:', 'SCHEMA', '$.v', 'AS', 'v', 'NUMERIC');
	$session->query('CREATE TABLE indexed AS SELECT i AS id, 1 AS v FROM generate_series(1, 2000) AS i');
	for my $expected ('2000 written, 0 unchanged', '0 written, 2000 unchanged', '20 written, 1980 unchanged')
	{
		$session->query('UPDATE indexed SET v = 2 WHERE id % 100 = 3') if $expected =~ /^20 /;
		$session->query(export_as('json', 'FROM indexed', wait_index => q{'found'}));
		is(counts(), "done: $expected, 0 failed", $expected);
		my $row = job($node);
		is($row->{index_failures}, 0, 'the index has refused nothing');
		my ($twos) = $redis->cli('FT.SEARCH', 'found', '@v:[2 2]', 'LIMIT', 0, 0);
		is($twos, $expected =~ /^20 / ? 20 : 0, 'it finds what was changed');
		like(join(' ', $redis->cli('FT.INFO', 'found')), qr/num_docs 2000 /, 'and no books');
	}
	clean_ok('json', 'indexed', 2000);
	$redis->cli('FT.DROPINDEX', 'found');
	$redis->cli('FLUSHALL');
};

# ---- Redis Cluster ---------------------------------------------------------------------------------------------------

my $cluster = RedisExport::Cluster->new(replicas => 1, timeout => 1000);
add_server($node, $cluster, name => 'cluster', timeout => 2);
my @cluster = (server => q{'cluster'});
my $spread = 3000;
$session->query("CREATE TABLE spread AS SELECT i AS id, 0 AS v, 0 AS before FROM generate_series(1, $spread) AS i");

# All rows of a kind that the masters hold, as "v" or "v and w" by id.
sub spread_values
{
	my ($kind) = @_;
	my $way = $kinds{$kind};
	my ($prefix, %all) = ($way->{key} =~ s/#.*//r);
	for my $master ($cluster->masters)
	{
		my $pairs = $cluster->raw($master)->command('EVAL', "local all = {} for _, k in ipairs(redis.call('KEYS', ARGV[1])) do all[#all + 1] = k all[#all + 1] = $way->{value} end return all", 0, "$prefix*");
		while (my ($key, $value) = splice @$pairs, 0, 2) { $all{ $key =~ s/\D//gr } = $value }
	}
	return \%all;
}

# A whole export, and what is so after it.
sub spread_ok
{
	my ($kind, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($out, $err) = $session->send(export_as($kind, 'FROM spread ORDER BY id', @cluster, retry_timeout => q{'30 s'}))->wait;
	my $row = job($node);
	is("$row->{state} " . ($row->{rows_written} + $row->{rows_unchanged}), "done $spread", "$name: a whole export ends well") or diag $err;
	ledger_ok($node);
	is(verified($kind, 'FROM spread', @cluster), '0|0|{}|{}', 'then redis_export_verify finds nothing');
	my $w = $kind eq 'replace' ? q{ || CASE WHEN v = 1 THEN 'w' ELSE '' END} : '';
	my %expected = map { split /\|/ } split /\n/, $node->safe_psql('postgres', "SELECT id, v$w FROM spread");
	is_deeply(spread_values($kind), \%expected, 'nor does a look of our own');
	return $row;
}

sub spread_job
{
	my ($kind, %arguments) = @_;
	return $session->query(export_as($kind, 'FROM spread ORDER BY id', @cluster, wait => 'false', %arguments)) =~ s/\|.*//r;
}
sub until_ended { my ($id) = @_; return session_poll($session, "SELECT finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id") }
sub spread_change { return $session->query('UPDATE spread SET v = CASE WHEN random() < 0.6 THEN 1 - v ELSE v END, before = v') }

subtest 'books lie where their keys do' => sub {
	for my $kind ('hash', 'replace')
	{
		my $row = spread_ok($kind, $kind);
		is($row->{rows_written}, $spread, 'the first time all are written');
		is(spread_ok($kind, $kind)->{rows_unchanged}, $spread, 'then none');
	}
	my (@wrong, $sum);
	for my $master ($cluster->masters)
	{
		my %has = map { $_ => 1 } $cluster->slots_of($master);
		my (%keys, %entries);
		for my $key (@{ $cluster->raw($master)->command('KEYS', '*') })
		{
			push @wrong, $key unless $has{ slot_of($key) };
			$keys{ slot_of($key) }++ if $key =~ /^[hr]:/;
			$entries{ slot_of($key) } += $cluster->raw($master)->command('HLEN', $key) if $key =~ /^redis_export:\{\w{4}\}:keys:(?:hash|replace)\z/;
		}
		$sum += $_ for values %entries;
		push @wrong, grep { ($entries{$_} // 0) != $keys{$_} } keys %keys;
	}
	is_deeply(\@wrong, [], 'each slot has as many entries as keys');
	is($sum, 2 * $spread, 'and that is all');
};

# Redis says of books that are gone where they are, and would carry out the write of a key that is still there.
subtest 'books that go before their keys' => sub {
	my $tag = '{there}';
	my $slot = slot_of($tag);
	my ($from) = $cluster->owner($slot);
	my ($to) = grep { $_ != $from } $cluster->masters;
	for my $replace ('false', 'true')
	{
		my $v = 0;
		my $sql = sub { return run_sql($definer, "m $replace", "SELECT i AS id, $v AS v FROM generate_series(1, 12) AS i", "m$replace:$tag#{id}", type => q{'hash'}, @cluster, exclude => q('{id}'), replace => $replace, @_) };
		$session->query($sql->());
		$v = 1;
		my $id = $session->query($sql->(rate => 4, wait => 'false')) =~ s/\|.*//r;
		wait_for('the first row is written', sub { $cluster->raw($from)->command('HGET', "m$replace:${tag}1", 'v') });
		my ($books) = grep { /^redis_export:\{\w{4}\}:keys:m $replace\z/ } @{ $cluster->raw($from)->command('CLUSTER', 'GETKEYSINSLOT', $slot, 100) };
		$cluster->begin_move($slot, $from, $to)->move_keys($slot, $from, $to, $books);
		until_state($node, $id, 'retrying');
		like(job($node, $id)->{last_error}, qr/Redis answered: .*(?:ASK|TRYAGAIN) /, 'the job waits');
		$node->safe_psql('postgres', "SELECT redis_export_cancel($id)");
		until_ended($id);
		ledger_ok($node, $id);
		$cluster->move_keys($slot, $from, $to);
		$cluster->end_move($slot, $from, $to)->until_ok;
		$v = 0;
		$session->query($sql->());
		is(job($node)->{state}, 'done', 'there and back again');
		is_deeply([ map { $cluster->raw($to)->command('HGET', "m$replace:$tag$_", 'v') } 1 .. 12 ], [ (0) x 12 ], 'all is as it was');
		($from, $to) = ($to, $from);
	}
};

subtest 'slots move' => sub {
	srand 11;
	my @slots = map { int rand 16384 } 1 .. 400;
	my $moved = 0;
	for my $round (1 .. 6)
	{
		my $kind = $round % 2 ? 'hash' : 'replace';
		spread_change();
		my $id = spread_job($kind, rate => 2500, batch => one_of(10, 100, 500), $round > 4 ? (ttl => q{'1 hour'}) : ());
		session_poll($session, "SELECT rows_written + rows_unchanged > 500 FROM redis_export_progress WHERE job = $id");
		for (1 .. 25)
		{
			my $slot = shift @slots;
			my $from = $cluster->owner($slot);
			my ($to) = grep { $_ != $from } $round % 2 ? $cluster->masters : reverse $cluster->masters;
			$cluster->begin_move($slot, $from, $to);
			my ($some) = @{ $cluster->raw($from)->command('CLUSTER', 'GETKEYSINSLOT', $slot, 1) };
			$cluster->move_keys($slot, $from, $to, $some) if defined $some;
			sleep 0.01 if $round > 2;
			# broken off while it waits for this slot
			$session->query("SELECT redis_export_cancel($id)") if $round % 3 == 0 && $_ > 5 && job($node, $id)->{state} eq 'retrying';
			$cluster->move_keys($slot, $from, $to);
			$cluster->end_move($slot, $from, $to);
			$moved++ if !defined job($node, $id)->{finished_at};
		}
		$session->query("SELECT redis_export_cancel($id)") if $round % 3 == 0;
		until_ended($id);
		my $row = job($node, $id);
		like($row->{state}, $round % 3 == 0 ? qr/^(?:done|canceled)\z/ : qr/^done\z/, 'the export ends so') or diag $row->{last_error};
		ledger_ok($node, $id);
		$round % 3 == 0 ? $session->query('UPDATE spread SET v = before') : $round % 2 && spread_change();
		$cluster->until_ok;
		spread_ok($kind, "round $round");
	}
	cmp_ok($moved, '>', 10, 'slots have moved meanwhile') and note "$moved moves";
};

# What the replica lacks, it lacks of keys and books alike.
subtest 'a master is lost' => sub {
	for my $round (1 .. 2)
	{
		spread_ok('hash', 'before');
		my ($master, @others) = $cluster->masters;
		my ($replica) = $cluster->replicas_of($master);
		wait_for('the replica is in step', sub { $cluster->raw($master)->command('WAIT', 1, 1000) });
		spread_change();
		$replica->freeze;
		$cluster->raw($master)->command('CLIENT', 'KILL', 'TYPE', 'replica');
		my $id = spread_job('hash', rate => 2000, batch => 50);
		wait_for('rows come that the replica lacks', sub { (nodes_of($node, $id)->{ $master->port }{rows_written} // 0) > 50 });
		$master->kill9;
		$replica->thaw;
		$cluster->ask($others[0]);
		$session->query("ALTER SERVER cluster OPTIONS (SET port '" . $others[0]->port . "')");
		if ($round == 1)
		{
			$session->query("SELECT redis_export_cancel($id)");
			until_ended($id);
		}
		wait_for('the replica takes over', sub { grep { $_ == $replica } $cluster->masters });
		until_ended($id);
		my $row = job($node, $id);
		is($row->{state}, $round == 1 ? 'canceled' : 'done', 'the export has ended') or diag $row->{last_error};
		cmp_ok($row->{redis_restarts}, '>', 0, 'and has told') if $round == 2;
		ledger_ok($node, $id);
		$session->query('UPDATE spread SET v = before') if $round == 1;
		$cluster->until_ok;
		spread_ok('hash', 'after');
		$master->start;
		$cluster->until_ok;
	}
	$_->stop for $cluster->nodes;
};

# Two fakes, of which the first has the lower half of the slots until they have moved.
subtest 'a slot on its way' => sub {
	my ($lower) = grep { slot_of($_) < 8192 && slot_of("k:" . substr($_, 0, -1)) >= 8192 } map { "{$_}" } 1 .. 99_999;    # (the record does not move)
	my $slot = slot_of($lower);
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $range = sub { my ($from, $to, $port) = @_; return "*3\r\n:$from\r\n:$to\r\n*2\r\n\$9\r\n127.0.0.1\r\n:$port" };
	my $answer = sub {
		my ($which) = @_;
		return sub {
			my ($fake, $client, @words) = @_;
			my ($first, $second) = split / /, slurp_file("$dir/ports");
			my $moved = -e "$dir/moved";
			return '+OK' if $words[0] eq 'ASKING';
			return "*2\r\n" . $range->(0, 8191, $moved ? $second : $first) . "\r\n" . $range->(8192, 16383, $second) if $words[0] eq 'CLUSTER';
			return undef if $which || $words[0] !~ /^(?:TYPE|HGET|HSET|JSON\.SET|PEXPIRE)\z/;
			return '-' . ($moved ? 'MOVED' : 'ASK') . " $slot 127.0.0.1:$second";
		};
	};
	my ($first) = keeping_fake($answer->(0));
	my ($second, $server) = keeping_fake($answer->(1));
	append_to_file("$dir/ports", $first->port . ' ' . $second->port);
	$session->query("ALTER SERVER @{[ $server =~ s/'//gr ]} OPTIONS (SET port '" . $first->port . "', ADD cluster 'true')");
	my $sql = sub { return fake_sql($server, 1, key_template => "k:$lower#{id}", @_) };
	my $id = $session->query($sql->(wait => 'false')) =~ s/\|.*//r;
	until_state($node, $id, 'retrying');
	like(job($node, $id)->{last_error}, qr/Redis answered: ASK $slot /, 'the job waits, and says for what');
	wait_for('it asks again', sub { (() = $first->commands('JSON.SET')) > 21 });
	my %meanwhile = map { $_->{words}[0] => 1 } grep { !is_of_record(@{ $_->{words} }) } $second->commands;
	ok(!grep({ $meanwhile{$_} } qw(ASKING TYPE HGET JSON.SET HSET)), 'and does not follow') or diag join ' ', keys %meanwhile;
	append_to_file("$dir/moved", 1);
	until_ended($id);
	is(counts(), 'done: 20 written, 0 unchanged, 0 failed', 'once it has moved, the job ends well');
	ledger_ok($node, $id);
	is((wrong_in($second, 1))[0], '', 'with each entry beside its write');
	is((() = grep { $_->{reply} !~ /^-/ } $first->commands('JSON.SET')), 0, 'and nothing was written before');
	$session->query($sql->());
	is(counts(), 'done: 0 written, 20 unchanged, 0 failed', 'the same once more is unchanged');
	$_->stop for $first, $second;
};

# ---- Rate, cancel, memory --------------------------------------------------------------------------------------------

subtest 'rate' => sub {
	$session->query('CREATE TABLE paced AS SELECT i AS id, 0 AS v FROM generate_series(1, 20000) AS i');
	$session->query(export_as('hash', 'FROM paced'));
	$session->query('UPDATE paced SET v = 1 WHERE id % 100 = 0');
	my $begun = time;
	$session->query(export_as('hash', 'FROM paced', rate => 100));
	my $took = time - $begun;
	is(counts(), 'done: 200 written, 19800 unchanged, 0 failed', 'of 20,000 rows 200 are written');
	cmp_ok($took, '>', 1.5, 'at 100 a second');
	cmp_ok($took, '<', 60, 'the others are not held up') or diag $took;
	clean_ok('hash', 'paced', 20_000);
};

subtest 'cancel under a frozen Redis' => sub {
	for my $changed (0, 1)
	{
		$session->query('UPDATE paced SET v = 1 - v') if $changed;
		$redis->freeze;
		my $id = $session->query(export_as('hash', 'FROM paced', wait => 'false')) =~ s/\|.*//r;
		sleep 0.2;
		$session->query("SELECT redis_export_cancel($id)");
		until_ended($id);
		is(job($node, $id)->{state}, 'canceled', 'before it has begun');
		ledger_ok($node, $id);
		no_worker_left($node);
		$redis->thaw;

		$id = $session->query(export_as('hash', 'FROM paced ORDER BY id', batch => 100, rate => $changed ? 10_000 : 0, wait => 'false') =~ s/, rate => 0//r) =~ s/\|.*//r;
		session_poll($session, "SELECT rows_written + rows_unchanged > 0 FROM redis_export_progress WHERE job = $id");
		$redis->freeze;
		$session->query("SELECT redis_export_cancel($id)");
		until_ended($id);
		my $row = job($node, $id);
		like($row->{state}, $changed ? qr/^canceled\z/ : qr/^(?:canceled|done)\z/, 'in its midst');
		is($row->{rows_in_doubt}, 0, 'of unchanged rows none is in doubt') unless $changed;
		ledger_ok($node, $id);
		no_worker_left($node);
		$redis->thaw;
		until_hung_up($redis);
		$session->query('UPDATE paced SET v = 1 - v WHERE id % 2 = 0') if $changed;
		$session->query(export_as('hash', 'FROM paced'));
		clean_ok('hash', 'paced', 20_000);
	}
	$redis->cli('FLUSHALL');
};

sub anonymous_kb
{
	my ($pid) = @_;
	open my $status, '<', "/proc/$pid/status" or return 0;
	return join('', <$status>) =~ /^RssAnon:\s*(\d+)/m ? $1 : 0;
}

subtest 'memory' => sub {
	my $rows = 200_000;
	my $from = "FROM (SELECT i AS id, i % 7 AS v FROM generate_series(1, $rows) AS i) AS r";
	$session->query(export_as('hash', $from));
	my $id = $session->query(export_as('hash', $from, wait => 'false')) =~ s/\|.*//r;
	my ($pid, @seen);
	while (1)
	{
		my ($seen, $worker, $ended) = split /\|/, $session->query("SELECT rows_unchanged, pid, finished_at IS NOT NULL FROM redis_export_progress WHERE job = $id");
		last if $ended eq 't';
		my $kb = $worker ne '' ? anonymous_kb($worker) : 0;
		push @seen, [ $seen, $kb ] if $kb && $seen > 0;
		sleep 0.01;
	}
	is(counts(), "done: 0 written, $rows unchanged, 0 failed", 'all are unchanged');
	my ($early) = grep { $_->[0] > 10_000 } @seen;
	ok($early && $seen[-1][0] > $rows * 0.7, 'the worker was seen all the while') or diag join ' ', map { "@$_" } @seen;
	cmp_ok($seen[-1][1] - $early->[1], '<', 4096, 'and has not grown') or diag join ' ', map { "@$_" } @seen;
	note sprintf '%d kB after %d rows, %d kB after %d', reverse(@$early), reverse @{ $seen[-1] };
	ledger_ok($node);
};

done_testing;
