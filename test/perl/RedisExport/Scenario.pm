# RedisExport::Scenario: one compact scenario for many servers: every kind of export, what follows it, refusals, a server that is killed
# or hangs, a sentinel, a cluster.
#
#   try_servers([ 'Redis of Debian 13', fetched('redis-trixie') ], [ 'Redis 8.2', { program => '/…', modules => ['rejson'] } ]);
#
# Each is a subtest, named by the version that the server tells itself. A server that is not there is skipped, by name. fetched() is what
# test/servers has left in a folder of .deps/servers/.
package RedisExport::Scenario;

use strict;
use warnings;
use Exporter 'import';
use POSIX ();
use RedisExport::Cluster;
use RedisExport::Jobs;
use RedisExport::Named;
use RedisExport::Sentinel qw(redis_group sentinel_server told_master);
use RedisExport::Test;

our @EXPORT = qw(try_servers fetched);

my $node;
my $count = 0;

sub fetched
{
	my ($name) = @_;
	my $folder = "$ENV{REDIS_BINARIES}/servers/$name";
	return { program => "$folder/server", modules => [ -e "$folder/modules" ? split ' ', slurp_file("$folder/modules") : () ] };
}

sub try_servers
{
	my (@servers) = @_;
	my %seen;
	$node = new_node(undef, conf => "redis_export.notice_interval = 0\nmax_worker_processes = 20\n");
	$node->safe_psql('postgres', q{CREATE TABLE people AS SELECT i AS id, 'Ada ' || i AS name, ARRAY[i, 0.5]::real[] AS spot,
		timestamptz '2026-01-01' + i * interval '1 hour' AS changed FROM generate_series(1, 1000) AS i});
	for my $entry (@servers)
	{
		my ($name, $server) = @$entry;
	  SKIP:
		{
			skip "$name is not here: test/servers fetches it", 1 unless -x $server->{program};
			my $version = version_of($server);
			skip "$name is $version, which was tried already", 1 if $seen{$version}++;
			subtest "$name: $version" => sub { scenario($server) };
		}
	}
	return;
}

# As it says itself: of Valkey, redis_version is that of the Redis that it can stand for.
sub version_of
{
	my ($server) = @_;
	return "$1 $2" if `$server->{program} --version` =~ /^(\w+) server v=([\d.]+)/;
	die "$server->{program} tells no version";
}

# An export that has begun, and from then on is so slow that there are minutes to do something to it; and the rest of it, as fast as it goes.
sub begin_slowly
{
	my ($template, $at, %arguments) = @_;
	my $id = begin_job($node, hash_sql('SELECT i AS id, i AS v FROM generate_series(1, 1000) AS i', $template, server => "'$at'", rate => 100, batch => 10, %arguments));
	until_written($node, $id, 30);
	$node->safe_psql('postgres', "SELECT redis_export_set_rate($id, 5)");
	return $id;
}

sub finish_ok
{
	my ($id) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->safe_psql('postgres', "SELECT redis_export_set_rate($id, NULL)");
	return done_ok($node, $id, 1000);
}

# A foreign server with a name of its own for each Redis.
sub foreign
{
	my ($redis, %options) = @_;
	my $name = 'server_' . ++$count;
	add_server($node, $redis, name => $name, %options);
	return $name;
}

sub value { my ($sql) = @_; return scalar $node->safe_psql('postgres', $sql) }

