# A soak: exports of many kinds, one after another and some at once, while random faults befall Redis, the line, the workers, their
# callers and PostgreSQL. After each: is its end one that its faults explain, does its ledger add up, and does Redis hold what it says?
# What failed is run again, until all is there. make test has a short one of it, make soak a long one:
#
#   SOAK_SECONDS   for how long (20)
#   SOAK_SEED      of the random numbers; the one used is in the summary. What meets what still depends on the moment.
#   SOAK_REPORT    1 prints progress, a summary and a line of JSON
use strict;
use warnings;
use List::Util qw(first max min sum0);
use RedisExport::Test;
use RedisExport::Jobs;
use RedisExport::Proxy;

my $seconds = $ENV{SOAK_SECONDS} || 20;
my $seed = $ENV{SOAK_SEED} || 1 + int(rand(1_000_000));
srand $seed;

# Of a row that is there and is of no use, one in so many.
my $BAD = 97;
my $ROWS = 20_000;
# No fault lasts so long that an export may need this much.
my $PATIENCE = 90;

# All that is acknowledged is on its disk.
my $redis = RedisExport::Redis->new(conf => { appendonly => 'yes', appendfsync => 'always', 'maxmemory-policy' => 'noeviction' });
my $proxy = RedisExport::Proxy->new($redis, cut_after => [ map { rand() < 0.4 ? 3000 + int(rand(300_000)) : undef } 1 .. 2000 ]);
my $node = new_node($redis, conf => "redis_export.notice_interval = 0\nmax_worker_processes = 20\nrestart_after_crash = on\nlog_connections = off");
add_server($node, $proxy, name => 'far');
add_server($node, $redis, name => 'socket', host => $redis->socket);
add_server($node, $redis, name => 'hasty', timeout => 0.4, connect_timeout => 20);
$node->safe_psql('postgres', qq{
	CREATE TABLE source AS SELECT n, 'value ' || n || repeat('x', n % 200) AS v FROM generate_series(1, $ROWS) AS n});

sub one_of { return $_[ int(rand(@_)) ] }
sub between { my ($from, $to) = @_; return $from + rand($to - $from) }

my (%ends, %faults, %told);
my ($runs, $acknowledged, $reconnects, $restarts, $wrong, $again) = (0) x 6;

# ---- PostgreSQL, which may be away ---------------------------------------------------------------------------------------

# How often it has been started. A job of another start is in no view any more.
my $epoch = 0;
my $control;

sub lose_control
{
	eval { $control->kill_client } if $control;
	$control = undef;
	return;
}