sub scenario
{
	my ($server) = @_;
	my %modules = map { $_ => 1 } @{ $server->{modules} };
	my $is_old = version_of($server) =~ / 6\./;
	# with conf that 6.2 does not know left out
	my %program = (%$server, conf => { ($is_old ? ('enable-debug-command' => undef) : ()) });
	my %options = (%program, conf => { %{ $program{conf} }, appendonly => 'yes', 'lua-time-limit' => 100 });
	my $redis = RedisExport::Redis->new(%options);
	my $at = foreign($redis, timeout => 2);
	note(join ', ', 'modules: ' . (join(' ', sort keys %modules) || 'none'));

	subtest 'hashes' => sub {
		like(value(hash_sql('SELECT id, name, spot FROM people', 'h:#{id}', server => "'$at'", ttl => q{'1 hour'})), qr/\|done$/, 'an export');
		is($redis->cli('HGET', 'h:7', 'name'), 'Ada 7', 'a field');
		cmp_ok($redis->cli('PTTL', 'h:7'), '>', 3_000_000, 'an expiry');
		$redis->cli('HSET', 'h:7', 'more', '1');
		like(value(hash_sql('SELECT id, name, spot FROM people', 'h:#{id}', server => "'$at'", replace => 'true')), qr/\|done$/, 'with replace');
		is($redis->cli('HLEN', 'h:7'), 3, 'nothing else stays');
		is($redis->cli('PTTL', 'h:7'), -1, 'nor the expiry');
		is(value("SELECT count(*) FROM redis_hash_scan('$at', 'h:*')"), 1000, 'all are scanned');
		ledger_ok($node);
	};

	subtest 'verify and prune' => sub {
		my $query = 'SELECT id, name, spot FROM people';
		my $run = sub {
			my ($rows, @how) = @_;
			return value(run_sql($node, 'kept', $rows, 'p:#{id}', type => q{'hash'}, server => "'$at'", replace => 'true', @how));
		};
		my $verify = q{SELECT expected, missing, different, extra, unknown FROM redis_export_verify('kept')};
		$run->("$query UNION ALL SELECT 1001, name, NULL FROM people WHERE id = 1");
		is(value($verify), '1001|0|0|0|0', 'all is as it should be');
		$redis->cli('HSET', 'p:8', 'more', '1');
		$redis->cli('DEL', 'p:9');
		$redis->cli('HSET', 'p:2000', 'name', 'Eve');
		is(value($verify), '1001|1|1|0|1', 'and what is not, is seen');
		like($run->($query, rows => q{'all'}, prune => 'true'), qr/^\d+\|done\|1000\|1000\|0\|0\|1\|$/, 'prune: what no row has, goes');
		is(value($verify), '1000|0|0|0|1', 'then all is as it should be, but for a key of somebody else');
	};

	subtest 'only what has changed' => sub {
		my $run = sub { my ($query) = @_; return value(run_sql($node, 'changed', $query, 'c:#{id}', type => q{'hash'}, server => "'$at'")) };
		$run->('SELECT id, name FROM people') for 1, 2;
		is(job($node)->{rows_unchanged}, 1000, 'nothing');
		$redis->cli('DEL', 'c:9');
		$run->(q{SELECT id, CASE WHEN id = 5 THEN 'Eve' ELSE name END AS name FROM people});
		is(join(' ', @{ job($node) }{qw(rows_written rows_unchanged)}), '2 998', 'two rows');
		is($redis->cli('HGET', 'c:5', 'name'), 'Eve', 'one of them');
		ledger_ok($node);
	};

	subtest 'only what is newer' => sub {
		my $sql = run_sql($node, 'newer', 'SELECT id, changed FROM people', 'm:#{id}', type => q{'hash'}, server => "'$at'",
			watermark_column => q{'changed'}, overlap => q{'90 minutes'}, rows => q{'new'});
		value($sql);
		value($sql);
		is(job($node)->{rows_read}, 2, 'the second time, what is in the overlap');
		is($redis->cli('HGET', 'redis_export:{newer}', 'mark_column'), 'changed', 'the mark is there');
		value(q{SELECT redis_export_set_mark('newer', NULL)});
		is($redis->cli('HGET', 'redis_export:{newer}', 'mark'), '', 'and is forgotten');
	};

	subtest 'commands, and rows that fail' => sub {
		like(value(command_sql('SELECT id FROM people', [ 'ZADD', 'board', '#{id}', 'm#{id}' ], server => "'$at'")), qr/\|done$/, 'ZADD');
		is($redis->cli('ZCARD', 'board'), 1000, 'all members are there');
		$redis->cli('SET', 'l:3', 'no list');
		value(command_sql('SELECT id FROM people', [ 'RPUSH', 'l:#{id}', '#{id}' ], server => "'$at'", on_error => q{'ignore'}));
		is(join(' ', @{ job($node) }{qw(state rows_written rows_failed)}), 'done 999 1', 'one row fails');
		like(value('SELECT key, sqlstate, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress))'), qr/42809\|.*WRONGTYPE/, 'with its error');
		value(command_sql('SELECT id FROM people WHERE id <= 3', [ 'SET', 'h:#{id}', '1', 'NX' ], server => "'$at'", on_error => q{'ignore'}));
		is(job($node)->{rows_failed}, 3, 'conditions that do not hold');
		like(sql_error($node, command_sql('SELECT 1 AS id', [ 'NOSUCH', '#{id}' ], server => "'$at'"), verbose => 1), qr/^ERROR:  42883: .*unknown command/, 'no such command');
		ledger_ok($node);
	};

	subtest 'JSON' => sub {
		my $export = run_sql($node, 'documents', 'SELECT id, name FROM people', 'j:#{id}', server => "'$at'", value => q{'*'});
		if (!$modules{rejson})
		{
			like(sql_error($node, $export, verbose => 1), qr/^ERROR:  42883: .*HINT:  This Redis has no JSON\. Load the module RedisJSON or valkey-json/s, 'is told to be missing');
			return;
		}
		like(value($export), qr/^\d+\|done\|/, 'an export');
		is($redis->cli('JSON.GET', 'j:7'), '{"id":7,"name":"Ada 7"}', 'a document');
		value($export);
		is(job($node)->{rows_unchanged}, 1000, 'nothing has changed');
		value(export_sql('SELECT id, name FROM people', key_template => q{'g:#{id}'}, server => "'$at'", value => q{'*'}));
		value(export_sql(q{SELECT 7 AS id, 'x' AS more}, key_template => q{'g:#{id}'}, server => "'$at'", exclude => q{'{id}'}, merge => 'true'));
		is($redis->cli('JSON.GET', 'g:7'), '{"id":7,"name":"Ada 7","more":"x"}', 'merged');
		is(value("SELECT expected, missing, different FROM redis_export_verify('SELECT id, name FROM people', 'g:#{id}', server => '$at', value => '*')"), '1000|0|1', 'verify');
		is(value("SELECT document->>'name' FROM redis_json_scan('$at', 'j:8')"), 'Ada 8', 'a scan');
	};

	subtest 'search' => sub {
		my $export = hash_sql('SELECT id, name FROM people', 's:#{id}', server => "'$at'", wait_index => q{'people'});
		if (!$modules{redisearch})
		{
			like(sql_error($node, $export, verbose => 1), qr/^ERROR:  42883: .*HINT:  This Redis has no search/s, 'is told to be missing');
			return;
		}
		$redis->cli(qw(FT.CREATE people ON HASH PREFIX 1 s: SCHEMA name TEXT));
		like(value($export), qr/\|done$/, 'an export that waits for the index');
		is(($redis->cli(qw(FT.SEARCH people ada LIMIT 0 1)))[0], 1000, 'all are found');
	};

	subtest 'rights and passwords' => sub {
		$redis->cli('ACL', 'SETUSER', 'app', 'on', '>secret', '~r:*', '+@all', '-rpush', '-info');
		$node->safe_psql('postgres', "CREATE USER MAPPING FOR CURRENT_USER SERVER $at OPTIONS (username 'app', password 'wrong')");
		like(sql_error($node, hash_sql('SELECT id FROM people', 'r:#{id}', server => "'$at'"), verbose => 1), qr/^ERROR:  28P01: .*WRONGPASS/, 'a wrong password');
		$node->safe_psql('postgres', "ALTER USER MAPPING FOR CURRENT_USER SERVER $at OPTIONS (SET password 'secret')");
		like(value(hash_sql('SELECT id FROM people', 'r:#{id}', server => "'$at'")), qr/\|done$/, 'a user that may not ask INFO');
		like(sql_error($node, command_sql('SELECT id FROM people', [ 'RPUSH', 'r:l', '#{id}' ], server => "'$at'"), verbose => 1),
			qr/^ERROR:  42501: .*NOPERM.*HINT:  Grant the Redis user the command/s, 'a command that it may not use ends the job');
		value(hash_sql(q{SELECT id, CASE WHEN id = 5 THEN 'x' ELSE 'r' END AS t FROM people}, '#{t}:#{id}', server => "'$at'", on_error => q{'ignore'}));
		is(job($node)->{rows_failed}, 1, 'a key that it may not use is the row\'s failure');
		like(value('SELECT sqlstate, message FROM redis_export_failures((SELECT max(job) FROM redis_export_progress))'), qr/^42501\|.*NOPERM/, 'with its error');
		$node->safe_psql('postgres', "DROP USER MAPPING FOR CURRENT_USER SERVER $at");
	};

	subtest 'refused for a moment' => sub {
		my %refusals = (
			OOM => [ sub { $redis->cli(qw(CONFIG SET maxmemory 1)) }, sub { $redis->cli(qw(CONFIG SET maxmemory 0)) } ],
			NOREPLICAS => [ sub { $redis->cli(qw(CONFIG SET min-replicas-to-write 1)) }, sub { $redis->cli(qw(CONFIG SET min-replicas-to-write 0)) } ],
			BUSY => [ sub { hang($redis) }, sub { until_answer($redis, 'OK', qw(SCRIPT KILL)) } ]);
		for my $word (sort keys %refusals)
		{
			my ($begin, $end) = @{ $refusals{$word} };
			my $id = begin_slowly('w:#{id}', $at);
			$begin->();
			until_state($node, $id, 'retrying');
			like(job($node, $id)->{last_error}, qr/$word /, "$word is waited out");
			$end->();
			finish_ok($id);
		}
	};

	subtest 'Redis is killed and started again' => sub {
		my $id = begin_slowly('k:#{id}', $at);
		$redis->kill9;
		until_state($node, $id, 'retrying');
		$redis->start;
		my $row = finish_ok($id);
		is($row->{redis_restarts}, 1, 'which is told');
		is(redis_keys_count($redis, 'k:*'), 1000, 'all rows are there');
	};

	subtest 'Redis hangs' => sub {
		my $id = begin_slowly('f:#{id}', $at);
		$redis->freeze;
		until_state($node, $id, 'retrying');
		$redis->thaw;
		my $row = finish_ok($id);
		cmp_ok($row->{reconnects}, '>=', 1, 'over another connection');
		is($row->{redis_restarts}, 0, 'it was not restarted');
		is(redis_keys_count($redis, 'f:*'), 1000, 'all rows are there');
	};
	$redis->stop;

	subtest 'a sentinel, and a replica that takes over' => sub {
		my @group = redis_group(1, %program, modules => []);
		my $sentinel = RedisExport::Sentinel->new(%program, modules => [])->watch('main', $group[0]->port);
		wait_for('the sentinel knows the replica', sub { $sentinel->about('main', 'num-slaves') eq '1' });
		my $by = sentinel_server($node, [$sentinel], 'main', name => 'server_' . ++$count, timeout => 2);
		like(value(hash_sql('SELECT id FROM people', 'h:#{id}', server => "'$by'", wait_replicas => 1)), qr/\|done$/, 'an export that waits for the replica');
		is(redis_keys_count($group[1], 'h:*'), 1000, 'which has all');
		like(sql_error($node, export_sql('SELECT 1 AS id', server => "'$by'"), verbose => 1), qr/^ERROR:  42883: .*HINT:  This Redis has no JSON/s, 'it has no JSON, and the hint says so');
		like(sql_error($node, hash_sql('SELECT 1 AS id', 'h:#{id}', server => q{'} . foreign($group[1]) . q{'}, retry_timeout => q{'1 s'}), verbose => 1),
			qr/READONLY|replica/, 'a replica is not written to');

		my $id = begin_slowly('o:#{id}', $by, wait_replicas => 1);
		until_answer($sentinel, 'OK', qw(SENTINEL FAILOVER main));
		wait_for('the replica is the master', sub { told_master('main', $sentinel) == $group[1]->port });
		my $row = finish_ok($id);
		cmp_ok($row->{redis_restarts}, '>=', 1, 'the take-over is told');
		is(redis_keys_count($group[1], 'o:*'), 1000, 'all rows are at the new master');
		$_->stop for $sentinel, @group;
	};

	subtest 'a cluster' => sub {
		plan skip_all => 'the cluster of these tests needs 7.0 or later' if $is_old;
		my $cluster = RedisExport::Cluster->new(program => $server->{program}, replicas => 1);
		my $in = foreign($cluster, timeout => 2);
		like(value(run_sql($node, 'cluster', 'SELECT id, name FROM people', 'h:#{id}', type => q{'hash'}, server => "'$in'", prune => 'true')), qr/^\d+\|done\|/, 'an export');
		is(value("SELECT count(*) FROM redis_scan('$in', 'h:*')"), 1000, 'all keys are scanned');
		is(value("SELECT expected, missing, different FROM redis_export_verify('SELECT id, name FROM people', 'h:#{id}', server => '$in', type => 'hash')"), '1000|0|0', 'verify');

		my ($one, $other, $third) = $cluster->masters;
		my ($replica) = $cluster->replicas_of($third);
		my $id = begin_slowly('a:#{id}', $in);
		my @slots = ($cluster->slots_of($one))[ 0 .. 999 ];
		my $how = move_slots($cluster, $one, $other, @slots);
		is($cluster->owner($slots[0]), $other, "slots have moved, $how");
		$cluster->failover($replica);
		is(job($node, $id)->{finished_at}, undef, 'and a replica has taken over, before the rows are written');
		finish_ok($id);
		is_deeply([ $cluster->values_of(map { "a:$_" } 1 .. 1000) ], [ 1 .. 1000 ], 'all rows are where they belong');
		$_->stop for $cluster->nodes;
	};
	return;
}