# The answer to a query that has one, from a session of our own, which is made anew when it has gone.
sub ask
{
	my ($query) = @_;
	my $deadline = time + 60;
	while (time < $deadline)
	{
		my $answer = eval { $control //= session($node); $control->query($query) } // '';
		return $answer if $answer ne '';
		lose_control();
		sleep 0.1;
	}
	die "PostgreSQL does not answer: $query: $@";
}

sub look
{
	my ($run) = @_;
	my $rows = JSON::PP->new->decode(ask("SELECT coalesce(json_agg(p), '[]') FROM redis_export_progress AS p WHERE query LIKE '%/* $run->{number} */'"));
	return $rows->[0];
}

# ---- What is exported ----------------------------------------------------------------------------------------------------

# The rows n of 1 to count, each under the key n % keys. In "bad" is what is wrong with each 97th row: its key is null, its document
# is no JSON, or its key is of another type.
sub new_export
{
	my $count = int(rand() < 0.2 ? between(8000, $ROWS) : between(300, 5000));
	my %export = (
		prefix => 'x' . ++$told{exports} . ':',
		count => $count,
		keys => rand() < 0.6 ? $count : int(between(1, rand() < 0.5 ? 50 : $count)),
		form => one_of(qw(row document)),
		bad => rand() < 0.35 ? one_of(qw(key json type)) : '',
		batch => one_of(1, 7, 50, 500, 500, 5000),
		ttl => one_of('', '', q{'1 hour'}, q{'0'}),
		server => one_of(qw(redis far far socket hasty)),
		wait => one_of(0, 1));
	# each few rows of a small batch wait for Redis' disk
	$export{count} = min($count, 100 * $export{batch}) if $export{batch} < 50;
	$count = $export{count};
	$export{keys} = min($export{keys}, $count);
	$export{form} = 'document' if $export{bad} eq 'json';
	$export{keys} = $count if $export{bad} eq 'type';
	$export{rate} = 1 + int($count / between(0.5, 3)) if rand() < 0.8;
	$export{bad_rows} = $export{bad} ? int($count / $BAD) : 0;
	$export{reject_limit} = max(1, $export{bad_rows}) if $export{bad} && rand() < 0.3;
	$export{statement_timeout} = int(between(200, 1500)) if rand() < 0.07;
	$export{retry_timeout} = int(between(200, 1000)) if rand() < 0.07;
	return \%export;
}

sub statement
{
	my ($run) = @_;
	my $export = $run->{export};
	my $bad = "n % $BAD = 0";
	my $key = "n % $export->{keys}";
	my $i = $export->{bad} eq 'key' ? "CASE WHEN $bad THEN NULL ELSE $key END" : $key;
	my $rest = $export->{form} eq 'row' ? 'n, v' : "json_build_object('i', $key, 'n', n, 'v', v)::text"
		. ($export->{bad} eq 'json' ? " || CASE WHEN $bad THEN '}' ELSE '' END" : '') . ' AS document';
	my %arguments = (
		batch => $export->{batch},
		server => "'$export->{server}'",
		value => $export->{form} eq 'row' ? q{'*'} : q{'document'},
		wait => $export->{wait} ? 'true' : 'false');
	$arguments{on_error} = q{'ignore'} if $export->{bad};
	$arguments{$_} = $export->{$_} for grep { $export->{$_} } qw(ttl rate reject_limit);
	$arguments{retry_timeout} = "'$export->{retry_timeout} ms'" if $export->{retry_timeout};
	return export_sql("SELECT $i AS i, $rest FROM source WHERE n <= $export->{count} ORDER BY n /* $run->{number} */",
		key_template => "'$export->{prefix}#{i}'", %arguments);
}

sub start_run
{
	my ($export) = @_;
	my $run = { number => ++$runs, export => $export, epoch => $epoch, log => -s $node->logfile, session => session($node),
		first => !$export->{tries}++, expected => {}, restarts => 0, demotions => 0 };
	if ($export->{bad} eq 'type' && $run->{first})
	{
		$redis->cli('EVAL', q{for n = ARGV[3], ARGV[2], ARGV[3] do redis.call('SET', ARGV[1] .. n % ARGV[2], 'mine') end}, 0,
			@$export{qw(prefix count)}, $BAD);
	}
	if ($export->{statement_timeout})
	{
		$run->{session}->query("SET statement_timeout = $export->{statement_timeout}");
		$run->{expected}{'canceling statement due to statement timeout'} = 1;
	}
	$run->{expected}{'gave up after no row was acknowledged for [\d.]+ seconds: '} = 1 if $export->{retry_timeout};
	my $sql = statement($run);
	$run->{session}->send($sql);
	$run->{session}->wait unless $export->{wait};
	return $run;
}

sub caller_waits
{
	my ($run) = @_;
	return $run->{export}{wait} && !$run->{caller_gone} && eval { $run->{session}->busy && $run->{session}{run}->pumpable };
}

# Has it ended? What the view says last is kept.
sub has_ended
{
	my ($run) = @_;
	return 1 if $run->{vanished};
	if (!$run->{row} || !$run->{row}{finished_at})
	{
		my $row = look($run);
		$run->{row} = $row if $row && $run->{epoch} == $epoch;
		$run->{vanished} = 1 if $run->{epoch} != $epoch;
		return 0 unless $run->{vanished} || ($row && $row->{finished_at});
	}
	return !caller_waits($run);
}

# ---- Faults --------------------------------------------------------------------------------------------------------------

# What is to happen: [ when, sub ].
my @agenda;
sub after { my ($delay, $sub) = @_; push @agenda, [ time + $delay, $sub ]; return }

# Of Redis, one fault at a time; the same for the line.
my %busy;
sub until_undone
{
	my ($where, $delay, $undo) = @_;
	$busy{$where} = 1;
	return after($delay, sub { $undo->(); delete $busy{$where} });
}

my @running;
sub victim { return one_of(grep { !$_->{row} || !$_->{row}{finished_at} } @running) }
sub restart { $_->{restarts}++ for @running; return }

# Of a job that runs: what its end may say from now on. The column is pid (of its worker) or job.
sub strike
{
	my ($run, $function, $column, $error) = @_;
	my $row = look($run);
	return 0 unless $row && defined $row->{$column} && !$row->{finished_at};
	$run->{expected}{$error} = 1;
	ask("SELECT coalesce($function($row->{$column})::text, 'null')");
	return 1;
}

sub strike_caller
{
	my ($run, $how, $error) = @_;
	return 0 unless $run && caller_waits($run);
	$run->{expected}{$error} = 1;
	$how->($run->{session}, $run);
	return 1;
}

# Each with where it is (nothing else may be wrong there), how likely it is, and what it does; it returns false if there was nothing to
# do it to.
my @kinds = (
	[ 'redis killed', redis => 3, sub { restart(); $redis->kill9; until_undone(redis => rand(1), sub { $redis->start }); 1 } ],
	[ 'redis stopped', redis => 1, sub { restart(); $redis->stop; until_undone(redis => rand(0.5), sub { $redis->start }); 1 } ],
	[ 'redis frozen', redis => 3, sub { $redis->freeze; until_undone(redis => between(0.1, 1.5), sub { $redis->thaw }); 1 } ],
	[ 'redis full', redis => 2, sub {
		$redis->cli('CONFIG', 'SET', 'maxmemory', 1);
		until_undone(redis => between(0.1, 1), sub { $redis->cli('CONFIG', 'SET', 'maxmemory', 0) }); 1 } ],
	[ 'redis demoted', redis => 2, sub {
		$redis->cli('REPLICAOF', '127.0.0.1', 1);
		$_->{demotions}++ for @running;
		until_undone(redis => between(0.1, 1), sub { $redis->cli('REPLICAOF', 'NO', 'ONE') }); 1 } ],
	[ 'clients killed', redis => 3, sub { $redis->cli('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes'); 1 } ],
	[ 'clients paused', redis => 2, sub { $redis->cli('CLIENT', 'PAUSE', int(between(100, 1200)), one_of(qw(WRITE ALL))); 1 } ],
	[ 'line cut', line => 3, sub { $proxy->raise('cut'); 1 } ],
	[ 'line stalled', line => 2, sub { $proxy->raise('stall'); until_undone(line => between(0.1, 1), sub { $proxy->lower('stall') }); 1 } ],
	[ 'job canceled', '' => 1, sub { strike(victim(), 'redis_export_cancel', 'job', 'the export was canceled by role "postgres"') } ],
	[ 'worker canceled', '' => 1, sub { strike(victim(), 'pg_cancel_backend', 'pid', 'canceling statement due to user request') } ],
	[ 'worker terminated', '' => 1, sub { strike(victim(), 'pg_terminate_backend', 'pid', 'terminating background worker') } ],
	[ 'caller canceled', '' => 1, sub { strike_caller(victim(), sub { $_[0]{run}->signal('INT') }, 'canceling statement due to user request') } ],
	[ 'caller terminated', '' => 1, sub { strike_caller(victim(), sub { ask('SELECT pg_terminate_backend(' . $_[0]->pid . ')') },
		'the session that waited for the export has ended|terminating connection') } ],
	[ 'caller gone', '' => 1, sub { strike_caller(victim(), sub { $_[0]->kill_client; $_[1]{caller_gone} = 1 }, 'the session that waited for the export has ended|connection to client') } ],
	[ 'backend killed', '' => 1, sub {
		my $pid = session($node)->pid;
		$epoch++;
		kill 'KILL', $pid;
		# it is down before it is up again
		eval { $control->query('SELECT 1') } or last for 1 .. 1000;
		lose_control();
		ask('SELECT 1'); 1 } ],
	[ 'postgres restarted', '' => 1, sub {
		my $begun = time;
		$told{orderly}{ $_->{number} } = 1 for grep { $_->{epoch} == $epoch } @running;
		$epoch++;
		$node->restart;
		ok(time - $begun < 30, 'PostgreSQL was restarted soon') if time - $begun >= 30;
		lose_control(); 1 } ]);

sub fault
{
	my $at = rand(sum0(map { $_->[2] } @kinds));
	my $kind = first { ($at -= $_->[2]) < 0 } @kinds;
	my ($name, $where, undef, $do) = @$kind;
	my $try;
	$try = sub {
		return unless victim();
		return after(0.1, $try) if $busy{$where};
		$faults{$name}++ if $do->();
	};
	return $try;
}

# ---- Was it right? -------------------------------------------------------------------------------------------------------

# Of an export's keys in Redis: how many are there, have an expiry, are not as they must be, and one of the latter. After an export that is
# done, each holds its last row; before, any row of its own, or none.
sub in_redis
{
	my ($export, $done) = @_;
	my @answer = $redis->cli('EVAL', q{
		local prefix, count, keys, nothing, ttl, done = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6] == '1'
		local strings = ARGV[7] == 'type'
		local there, expiring, wrong, example = 0, 0, 0, ''
		for key = 0, keys - 1 do
			local name = prefix .. key
			local last = count - (count - key) % keys
			while nothing > 0 and last > 0 and last % nothing == 0 do last = last - keys end
			local kind = redis.call('TYPE', name).ok
			local value, left = false, redis.call('PTTL', name)
			if kind == 'string' then value = redis.call('GET', name)
			elseif kind ~= 'none' then value = redis.call('JSON.GET', name) end
			local n = last
			if value and kind ~= 'string' then
				there = there + 1
				if not done then n = tonumber(string.match(value, '"n":(%d+)') or 0) end
			end
			if left > 0 then expiring = expiring + 1 end
			local expected = false
			if last < 1 then expected = strings and 'mine'
			elseif n % keys == key and n <= count then
				expected = '{"i":' .. key .. ',"n":' .. n .. ',"v":"value ' .. n .. string.rep('x', n % 200) .. '"}'
			end
			if value ~= expected and (done or value)
				or done and last >= 1 and (left > 0) ~= (ttl == "'1 hour'") then
				wrong = wrong + 1
				example = name .. ' (row ' .. last .. ', ttl ' .. left .. ') is ' .. string.sub(tostring(value), 1, 80)
			end
		end
		return {there, expiring, wrong, example}}, 0, @$export{qw(prefix count keys)}, $export->{bad} ? $BAD : 0, $export->{ttl}, $done ? 1 : 0, $export->{bad});
	die "no look into Redis: @answer" unless @answer >= 3 && "@answer[0 .. 2]" =~ /^\d+ \d+ \d+$/;
	return @answer;
}

sub forget
{
	my ($export) = @_;
	$redis->cli('EVAL', q{for key = 0, ARGV[2] - 1 do redis.call('UNLINK', ARGV[1] .. key) end}, 0, @$export{qw(prefix keys)});
	return;
}

# What is wrong with a run that has ended; nothing if nothing is.
sub problems
{
	my ($run) = @_;
	my ($export, $row) = @$run{qw(export row)};
	my @problems;
	my $out = $export->{wait} && !$run->{caller_gone} ? eval { join "\n", $run->{session}->wait } // '' : '';
	eval { $run->{session}->quit } unless $run->{caller_gone};
	my $state = $run->{state} = $run->{vanished} ? 'gone with PostgreSQL' : $row->{state};
	my $ledger;

	if (!$run->{vanished})
	{
		my $error = $row->{last_error} // '';
		if ($state ne 'done')
		{
			push @problems, "it is $state without a reason" unless grep { $error =~ $_ } keys %{ $run->{expected} };
		}
		push @problems, 'the ledger does not add up' if $row->{rows_read} != $row->{rows_written} + $row->{rows_failed} + $row->{rows_in_doubt};
		if ($state eq 'done')
		{
			push @problems, 'done, and rows are in doubt' if $row->{rows_in_doubt};
			push @problems, "rows_failed should be $export->{bad_rows}" if $row->{rows_failed} != $export->{bad_rows};
			push @problems, "rows_read should be $export->{count}" if $row->{rows_read} != $export->{count};
			if ($run->{epoch} == $epoch)
			{
				my $kept = ask("SELECT count(*) FROM redis_export_failures($row->{job})");
				push @problems, "$kept failures are kept" if $kept != min(100, $row->{rows_failed});
			}
		}
		push @problems, 'the caller was told otherwise: ' . $out
			if $export->{wait} && $run->{epoch} == $epoch && ($out =~ /ERROR:/) == ($state eq 'done')
			&& !grep { /the session that waited/ } keys %{ $run->{expected} };
		# two demotions in a row are taken for one that has cost data
		push @problems, "$row->{redis_restarts} restarts of Redis are told, and there were $run->{restarts}"
			if $row->{redis_restarts} > $run->{restarts} + ($run->{demotions} > 1 ? $run->{demotions} : 0);
		$ledger = [ @$row{qw(rows_written rows_in_doubt)} ];
		$acknowledged += $row->{rows_written};
		$reconnects += $row->{reconnects};
		$restarts += $row->{redis_restarts};
	}
	elsif ($told{orderly}{ $run->{number} } && $row)
	{
		# an orderly end is in the log
		my ($line) = slurp_file($node->logfile, $run->{log}) =~ /export job $row->{job} to server (.*)/;
		push @problems, 'its end is not in the log' unless $line;
		$ledger = [ $1, $2 ] if ($line // '') =~ /: (\d+) rows written, \d+ failed, (\d+) in doubt/;
	}

	my ($there, $expiring, $bad, $example) = in_redis($export, $state eq 'done');
	push @problems, "$bad keys are wrong in Redis: $example" if $bad;
	$wrong += $bad;
	if ($ledger && $run->{first} && $export->{keys} == $export->{count} && $state ne 'done')
	{
		my ($written, $doubt) = @$ledger;
		my $complete = $export->{ttl} eq q{'1 hour'} ? $expiring : $there;
		if ($complete < $written || $there > $written + $doubt)
		{
			push @problems, "written $written, in doubt $doubt, but Redis holds $there, $expiring of them with an expiry";
			$wrong++;
		}
	}
	return @problems;
}

# ---- Rounds --------------------------------------------------------------------------------------------------------------

# Exports that have to be run again.
my @unfinished;

sub round
{
	my ($exports, $faults) = @_;
	@running = map { start_run($_) } @$exports;
	after(rand(1.5), fault()) for 1 .. $faults;
	my $started = time;
	my $deadline = $started + $PATIENCE;
	while (1)
	{
		my ($due) = sort { $a->[0] <=> $b->[0] } @agenda;
		if ($due && $due->[0] <= time)
		{
			@agenda = grep { $_ != $due } @agenda;
			$due->[1]->();
			next;
		}
		my @still = grep { !has_ended($_) } @running;
		last if !@still && !%busy;
		if (time > $deadline)
		{
			fail("run $_->{number} ends"), diag explain({ %$_, session => undef, view => look($_) }) for @still;
			diag ask(q{SELECT string_agg(concat_ws(' ', pid, backend_type, state, wait_event_type, wait_event, query), E'\n') FROM pg_stat_activity});
			die "no end after $PATIENCE seconds\n";
		}
		sleep 0.05;
	}
	@agenda = ();
	note sprintf 'round of %d: %.1f s', scalar @running, time - $started;

	# What the kernel had still kept for Redis is with it when all connections have gone.
	my $connections;
	for (1 .. 200)
	{
		$connections = () = $redis->cli('CLIENT', 'LIST') =~ / name=redis_export /g;
		last unless $connections;
		sleep 0.1;
	}
	is($connections, 0, 'no connection is left') if $connections;

	for my $run (@running)
	{
		my $export = $run->{export};
		my @problems = problems($run);
		$ends{ $run->{state} }++;
		ok(!@problems, "run $run->{number}: $run->{state}") or diag join "\n", "seed $seed, run $run->{number}:", @problems,
			explain({ %$run, session => undef });
		if ($run->{state} eq 'done')
		{
			forget($export);
			$again++ unless $run->{first};
			next;
		}
		delete @$export{qw(statement_timeout retry_timeout)};
		push @unfinished, $export;
	}
	@running = ();
	return;
}

sub say_aloud
{
	print { Test::More->builder->failure_output } @_, "\n" if $ENV{SOAK_REPORT};
	return;
}

my $begun = time;
my $said = $begun;
while (time - $begun < $seconds)
{
	my @exports = splice @unfinished, 0, 1 + int(rand(2));
	my $at_once = one_of(1, 2, 3, 4);
	push @exports, new_export() while @exports < $at_once;
	round(\@exports, one_of(0 .. 6));
	next if time - $said < 30;
	$said = time;
	say_aloud(sprintf 'soak: %d s, %d runs, %d faults, %d rows acknowledged, %d wrong', time - $begun, $runs, sum0(values %faults), $acknowledged, $wrong);
}
# In the end, and undisturbed, all exports are done.
for (1 .. 20)
{
	round([ splice @unfinished, 0, 3 ], 0) if @unfinished;
}
is(scalar @unfinished, 0, 'all exports are done in the end');
is($wrong, 0, 'nothing is wrong in Redis');
is(redis_keys_count($redis), 0, 'no key is there that was not meant to be');
no_worker_left($node);
my $log = slurp_file($node->logfile);
my $crashes = () = $log =~ /was terminated by signal/g;
is($crashes, $faults{'backend killed'} // 0, 'no process crashed by itself');
unlike($log, qr/PANIC|TRAP:|corrupt/i, 'nor is there worse in the log');

my %summary = (seed => $seed, seconds => int(time - $begun), exports => $told{exports}, runs => $runs, ends => \%ends, faults => \%faults,
	rows_acknowledged => $acknowledged, reconnects => $reconnects, redis_restarts => $restarts, completed_by_a_later_run => $again, wrong => $wrong);
my $list = sub { my ($of) = @_; return join ', ', map { "$of->{$_} $_" } sort { $of->{$b} <=> $of->{$a} || $a cmp $b } keys %$of };
note my $text = join "\n", "soak: seed $seed, $summary{seconds} s",
	"$told{exports} exports in $runs runs, of which ended: " . $list->(\%ends),
	sum0(values %faults) . ' faults: ' . $list->(\%faults),
	"$acknowledged rows acknowledged, $reconnects reconnects, $restarts restarts of Redis seen, $again exports completed by a later run, $wrong wrong";
say_aloud($text);
say_aloud(JSON::PP->new->canonical->encode(\%summary));
done_testing;