# A script that runs until it is killed; returns when others are refused.
sub hang
{
	my ($redis) = @_;
	my $pid = fork // die "fork: $!";
	if (!$pid)
	{
		open STDOUT, '>', '/dev/null';
		open STDERR, '>', '/dev/null';
		exec('redis-cli', '-p', $redis->port, 'EVAL', 'while true do end', 0) or POSIX::_exit(127);
	}
	return wait_for('Redis is busy', sub { $redis->cli('GET', 'x') =~ /^BUSY/ });
}

sub until_answer
{
	my ($redis, $answer, @command) = @_;
	return wait_for("@command: $answer", sub { $redis->cli(@command) eq $answer });
}

# As one, where the server knows how: Valkey 9 and Redis 8.4 each in a way of their own; else key by key.
sub move_slots
{
	my ($cluster, $from, $to, @slots) = @_;
	my $id = $cluster->id($to);
	my @ranges = ($slots[0], $slots[-1]);
	my $moved = sub { return $cluster->owner($slots[0]) == $to && $cluster->owner($slots[-1]) == $to };
	if (eval { $cluster->raw($from)->command('CLUSTER', 'MIGRATESLOTS', 'SLOTSRANGE', @ranges, 'NODE', $id); 1 }
		|| eval { $cluster->raw($to)->command('CLUSTER', 'MIGRATION', 'IMPORT', @ranges); 1 })
	{
		wait_for('the slots have moved', $moved);
		return 'all at once';
	}
	$cluster->move($from, $to, @slots);
	wait_for('the slots have moved', $moved);
	return 'slot by slot';
}

1;
